"""Bytes: of a model's weights, of the process at its peak, of the accelerator at its peak; and the ledger of them.

Knows no pass. The host's peak is the kernel's own high-water mark, so nothing is missed between two looks.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from effkit.records import Ledger

PROC = Path("/proc/self")


@dataclass(frozen=True)
class PeakReset:
    """Whether a fresh peak began.

    Attributes:
        fresh: True when the host's mark was set back to the present.
        reason: why not, and what the peak then covers; empty where fresh.
    """

    fresh: bool
    reason: str = ""


def weight_bytes(model: nn.Module) -> int:
    """Bytes of every distinct storage of parameters and buffers, each once; works on the meta device too."""
    tensors = (*model.parameters(), *model.buffers())
    seen: dict[int, int] = {}
    for tensor in tensors:
        for plain in _plain_tensors(tensor):
            storage = plain.untyped_storage()
            seen[storage._cdata] = storage.nbytes()
    return sum(seen.values())


def _plain_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the memory behind a tensor: itself, the parts of a subclass, and bitsandbytes' scales beside it."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        for name in flatten()[0]:
            yield from _plain_tensors(getattr(tensor, name))
        return
    yield tensor
    state = getattr(tensor, "quant_state", None)
    while state is not None:
        yield from (value for value in vars(state).values() if isinstance(value, torch.Tensor))
        state = getattr(state, "state2", None)


def release_unused() -> None:
    """Collect garbage and hand free heap pages back, so that a peak does not hold what is no longer used."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only; musl has none
        if trim is not None:
            trim(0)


def reset_peak(device: str | torch.device = "cpu", *, proc: Path = PROC) -> PeakReset:
    """Let new peaks of host and device begin now.

    Args:
        device: accelerator whose peak is reset as well.
        proc: the process's folder under /proc; for tests.
    """
    release_unused()
    device = torch.device(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    try:
        (proc / "clear_refs").write_text("5")
    except OSError as error:
        detail = error.strerror or str(error)
        return PeakReset(False, f"the peak covers the whole life of the process: cannot reset VmHWM ({detail})")
    return PeakReset(True)


def peak_rss_bytes(*, proc: Path = PROC) -> int:
    """Highest resident size of this process since the last ``reset_peak`` (where that was possible), in bytes."""
    mark = _status_bytes("VmHWM", proc)
    if mark is not None:
        return mark
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def current_rss_bytes(*, proc: Path = PROC) -> int:
    """Resident size of this process now, in bytes."""
    size = _status_bytes("VmRSS", proc)
    if size is not None:
        return size
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_device_bytes(device: str | torch.device) -> int | None:
    """Highest memory allocated on an accelerator since the last ``reset_peak``; None on the CPU."""
    device = torch.device(device)
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None


def ledger(
    peak_bytes: int | None,
    *,
    weights_bytes: int,
    kv_cache_bytes: int | None = None,
    activations_bytes: int | None = None,
    runtime_bytes: int | None = None,
    disk_bytes: int | None = None,
) -> Ledger:
    """Take a measured peak apart; what the known parts do not explain is an entry of its own.

    Args:
        peak_bytes: measured peak of the memory that holds the weights.
        weights_bytes: see :func:`weight_bytes`.
        kv_cache_bytes: largest cache while measuring.
        activations_bytes: known intermediate results, such as the logits of one batch of windows.
        runtime_bytes: interpreter and libraries, as resident before the model was loaded.
        disk_bytes: checkpoint files; beside the peak, not part of it.
    """
    reasons: dict[str, str] = {
        "optimizer_bytes": "nothing is trained here",
        "pinned_host_bytes": "nothing is pinned here",
    }
    given: dict[str, Any] = {
        "kv_cache_bytes": kv_cache_bytes,
        "activations_bytes": activations_bytes,
        "runtime_bytes": runtime_bytes,
        "disk_bytes": disk_bytes,
    }
    reasons |= {name: "not measured" for name, value in given.items() if value is None}
    unexplained = None
    if peak_bytes is None:
        reasons["unexplained_bytes"] = "no peak was measured"
    else:
        parts = (weights_bytes, kv_cache_bytes, activations_bytes, runtime_bytes)
        unexplained = peak_bytes - sum(part for part in parts if part is not None)
    return Ledger(weights_bytes=weights_bytes, **given, unexplained_bytes=unexplained, reasons=reasons)


def _status_bytes(field: str, proc: Path) -> int | None:
    try:
        lines = (proc / "status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return None
