"""Accuracy under one protocol: the same windows, scored tokens and aggregation for baseline and variants."""

from effkit.measure.accuracy.baseline import BaselineStore, BaselineWriter
from effkit.measure.accuracy.outputs import compare_outputs, evaluate_outputs, output_distances
from effkit.measure.accuracy.protocol import text_protocol
from effkit.measure.accuracy.text import evaluate_text
from effkit.measure.accuracy.windows import Windows, encoder_windows, windows

__all__ = [
    "BaselineStore",
    "BaselineWriter",
    "Windows",
    "compare_outputs",
    "encoder_windows",
    "evaluate_outputs",
    "evaluate_text",
    "output_distances",
    "text_protocol",
    "windows",
]
