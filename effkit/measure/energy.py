"""Joules of a piece of work: from a counter where one can be read, else an estimate that says so.

| source | counter | unit |
|---|---|---|
| ``nvml`` | NVML total energy since the driver was loaded | mJ, whole GPU |
| ``rapl`` | ``/sys/class/powercap/intel-rapl:N/energy_uj``, all packages | uJ, whole processor |
| ``estimated`` | none: seconds x busy cores x watts per core | |

Counters see all that runs on the device, so measure on an idle machine.
Source of the counters' terms: Linux kernel documentation, power/powercap; NVIDIA NVML reference,
``nvmlDeviceGetTotalEnergyConsumption``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch

from effkit.measure.environment import physical_cores, usable_cpus
from effkit.measure.timing import Timer, Work, timer_for
from effkit.records import Energy

POWERCAP = Path("/sys/class/powercap")
WATTS_PER_CORE = 5.0
"""Assumed draw of one busy core: TDP / cores of server processors of 2019 to 2024 lies near 3 to 8 W."""
MIN_SECONDS = 1.0

Source = Literal["nvml", "rapl", "estimated", "none"]


class Bench(Protocol):
    """What is read again and again; :class:`effkit.measure.speed.SpeedBench` is one."""

    kinds: tuple[str, ...]

    def sample(self, kind: str, *, timer: Timer | None = None) -> float:
        """Take one sample of that kind, in seconds; ``timer`` runs exactly the timed part."""
        ...

    def tokens_of(self, kind: str) -> int:
        """Tokens that one sample processes or makes."""
        ...


class Counter(Protocol):
    """A counter of energy; ``joules`` never falls between two reads of one process."""

    source: Source

    def joules(self) -> float:
        """Read the counter, in joules from any origin."""
        ...


class RaplCounter:
    """Sum over the processor packages under ``/sys/class/powercap``; follows each counter's wraparound.

    Raises:
        OSError: a counter that exists cannot be read (root alone may on most kernels since 2020).
    """

    source: Source = "rapl"

    def __init__(self, zones: Sequence[Path]) -> None:
        self._zones = tuple(zones)
        self._ranges = [int((zone / "max_energy_range_uj").read_text()) for zone in self._zones]
        self._last = [self._read(zone) for zone in self._zones]
        self._total_uj = 0

    @classmethod
    def find(cls, root: Path = POWERCAP) -> RaplCounter | None:
        """Return a counter over all packages, or None where there is none or it may not be read."""
        zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if zone.name.count(":") == 1 and _is_package(zone)]
        try:
            return cls(zones) if zones else None
        except (OSError, ValueError):
            return None

    def joules(self) -> float:
        """Energy since this object was made, in joules."""
        for index, zone in enumerate(self._zones):
            now = self._read(zone)
            step = now - self._last[index]
            self._total_uj += step if step >= 0 else step + self._ranges[index]
            self._last[index] = now
        return self._total_uj / 1e6

    @staticmethod
    def _read(zone: Path) -> int:
        return int((zone / "energy_uj").read_text())


class NvmlCounter:
    """NVML's total energy counter of one GPU (Volta and later).

    Args:
        nvml: the ``pynvml`` module, or a fake.
        handle: of the device.
    """

    source: Source = "nvml"

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    @classmethod
    def find(cls, device: torch.device, nvml: Any = None) -> NvmlCounter | None:
        """Return the device's counter, or None where NVML or the counter is missing."""
        try:
            library = nvml if nvml is not None else importlib.import_module("pynvml")
            library.nvmlInit()
            counter = cls(library, library.nvmlDeviceGetHandleByUUID(_gpu_uuid(device)))
            counter.joules()
        except Exception:  # noqa: BLE001  NVMLError derives from Exception alone; without a counter we estimate and say so
            return None
        return counter

    def joules(self) -> float:
        """Energy since the driver was loaded, in joules (NVML counts millijoules)."""
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3


@dataclass(frozen=True)
class EnergyReading:
    """Energy of one piece of work.

    Attributes:
        joules: None where there is neither a counter nor an estimate.
        seconds: how long the work took.
        source: ``nvml``, ``rapl``, ``estimated`` or ``none``.
        formula: of an estimate, with its inputs.
        reason: why ``joules`` is None.
    """

    joules: float | None
    seconds: float
    source: Source
    formula: str = ""
    reason: str = ""


class EnergyMeter:
    """Reads the energy of work on one device.

    Args:
        device: ``cpu`` or an accelerator.
        counter: for tests; found on the machine by default.
        timer: for tests.

    Example:
        >>> meter = EnergyMeter("cpu")
        >>> meter.estimate(2.0).source in {"estimated", "none"}
        True
    """

    def __init__(
        self, device: str | torch.device = "cpu", *, counter: Counter | None = None, timer: Timer | None = None
    ) -> None:
        self.device = torch.device(device)
        self.counter = counter or _find_counter(self.device)
        self.timer = timer or timer_for(self.device)
        self.source: Source = self.counter.source if self.counter else _fallback(self.device)
        self._threads = torch.get_num_threads()

    def read(self, work: Work) -> EnergyReading:
        """Run ``work()`` and return its energy; estimated from its time where there is no counter."""
        if self.counter is None:
            return self.estimate(self.timer.seconds(work))
        start = self.counter.joules()
        seconds = self.timer.seconds(work)  # returns once the device is idle, so the second read covers all of it
        return EnergyReading(self.counter.joules() - start, seconds, self.counter.source)

    def estimate(self, seconds: float) -> EnergyReading:
        """Estimate from time alone, on the CPU; an accelerator without a counter gets no number."""
        if self.device.type != "cpu":
            return EnergyReading(None, seconds, "none", reason=f"no energy counter for {self.device} can be read")
        busy = min(self._threads, physical_cores() or usable_cpus())
        formula = (
            f"seconds x {busy} busy cores x {WATTS_PER_CORE:g} W per core (assumed; no energy counter can be read; "
            "memory, fans and idle draw left out)"
        )
        return EnergyReading(seconds * busy * WATTS_PER_CORE, seconds, "estimated", formula)


def energy_record(bench: Bench, meter: EnergyMeter, samples: Mapping[str, Sequence[float]]) -> Energy:
    """Energy per token of prefill and of decode at batch 1, and the mean power while decoding.

    With a counter, each kind runs again for at least MIN_SECONDS, since counters move in steps of up to 0.1 s; a start
    and an end read are late by the same on average. An estimate needs only the median of the samples taken before.

    Args:
        bench: warmed up.
        meter: of the same device.
        samples: the bench's samples in seconds, by kind.
    """
    fields: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    formula = ""
    for name, kind in (("prefill_j_per_token", "prefill"), ("decode_j_per_token", "decode_1")):
        if kind not in bench.kinds or not samples.get(kind):
            reasons[name] = f"no samples of kind {kind} were taken"
            continue
        reading, calls = _reading(bench, meter, kind, samples[kind])
        if reading.joules is None:
            reasons[name] = reading.reason
            continue
        formula = reading.formula
        fields[name] = reading.joules / (calls * bench.tokens_of(kind))
        fields["power_w"] = reading.joules / reading.seconds
    if "power_w" not in fields:
        reasons["power_w"] = next(iter(reasons.values()), "no samples were taken")
    return Energy(**fields, source=meter.source if fields else "none", formula=formula, reasons=reasons)


def _reading(bench: Bench, meter: EnergyMeter, kind: str, seconds: Sequence[float]) -> tuple[EnergyReading, int]:
    """One reading of ``kind`` and the number of samples it covers."""
    if meter.counter is None:
        return meter.estimate(float(np.median(seconds))), 1
    total = _Total(meter)
    while total.seconds_read < MIN_SECONDS:
        bench.sample(kind, timer=total)
    return EnergyReading(total.joules_read, total.seconds_read, meter.source), total.calls


class _Total:
    """A timer that adds up the energy of the timed parts alone, without the preparation between them."""

    def __init__(self, meter: EnergyMeter) -> None:
        self._meter = meter
        self.joules_read, self.seconds_read, self.calls = 0.0, 0.0, 0

    def seconds(self, work: Work) -> float:
        reading = self._meter.read(work)
        self.joules_read += reading.joules or 0.0
        self.seconds_read += reading.seconds
        self.calls += 1
        return reading.seconds


def _find_counter(device: torch.device) -> Counter | None:
    if device.type == "cuda":
        return NvmlCounter.find(device)
    return RaplCounter.find() if device.type == "cpu" else None


def _fallback(device: torch.device) -> Source:
    return "estimated" if device.type == "cpu" else "none"


def _is_package(zone: Path) -> bool:
    try:
        return (zone / "name").read_text().startswith("package")
    except OSError:
        return False


def _gpu_uuid(device: torch.device) -> str:
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
