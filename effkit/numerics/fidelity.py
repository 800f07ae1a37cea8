"""How close an approximation is. Cosine alone cannot see a wrong global scale, so relative error stands beside it."""

from __future__ import annotations

import math

from torch import Tensor


def relative_error(approximation: Tensor, reference: Tensor) -> float:
    """||approximation - reference|| / ||reference|| in float64; 0 for two zero tensors, infinity against zero."""
    difference = float((approximation.detach().double() - reference.detach().double()).norm())
    size = float(reference.detach().double().norm())
    if size == 0.0:
        return 0.0 if difference == 0.0 else math.inf
    return difference / size


def sqnr_db(approximation: Tensor, reference: Tensor) -> float:
    """Signal to quantization noise in decibel; infinity where nothing was lost."""
    error = relative_error(approximation, reference)
    return math.inf if error == 0.0 else -20.0 * math.log10(error) if math.isfinite(error) else -math.inf


def cosine_similarity(approximation: Tensor, reference: Tensor) -> float:
    """Cosine of the angle between the flattened tensors, in float64; 0 where one of them is zero."""
    a, b = approximation.detach().double().flatten(), reference.detach().double().flatten()
    norms = float(a.norm() * b.norm())
    return float(a @ b) / norms if norms else 0.0
