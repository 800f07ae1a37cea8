"""Symmetric quantization: exact where it can be, bounded where it cannot, and never NaN."""

from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from effkit.errors import EffkitError
from effkit.numerics.affine import (
    dequantize_symmetric,
    integer_limit,
    quantize_rows,
    quantize_symmetric,
    require_finite,
    symmetric_scale,
)

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def random_weight(rows: int, columns: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator).to(dtype)


def test_integer_limits_are_symmetric() -> None:
    assert [integer_limit(bits) for bits in (8, 7, 4)] == [127, 63, 7]


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 70),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from(DTYPES),
    magnitude=st.sampled_from([1e-6, 1.0, 1e4]),
)
def test_rounding_errs_by_at_most_half_a_step(
    rows: int, columns: int, seed: int, dtype: torch.dtype, magnitude: float
) -> None:
    weight = (random_weight(rows, columns, seed) * magnitude).to(dtype)
    scale = symmetric_scale(weight, dim=1)
    back = dequantize_symmetric(quantize_symmetric(weight, scale), scale)
    # float32 division and multiplication each round once: 2 ulp of the largest value on top of half a step
    bound = 0.5 * scale + weight.float().abs().amax(dim=1, keepdim=True) * 3e-7
    assert bool(((back - weight.float()).abs() <= bound).all())


def test_integers_equal_an_independent_numpy_computation() -> None:
    weight = random_weight(33, 65, seed=3)
    reference = weight.numpy().astype(numpy.float64)
    steps = numpy.abs(reference).max(axis=1, keepdims=True) / 127
    expected = numpy.clip(numpy.rint(reference / steps), -127, 127)
    found = quantize_symmetric(weight, symmetric_scale(weight, dim=1)).numpy()
    assert numpy.abs(found - expected).max() <= 1  # float32 against float64 may settle a tie differently
    assert (found == expected).mean() > 0.999


def test_the_largest_value_of_each_row_is_kept_exactly() -> None:
    weight = random_weight(16, 64, seed=1)
    integers = quantize_symmetric(weight, symmetric_scale(weight, dim=1))
    assert bool((integers.abs().amax(dim=1) == 127).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_rows_come_back_as_exact_zeros(dtype: torch.dtype) -> None:
    weight = random_weight(4, 8, seed=0, dtype=dtype)
    weight[2] = 0
    scale = symmetric_scale(weight, dim=1)
    back = dequantize_symmetric(quantize_symmetric(weight, scale), scale)
    assert bool(torch.isfinite(back).all())
    assert bool((back[2] == 0).all())


def test_values_too_small_for_a_normal_scale_become_zero_and_stay_finite() -> None:
    weight = torch.full((2, 4), 1e-44)
    scale = symmetric_scale(weight, dim=1)
    assert bool((dequantize_symmetric(quantize_symmetric(weight, scale), scale) == 0).all())


def test_rows_of_activations_have_their_own_scale() -> None:
    rows = torch.tensor([[[1.0, -2.0], [100.0, 50.0]]])
    integers, scale = quantize_rows(rows)
    assert integers.tolist() == [[[64, -127], [127, 64]]]
    assert scale.shape == (1, 2, 1)


def test_inputs_are_not_modified() -> None:
    weight = random_weight(4, 4, seed=2)
    before = weight.clone()
    quantize_symmetric(weight, symmetric_scale(weight, dim=1))
    assert torch.equal(weight, before)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_is_named_with_its_place(value: float) -> None:
    weight = torch.zeros(2, 3)
    weight[1, 2] = value
    with pytest.raises(EffkitError, match=r"layer\.weight holds 1 values .* at \[1, 2\]"):
        require_finite(weight, "layer.weight")
