"""``effkit plan``: what a recipe would do to every layer, from the meta device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from effkit.cli.common import (
    MEASURING,
    AsJson,
    Model,
    Recipes,
    Trust,
    collect,
    err_console,
    grid,
    out_console,
    print_json,
    refuse,
    say,
    size_text,
    size_unit,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from effkit.inventory import Inventory
    from effkit.planning import LayerPlan, Plan
    from effkit.predict import Prediction, TextShape

NAME = "plan"
PANEL = MEASURING
HELP = """Say what a recipe does to every layer, and what to expect of it, without loading a weight.

Example: effkit plan sample:smollm2-135m --recipe int8 --device H100-SXM
"""


@dataclass(frozen=True)
class Bandwidth:
    """Where decode speed is predicted for."""

    name: str
    bytes_per_s: float | None
    memory_bytes: int | None
    note: str


def run(
    model: Model,
    recipe: Recipes,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", help="Also predict for a device of `effkit hardware`; may be given several times."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sequences, for the KV cache.")] = 1,
    context: Annotated[int, typer.Option(min=1, help="Tokens per sequence, for the KV cache.")] = 1024,
    every_layer: Annotated[bool, typer.Option("--all", help="One line per layer instead of folded ones.")] = False,
    trust_remote_code: Trust = False,
    as_json: AsJson = False,
) -> int:
    """Resolve each recipe against the model and print it."""
    from effkit import hardware
    from effkit.inventory import take_inventory
    from effkit.models import resolve
    from effkit.planning import make_plan
    from effkit.predict import TextShape
    from effkit.recipe import load_recipe

    problems: list[str] = []
    recipes = [collect(problems, load_recipe, name) for name in recipe]
    listed = [collect(problems, hardware.device, name) for name in device or []]
    source = collect(problems, lambda: resolve(model, trust_remote_code=trust_remote_code))
    refuse(problems)
    skeleton = source.meta_model()
    inventory = take_inventory(skeleton)
    plans = [make_plan(inventory, each) for each in recipes]
    shape = TextShape.from_config(skeleton.config)
    places = [_here(), *(_listed(each) for each in listed)]
    predictions = _predictions(inventory, plans, shape, batch, context)
    if as_json:
        print_json(
            {
                "model": source.info().model_dump(mode="json"),
                "size": source.size_note(),
                "plans": [plan.to_dict() for plan in plans],
                "batch": batch,
                "context": context,
                "predictions": [_as_json(name, found, places) for name, found in predictions],
            }
        )
        return 0
    console = out_console()
    say(console, f"{model}: {source.size_note()}")
    for note in source.notes:
        say(console, f"note: {note}")
    for plan in plans:
        _print_plan(console, plan, every_layer)
    _print_predictions(console, predictions, places, batch, context)
    return 0


def summary_line(plan: Plan) -> str:
    """One line for people: what a recipe does to the model."""
    coverage = plan.coverage
    return (
        f"{plan.recipe.name}: {coverage.compressed_layers} layers compressed, {coverage.skipped_layers} left dense, "
        f"{coverage.share:.1%} of the weight bytes covered; "
        f"{size_text(plan.bytes_before)} -> {size_text(plan.bytes_after)} "
        f"({plan.bytes_after / plan.fp32_bytes:.3f}x of FP32)"
    )


def _print_plan(console: Console, plan: Plan, every_layer: bool) -> None:
    for each in plan.passes:
        groups = [[layer] for layer in each.layers] if every_layer else folded(each.layers)
        unit, factor = size_unit(max((_bytes(group)[0] for group in groups), default=0))
        table = grid("layer", ">shape", "action", ">before", ">after")
        table.columns[0].overflow = "fold"
        for group in groups:
            if every_layer or not group[0].skipped:
                table.add_row(*_cells(group, factor), style="dim" if group[0].skipped else None)
        say(console, f"\nrecipe {plan.recipe.name}, pass {each.config.use}; sizes in {unit}", "bold")
        console.print(table)
        if not every_layer:
            _print_dense(console, [layer for layer in each.layers if layer.skipped])
    console.print()
    say(console, summary_line(plan), "bold")
    for warning in plan.warnings:
        say(err_console(), f"warning: {warning}")


def _cells(group: Sequence[LayerPlan], factor: float) -> tuple[Text, ...]:
    """One row for layers of one kind; as text, so that a name in brackets is no markup."""
    from rich.text import Text

    first = group[0]
    name = common_name([layer.name for layer in group])
    before, after = _bytes(group)
    cells = (
        f"{name} ({first.note})" if first.note else name,
        "x".join(str(size) for size in first.shape),
        first.action or f"dense: {first.reason}",
        f"{before / factor:,.1f}",
        f"{after / factor:,.1f}",
    )
    return tuple(Text(cell) for cell in cells)


def _bytes(group: Sequence[LayerPlan]) -> tuple[int, int]:
    return sum(layer.bytes_before for layer in group), sum(layer.bytes_after for layer in group)


def _print_dense(console: Console, layers: Sequence[LayerPlan]) -> None:
    """Tell what stays dense by its reason, largest share first."""
    reasons: dict[str, list[LayerPlan]] = {}
    for layer in layers:
        reasons.setdefault(layer.reason, []).append(layer)
    for reason, group in sorted(reasons.items(), key=lambda item: -sum(layer.bytes_before for layer in item[1])):
        size = size_text(sum(layer.bytes_before for layer in group))
        names = sorted({re.sub(r"^.*\.", "", layer.name) or "(root)" for layer in group})
        shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        say(console, f"left dense: {len(group)} layers, {size} ({shown}): {reason}", "dim")


def folded(layers: Sequence[LayerPlan]) -> list[list[LayerPlan]]:
    """Put layers that differ only in a number of their name together, in the order of the first of each."""
    groups: dict[tuple[Any, ...], list[LayerPlan]] = {}
    for layer in layers:
        pattern = re.sub(r"\d+", "#", layer.name)
        reason = re.sub(r"\d+", "#", layer.reason)
        groups.setdefault((pattern, layer.shape, layer.action, reason, bool(layer.note)), []).append(layer)
    return list(groups.values())


def common_name(names: Sequence[str]) -> str:
    """Write names that differ in numbers as one: ``model.layers.{0-29}.mlp.up_proj``."""
    if len(names) == 1:
        return names[0]
    parts = [re.split(r"(\d+)", name) for name in names]
    merged = []
    for column in zip(*parts, strict=True):
        different = sorted({int(word) for word in column}) if column[0].isdigit() else []
        if len(different) < 2:
            merged.append(column[0])
        elif different == list(range(different[0], different[-1] + 1)):
            merged.append(f"{{{different[0]}-{different[-1]}}}")
        else:
            merged.append("{" + ",".join(str(number) for number in different) + "}")
    return "".join(merged)


def _here() -> Bandwidth:
    from effkit.measure.roofline import measure_ceilings

    found = measure_ceilings("cpu")
    import psutil

    note = "measured" if found.memory_read_bytes_per_s else "not measured"
    return Bandwidth("this machine", found.memory_read_bytes_per_s, int(psutil.virtual_memory().total), note)


def _listed(device: Any) -> Bandwidth:
    worth = device.worth("memory_bytes_per_s")
    note = f"data sheet, {worth} ({', '.join(device.sources)})"
    return Bandwidth(device.name, device.memory_bytes_per_s, device.memory_bytes, note)


def _predictions(
    inventory: Inventory, plans: Sequence[Plan], shape: TextShape | None, batch: int, context: int
) -> list[tuple[str, Prediction]]:
    from effkit.predict import predict

    options: dict[str, Any] = {"shape": shape, "batch": batch, "context": context}
    found = [("fp32", predict(inventory, **options))]
    return found + [(plan.recipe.name, predict(inventory, plan, **options)) for plan in plans]


def _as_json(name: str, found: Prediction, places: Sequence[Bandwidth]) -> dict[str, Any]:
    data = asdict(found)
    data.pop("decode_tokens_per_s")
    speeds = {place.name: _speed(found, place) for place in places}
    return {"variant": name, **data, "decode_tokens_per_s_at_most": speeds, "places": [asdict(p) for p in places]}


def _speed(found: Prediction, place: Bandwidth) -> float | None:
    return place.bytes_per_s / found.decode_bytes_per_token if place.bytes_per_s else None


def _print_predictions(
    console: Console,
    predictions: Sequence[tuple[str, Prediction]],
    places: Sequence[Bandwidth],
    batch: int,
    context: int,
) -> None:
    table = grid("variant", ">weights", ">KV cache", ">peak", ">peak while compressing")
    for name, found in predictions:
        sizes = (found.weight_bytes, found.kv_cache_bytes, found.peak_bytes, found.compress_peak_bytes)
        table.add_row(name, *(size_text(size) for size in sizes))
    say(console, f"\nmemory to expect, at batch {batch} and context {context} (predicted, not measured)", "bold")
    console.print(table)
    table = grid("on", ">bandwidth", *(f">{name}" for name, _ in predictions), "figure from")
    for place in places:
        speeds = [_speed(found, place) for _, found in predictions]
        rate = "-" if place.bytes_per_s is None else f"{place.bytes_per_s / 1e9:,.1f} GB/s"
        table.add_row(place.name, rate, *("-" if s is None else f"{s:,.0f}" for s in speeds), place.note)
    say(console, "\ndecode tokens/s to expect at most: bandwidth / bytes read per token, batch 1", "bold")
    console.print(table)
