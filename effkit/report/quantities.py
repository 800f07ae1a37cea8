"""How every quantity of a report is written; the only place that rounds.

All renderers take their text from here, so that a figure reads the same in the terminal, in Markdown and in HTML.
Bytes are decimal: 1 MB is 1,000,000 bytes, as storage and bandwidth are sold. Knows no results and no layout.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MISSING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
BYTES_NOTE = "1 MB = 1,000,000 bytes"

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTE_STEPS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "bytes"))


@dataclass(frozen=True)
class ByteUnit:
    """One unit for all byte columns of a report, so that they can be compared at a glance.

    Attributes:
        name: ``MB``, for instance.
        factor: bytes in one unit.
        decimals: shown of every figure.
    """

    name: str
    factor: int
    decimals: int

    def text(self, count: float) -> str:
        """Write a number of bytes without the unit; what would round to zero says that it is not zero."""
        value = count / self.factor
        least = 10.0**-self.decimals
        if value and abs(value) < least / 2:
            return f"{MINUS if value < 0 else ''}<{least:.{self.decimals}f}"
        return _signed(value, f"{abs(value):,.{self.decimals}f}")

    def full(self, count: float) -> str:
        """Write a number of bytes with the unit."""
        return f"{self.text(count)} {self.name}"


def byte_unit(counts: Iterable[int]) -> ByteUnit:
    """Choose the largest unit in which the smallest positive count still has four digits, one before the point."""
    least = min((count for count in counts if count > 0), default=10**6)
    factor, name = next(step for step in _BYTE_STEPS if least >= step[0])
    decimals = 0 if factor == 1 else max(0, 3 - _exponent(least / factor, 4))
    return ByteUnit(name, factor, decimals)


def byte_text(count: int) -> str:
    """Write one number of bytes in the unit that suits it: ``25.3 GB``."""
    factor, name = next((step for step in _BYTE_STEPS if abs(count) >= step[0]), _BYTE_STEPS[-1])
    return f"{count:,} {name}" if factor == 1 else f"{significant(count / factor, 3)} {name}"


def significant(value: float, digits: int = 3) -> str:
    """Write with at least ``digits`` significant digits, thousands separated, tiny and huge values as powers."""
    if value == 0:
        return "0"
    exponent = _exponent(value, digits)
    if not -4 <= exponent < 7:
        mantissa, _, power = f"{abs(value):.{digits - 1}e}".partition("e")
        return _signed(value, f"{mantissa}e{int(power)}")
    return _signed(value, f"{abs(value):,.{max(0, digits - 1 - exponent)}f}")


def ratio(value: float) -> str:
    """Write a factor, closer to 1 with more digits: ``3.8x``, ``0.91x``, ``12x``."""
    if not 0.005 <= value < 9.95:
        return f"{significant(value, 2)}x"
    return f"{value:.2f}x" if value < 1.995 else f"{value:.1f}x"


def change(factor: float) -> str:
    """Write a factor as a change in per cent: 1.0042 is ``+0.42 %``; from a tenfold on it stays a factor."""
    if factor >= 10:
        return ratio(factor)
    percent = (factor - 1.0) * 100.0
    text = f"{abs(percent):.2f}" if abs(percent) < 0.995 else f"{abs(percent):.1f}"
    if float(text) == 0.0:
        return "0.00 %"
    return f"{'+' if percent > 0 else MINUS}{text} %"


def share(value: float) -> str:
    """Write a share of 1 in per cent; never 100 or 0 unless it is."""
    percent = value * 100.0
    if value in (0, 1):
        return f"{percent:.0f} %"
    for decimals in range(1, 9):
        text = f"{percent:.{decimals}f}"
        if float(text) not in (0.0, 100.0):
            return f"{text} %"
    return f"{significant(percent, 2)} %"


def seconds(value: float) -> str:
    """Write a duration in the unit that suits it: ``85.2 ms``, ``12.3 s``, ``2 min 5 s``."""
    if value == 0:
        return "0 s"
    if value < 1e-3:
        return f"{significant(value * 1e6)} µs"
    if value < 0.9995:
        return f"{significant(value * 1e3)} ms"
    if value < 99.95:
        return f"{significant(value)} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes:,} min {rest} s"


def rate(value: float, unit: str) -> str:
    """Write a rate with a decimal prefix: ``21.4 GB/s``, ``182 GFLOP/s``."""
    factor, prefix = next((step for step in _PREFIXES if value >= step[0]), (1.0, ""))
    return f"{significant(value / factor)} {prefix}{unit}"


def perplexity(value: float) -> str:
    """Write a perplexity with four significant digits."""
    return significant(value, 4)


def cosine(value: float) -> str:
    """Write a cosine so that what keeps it from 1 stays visible: ``0.99987``; never 1 unless it is."""
    if value == 1.0:
        return "1"
    for decimals in (4, 5, 6, 7, 8):
        text = f"{abs(value):.{decimals}f}"
        if float(text) != 1.0:
            return _signed(value, text)
    return _signed(value, f"{abs(value):.10f}")


def count(value: int) -> str:
    """Write a whole number with its thousands separated."""
    return f"{value:,}"


def millions(value: int) -> str:
    """Write a number of parameters: ``134.5 M``."""
    for factor, suffix in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if value >= factor:
            return f"{significant(value / factor, 4)} {suffix}"
    return str(value)


def _exponent(value: float, digits: int) -> int:
    """Power of ten of the first digit, after rounding to ``digits``."""
    return int(f"{abs(value):.{digits - 1}e}".partition("e")[2])


def _signed(value: float, text: str) -> str:
    return f"{MINUS}{text}" if value < 0 and text.strip("0.,") else text
