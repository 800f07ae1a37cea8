"""``effkit hardware``: the device table with its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from effkit.cli.common import LOOKING, AsJson, grid, out_console, print_json, say

if TYPE_CHECKING:
    from effkit.hardware import Device

NAME = "hardware"
PANEL = LOOKING
HELP = """List devices with their published figures, or all that is known of one, with sources.

Example: effkit hardware H100-SXM
"""


COLUMNS = {
    "GB": ("memory_bytes", 1e9),
    "GB/s": ("memory_bytes_per_s", 1e9),
    "BF16 TFLOP/s": ("bf16_flop_per_s", 1e12),
    "INT8 TOP/s": ("int8_op_per_s", 1e12),
    "W": ("tdp_w", 1.0),
}
UNITS = (
    ("_flop_per_s", "", 1e12, "TFLOP/s"),
    ("_op_per_s", "", 1e12, "TOP/s"),
    ("_bytes_per_s", " bandwidth", 1e9, "GB/s"),
    ("_bytes", "", 1e9, "GB"),
    ("_w", "", 1.0, "W"),
)
"""Ending of a field, what people call it, factor, unit."""


def run(
    name: Annotated[str | None, typer.Argument(metavar="[DEVICE]", help="Show this one.", show_default=False)] = None,
    as_json: AsJson = False,
) -> int:
    """List or show."""
    from effkit import hardware

    chosen = [hardware.device(name)] if name is not None else list(hardware.devices().values())
    if as_json:
        described = [device.to_dict() for device in chosen]
        print_json(described[0] if name is not None else described)
    elif name is not None:
        _print_one(chosen[0])
    else:
        _print_all(chosen)
    return 0


def _print_all(devices: list[Device]) -> None:
    table = grid("device", "kind", *(f">{heading}" for heading in COLUMNS))
    table.columns[0].no_wrap = True
    for device in devices:
        values = [(getattr(device, field), factor) for field, factor in COLUMNS.values()]
        table.add_row(device.name, device.kind, *("-" if v is None else f"{v / f:,.4g}" for v, f in values))
    console = out_console()
    console.print(table)
    say(console, "published peaks, not measurements; `effkit hardware NAME` shows every figure and its sources", "dim")


def _print_one(device: Device) -> None:
    from rich.text import Text

    from effkit import hardware

    console = out_console()
    say(console, f"{device.name} ({device.kind})", "bold")
    table = grid("figure", ">value", "worth")
    for field, value in device.to_dict().items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            table.add_row(*_named(field, value), device.worth(field))
        elif value is None:
            table.add_row(_named(field, 0)[0], "-", Text(device.reasons.get(field, "missing"), "dim"))
    console.print(table)
    known = hardware.sources()
    for key in device.sources:
        say(console, f"{key}: {known[key].title} ({known[key].address})", "dim")


def _named(field: str, value: float) -> tuple[str, str]:
    """A field's name and value for people: ``memory_bytes`` -> ``memory``, ``85.52 GB``."""
    for suffix, called, factor, unit in UNITS:
        if field.endswith(suffix):
            return field.removesuffix(suffix).replace("_", " ") + called, f"{value / factor:,.4g} {unit}"
    return field.replace("_", " "), f"{value:,}"
