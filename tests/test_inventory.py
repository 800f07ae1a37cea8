"""The inventory counts every storage once, finds ties by storage, and needs no weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from effkit.apply import apply_plan
from effkit.inventory import Inventory, take_inventory
from effkit.planning import make_plan
from effkit.recipe import load_recipe
from tests.tiny import tiny_bert, tiny_gpt2, tiny_llama, tiny_moe

MODELS: list[Callable[[], nn.Module]] = [
    lambda: tiny_llama(tied=True),
    lambda: tiny_llama(tied=False),
    tiny_gpt2,
    tiny_bert,
    lambda: tiny_moe("qwen3_moe"),
    lambda: tiny_moe("mixtral"),
]


def kinds(inventory: Inventory) -> dict[str, int]:
    counts: dict[str, int] = {}
    for layer in inventory.layers:
        counts[layer.kind] = counts.get(layer.kind, 0) + 1
    return counts


@pytest.mark.parametrize("build", MODELS)
def test_the_meta_device_gives_the_same_inventory_as_real_weights(build: Callable[[], nn.Module]) -> None:
    model = build()
    with torch.device("meta"):
        meta = type(model)(model.config)
    real, bare = take_inventory(model), take_inventory(meta)
    assert bare.layers == real.layers
    assert bare.storages == real.storages
    assert real.on_meta == () and len(bare.on_meta) == len(list(model.parameters()))


@pytest.mark.parametrize("build", MODELS)
def test_parameters_are_counted_once_each(build: Callable[[], nn.Module]) -> None:
    model = build()
    assert take_inventory(model).parameters >= model.num_parameters()
    unique = sum(p.numel() for p in model.parameters())
    persistent = sum(t.numel() for n, t in model.named_buffers() if n in model.state_dict())
    assert take_inventory(model).parameters == unique + persistent


def test_tied_layers_are_found_by_storage() -> None:
    inventory = take_inventory(tiny_llama(tied=True))
    assert inventory.layer("lm_head").tied == ("model.embed_tokens",)
    assert inventory.layer("lm_head").weight == "model.embed_tokens.weight"
    assert take_inventory(tiny_llama(tied=False)).layer("lm_head").tied == ()


def test_weights_of_equal_value_are_not_tied() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].load_state_dict(model[0].state_dict())
    assert all(layer.tied == () for layer in take_inventory(model).layers)


def test_a_module_under_two_names_is_one_layer_with_an_alias() -> None:
    model = nn.Module()
    model.a = model.b = nn.Linear(4, 3)
    inventory = take_inventory(model)
    assert [(layer.name, layer.aliases) for layer in inventory.layers] == [("a", ("b",))]
    assert inventory.total_bytes == 4 * (12 + 3)


def test_views_of_one_storage_count_its_bytes_once() -> None:
    base = torch.randn(8, 4)
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[0].weight, model[1].weight = nn.Parameter(base[:4]), nn.Parameter(base[4:])
    assert take_inventory(model).total_bytes == base.numel() * 4


def test_kinds_follow_what_a_layer_computes() -> None:
    assert kinds(take_inventory(tiny_gpt2()))["conv1d"] == 8
    assert kinds(take_inventory(tiny_llama()))["norm"] == 5
    assert kinds(take_inventory(tiny_moe("qwen3_moe")))["experts"] >= 2
    assert kinds(take_inventory(nn.Sequential(nn.Conv2d(3, 4, 3)))) == {"conv2d": 1}


def test_conv1d_shapes_are_given_as_out_by_in() -> None:
    model = tiny_gpt2()
    weight = model.transformer.h[0].mlp.c_fc.weight  # stored as [in, out]
    assert take_inventory(model).layer("transformer.h.0.mlp.c_fc").shape == tuple(weight.shape)[::-1]


class Subclass(nn.Linear):
    """A linear layer whose forward could be anything."""


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_hook(lambda module, args, output: output)
    return model


@pytest.mark.parametrize(
    ("model", "name", "obstacle"),
    [
        (nn.Linear(4, 4), "(root)", "wrap it in nn.Sequential"),
        (nn.Sequential(Subclass(4, 4)), "0", "subclass"),
        (nn.Sequential(nn.MultiheadAttention(8, 2)), "0.out_proj", "reads the weight directly"),
        (nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16)), "0.linear1", "reads the weight directly"),
        (hooked(), "0", "hooks"),
        (nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))), "0", "subclass"),
        (nn.Sequential(nn.Embedding(4, 4, max_norm=1.0)), "0", "max_norm"),
    ],
)
def test_layers_that_must_not_be_exchanged_say_why(model: nn.Module, name: str, obstacle: str) -> None:
    assert obstacle in take_inventory(model).layer(name).obstacle


def test_compressed_layers_say_so() -> None:
    model = tiny_llama()
    apply_plan(model, make_plan(take_inventory(model), load_recipe("int8")))
    layer = take_inventory(model).layer("model.layers.0.mlp.up_proj")
    assert layer.format == "int8-linear"
    assert "already compressed" in layer.obstacle


def test_an_empty_model_has_an_empty_inventory() -> None:
    inventory = take_inventory(nn.Sequential())
    assert inventory.layers == () and inventory.total_bytes == 0
