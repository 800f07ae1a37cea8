"""Run a plan on a model that is in memory. Edits the model it is given and returns it; checks everything first."""

from __future__ import annotations

import torch
from torch import nn

from effkit.errors import EffkitError, PlanError
from effkit.inventory import take_inventory
from effkit.numerics.affine import require_finite
from effkit.planning import Plan
from effkit.registry import Progress


def apply_plan(model: nn.Module, plan: Plan, *, progress: Progress | None = None) -> nn.Module:
    """Compress ``model`` in place as planned.

    Args:
        model: the model the plan was made for; its weights must be in memory.
        plan: from :func:`effkit.planning.make_plan`.
        progress: called as ``progress(done, total, layer)`` for each pass.

    Returns:
        The same object.

    Raises:
        PlanError: weights are on the meta device, the plan is for another model, or a weight that is to be
            compressed holds NaN or infinity. The model has not been touched then.
    """
    _check(model, plan)
    with torch.no_grad():
        for each in plan.passes:
            each.config.apply(model, each, progress)
    return model


def _check(model: nn.Module, plan: Plan) -> None:
    inventory = take_inventory(model)
    if inventory.on_meta:
        named = ", ".join(inventory.on_meta[:5]) + (" ..." if len(inventory.on_meta) > 5 else "")
        raise PlanError(
            f"{len(inventory.on_meta)} parameters are on the meta device and hold no weights ({named}); "
            "load the model before compressing it"
        )
    layers = {layer.name: layer for layer in inventory.layers}
    first = plan.passes[0]
    unknown = [layer.name for layer in first.layers if layer.name not in layers]
    reshaped = [p.name for p in first.layers if p.name in layers and layers[p.name].shape != p.shape]
    if unknown or reshaped:
        raise PlanError(f"the plan was made for another model: it differs at {', '.join((unknown + reshaped)[:5])}")
    for layer in first.changed:
        weight = layers[layer.name].weight
        try:
            require_finite(model.get_parameter(weight), weight)
        except EffkitError as error:
            raise PlanError(str(error)) from None
