"""A study small enough for tests: a tiny Llama, four short windows, a few samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from effkit.recipe import Recipe
from effkit.study import StudyConfig
from effkit.suite import Suite
from tests.tiny import save_tiny

INT8 = Recipe.from_dict({"name": "int8", "passes": [{"use": "int8"}]})
HEAD_DENSE = Recipe.from_dict({"name": "int8", "passes": [{"use": "int8", "skip": ["lm_head", "model.embed_tokens"]}]})

SUITE_YAML = """name: small
description: four short windows
text: text.txt
window: 64
stride: 64
windows: 4
kl_windows: 2
prompt_tokens: 16
decode_context: 4
decode_tokens: 4
decode_batches: [1, 8]
warmup: 1
repeats: 3
"""


def write_model(folder: Path, **options: Any) -> Path:
    """Save a tiny model and tokenizer."""
    return save_tiny(folder / "model", **options)


def write_suite(folder: Path) -> Path:
    """Save a small suite and its text."""
    (folder / "text.txt").write_text("the cat and the dog in the end, and then a thing or another. " * 60)
    path = folder / "small.yaml"
    path.write_text(SUITE_YAML)
    return path


def small_suite(folder: Path) -> Suite:
    """The same suite as a value."""
    from effkit.suite import load_suite

    return load_suite(write_suite(folder))


def config(folder: Path, **changes: Any) -> StudyConfig:
    """FP32 and INT8 of the tiny model."""
    settings: dict[str, Any] = {
        "source": str(folder / "model"),
        "recipes": (INT8,),
        "suites": (small_suite(folder),),
        "out": folder / "run",
        "device": "cpu",
        "include_bf16": False,
    }
    return StudyConfig(**{**settings, **changes})
