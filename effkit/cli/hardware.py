"""``effkit hardware``: the device table with its sources."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from effkit.cli.common import LOOKING, AsJson, out_console, print_json, size_text

NAME = "hardware"
PANEL = LOOKING
HELP = """List devices with their published figures, or all that is known of one, with sources.

Example: effkit hardware H100-SXM
"""


def run(
    name: Annotated[str | None, typer.Argument(metavar="[DEVICE]", help="Show this one.", show_default=False)] = None,
    as_json: AsJson = False,
) -> int:
    """List or show."""
    from rich.table import Table

    from effkit import hardware

    chosen = [hardware.device(name)] if name is not None else list(hardware.devices().values())
    if as_json:
        described = [device.to_dict() for device in chosen]
        print_json(described[0] if name is not None else described)
        return 0
    console = out_console()
    if name is None:
        table = Table("device", "kind", "memory", "bandwidth", "BF16", "INT8", "power")
        for device in chosen:
            table.add_row(
                device.name,
                device.kind,
                _shown(device.memory_bytes, size_text),
                _shown(device.memory_bytes_per_s, lambda v: f"{v / 1e9:,.0f} GB/s"),
                _shown(device.bf16_flop_per_s, lambda v: f"{v / 1e12:,.1f} TFLOP/s"),
                _shown(device.int8_op_per_s, lambda v: f"{v / 1e12:,.1f} TOP/s"),
                _shown(device.tdp_w, lambda v: f"{v:,.0f} W"),
            )
        console.print(table)
        console.print("published peaks, not measurements; `effkit hardware NAME` shows sources", markup=False)
        return 0
    _print_one(console, chosen[0])
    return 0


def _print_one(console: Any, device: Any) -> None:
    from rich.table import Table

    from effkit import hardware

    table = Table("figure", "value", "worth", title=f"{device.name} ({device.kind})", title_justify="left")
    for field, value in device.to_dict().items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            table.add_row(field, f"{value:,.6g}", device.worth(field))
        elif value is None:
            table.add_row(field, "-", device.reasons.get(field, "missing"))
    console.print(table)
    known = hardware.sources()
    for key in device.sources:
        source = known[key]
        console.print(f"{key}: {source.title} ({source.address})", markup=False, soft_wrap=True)


def _shown(value: Any, text: Any) -> str:
    return "-" if value is None else text(value)
