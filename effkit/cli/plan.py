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
    out_console,
    print_json,
    refuse,
    size_text,
)

if TYPE_CHECKING:
    from rich.console import Console

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
    console.print(f"{model}: {source.size_note()}", markup=False, soft_wrap=True)
    for note in source.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
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
    from rich.table import Table

    for each in plan.passes:
        table = Table(title=f"{plan.recipe.name}: pass {each.config.use}", title_justify="left", expand=False)
        table.add_column("layer", overflow="fold")
        table.add_column("n", justify="right")
        table.add_column("shape")
        table.add_column("what happens", overflow="fold")
        table.add_column("before", justify="right", no_wrap=True)
        table.add_column("after", justify="right", no_wrap=True)
        rows = [[layer] for layer in each.layers] if every_layer else folded(each.layers)
        for group in rows:
            first = group[0]
            what = first.action or f"dense: {first.reason}"
            what += f" ({first.note})" if first.note else ""
            table.add_row(
                _plain(common_name([layer.name for layer in group])),
                str(len(group)),
                "x".join(str(size) for size in first.shape),
                _plain(what),
                size_text(sum(layer.bytes_before for layer in group)),
                size_text(sum(layer.bytes_after for layer in group)),
                style="dim" if first.skipped else None,
            )
        console.print(table)
    console.print(summary_line(plan), markup=False, soft_wrap=True)
    for warning in plan.warnings:
        err_console().print(f"warning: {warning}", markup=False, soft_wrap=True)


def _plain(text: str) -> Any:
    from rich.text import Text

    return Text(text)


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

    note = "measured read bandwidth"
    return Bandwidth("this machine", found.memory_read_bytes_per_s, int(psutil.virtual_memory().total), note)


def _listed(device: Any) -> Bandwidth:
    worth = device.worth("memory_bytes_per_s")
    note = f"data sheet ({worth}), sources {', '.join(device.sources)}"
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
    from rich.table import Table

    title = f"what to expect at batch {batch}, context {context} (predicted, not measured)"
    table = Table(title=title, title_justify="left")
    table.add_column("variant")
    for heading in ("weights", "KV cache", "peak memory", "peak while compressing"):
        table.add_column(heading, justify="right")
    for place in places:
        table.add_column(f"decode tokens/s\n{place.name}", justify="right")
    for name, found in predictions:
        speeds = [_speed(found, place) for place in places]
        table.add_row(
            name,
            size_text(found.weight_bytes),
            size_text(found.kv_cache_bytes),
            size_text(found.peak_bytes),
            size_text(found.compress_peak_bytes),
            *("-" if speed is None else f"<= {speed:,.0f}" for speed in speeds),
        )
    console.print(table)
    for place in places:
        rate = "no bandwidth in the table" if place.bytes_per_s is None else f"{place.bytes_per_s / 1e9:,.1f} GB/s"
        console.print(f"{place.name}: {rate}, {place.note}", markup=False, soft_wrap=True)
    console.print(
        "decode <= bandwidth / bytes read per token, batch 1; peak = weights + KV cache + activations + runtime",
        markup=False,
        soft_wrap=True,
    )
