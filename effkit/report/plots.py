"""Geometry of the plots: from results to ticks, points and labels in the coordinates of an SVG.

The same output for the same results. The template draws it; colours come from the page's style, so
that one picture serves light and dark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from effkit.records import Results, Variant
from effkit.report import quantities as q
from effkit.report.axes import Axis, log_ticks, nice_ticks
from effkit.report.labels import labelled, shorten
from effkit.report.picture import BOTTOM, LEFT, RIGHT, TOP, Plot, Point, Tick
from effkit.report.sections import measured, report_byte_unit

LOG_FROM = 2.0
"""Ratio from which on a linear axis would press all good variants into one line."""


@dataclass(frozen=True)
class Measure:
    """One quantity of a plot.

    Attributes:
        value: reads it; None where it was not measured.
        interval: reads its interval, or None.
        text: writes it.
        more_is_better: for telling which variants are beaten.
    """

    label: str
    value: Callable[[Variant], float | None]
    interval: Callable[[Variant], tuple[float, float] | None]
    text: Callable[[float], str]
    tick: Callable[[float], str]
    more_is_better: bool = False


def plots(results: Results) -> tuple[Plot, ...]:
    """Accuracy against memory and against speed; only plots for which at least two rows have both figures."""
    quality = _quality(results)
    if quality is None:
        return ()
    pairs = (
        ("memory", "Accuracy against memory", _weights(results)),
        ("speed", "Accuracy against speed", _speed(results)),
    )
    drawn = (_plot(name, title, results, x, quality) for name, title, x in pairs if x is not None)
    return tuple(plot for plot in drawn if plot is not None)


def _quality(results: Results) -> Measure | None:
    rows = measured(results)
    if any(row.accuracy.perplexity_ratio is not None for row in rows):
        return Measure(
            "perplexity, change from fp32",
            lambda row: row.accuracy.perplexity_ratio,
            _ratio_interval,
            q.change,
            _change_tick,
        )
    if any(row.accuracy.output_relative_error_mean is not None for row in rows):
        return Measure(
            "output error against fp32",
            lambda row: row.accuracy.output_relative_error_mean,
            lambda row: None,
            q.share,
            lambda value: f"{value * 100:g} %",
        )
    return None


def _weights(results: Results) -> Measure:
    unit = report_byte_unit(results)
    return Measure(
        f"weights, {unit.name}",
        lambda row: row.memory.weight_bytes,
        lambda row: None,
        unit.full,
        lambda value: f"{value / unit.factor:,g}",
    )


def _speed(results: Results) -> Measure | None:
    encoder = results.model.kind == "encoder"
    choices = (
        ("decode_tokens_per_s", "decoding at batch 1, tokens/s"),
        ("prefill_tokens_per_s", "encoding, tokens/s" if encoder else "prefill, tokens/s"),
    )
    for field, label in choices:
        if sum(getattr(row.speed, field) is not None for row in measured(results)) > 1:
            return Measure(label, _speed_value(field), _speed_interval(field), _per_second, "{:,g}".format, True)
    if sum(row.speed.forward_speedup is not None for row in measured(results)) > 1:
        field = "forward_speedup"
        return Measure(
            "speed of a forward pass, fp32 = 1",
            _speed_value(field),
            _speed_interval(field),
            q.ratio,
            "{:g}x".format,
            True,
        )
    return None


def _speed_value(field: str) -> Callable[[Variant], float | None]:
    def value(row: Variant) -> float | None:
        found: float | None = getattr(row.speed, field)
        return found

    return value


def _speed_interval(field: str) -> Callable[[Variant], tuple[float, float] | None]:
    def interval(row: Variant) -> tuple[float, float] | None:
        found = row.speed.statistics.get(field)
        return None if found is None else (found.low, found.high)

    return interval


def _ratio_interval(row: Variant) -> tuple[float, float] | None:
    low, high = row.accuracy.perplexity_ratio_low, row.accuracy.perplexity_ratio_high
    return None if low is None or high is None else (low, high)


def _per_second(value: float) -> str:
    return f"{q.significant(value)} tokens/s"


def _change_tick(value: float) -> str:
    if value >= LOG_FROM:
        return f"{value:,g}x"
    percent = round((value - 1.0) * 100.0, 6)
    return "0 %" if percent == 0 else f"{'+' if percent > 0 else q.MINUS}{abs(percent):g} %"


def _plot(name: str, title: str, results: Results, x: Measure, y: Measure) -> Plot | None:
    rows = [row for row in measured(results) if x.value(row) is not None and y.value(row) is not None]
    if len(rows) < 2:
        return None
    x_axis, x_values = _x_axis(rows, x)
    y_axis, y_values = _y_axis(rows, y)
    points = labelled(_points(rows, x, y, x_axis, y_axis))
    corner: Literal["left", "right"] = "right" if x.more_is_better else "left"
    listing = "; ".join(point.description for point in points)
    return Plot(
        name=name,
        title=title,
        x_label=x.label,
        y_label=y.label,
        x_ticks=tuple(Tick(x_axis.at(value), x.tick(value)) for value in x_values),
        y_ticks=tuple(Tick(y_axis.at(value), y.tick(value)) for value in y_values),
        points=points,
        better=corner,
        description=f"{title}: {y.label} over {x.label}; better is at the bottom {corner}. {listing}.",
    )


def _x_axis(rows: Sequence[Variant], x: Measure) -> tuple[Axis, tuple[float, ...]]:
    """From zero, so that lengths can be compared."""
    values = nice_ticks(0.0, max(_ends(rows, x)) * 1.04 or 1.0)
    return Axis(values[0], values[-1], LEFT, RIGHT), values


def _y_axis(rows: Sequence[Variant], y: Measure) -> tuple[Axis, tuple[float, ...]]:
    ends = _ends(rows, y)
    low, high = min(ends), max(ends)
    if y.tick is _change_tick and high > LOG_FROM:
        values = log_ticks(high)
        low = min(low, 1.0) * 0.93
        return Axis(low, values[-1] * 1.02, BOTTOM, TOP, log=True), values
    neutral = 1.0 if y.tick is _change_tick else 0.0
    low, high = min(low, neutral), max(high, neutral)
    spread = max(high - low, 0.004)
    low, high = low - 0.17 * spread, low + 1.08 * spread  # below the best points stands the word "better"
    values = tuple(value for value in nice_ticks(low, high) if low <= value <= high)
    return Axis(low, high, BOTTOM, TOP), values


def _ends(rows: Sequence[Variant], measure: Measure) -> list[float]:
    found: list[float] = []
    for row in rows:
        value = measure.value(row)
        found += [*(measure.interval(row) or ()), *(() if value is None else (value,))]
    return found


def _points(rows: Sequence[Variant], x: Measure, y: Measure, x_axis: Axis, y_axis: Axis) -> list[Point]:
    def bar(axis: Axis, interval: tuple[float, float] | None) -> tuple[float, float] | None:
        return None if interval is None else (axis.at(interval[0]), axis.at(interval[1]))

    found = []
    for row in rows:
        here = (x.value(row) or 0.0, y.value(row) or 0.0)
        others = [(x.value(other) or 0.0, y.value(other) or 0.0) for other in rows if other is not row]
        found.append(
            Point(
                label=shorten(row.name),
                x=x_axis.at(here[0]),
                y=y_axis.at(here[1]),
                x_bar=bar(x_axis, x.interval(row)),
                y_bar=bar(y_axis, y.interval(row)),
                label_x=0.0,
                label_y=0.0,
                anchor="start",
                dense=row.recipe is None,
                beaten=any(_beats(other, here, x.more_is_better) for other in others),
                description=f"{row.name}: {x.text(here[0])}, {y.label.split(',')[0]} {y.text(here[1])}",
            )
        )
    return found


def _beats(other: tuple[float, float], here: tuple[float, float], more_is_better: bool) -> bool:
    sign = 1.0 if more_is_better else -1.0
    gain = (sign * (other[0] - here[0]), here[1] - other[1])
    return min(gain) >= 0.0 and max(gain) > 0.0
