"""Recipe + inventory -> for each layer an action or a reason for skipping it; complete before any weight changes.

Pure: works on the inventory alone, so a model on the meta device is enough.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from effkit.errors import PlanError
from effkit.inventory import Inventory, Layer
from effkit.recipe import Recipe
from effkit.records import Coverage, SkippedLayer
from effkit.registry import PassConfig

LOW_COVERAGE = 0.5


@dataclass(frozen=True)
class LayerPlan:
    """What one pass does to one layer.

    Attributes:
        name: dotted name.
        kind, class_name, shape: as in the inventory.
        action: what is done, such as ``int8 per channel``; empty where the layer is skipped.
        reason: why it is skipped; empty where it is not.
        format: format afterwards.
        elements: elements of the weight storage that this entry accounts for; 0 where another layer does.
        bytes_before, bytes_after: of that storage.
        note: a remark such as ``shares model.embed_tokens``.
    """

    name: str
    kind: str
    class_name: str
    shape: tuple[int, ...]
    action: str
    reason: str
    format: str
    elements: int
    bytes_before: int
    bytes_after: int
    note: str = ""

    @property
    def skipped(self) -> bool:
        """True where the layer stays as it is."""
        return not self.action

    @classmethod
    def skip(cls, layer: Layer, reason: str, *, accounted: bool = True) -> LayerPlan:
        """Leave a layer as it is; ``accounted`` is False where its bytes stand under another layer."""
        size = layer.weight_bytes if accounted else 0
        elements = math.prod(layer.shape) if accounted else 0
        return cls(
            layer.name, layer.kind, layer.class_name, layer.shape, "", reason, layer.format, elements, size, size
        )


@dataclass(frozen=True)
class PassPlan:
    """What one pass does, layer by layer."""

    config: PassConfig
    layers: tuple[LayerPlan, ...]

    @property
    def changed(self) -> tuple[LayerPlan, ...]:
        """The layers that are changed."""
        return tuple(layer for layer in self.layers if not layer.skipped)


@dataclass(frozen=True)
class Plan:
    """A recipe resolved against a model.

    Attributes:
        recipe: the recipe, defaults filled in.
        model_class: class name of the model.
        passes: one entry per pass, in order.
        coverage: share of the dense weight bytes that is compressed, and what was skipped.
        bytes_before: bytes of all distinct storages as the model is now.
        bytes_after: the same afterwards.
        fp32_bytes: the same if every element took four bytes: the baseline of every ratio.
        parameters: number of parameters.
        warnings: what a user should know before starting.
    """

    recipe: Recipe
    model_class: str
    passes: tuple[PassPlan, ...]
    coverage: Coverage
    bytes_before: int
    bytes_after: int
    fp32_bytes: int
    parameters: int
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON data."""
        return {
            "recipe": self.recipe.to_dict(),
            "model_class": self.model_class,
            "parameters": self.parameters,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "fp32_bytes": self.fp32_bytes,
            "coverage": self.coverage.model_dump(mode="json"),
            "warnings": list(self.warnings),
            "passes": [
                {"use": each.config.use, "layers": [asdict(layer) for layer in each.layers]} for each in self.passes
            ],
        }


def make_plan(inventory: Inventory, recipe: Recipe) -> Plan:
    """Resolve ``recipe`` against ``inventory``.

    Raises:
        PlanError: the model has no weights; a pattern matches nothing; a pass would change nothing or covers less
            than its ``min_coverage``; settings do not fit the model. Nothing has been changed then.
    """
    if not inventory.layers:
        raise PlanError(f"{inventory.model_class} has no layer with weights; there is nothing to compress")
    current = inventory
    planned: list[PassPlan] = []
    for config in recipe.passes:
        each = config.plan(current)
        if not each.changed:
            raise PlanError(_changed_nothing(config, each))
        planned.append(each)
        current = current.with_formats({p.name: (p.format, p.bytes_after) for p in each.changed})
    coverage = _coverage(inventory, planned)
    for config in recipe.passes:
        if coverage.share < config.min_coverage:
            raise PlanError(_too_little(config, coverage))
    saved = sum(layer.bytes_before - layer.bytes_after for each in planned for layer in each.changed)
    return Plan(
        recipe=recipe,
        model_class=inventory.model_class,
        passes=tuple(planned),
        coverage=coverage,
        bytes_before=inventory.total_bytes,
        bytes_after=inventory.total_bytes - saved,
        fp32_bytes=inventory.fp32_bytes,
        parameters=inventory.parameters,
        warnings=_warnings(coverage, saved),
    )


def _coverage(inventory: Inventory, planned: list[PassPlan]) -> Coverage:
    last: dict[str, LayerPlan] = {}
    for each in planned:
        for layer in each.layers:
            if not layer.skipped or layer.name not in last:
                last[layer.name] = layer
    changed = [layer for layer in last.values() if not layer.skipped]
    skipped = [layer for layer in last.values() if layer.skipped]
    dense_bytes = 4 * sum(layer.elements for layer in changed)
    total = 4 * sum(storage.elements for storage in inventory.storages if storage.persistent)
    return Coverage(
        share=min(1.0, dense_bytes / total) if total else 0.0,
        compressed_layers=len(changed),
        skipped_layers=len(skipped),
        compressed_bytes_before=dense_bytes,
        compressed_bytes_after=sum(layer.bytes_after for layer in changed),
        total_bytes=total,
        skipped=tuple(SkippedLayer(name=s.name, bytes=s.bytes_before, reason=s.reason) for s in skipped),
    )


def _changed_nothing(config: PassConfig, plan: PassPlan) -> str:
    reasons: dict[str, int] = {}
    for layer in plan.layers:
        reasons[layer.reason] = reasons.get(layer.reason, 0) + 1
    listed = "; ".join(f"{count} x {reason}" for reason, count in sorted(reasons.items(), key=lambda r: -r[1])[:5])
    return f"the pass {config.use!r} would change no layer of this model: {listed}"


def _too_little(config: PassConfig, coverage: Coverage) -> str:
    largest = sorted(coverage.skipped, key=lambda layer: -layer.bytes)[:3]
    named = "; ".join(f"{layer.name}: {layer.reason}" for layer in largest)
    return (
        f"the recipe covers {coverage.share:.1%} of the weight bytes, less than min_coverage {config.min_coverage:.1%} "
        f"of the pass {config.use!r}; the largest layers left dense: {named}"
    )


def _warnings(coverage: Coverage, saved: int) -> tuple[str, ...]:
    found = []
    if coverage.share < LOW_COVERAGE:
        largest = sorted(coverage.skipped, key=lambda layer: -layer.bytes)[:3]
        named = "; ".join(f"{layer.name} ({layer.reason})" for layer in largest)
        found.append(f"only {coverage.share:.1%} of the weight bytes are compressed; left dense: {named}")
    if saved < 0:
        found.append(f"the model grows by {-saved} bytes")
    return tuple(found)
