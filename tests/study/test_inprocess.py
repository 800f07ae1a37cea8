"""Studies inside the caller's process: copies of any module, and the accuracy of one language model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from effkit.apply import apply_plan
from effkit.errors import MeasureError, PlanError
from effkit.inventory import take_inventory
from effkit.measure.environment import describe
from effkit.planning import make_plan
from effkit.recipe import Recipe, load_recipe
from effkit.records import Ceilings
from effkit.study import inprocess
from effkit.study.inprocess import compare_modules, evaluate_in_process
from effkit.suite import Suite
from tests.tiny import tiny_bert, tiny_llama, tiny_tokenizer

INT8 = load_recipe("int8")


@pytest.fixture(autouse=True)
def no_machine_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    ceilings = Ceilings.missing("not measured in tests", device="cpu")
    monkeypatch.setattr(inprocess, "describe", lambda device: describe(device, ceilings))


def module() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 32))


def small_suite(tmp_path: Path) -> Suite:
    text = tmp_path / "text.txt"
    text.write_text("the cat and the dog in the end, and then a thing or another. " * 40)
    return Suite(name="small", text=str(text), window=32, stride=32, windows=4, kl_windows=2)


def test_rows_hold_error_bytes_and_paired_speed_and_say_what_they_lack() -> None:
    model = module()
    results = compare_modules(model, [INT8], torch.randn(4, 64))
    fp32, bf16, int8 = results.variants
    assert [row.status for row in results.variants] == ["ok"] * 3
    assert fp32.accuracy.output_relative_error_mean == 0.0
    assert 0 < (int8.accuracy.output_relative_error_mean or 0) < 0.03
    assert 0 < (bf16.accuracy.output_relative_error_mean or 0) < 0.03
    assert int8.memory.weight_bytes_ratio is not None and int8.memory.weight_bytes_ratio < 0.3
    assert bf16.memory.weight_bytes_ratio == 0.5
    assert fp32.speed.forward_speedup == 1.0
    assert int8.speed.statistics["forward_speedup"].count == int8.speed.statistics["forward_s"].count == 7
    assert "own" in int8.memory.reasons["peak_rss_bytes"] or "process" in int8.memory.reasons["peak_rss_bytes"]
    assert int8.coverage is not None and int8.coverage.compressed_layers == 2


def test_the_callers_module_is_not_modified() -> None:
    model = module()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    compare_modules(model, [INT8], torch.randn(4, 64))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert isinstance(model[0], nn.Linear)


@pytest.mark.parametrize("inputs", [(torch.ones(2, 64),), [torch.ones(2, 64)], {"input": torch.ones(2, 64)}])
def test_inputs_may_be_positional_or_by_keyword(inputs: object) -> None:
    assert all(row.status == "ok" for row in compare_modules(module(), [INT8], inputs).variants)


def test_integer_inputs_keep_their_dtype() -> None:
    results = compare_modules(tiny_llama(), [INT8], {"input_ids": torch.arange(3, 15).reshape(2, 6)})
    assert [row.status for row in results.variants] == ["ok"] * 3


def test_a_variant_that_cannot_run_is_a_row_that_says_so() -> None:
    class OnlyFloat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.dtype != torch.float32:
                raise RuntimeError("float32 only")
            return self.inner(x)  # type: ignore[no-any-return]

    results = compare_modules(OnlyFloat(), [INT8], torch.ones(2, 8))
    failed = results.variant("bf16")
    assert failed is not None and failed.status == "failed" and "float32 only" in failed.reason
    int8 = results.variant("int8")
    assert int8 is not None and int8.status == "ok"


def test_inputs_that_the_dense_module_cannot_run_are_an_error() -> None:
    with pytest.raises(MeasureError, match="dense module cannot run the inputs"):
        compare_modules(module(), [INT8], torch.ones(2, 63))


def test_a_recipe_that_does_not_fit_is_an_error_before_any_measurement() -> None:
    wrong = Recipe.from_dict({"name": "wrong", "passes": [{"use": "int8", "skip": ["nowhere"]}]})
    with pytest.raises(PlanError, match="nowhere"):
        compare_modules(module(), [wrong], torch.ones(2, 64))


def test_recipes_of_one_name_become_rows_of_different_names() -> None:
    skipping = Recipe.from_dict({"name": "int8", "passes": [{"use": "int8", "skip": ["0"]}]})
    rows = compare_modules(module(), [INT8, skipping], torch.ones(2, 64)).variants
    assert [row.name for row in rows] == ["fp32", "bf16", "int8", "int8-2"]
    assert rows[2].fingerprint != rows[3].fingerprint


def test_the_fingerprint_follows_the_weights() -> None:
    model, other = module(), module()
    with torch.no_grad():
        other[0].weight[0, 0] += 1
    first = compare_modules(model, [], torch.ones(2, 64)).model.fingerprint
    assert compare_modules(module(), [], torch.ones(2, 64)).model.fingerprint == first
    assert compare_modules(other, [], torch.ones(2, 64)).model.fingerprint != first


def test_a_model_compared_with_itself_shows_no_difference(tmp_path: Path) -> None:
    model = tiny_llama()
    found = evaluate_in_process(model, small_suite(tmp_path), tiny_tokenizer(), baseline=model)
    assert found.perplexity_ratio == 1.0 and found.within_noise
    assert found.kl_max is not None and found.kl_max < 1e-6
    assert found.top1_agreement == 1.0


def test_a_compressed_model_is_compared_token_by_token(tmp_path: Path) -> None:
    dense, compressed = tiny_llama(), tiny_llama()
    apply_plan(compressed, make_plan(take_inventory(compressed), INT8))
    found = evaluate_in_process(compressed, small_suite(tmp_path), tiny_tokenizer(), baseline=dense)
    assert found.kl_mean is not None and 0 < found.kl_mean < 0.01
    assert found.perplexity_ratio is not None and abs(found.perplexity_ratio - 1) < 0.05


def test_without_a_baseline_the_comparisons_say_why_they_are_missing(tmp_path: Path) -> None:
    found = evaluate_in_process(tiny_llama(), small_suite(tmp_path), tiny_tokenizer())
    assert found.perplexity is not None and found.perplexity > 1
    assert found.perplexity_ratio is None and found.reasons["perplexity_ratio"]


def test_an_encoder_is_compared_by_its_vectors(tmp_path: Path) -> None:
    model = tiny_bert()
    found = evaluate_in_process(model, small_suite(tmp_path), tiny_tokenizer(), baseline=model)
    assert found.output_cosine_mean == pytest.approx(1.0)
    assert found.perplexity is None and found.reasons["perplexity"]
