"""``effkit doctor``: what this machine can do."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from effkit.cli.common import LOOKING, AsJson, out_console, print_json, size_text

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
    from rich.table import Table

    console = out_console()
    first = found["devices"][0]
    console.print(f"{first['cpu_model']}, {first['cpu_count']} cores, {first['threads']} threads", markup=False)
    console.print(f"{first['os']}, Python {first['python']}, effkit {first['effkit_version']}", markup=False)
    total, free = size_text(first["memory_total_bytes"]), size_text(found["memory_available_bytes"])
    console.print(f"memory {total}, {free} available; disk {size_text(found['disk_free_bytes'])} free", markup=False)
    console.print(f"instruction sets: {', '.join(first['cpu_features'])}", markup=False)
    console.print(f"native library: {found['native_library']}", markup=False)
    console.print(f"energy: {found['energy_source']}", markup=False)
    table = Table("device", "read bandwidth", "FP32", "BF16", title="measured ceilings", title_justify="left")
    for device in found["devices"]:
        ceilings = device["ceilings"]
        table.add_row(
            device["device_name"],
            _rate(ceilings["memory_read_bytes_per_s"], 1e9, "GB/s"),
            _rate(ceilings["fp32_flop_per_s"], 1e9, "GFLOP/s"),
            _rate(ceilings["bf16_flop_per_s"], 1e9, "GFLOP/s"),
        )
    console.print(table)
    table = Table("device", "scheme", "kernel", "what it does", title="kernels, preferred first", title_justify="left")
    for kernel in found["kernels"]:
        table.add_row(kernel["device"], kernel["scheme"], kernel["name"], kernel["summary"])
    console.print(table)
    packages = ", ".join(f"{name} {version}" for name, version in first["packages"].items())
    console.print(f"packages: {packages}", markup=False, soft_wrap=True)


def _rate(value: float | None, unit: float, name: str) -> str:
    return "-" if value is None else f"{value / unit:,.1f} {name}"
