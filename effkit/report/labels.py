"""Where the labels of a plot stand so that they hide as little as possible. Pure arithmetic."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from effkit.report.picture import BOTTOM, LEFT, RIGHT, TOP, Anchor, Point

CHARACTER, LINE = 6.9, 13.0
LABEL_LIMIT = 24

Box = tuple[float, float, float, float]

CORNERS: tuple[Box, ...] = ((LEFT, BOTTOM - 22, LEFT + 62, BOTTOM), (RIGHT - 62, BOTTOM - 22, RIGHT, BOTTOM))
"""One of them holds the word "better"."""


def labelled(points: Sequence[Point]) -> tuple[Point, ...]:
    """Place every label where it hides the least: labels, points, error bars and the frame count as obstacles."""
    taken: list[Box] = [*CORNERS, *(box for point in points for box in _ink(point))]
    done = []
    for point in points:
        best = min(_candidates(point), key=lambda place: _overlap(place[3], taken))
        taken.append(best[3])
        done.append(replace(point, label_x=best[0], label_y=best[1], anchor=best[2]))
    return tuple(done)


def _candidates(point: Point) -> list[tuple[float, float, Anchor, Box]]:
    width = text_width(point.label)
    found: list[tuple[float, float, Anchor, Box]] = []
    for reach in (10.0, 24.0, 40.0):
        slant = reach * 0.8
        spots: tuple[tuple[float, float, Anchor], ...] = (
            (reach, 4.0, "start"),
            (-reach, 4.0, "end"),
            (0.0, -reach, "middle"),
            (0.0, reach + 9.0, "middle"),
            (slant, -slant, "start"),
            (-slant, -slant, "end"),
            (slant, slant + 8.0, "start"),
            (-slant, slant + 8.0, "end"),
        )
        for dx, dy, anchor in spots:
            x, y = round(point.x + dx, 2), round(point.y + dy, 2)
            left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
            found.append((x, y, anchor, (left, y - LINE + 2, left + width, y + 3)))
    return found


def _ink(point: Point) -> list[Box]:
    boxes = [(point.x - 7, point.y - 7, point.x + 7, point.y + 7)]
    if point.x_bar is not None:
        boxes.append((point.x_bar[0], point.y - 2, point.x_bar[1], point.y + 2))
    if point.y_bar is not None:
        boxes.append((point.x - 2, min(point.y_bar), point.x + 2, max(point.y_bar)))
    return boxes


def _overlap(box: Box, taken: Sequence[Box]) -> float:
    """Covered area; leaving the frame weighs more than anything else."""
    outside = max(0.0, LEFT - box[0]) + max(0.0, box[2] - RIGHT - 10) + max(0.0, TOP - 8 - box[1])
    outside += max(0.0, box[3] - BOTTOM + 1)
    total = outside * 1000.0
    for other in taken:
        width = min(box[2], other[2]) - max(box[0], other[0])
        height = min(box[3], other[3]) - max(box[1], other[1])
        total += max(0.0, width) * max(0.0, height)
    return total


def text_width(text: str) -> float:
    """Estimated width of a label; East Asian characters count twice."""
    return sum(CHARACTER * (2 if unicodedata.east_asian_width(each) in "WF" else 1) for each in text)


def shorten(name: str) -> str:
    """Cut a long name; the description beside the plot keeps it whole."""
    return name if len(name) <= LABEL_LIMIT else f"{name[: LABEL_LIMIT - 1]}\N{HORIZONTAL ELLIPSIS}"
