"""``int8``: weights as 8-bit integers with one scale per output channel; activations as they are, or per token.

Rounding to nearest with symmetric scales; see :mod:`effkit.numerics.affine`.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from effkit.inventory import Inventory, Layer, is_conv1d
from effkit.modules import (
    CompressedModule,
    Int8Embedding,
    Int8Experts,
    Int8Linear,
    Int8TiedEmbedding,
    Int8TiedLinear,
    install,
)
from effkit.passes.select import reasons_to_skip, settle_ties
from effkit.planning import LayerPlan, PassPlan
from effkit.registry import PassConfig, Progress

KINDS = ("linear", "conv1d", "embedding", "experts")
SCALE_BYTES = 4


class Int8(PassConfig):
    """Settings of the pass ``int8``.

    Attributes:
        weights: what shares a scale; ``channel`` is one scale per output channel (row of an embedding).
        activations: ``none`` computes on the activations as they are; ``dynamic-token`` rounds each token's
            activations to int8 with its own scale (linear layers only; embeddings have none).
        untie: give a tied layer a storage of its own where its partner stays dense; the model grows by it.
    """

    summary: ClassVar[str] = "weights as INT8 per channel, activations as they are or INT8 per token"

    use: Literal["int8"] = "int8"
    weights: Literal["channel"] = Field("channel", description="what shares one scale")
    activations: Literal["none", "dynamic-token"] = Field("none", description="how activations are rounded")
    untie: bool = Field(False, description="split tied weights where only one side is compressed")

    def plan(self, inventory: Inventory) -> PassPlan:
        reasons = reasons_to_skip(self, inventory, KINDS)
        reasons |= {layer.name: why for layer in inventory.layers if not reasons[layer.name] and (why := _unfit(layer))}
        reasons = settle_ties(inventory, reasons, untie=self.untie)
        owners: dict[str, str] = {}
        layers = [self._plan_layer(layer, reasons, owners) for layer in inventory.layers]
        return PassPlan(self, tuple(layers))

    def _plan_layer(self, layer: Layer, reasons: dict[str, str], owners: dict[str, str]) -> LayerPlan:
        """``owners`` collects the first layer seen on each storage: the one its bytes are counted under."""
        dense = bool(reasons[layer.name])
        key = f"{layer.weight} {'dense' if dense else 'int8'}"
        owner = owners.setdefault(key, layer.name)
        if dense:
            return LayerPlan.skip(layer, reasons[layer.name], accounted=owner == layer.name)
        split = any(reasons[name] for name in layer.tied)
        note = "" if owner == layer.name else f"shares {owner}"
        first = owner == layer.name
        return LayerPlan(
            name=layer.name,
            kind=layer.kind,
            class_name=layer.class_name,
            shape=layer.shape,
            action=self._action(layer),
            reason="",
            format=f"int8-{'linear' if layer.kind == 'conv1d' else layer.kind}",
            elements=math.prod(layer.shape) if first and not split else 0,
            bytes_before=layer.weight_bytes if first and not split else 0,
            bytes_after=math.prod(layer.shape) + SCALE_BYTES * _scales(layer) if first else 0,
            note=note or ("untied: a copy of its own" if split else ""),
        )

    def _action(self, layer: Layer) -> str:
        if self.activations == "dynamic-token" and layer.kind in {"linear", "conv1d"}:
            return "int8 per channel, activations int8 per token"
        return "int8 per channel"

    def apply(self, model: nn.Module, plan: PassPlan, progress: Progress | None = None) -> nn.Module:
        """Exchange the planned layers of ``model`` one by one, freeing each dense weight at once."""
        names = _names_of_modules(model)
        for done, layer in enumerate(plan.changed, start=1):
            if layer.note.startswith("shares "):
                owner = model.get_submodule(layer.note.removeprefix("shares "))
                compressed = self._share(model.get_submodule(layer.name), owner)
            else:
                compressed = self._compress(model, layer)
            for name in names.get(layer.name, [layer.name]):
                install(model, name, compressed)
            if progress:
                progress(done, len(plan.changed), layer.name)
        return model

    def _compress(self, model: nn.Module, layer: LayerPlan) -> CompressedModule:
        if layer.kind == "experts":
            parent = model.get_submodule(layer.name.rpartition(".")[0])
            return Int8Experts.from_dense(model.get_parameter(layer.name).detach(), bool(parent.is_transposed))
        module = model.get_submodule(layer.name)
        weight = module.get_parameter("weight").detach()
        if layer.kind == "embedding":
            return Int8Embedding.from_dense(weight)
        if is_conv1d(module):
            weight = weight.t()  # stored as [in, out]
        return Int8Linear.from_dense(weight, module._parameters.get("bias"), self.activations)

    def _share(self, module: nn.Module, owner: nn.Module) -> CompressedModule:
        assert isinstance(owner, (Int8Linear, Int8Embedding)), owner
        if isinstance(module, nn.Embedding):
            return Int8TiedEmbedding(owner, module.weight.dtype)
        return Int8TiedLinear(owner, module._parameters.get("bias"), self.activations)


def _unfit(layer: Layer) -> str:
    """Why int8 in particular cannot take a layer that is otherwise free to be changed."""
    if layer.tied and layer.kind in {"conv1d", "experts"}:
        return f"its weight is shared with {', '.join(layer.tied)} in another layout"
    if not layer.dtype.startswith(("float", "bfloat")) or layer.dtype.startswith("float8"):
        return f"its weight is {layer.dtype}, not a floating-point matrix"
    return ""


def _scales(layer: Layer) -> int:
    return math.prod(layer.shape[:-1])


def _names_of_modules(model: nn.Module) -> dict[str, list[str]]:
    """Every dotted name of each module, by its first one; a module used twice is exchanged in both places."""
    groups: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        groups.setdefault(id(module), []).append(name)
    return {group[0]: group for group in groups.values()}
