"""Every INT8 kernel agrees with the reference on every shape it accepts, and the choice says why."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from effkit.kernels import Call, available_kernels, native, select
from effkit.kernels.int8 import BLOCK_ELEMENTS, GEMV_ROWS
from effkit.numerics.affine import dequantize_symmetric, quantize_rows, quantize_symmetric, symmetric_scale
from effkit.numerics.fidelity import relative_error

STATED_ERROR = {torch.float32: 0.006, torch.bfloat16: 0.012, torch.float16: 0.002}
"""bfloat16 rounds at 2^-9 in each of input, scale and output; float16 at 2^-12."""


def weights(out_features: int, in_features: int) -> tuple[torch.Tensor, torch.Tensor]:
    weight = torch.randn(out_features, in_features)
    scale = symmetric_scale(weight, dim=1)
    return quantize_symmetric(weight, scale), scale


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(0, 40),
    out_features=st.integers(1, 70),
    in_features=st.integers(1, 70) | st.sampled_from([16, 32, 48, 64]),
    dtype=st.sampled_from(list(STATED_ERROR)),
    seed=st.integers(0, 99),
)
def test_weight_only_kernels_equal_float64_within_their_stated_error(
    rows: int, out_features: int, in_features: int, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    integers, scale = weights(out_features, in_features)
    x = torch.randn(rows, in_features).to(dtype)
    expected = x.double() @ (integers.double() * scale.double()).t()
    call = Call("int8-weight-only", "cpu", rows, in_features, out_features, dtype)
    for kernel in available_kernels("cpu"):
        if kernel.scheme == call.scheme and not kernel.refuses(call):
            found = kernel.run(x, integers, scale)
            assert found.dtype == dtype and found.shape == expected.shape
            if rows:
                # against the size of the products, not of the sum, which may cancel
                size = x.double().abs() @ (integers.double() * scale.double()).abs().t()
                assert float((found.double() - expected).abs().max()) <= STATED_ERROR[dtype] * float(size.max())


@settings(deadline=None, max_examples=30)
@given(rows=st.integers(1, 40), in_features=st.integers(1, 70), seed=st.integers(0, 99))
def test_dynamic_token_equals_integer_arithmetic(rows: int, in_features: int, seed: int) -> None:
    torch.manual_seed(seed)
    integers, scale = weights(24, in_features)
    x = torch.randn(rows, in_features)
    quantized, row_scale = quantize_rows(x)
    sums = quantized.long() @ integers.long().t()
    expected = sums.double() * row_scale.double() * scale.double().flatten()
    kernel = select(Call("int8-dynamic-token", "cpu", rows, in_features, 24, torch.float32)).kernel
    assert torch.allclose(kernel.run(x, integers, scale).double(), expected, rtol=1e-5, atol=1e-6)


def test_a_weight_of_many_blocks_equals_one_of_a_single_block() -> None:
    torch.manual_seed(0)
    in_features = 256
    integers, scale = weights(BLOCK_ELEMENTS // in_features + 37, in_features)
    x = torch.randn(GEMV_ROWS + 4, in_features)
    expand = next(kernel for kernel in available_kernels("cpu") if kernel.name == "int8-expand")
    expected = x @ dequantize_symmetric(integers, scale).t()
    assert relative_error(expand.run(x, integers, scale), expected) < 1e-6


@pytest.mark.parametrize(
    ("change", "kernel", "reason"),
    [
        ({}, "int8-gemv-bf16", ""),
        ({"rows": GEMV_ROWS + 1}, "int8-expand", f"it gains up to {GEMV_ROWS}"),
        ({"needs_grad": True}, "int8-expand", "no backward"),
        ({"in_features": 72}, "int8-expand", "not divisible by 16"),
        ({"dtype": torch.float16}, "int8-expand", "would lose range"),
        ({"device": "cuda"}, "int8-expand", ""),
        ({"scheme": "int8-dynamic-token"}, "int8-fake-quantized", ""),
        ({"scheme": "int8-dynamic-token", "device": "cuda", "rows": 32}, "int8-int-mm", ""),
        ({"scheme": "int8-dynamic-token", "device": "cuda", "rows": 4}, "int8-fake-quantized", "more than 16"),
        (
            {"scheme": "int8-dynamic-token", "device": "cuda", "rows": 32, "in_features": 63},
            "int8-fake-quantized",
            "not divisible by 8",
        ),
    ],
)
def test_the_choice_among_torchs_operators_follows_device_and_rows_and_says_why(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, object], kernel: str, reason: str
) -> None:
    monkeypatch.setattr(native, "load", lambda: "no native library in this test")
    settings_ = {"scheme": "int8-weight-only", "device": "cpu", "rows": 1, "in_features": 64, "out_features": 64}
    choice = select(Call(**{**settings_, "dtype": torch.float32, **change}))  # type: ignore[arg-type]
    assert choice.kernel.name == kernel
    assert reason in choice.reason


def test_available_kernels_name_their_device_and_say_what_they_do() -> None:
    assert all(k.device in {"cpu", "any"} and k.summary for k in available_kernels("cpu"))
    assert {k.scheme for k in available_kernels("cuda")} == {"int8-weight-only", "int8-dynamic-token"}
