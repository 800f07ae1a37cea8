"""Which layers a pass may change: targets, skips, obstacles and ties, settled once for all passes."""

from __future__ import annotations

from collections.abc import Collection

from effkit.errors import PlanError
from effkit.inventory import Inventory, Layer
from effkit.registry import PassConfig
from effkit.targets import select


def reasons_to_skip(config: PassConfig, inventory: Inventory, kinds: Collection[str]) -> dict[str, str]:
    """Say for every layer why ``config`` leaves it alone; an empty reason means that it may be changed.

    Args:
        config: the pass; its ``targets`` and ``skip`` are resolved here.
        inventory: the model.
        kinds: layer kinds the pass can handle.

    Returns:
        Reason by layer name, ties not yet considered (see :func:`settle_ties`).

    Raises:
        PlanError: with every pattern that matches nothing.
    """
    classes = inventory.classes()
    targets = select(config.targets or (), classes, f"{config.use}: targets")
    skip = select(config.skip, classes, f"{config.use}: skip")
    problems = targets.problems + skip.problems
    if problems:
        raise PlanError("\n".join(problems))

    def reason(layer: Layer) -> str:
        names = {layer.name, *layer.aliases}
        if names & skip.names:
            return "listed under skip"
        if config.targets is not None and not names & targets.names:
            return "not among targets"
        if layer.obstacle:
            return layer.obstacle
        if layer.kind not in kinds:
            return f"{layer.class_name}: not a kind of layer that {config.use} compresses"
        return ""

    return {layer.name: reason(layer) for layer in inventory.layers}


def settle_ties(inventory: Inventory, reasons: dict[str, str], *, untie: bool) -> dict[str, str]:
    """Add a reason to layers that share their storage with a layer that stays dense.

    With ``untie`` such a layer gets a storage of its own instead, and no reason.
    """
    settled = dict(reasons)
    for layer in inventory.layers:
        dense = [name for name in layer.tied if reasons[name]]
        if dense and not reasons[layer.name] and not untie:
            settled[layer.name] = (
                f"shares its weight with {', '.join(dense)}, which stays dense; name both, or set untie: true"
            )
    return settled
