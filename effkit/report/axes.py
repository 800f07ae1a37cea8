"""Axes of a plot: round tick values and the way from a value to a coordinate. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """Maps values to coordinates; linear, or logarithmic for ratios that span far."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Coordinate of a value, held inside the axis."""
        low, high, here = (
            (math.log(self.low), math.log(self.high), math.log(max(value, self.low)))
            if self.log
            else (self.low, self.high, value)
        )
        part = min(1.0, max(0.0, (here - low) / (high - low)))
        return round(self.start + part * (self.end - self.start), 2)


def nice_ticks(low: float, high: float, about: int = 5) -> tuple[float, ...]:
    """Round numbers from at or below ``low`` to at or above ``high``, in steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / max(1, about - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(index * step, 12) for index in range(first, last + 1))


def log_ticks(high: float) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to at least ``high``; powers of ten alone where it is far."""
    steps = (1.0, 2.0, 5.0) if high <= 1000 else (1.0,)
    ticks: list[float] = []
    power = 1.0
    while not ticks or ticks[-1] < high:
        ticks += [factor * power for factor in steps if not ticks or ticks[-1] < high]
        power *= 10.0
    return tuple(ticks)
