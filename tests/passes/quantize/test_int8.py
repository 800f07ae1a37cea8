"""The int8 pass on real architectures: what it changes, what it leaves and why, and that it keeps the outputs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from effkit.apply import apply_plan
from effkit.errors import PlanError
from effkit.inventory import storage_key, take_inventory
from effkit.modules import Int8Embedding, Int8Linear, Int8TiedLinear, compressed_modules
from effkit.numerics.fidelity import relative_error
from effkit.planning import Plan, make_plan
from effkit.recipe import Recipe
from tests.tiny import tiny_bert, tiny_gpt2, tiny_llama, tiny_moe


def recipe(**settings: Any) -> Recipe:
    return Recipe.from_dict({"name": "test", "passes": [{"use": "int8", **settings}]})


def planned(model: nn.Module, **settings: Any) -> Plan:
    return make_plan(take_inventory(model), recipe(**settings))


def compress(model: nn.Module, **settings: Any) -> nn.Module:
    return apply_plan(model, planned(model, **settings))


def output(model: nn.Module) -> torch.Tensor:
    ids = torch.arange(3, 27).reshape(2, 12)
    with torch.no_grad():
        return model(ids)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("activations", ["none", "dynamic-token"])
@pytest.mark.parametrize(
    "build",
    [
        lambda: tiny_llama(tied=True),
        lambda: tiny_llama(tied=False),
        tiny_gpt2,
        tiny_bert,
        lambda: tiny_moe("qwen3_moe"),
        lambda: tiny_moe("mixtral"),
    ],
)
def test_outputs_stay_close_and_nearly_all_bytes_are_covered(build: Callable[[], nn.Module], activations: str) -> None:
    model = build()
    dense = output(model)
    plan = planned(model, activations=activations)
    assert apply_plan(model, plan) is model
    assert relative_error(output(model), dense) < 0.05
    assert plan.coverage.share > 0.95
    assert take_inventory(model).total_bytes == plan.bytes_after < 0.35 * plan.bytes_before


def test_planned_bytes_per_layer_are_what_the_modules_hold() -> None:
    model = tiny_gpt2()
    plan = planned(model)
    apply_plan(model, plan)
    modules = compressed_modules(model)
    for layer in plan.passes[0].changed:
        held = sum(b.numel() * b.element_size() for b in modules[layer.name].buffers())
        assert held == layer.bytes_after, layer.name


def test_conv1d_is_quantized_along_its_input_dimension() -> None:
    model = tiny_gpt2()
    dense = model.transformer.h[0].mlp.c_fc.weight.detach().clone()  # [in, out]
    compress(model)
    compressed = model.transformer.h[0].mlp.c_fc
    assert isinstance(compressed, Int8Linear)
    assert compressed.weight.shape == dense.t().shape
    assert compressed.weight_scale.shape == (dense.shape[1], 1)
    assert relative_error(compressed.dense_weight(), dense.t()) < 0.01


def test_experts_count_by_bytes_and_still_route() -> None:
    model = tiny_moe("qwen3_moe")
    dense = output(model)
    plan = planned(model, targets=["re:.*experts.*"])
    apply_plan(model, plan)
    assert {layer.kind for layer in plan.passes[0].changed} == {"experts"}
    # rounding never moved a router, so the outputs stay close although every expert changed
    assert 0 < relative_error(output(model), dense) < 0.05


def test_a_tied_head_and_table_share_one_int8_storage() -> None:
    model = compress(tiny_llama(tied=True))
    table, head = model.model.embed_tokens, model.lm_head
    assert isinstance(table, Int8Embedding) and isinstance(head, Int8TiedLinear)
    assert storage_key(table.weight) == storage_key(head.weight)
    assert sum("embed" in name or "lm_head" in name for name in model.state_dict()) == 2


@pytest.mark.parametrize(("target", "other"), [("lm_head", "model.embed_tokens"), ("model.embed_tokens", "lm_head")])
def test_naming_one_side_of_a_tie_never_changes_the_other(target: str, other: str) -> None:
    model = tiny_llama(tied=True)
    with pytest.raises(PlanError, match=f"shares its weight with {other}.*untie"):
        planned(model, targets=[target])
    before = model.get_submodule(other).weight.detach().clone()
    plan = planned(model, targets=[target], untie=True)
    apply_plan(model, plan)
    assert torch.equal(model.get_submodule(other).weight, before)
    assert [layer.note for layer in plan.passes[0].changed] == ["untied: a copy of its own"]
    assert plan.bytes_after > plan.bytes_before, "untying adds a copy and the plan says so"
    assert take_inventory(model).total_bytes == plan.bytes_after
    assert any("grows" in warning for warning in plan.warnings)


def test_two_linears_sharing_weight_and_bias_are_quantized_once() -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    model[1].weight, model[1].bias = model[0].weight, model[0].bias
    x = torch.randn(4, 32)
    dense = model(x).detach()
    plan = planned(model)
    apply_plan(model, plan)
    assert plan.passes[0].changed[1].bytes_after == 0
    assert relative_error(model(x), dense) < 0.02
    assert len([name for name in model.state_dict() if name.endswith("weight")]) == 1


def test_a_module_under_two_names_stays_one_module() -> None:
    model = nn.Module()
    model.a = model.b = nn.Linear(8, 8)
    compress(model)
    assert isinstance(model.a, Int8Linear) and model.a is model.b


def test_skipped_layers_stand_in_the_coverage_with_their_reason() -> None:
    plan = planned(tiny_llama(tied=False), skip=["lm_head"])
    reasons = {layer.name: layer.reason for layer in plan.coverage.skipped}
    assert reasons["lm_head"] == "listed under skip"
    assert "not a kind of layer" in reasons["model.norm"]


def test_skip_of_a_gate_leaves_gate_proj_compressed() -> None:
    model = nn.ModuleDict({"mlp": nn.ModuleDict({"gate": nn.Linear(4, 4), "gate_proj": nn.Linear(4, 4)})})
    plan = planned(model, skip=["mlp.gate"])
    assert [layer.name for layer in plan.passes[0].changed] == ["mlp.gate_proj"]


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.LayerNorm(4)),
        nn.Sequential(nn.Conv2d(3, 3, 3)),
        nn.Sequential(nn.Linear(4, 4).to(torch.float8_e4m3fn)),
    ],
)
def test_a_pass_that_would_change_nothing_is_an_error(model: nn.Module) -> None:
    with pytest.raises(PlanError, match="would change no layer"):
        planned(model)


def test_a_model_without_weights_is_an_error() -> None:
    with pytest.raises(PlanError, match="nothing to compress"):
        planned(nn.Sequential())


def test_compressing_twice_is_refused() -> None:
    model = compress(tiny_llama())
    with pytest.raises(PlanError, match="already compressed"):
        planned(model)


def test_one_recipe_cannot_quantize_the_same_layers_twice() -> None:
    twice = Recipe.from_dict({"name": "twice", "passes": [{"use": "int8"}, {"use": "int8"}]})
    with pytest.raises(PlanError, match="already compressed"):
        make_plan(take_inventory(tiny_llama()), twice)


def test_too_little_coverage_is_refused_when_a_threshold_is_set_and_warned_of_otherwise() -> None:
    model = tiny_llama(tied=False)
    with pytest.raises(PlanError, match="less than min_coverage 90"):
        planned(model, targets=["lm_head"], min_coverage=0.9)
    assert any("only" in warning for warning in planned(model, targets=["lm_head"]).warnings)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_named_before_anything_changes(value: float) -> None:
    model = tiny_llama()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] = value
    plan = planned(model)
    with pytest.raises(PlanError, match=r"model\.layers\.1\.mlp\.up_proj\.weight holds 1 values"):
        apply_plan(model, plan)
    assert not compressed_modules(model)
    assert planned(model, skip=["model.layers.1.mlp.up_proj"]).coverage.compressed_layers > 0


def test_a_float64_weight_beyond_float32_is_named_before_anything_changes() -> None:
    model = nn.Sequential(nn.Linear(4, 4).double())
    with torch.no_grad():
        model[0].weight[0, 0] = 1e300
    with pytest.raises(PlanError, match=r"0\.weight holds 1 values"):
        compress(model)


@pytest.mark.parametrize("rows", [slice(None), slice(3, 4), slice(0, 32)])
def test_zeroed_rows_stay_exactly_zero_and_finite(rows: slice) -> None:
    model = nn.Sequential(nn.Linear(64, 64, bias=False))
    with torch.no_grad():
        model[0].weight[rows] = 0
        compress(model)
        y = model(torch.randn(5, 64))
    assert bool(torch.isfinite(y).all())
    assert bool((y[:, rows] == 0).all())


def test_a_model_on_the_meta_device_can_be_planned_and_not_compressed() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8))
    plan = planned(model)
    with pytest.raises(PlanError, match=r"2 parameters are on the meta device.*0\.weight"):
        apply_plan(model, plan)


def test_a_plan_for_another_model_is_refused() -> None:
    plan = planned(nn.Sequential(nn.Linear(8, 8)))
    with pytest.raises(PlanError, match="made for another model"):
        apply_plan(nn.Sequential(nn.Linear(8, 9)), plan)


def test_dense_weights_are_freed_as_they_are_replaced() -> None:
    model = tiny_llama(tied=False)
    weights = [weakref.ref(p) for n, p in model.named_parameters() if p.ndim == 2]
    live_during: list[int] = []
    plan = planned(model)

    def count_live(done: int, total: int, name: str) -> None:
        gc.collect()
        live_during.append(sum(ref() is not None for ref in weights))

    apply_plan(model, plan, progress=count_live)
    assert live_during == list(range(len(weights) - 1, -1, -1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_keep_the_dtype_of_what_stays_dense(dtype: torch.dtype) -> None:
    model = tiny_llama().to(dtype)
    plan = planned(model)
    apply_plan(model, plan)
    assert model.model.norm.weight.dtype == dtype
    assert output(model).dtype == dtype
    assert plan.coverage.compressed_bytes_before == 2 * sum(layer.bytes_before for layer in plan.passes[0].changed)


def test_cached_generation_equals_generation_without_cache_after_compression() -> None:
    model = compress(tiny_moe("mixtral"))
    ids = torch.arange(3, 11).reshape(1, 8)
    settings = {"max_new_tokens": 8, "do_sample": False}
    cached = model.generate(ids, use_cache=True, **settings)
    assert torch.equal(cached, model.generate(ids, use_cache=False, **settings))
