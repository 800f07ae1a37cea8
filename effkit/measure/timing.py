"""Time of one call: synchronised, then read from a monotonic clock or from device events.

Knows nothing of models. Clocks are injected, so that tests time nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch

Work = Callable[[], object]


class Timer(Protocol):
    """Times one call."""

    def seconds(self, work: Work) -> float:
        """Run ``work`` to its end on the device and return the seconds it took."""
        ...


class HostTimer:
    """Monotonic host clock around a synchronised call; for the CPU and for devices without events.

    Args:
        synchronise: waits until the device is idle; nothing to do on the CPU.
        clock_ns: monotonic nanoseconds.
    """

    def __init__(
        self,
        synchronise: Callable[[], object] | None = None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._synchronise = synchronise or (lambda: None)
        self._clock_ns = clock_ns

    def seconds(self, work: Work) -> float:
        """Run ``work`` between two reads of the clock, each after the device has become idle."""
        self._synchronise()
        start = self._clock_ns()
        work()
        self._synchronise()
        return (self._clock_ns() - start) / 1e9


class CudaTimer:
    """CUDA events on the current stream, read after synchronisation."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def seconds(self, work: Work) -> float:
        """Run ``work`` between two events; includes the time the host takes to launch it."""
        with torch.cuda.device(self._device):
            start, end = _event(), _event()
            torch.cuda.synchronize(self._device)
            start.record()
            work()
            end.record()
            torch.cuda.synchronize(self._device)
            return float(start.elapsed_time(end)) / 1e3


def timer_for(device: str | torch.device) -> Timer:
    """Return the right timer: events on CUDA, else the host clock with that device's synchronisation."""
    device = torch.device(device)
    if device.type == "cuda":
        return CudaTimer(device)
    if device.type in {"cpu", "meta"}:
        return HostTimer()
    return HostTimer(synchronise=lambda: torch.accelerator.synchronize(device))


def repeat(work: Work, *, warmup: int, repeats: int, timer: Timer) -> tuple[float, ...]:
    """Call ``work`` ``warmup`` times unseen and then return ``repeats`` samples in seconds."""
    for _ in range(warmup):
        work()
    return tuple(timer.seconds(work) for _ in range(repeats))


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event
