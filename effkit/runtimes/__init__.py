"""What runs a model: one protocol for text models, one for models whose result is a vector, and their runtimes.

Measuring code sees only these protocols, so a compiled model or an onnxruntime session can take the place of the
eager one without a change to any measurement.
"""

from effkit.runtimes.base import EncoderRuntime, TextRuntime, TextState
from effkit.runtimes.eager import EagerEncoder, EagerRuntime, eager_runtime
from effkit.runtimes.generate import greedy

__all__ = ["EagerEncoder", "EagerRuntime", "EncoderRuntime", "TextRuntime", "TextState", "eager_runtime", "greedy"]
