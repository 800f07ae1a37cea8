"""``effkit doctor``: what this machine can do."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from effkit.cli.common import LOOKING, AsJson, grid, out_console, print_json, say, size_text

NAME = "doctor"
PANEL = LOOKING
HELP = """Say what this machine can do: devices, memory, measured bandwidth and FLOP/s, kernels, packages.

Example: effkit doctor
"""


def run(
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure again instead of using what is cached.")] = False,
    as_json: AsJson = False,
) -> int:
    """Measure (or recall) and print."""
    found = _findings(refresh)
    if as_json:
        print_json(found)
        return 0
    _print(found)
    return 0


def _findings(refresh: bool) -> dict[str, Any]:
    import psutil
    import torch

    from effkit.kernels import available_kernels, native
    from effkit.measure.energy import EnergyMeter
    from effkit.measure.environment import describe
    from effkit.measure.roofline import measure_ceilings

    devices = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    environments = [describe(each, measure_ceilings(each, refresh=refresh)) for each in devices]
    kernels = [
        {"device": each, "name": kernel.name, "scheme": kernel.scheme, "summary": kernel.summary}
        for each in dict.fromkeys(name.partition(":")[0] for name in devices)
        for kernel in available_kernels(each)
    ]
    return {
        "devices": [environment.model_dump(mode="json") for environment in environments],
        "memory_available_bytes": psutil.virtual_memory().available,
        "disk_free_bytes": shutil.disk_usage(Path.cwd()).free,
        "energy_source": EnergyMeter("cpu").source,
        "native_library": native.status(),
        "kernels": kernels,
    }


def _print(found: dict[str, Any]) -> None:
    from rich.text import Text

    console = out_console()
    first = found["devices"][0]
    total, free = size_text(first["memory_total_bytes"]), size_text(found["memory_available_bytes"])
    facts = {
        "processor": f"{first['cpu_model']}, {first['cpu_count']} cores, {first['threads']} threads",
        "instructions": ", ".join(first["cpu_features"]),
        "memory": f"{total}, {free} available",
        "disk": f"{size_text(found['disk_free_bytes'])} free in this directory",
        "system": f"{first['os']}, Python {first['python']}",
        "packages": ", ".join(f"{name} {version}" for name, version in first["packages"].items()),
        "effkit": f"{first['effkit_version']}, native library: {found['native_library']}",
        "energy": found["energy_source"],
    }
    table = grid("", "")
    table.show_header = False
    for name, fact in facts.items():
        table.add_row(Text(name, "bold"), Text(str(fact)))
    console.print(table)
    table = grid("device", ">read bandwidth", ">FP32", ">BF16")
    for device in found["devices"]:
        ceilings = device["ceilings"]
        table.add_row(
            Text(device["device_name"]),
            _rate(ceilings["memory_read_bytes_per_s"], 1e9, "GB/s"),
            _rate(ceilings["fp32_flop_per_s"], 1e9, "GFLOP/s"),
            _rate(ceilings["bf16_flop_per_s"], 1e9, "GFLOP/s"),
        )
    say(console, "\nmeasured ceilings", "bold")
    console.print(table)
    table = grid("scheme", "kernel", "what it does")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for kernel in found["kernels"]:
        table.add_row(f"{kernel['device']} {kernel['scheme']}", kernel["name"], Text(kernel["summary"]))
    say(console, "\nkernels, preferred first", "bold")
    console.print(table)


def _rate(value: float | None, unit: float, name: str) -> str:
    return "-" if value is None else f"{value / unit:,.1f} {name}"
