"""INT8 linear layers by torch's own operators.

The sum over the input dimension is taken in float32 (or exactly, in int32) before the scale is applied, so that
float16 inputs cannot overflow on the way.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from effkit.kernels.select import Call, Kernel, register, select
from effkit.numerics.affine import dequantize_symmetric, quantize_rows

BLOCK_ELEMENTS = 1 << 20
"""Weights are expanded in blocks of this many elements: 4 MiB in float32, which stays in the cache."""

GEMV_ROWS = 16
"""Up to this many rows the bfloat16 GEMV beats expanding the weight (measured: tools/benchmarks/int8_linear.py)."""

GEMV_STEP = 16
"""torch._weight_int8pack_mm reads the input dimension in steps of 16 and past its end otherwise: wrong sums or a
segmentation fault on torch 2.13 CPU (every in_features from 1 to 128 that is no multiple of 16 was tried)."""


def int8_linear(input: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None, activations: str) -> Tensor:
    """x (weight * scale)^T + bias.

    Args:
        input: [..., in_features], float32, bfloat16 or float16; cast first where autocast is on.
        weight: int8 [out_features, in_features].
        scale: float32 [out_features, 1].
        bias: [out_features] or None.
        activations: ``none`` or ``dynamic-token`` (each row of ``input`` is rounded to int8 with its own scale).

    Returns:
        [..., out_features] in the input's dtype, or autocast's.
    """
    device = input.device.type
    if torch.is_autocast_enabled(device):
        input = input.to(torch.get_autocast_dtype(device))
    out_features, in_features = weight.shape
    rows = input.reshape(-1, in_features)
    needs_grad = torch.is_grad_enabled() and input.requires_grad
    scheme = "int8-weight-only" if activations == "none" else "int8-dynamic-token"
    call = Call(scheme, device, rows.shape[0], in_features, out_features, input.dtype, needs_grad)
    output = select(call).kernel.run(rows, weight, scale)
    if bias is not None:
        output = output + bias.to(output.dtype)
    return output.reshape(*input.shape[:-1], out_features)


def _gemv_refuses(call: Call) -> str:
    if call.rows == 0 or call.rows > GEMV_ROWS:
        return f"{call.rows} rows; it gains up to {GEMV_ROWS}"
    if call.in_features % GEMV_STEP:
        return f"{call.in_features} input features are not divisible by {GEMV_STEP}"
    if call.dtype not in (torch.float32, torch.bfloat16):
        return f"{call.dtype} inputs would lose range"
    if call.needs_grad:
        return "it has no backward"
    return ""


def _gemv_bf16(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    output = torch._weight_int8pack_mm(rows.bfloat16(), weight, scale.flatten().bfloat16())
    return output.to(rows.dtype)


def _int_mm_refuses(call: Call) -> str:
    if call.needs_grad:
        return "it has no backward"
    if call.rows <= 16:
        return f"{call.rows} rows; torch._int_mm needs more than 16"
    if call.in_features % 8 or call.out_features % 8:
        return f"{call.out_features}x{call.in_features} is not divisible by 8"
    return ""


def _int_mm(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    integers, row_scale = quantize_rows(rows)
    sums = torch._int_mm(integers, weight.t())  # int32 [rows, out], exact
    return (sums.float() * row_scale * scale.flatten()).to(rows.dtype)


def _expand(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Reference for weight-only: expand blocks of output channels to float and multiply."""
    out_features, in_features = weight.shape
    step = max(1, BLOCK_ELEMENTS // max(1, in_features))
    if step >= out_features:
        return _expand_block(rows, weight, scale)
    pairs = zip(torch.split(weight, step), torch.split(scale, step), strict=True)
    return torch.cat([_expand_block(rows, *pair) for pair in pairs], dim=1)


def _expand_block(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    if rows.device.type != "cpu":
        return functional.linear(rows, dequantize_symmetric(weight, scale, rows.dtype))
    # integers up to 127 are exact in bfloat16; float16 sums could overflow, so float16 goes through float32
    compute = torch.bfloat16 if rows.dtype == torch.bfloat16 else torch.float32
    sums = functional.linear(rows.to(compute), weight.to(compute))
    return (sums.float() * scale.flatten()).to(rows.dtype)


def _fake_quantized(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Reference for dynamic-token: integers held in floats; the gradient passes straight through the rounding."""
    integers, row_scale = quantize_rows(rows.detach())
    if torch.is_grad_enabled() and rows.requires_grad:
        rounded = dequantize_symmetric(integers, row_scale, rows.dtype)
        return _expand(rows + (rounded - rows).detach(), weight, scale)
    return (_expand(integers.float(), weight, scale) * row_scale).to(rows.dtype)


register(
    Kernel(
        name="int8-gemv-bf16",
        scheme="int8-weight-only",
        device="cpu",
        summary="torch._weight_int8pack_mm for few rows: reads a quarter of FP32's bytes; inputs, scale and outputs "
        "are rounded to bfloat16 (relative error about 0.3 %, below the weights' own rounding)",
        refuses=_gemv_refuses,
        run=_gemv_bf16,
    )
)
register(
    Kernel(
        name="int8-int-mm",
        scheme="int8-dynamic-token",
        device="cuda",
        summary="torch._int_mm: int8 x int8 tensor cores with exact int32 sums",
        refuses=_int_mm_refuses,
        run=_int_mm,
    )
)
register(
    Kernel(
        name="int8-expand",
        scheme="int8-weight-only",
        device="any",
        summary="expands blocks of the weight to float in the cache and multiplies there; the reference",
        refuses=lambda _: "",
        run=_expand,
    )
)
register(
    Kernel(
        name="int8-fake-quantized",
        scheme="int8-dynamic-token",
        device="any",
        summary="int8 values held in floats: the arithmetic of W8A8 without its speed; the reference",
        refuses=lambda _: "",
        run=_fake_quantized,
    )
)
