from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from effkit.errors import MeasureError
from effkit.measure.accuracy import BaselineStore, compare_outputs, encoder_windows, evaluate_outputs, output_distances
from effkit.measure.accuracy.outputs import mean_pool
from effkit.runtimes import EagerEncoder
from effkit.suite import Suite
from tests.tiny import tiny_bert, tiny_tokenizer

TEXT = "The quick brown fox jumps over the lazy dog. " * 6


def suite(**settings: Any) -> Suite:
    return Suite.from_dict({"name": "t", "window": 32, "stride": 32, "windows": "all"} | settings)


def test_a_wrong_global_scale_shows_in_the_relative_error_though_the_cosine_is_one() -> None:
    torch.manual_seed(0)
    baseline = torch.randn(5, 8)
    cosine, error = output_distances(2.0 * baseline, baseline)
    torch.testing.assert_close(cosine, torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(error, torch.ones(5, dtype=torch.float64))


def test_two_zero_vectors_are_equal_and_everything_stays_finite() -> None:
    cosine, error = output_distances(torch.zeros(2, 4), torch.tensor([[0.0] * 4, [1.0] * 4]))
    assert cosine.tolist() == [1.0, 0.0]
    assert error.tolist() == [0.0, 1.0]
    assert torch.isfinite(output_distances(torch.ones(1, 4), torch.zeros(1, 4))[1]).all()


def test_a_scalar_is_a_vector_of_width_one() -> None:
    cosine, error = output_distances(torch.tensor(3.0), torch.tensor(2.0))
    assert (cosine.item(), error.item()) == (1.0, 0.5)


def test_nested_outputs_are_compared_tensor_by_tensor() -> None:
    x = torch.randn(2, 3)
    result = compare_outputs({"a": x, "b": (x, None)}, SimpleNamespace(a=x, b=[x]), "inputs")
    assert result.output_cosine_mean == pytest.approx(1.0)
    assert result.output_relative_error_mean == 0.0
    assert result.perplexity is None and "causal language models" in result.reasons["perplexity"]


@pytest.mark.parametrize("other", [torch.randn(3, 2), (torch.randn(2, 3),) * 2, torch.ones(2, 3, dtype=torch.int64)])
def test_outputs_of_other_shapes_are_refused(other: Any) -> None:
    with pytest.raises(MeasureError, match="shapes"):
        compare_outputs(torch.randn(2, 3), other, "inputs")


def test_outputs_that_are_not_finite_are_refused() -> None:
    with pytest.raises(MeasureError, match="NaN or infinity"):
        compare_outputs(torch.tensor([float("nan")]), torch.ones(1), "inputs")


def test_pooling_leaves_padding_out_even_where_it_is_nan() -> None:
    hidden = torch.tensor([[[1.0], [3.0], [float("nan")]]])
    assert mean_pool(hidden, torch.tensor([[1, 1, 0]])).tolist() == [[2.0]]


def test_an_encoder_is_compared_with_its_stored_baseline(tmp_path: Path) -> None:
    settings = suite(batch_size=3)
    cut = encoder_windows(tiny_tokenizer(), TEXT, settings)
    model = tiny_bert()
    own = evaluate_outputs(EagerEncoder(model), cut, suite=settings, key="k", write_baseline=tmp_path / "b")
    assert (own.output_cosine_mean, own.output_relative_error_mean) == (1.0, 0.0)
    store = BaselineStore(tmp_path / "b", key="k", digest=cut.digest())
    again = evaluate_outputs(EagerEncoder(model), cut, suite=suite(batch_size=1), baseline=store)
    assert again.output_relative_error_mean == pytest.approx(0.0, abs=1e-5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    changed = evaluate_outputs(EagerEncoder(model), cut, suite=settings, baseline=store)
    assert changed.output_relative_error_mean is not None and changed.output_relative_error_mean > 0.01
    assert changed.output_cosine_mean is not None and changed.output_cosine_mean < 1.0


def test_without_a_baseline_the_distances_are_none_with_a_reason() -> None:
    cut = encoder_windows(tiny_tokenizer(), TEXT, suite())
    result = evaluate_outputs(EagerEncoder(tiny_bert()), cut, suite=suite())
    assert result.reasons["output_cosine_mean"] == "no baseline was given"


def test_an_encoder_with_nan_weights_is_a_clear_error() -> None:
    model = tiny_bert()
    with torch.no_grad():
        model.encoder.layer[0].output.dense.weight[0, 0] = float("nan")
    cut = encoder_windows(tiny_tokenizer(), TEXT, suite())
    with pytest.raises(MeasureError, match="passages are NaN"):
        evaluate_outputs(EagerEncoder(model), cut, suite=suite())
