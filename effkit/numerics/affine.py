"""Symmetric integer quantization: real = scale * integer, no zero point.

Source: Jacob et al. 2018, arXiv 1712.05877, section 2.1; symmetric range [-(2^(b-1)-1), 2^(b-1)-1] as in
arXiv 2004.09602, section 3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from effkit.errors import EffkitError


def integer_limit(bits: int) -> int:
    """Largest magnitude of a symmetric ``bits``-bit integer: 127 for 8 bits, 7 for 4."""
    return int(2 ** (bits - 1)) - 1


def symmetric_scale(weight: Tensor, *, dim: int | tuple[int, ...], bits: int = 8) -> Tensor:
    """Scale that maps the largest magnitude along ``dim`` onto the largest integer.

    Args:
        weight: any float tensor.
        dim: dimensions that share one scale; kept with size 1.
        bits: width of the integers.

    Returns:
        float32, shape of ``weight`` with ``dim`` of size 1. Where all of ``weight`` is zero, or so small that the
        scale would not be a normal number, the scale is 1, so that zeros come back as exact zeros and nothing
        divides by zero.
    """
    scale = weight.abs().amax(dim=dim, keepdim=True).float() / integer_limit(bits)
    smallest = torch.finfo(torch.float32).tiny
    return torch.where(scale < smallest, torch.ones_like(scale), scale)


def quantize_symmetric(weight: Tensor, scale: Tensor, *, bits: int = 8) -> Tensor:
    """Round ``weight / scale`` half to even and clip to the symmetric range.

    Args:
        weight: float tensor.
        scale: float32, broadcastable to ``weight``, positive.
        bits: width of the integers, at most 8.

    Returns:
        int8 tensor of ``weight``'s shape, contiguous.
    """
    limit = integer_limit(bits)
    return (weight.float() / scale).round_().clamp_(-limit, limit).to(torch.int8).contiguous()


def dequantize_symmetric(integers: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return ``integers * scale``; the product is taken in float32 and then cast to ``dtype``."""
    return (integers.float() * scale).to(dtype)


def quantize_rows(activations: Tensor, *, bits: int = 8) -> tuple[Tensor, Tensor]:
    """Quantize each row (token) with its own scale, as dynamic per-token activation quantization does.

    Args:
        activations: float tensor [..., features].
        bits: width of the integers, at most 8.

    Returns:
        (int8 [..., features], float32 scale [..., 1]).
    """
    scale = symmetric_scale(activations, dim=-1, bits=bits)
    return quantize_symmetric(activations, scale, bits=bits), scale


def require_finite(weight: Tensor, name: str) -> None:
    """Refuse a tensor that holds NaN or infinity.

    Raises:
        EffkitError: names the tensor, how many elements are at fault and the first of them.
    """
    finite = torch.isfinite(weight.float() if weight.dtype == torch.float64 else weight)  # scales are float32
    if bool(finite.all()):
        return
    wrong = (~finite).nonzero()
    where = ", ".join(str(int(index)) for index in wrong[0])
    raise EffkitError(
        f"{name} holds {len(wrong)} values that are NaN or infinite (the first at [{where}]); "
        "repair the checkpoint or list the layer under skip:"
    )
