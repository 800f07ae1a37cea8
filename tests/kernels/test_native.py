"""The native library equals exact arithmetic on every instruction set that this processor has."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from effkit.errors import EffkitError
from effkit.kernels import Call, native, select

LIBRARY = native.load()
SETS = () if isinstance(LIBRARY, str) else LIBRARY.instruction_sets
needs_library = pytest.mark.skipif(not SETS, reason=str(LIBRARY))

STATED_ERROR = 1.3e-4
"""Half a step of 14-bit rounding, 1 / (2 * 8191), relative to the row's largest value, plus float32 rounding."""


def problem(rows: int, out_features: int, in_features: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, in_features, generator=generator)
    weight = torch.randint(-127, 128, (out_features, in_features), dtype=torch.int8, generator=generator)
    scale = torch.rand(out_features, 1, generator=generator) + 0.1
    return x, weight, scale


def assert_close(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, found: torch.Tensor) -> None:
    dense = weight.double() * scale.double()
    bound = x.double().abs().amax(dim=1, keepdim=True) * dense.abs().sum(dim=1) * STATED_ERROR
    assert bool(((found.double() - x.double() @ dense.t()).abs() <= bound).all())


@needs_library
@pytest.mark.parametrize("instruction_set", SETS)
@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 30), out_features=st.integers(1, 70), in_features=st.integers(1, 140), seed=st.integers(0, 9)
)
def test_every_shape_is_right_on_every_instruction_set(
    instruction_set: int, rows: int, out_features: int, in_features: int, seed: int
) -> None:
    x, weight, scale = problem(rows, out_features, in_features, seed)
    assert_close(x, weight, scale, native.int8_rows(x, weight, scale, instruction_set=instruction_set))


@needs_library
@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("rows", [1, 8, 9, 40])
def test_sums_longer_than_one_exact_piece_do_not_overflow(instruction_set: int, rows: int) -> None:
    in_features = 3 * 2048 + 5
    x = torch.ones(rows, in_features)  # every product at its largest
    weight = torch.full((3, in_features), 127, dtype=torch.int8)
    weight[1] = -127
    scale = torch.ones(3, 1)
    found = native.int8_rows(x, weight, scale, instruction_set=instruction_set)
    expected = torch.tensor([127.0, -127.0, 127.0]) * in_features
    assert torch.allclose(found, expected.expand(rows, 3), rtol=1e-6)


@needs_library
def test_all_instruction_sets_and_thread_counts_give_the_same_bits() -> None:
    threads = torch.get_num_threads()
    for rows in (1, 5, 33):
        x, weight, scale = problem(rows, 75, 200)
        reference = native.int8_rows(x, weight, scale)
        try:
            for count in (1, 2, 3):
                torch.set_num_threads(count)
                assert all(
                    torch.equal(native.int8_rows(x, weight, scale, instruction_set=each), reference) for each in SETS
                )
        finally:
            torch.set_num_threads(threads)


@needs_library
@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("rows", [4, 20])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, 69])
def test_a_row_that_is_not_finite_gives_nan_and_leaves_the_others_alone(
    instruction_set: int, rows: int, value: float, place: int
) -> None:
    x, weight, scale = problem(rows, 40, 70)
    good = native.int8_rows(x, weight, scale, instruction_set=instruction_set)
    x[2, place] = value
    found = native.int8_rows(x, weight, scale, instruction_set=instruction_set)
    assert bool(torch.isnan(found[2]).all())
    keep = [row for row in range(rows) if row != 2]
    assert torch.equal(found[keep], good[keep])


@needs_library
@pytest.mark.parametrize("magnitude", [0.0, 1e-42, 1e-20, 1e20])
def test_extreme_rows_stay_finite(magnitude: float) -> None:
    x, weight, scale = problem(3, 8, 64)
    found = native.int8_rows(x * magnitude, weight, scale)
    assert bool(torch.isfinite(found).all())
    if magnitude in (0.0, 1e-42):
        assert bool((found == 0).all())


@needs_library
def test_inputs_need_not_be_contiguous() -> None:
    x, weight, scale = problem(6, 16, 32)
    expected = native.int8_rows(x, weight, scale)
    assert torch.equal(native.int8_rows(x.t().contiguous().t(), weight.t().contiguous().t(), scale), expected)


@needs_library
def test_the_operator_compiles_and_gives_the_same_bits() -> None:
    x, weight, scale = problem(3, 16, 32)
    kernel = select(Call("int8-weight-only", "cpu", 3, 32, 16, torch.float32)).kernel
    assert kernel.name == "int8-native"
    compiled = torch.compile(kernel.run, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(x, weight, scale), kernel.run(x, weight, scale))


@needs_library
def test_an_instruction_set_that_is_not_there_is_an_error() -> None:
    with pytest.raises(EffkitError, match="instruction set 9"):
        native.int8_rows(*problem(1, 2, 3), instruction_set=9)


@pytest.fixture
def fresh_load() -> object:
    native.load.cache_clear()
    yield
    native.load.cache_clear()


def test_without_the_library_the_choice_falls_back_and_says_why(
    monkeypatch: pytest.MonkeyPatch, fresh_load: object
) -> None:
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    choice = select(Call("int8-weight-only", "cpu", 1, 64, 64, torch.float32))
    assert choice.kernel.name == "int8-gemv-bf16"
    assert "was not built" in choice.reason and "was not built" in native.status()
    with pytest.raises(EffkitError, match="was not built"):
        native.int8_rows(*problem(1, 2, 3))


def test_a_broken_library_is_a_reason_and_not_a_crash(monkeypatch: pytest.MonkeyPatch, fresh_load: object) -> None:
    def broken(path: str) -> ctypes.CDLL:
        raise OSError("wrong ELF class")

    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([Path("_library.so")]))
    monkeypatch.setattr(ctypes, "CDLL", broken)
    assert "wrong ELF class" in native.status()
