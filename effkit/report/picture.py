"""What a plot consists of, in the coordinates of an SVG: frame, ticks and points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WIDTH, HEIGHT = 460.0, 350.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 444.0, 30.0, 300.0

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Tick:
    """A mark on an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Point:
    """One variant.

    Attributes:
        x, y: centre.
        x_bar, y_bar: ends of the error bars, or None where there is no interval.
        label_x, label_y, anchor: where the label stands.
        dense: a dense row, drawn as a square.
        beaten: another variant is at least as good on both axes and better on one; drawn hollow.
        description: name and both figures.
    """

    label: str
    x: float
    y: float
    x_bar: tuple[float, float] | None
    y_bar: tuple[float, float] | None
    label_x: float
    label_y: float
    anchor: Anchor
    dense: bool
    beaten: bool
    description: str


@dataclass(frozen=True)
class Plot:
    """A finished picture; ``better`` is the corner in which a variant is good at both."""

    name: str
    title: str
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    points: tuple[Point, ...]
    better: Literal["left", "right"]
    description: str
