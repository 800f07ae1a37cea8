"""The machine and the software a measurement ran on.

Reads what the system says of itself; runs nothing and asks no network.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

import torch

import effkit
from effkit.records import Ceilings, Environment

CPUINFO = Path("/proc/cpuinfo")
CACHE_INFO = Path("/sys/devices/system/cpu/cpu0/cache")

PACKAGES = (
    "torch", "transformers", "tokenizers", "safetensors", "numpy", "torchao", "bitsandbytes", "accelerate", "gguf",
    "onnxruntime", "onnxruntime-gpu",
)  # fmt: skip
FEATURES = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx_vnni", "avx512_vnni",
    "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip


def describe(device: str = "cpu", ceilings: Ceilings | None = None) -> Environment:
    """Describe this machine.

    Args:
        device: what the models run on.
        ceilings: as measured; measured now (or read from the cache) where None.
    """
    if ceilings is None:
        from effkit.measure.roofline import measure_ceilings

        ceilings = measure_ceilings(device)
    return Environment(
        effkit_version=effkit.__version__,
        os=_os_name(),
        python=platform.python_version(),
        cpu_model=cpu_model(),
        cpu_count=usable_cpus(),
        threads=torch.get_num_threads(),
        cpu_features=cpu_features(),
        memory_total_bytes=memory_total_bytes(),
        device=device,
        device_name=device_name(device),
        device_memory_bytes=device_memory_bytes(device),
        packages=package_versions(),
        ceilings=ceilings,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def cpu_model(cpuinfo: Path = CPUINFO) -> str:
    """Name of the processor, with family and model number where the name is generic."""
    fields = _cpuinfo(cpuinfo)
    name = fields.get("model name") or fields.get("Hardware") or platform.processor() or platform.machine()
    if "cpu family" in fields and "model" in fields:
        return f"{name.strip()} (family {fields['cpu family']}, model {fields['model']})"
    return name.strip()


def cpu_features(cpuinfo: Path = CPUINFO) -> tuple[str, ...]:
    """Instruction sets that matter to matrix kernels, of those the processor names."""
    fields = _cpuinfo(cpuinfo)
    present = set((fields.get("flags") or fields.get("Features") or "").split())
    return tuple(name for name in FEATURES if name in present)


def usable_cpus() -> int:
    """Logical processors this process may use: affinity mask and the control group's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(count, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no control group, or "max": no quota
        return count


def physical_cores() -> int | None:
    """Physical cores of the machine; None where it does not say."""
    import psutil

    return psutil.cpu_count(logical=False)


def memory_total_bytes() -> int:
    """Memory this process may use: the machine's, or its control group's limit where that is lower."""
    import psutil

    total = int(psutil.virtual_memory().total)
    try:
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no control group, or "max": no limit
        return total


def last_level_cache_bytes(folder: Path = CACHE_INFO) -> int | None:
    """Size of the processor's largest cache; None where the system does not say."""
    sizes: list[int] = []
    for file in folder.glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KMG]?)", file.read_text().strip())
        if match:
            sizes.append(int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]])
    return max(sizes, default=None)


def device_name(device: str) -> str:
    """Name of the accelerator, or the processor's."""
    where = torch.device(device)
    return torch.cuda.get_device_name(where) if where.type == "cuda" else cpu_model()


def device_memory_bytes(device: str) -> int | None:
    """Memory of the accelerator in all; None on the CPU, whose memory is the machine's."""
    where = torch.device(device)
    return int(torch.cuda.mem_get_info(where)[1]) if where.type == "cuda" else None


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that can change a result."""
    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def cache_dir() -> Path:
    """Folder for what may be thrown away: ``$XDG_CACHE_HOME/effkit``, by default ``~/.cache/effkit``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path(os.path.expanduser("~")) / ".cache") / "effkit"


def _cpuinfo(path: Path) -> dict[str, str]:
    """The first processor's fields."""
    fields: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return fields
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name.strip() not in fields:
            fields[name.strip()] = value.strip()
    return fields


def _os_name() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        name = platform.system()
    return f"{name}, kernel {platform.release()}"
