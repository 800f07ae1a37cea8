"""Predictions are plain arithmetic on the inventory: checked against sums done by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from effkit.apply import apply_plan
from effkit.inventory import take_inventory
from effkit.planning import make_plan
from effkit.predict import TextShape, decode_weight_bytes, kv_cache_bytes, predict
from effkit.recipe import Recipe, load_recipe
from tests.tiny import tiny_bert, tiny_gpt2, tiny_llama, tiny_moe


def bytes_of(model: nn.Module, *names: str) -> int:
    return sum(p.numel() * p.element_size() for n, p in model.named_parameters() if any(part in n for part in names))


def test_an_untied_table_is_not_read_and_a_tied_one_is_read_once_for_the_head() -> None:
    untied = tiny_llama(tied=False)
    everything = bytes_of(untied, "")
    assert decode_weight_bytes(take_inventory(untied)) == everything - bytes_of(untied, "embed_tokens")
    tied = tiny_llama(tied=True)
    assert decode_weight_bytes(take_inventory(tied)) == bytes_of(tied, "")


def test_compressed_layers_count_by_their_bytes_after() -> None:
    inventory = take_inventory(tiny_llama(tied=True))
    plan = make_plan(inventory, load_recipe("int8"))
    saved = plan.bytes_before - plan.bytes_after
    assert decode_weight_bytes(inventory, plan) == decode_weight_bytes(inventory) - saved


@pytest.mark.parametrize("build", [lambda: tiny_llama(tied=True), lambda: tiny_llama(tied=False), tiny_gpt2, tiny_moe])
def test_a_compressed_model_reads_what_its_plan_foretold(build: Callable[[], nn.Module]) -> None:
    model = build()
    shape = TextShape.from_config(model.config)
    inventory = take_inventory(model)
    plan = make_plan(inventory, load_recipe("int8"))
    foretold = decode_weight_bytes(inventory, plan, shape)
    apply_plan(model, plan)
    assert decode_weight_bytes(take_inventory(model), None, shape) == pytest.approx(foretold, rel=0.005)


def test_an_untied_copy_of_the_head_is_read_instead_of_the_table() -> None:
    model = tiny_llama(tied=True)
    inventory = take_inventory(model)
    recipe = Recipe.from_dict({"name": "head", "passes": [{"use": "int8", "targets": ["lm_head"], "untie": True}]})
    plan = make_plan(inventory, recipe)
    table = bytes_of(model, "embed_tokens")
    copy = plan.passes[0].changed[0].bytes_after
    assert decode_weight_bytes(inventory, plan) == bytes_of(model, "") - table + copy


def test_only_the_experts_a_token_is_routed_to_are_read() -> None:
    model = tiny_moe("mixtral")
    shape = TextShape.from_config(model.config)
    assert shape is not None and (shape.experts, shape.experts_per_token) == (4, 2)
    inventory = take_inventory(model)
    experts = bytes_of(model, "experts")
    assert decode_weight_bytes(inventory) - decode_weight_bytes(inventory, None, shape) == experts // 2


def test_the_kv_cache_has_the_size_that_transformers_allocates() -> None:
    model = tiny_llama()
    shape = TextShape.from_config(model.config)
    assert shape is not None
    with torch.no_grad():
        cache = model(torch.ones(3, 7, dtype=torch.long), use_cache=True).past_key_values
    held = sum(t.numel() * 4 for layer in cache.layers for t in (layer.keys, layer.values))
    assert kv_cache_bytes(shape, batch=3, context=7, element_bytes=4) == held


def test_shapes_are_read_from_every_kind_of_config() -> None:
    gpt2 = TextShape.from_config(tiny_gpt2().config)
    assert gpt2 is not None and (gpt2.layers, gpt2.hidden, gpt2.intermediate, gpt2.head_dim) == (2, 64, 96, 16)
    assert TextShape.from_config(tiny_bert().config) is not None
    assert TextShape.from_config(object()) is None


def test_tokens_per_second_are_bandwidth_over_bytes_and_none_without_a_bandwidth() -> None:
    inventory = take_inventory(tiny_llama())
    found = predict(inventory, bandwidth_bytes_per_s=1e9)
    assert found.decode_tokens_per_s == 1e9 / found.decode_bytes_per_token
    assert predict(inventory).decode_tokens_per_s is None


def test_the_peak_is_the_sum_of_its_parts() -> None:
    model = tiny_llama()
    found = predict(take_inventory(model), shape=TextShape.from_config(model.config), batch=8, context=64)
    parts = found.weight_bytes + found.kv_cache_bytes + found.activations_bytes + found.runtime_bytes
    assert found.peak_bytes == parts
    assert found.kv_cache_bytes > 0 and found.activations_bytes > 0
