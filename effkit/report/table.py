"""The one table that all renderers draw: cells are finished text, a missing value carries its reason.

Knows neither records nor a markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from effkit.report.quantities import MISSING

Tone = Literal["", "better", "worse", "muted"]


@dataclass(frozen=True)
class Cell:
    """One entry.

    Attributes:
        text: as shown.
        reason: why there is no value; empty where there is one.
        tone: a judgement that a renderer may colour; never the only sign of it.
        bar: 0..1, length of a bar behind the figure, or None.
    """

    text: str
    reason: str = ""
    tone: Tone = ""
    bar: float | None = None

    @classmethod
    def missing(cls, reason: str) -> Cell:
        """A dash with its reason."""
        return cls(MISSING, reason=reason, tone="muted")


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        title: what is measured.
        unit: of all its figures; empty where the figures carry their own or none.
        note: what exactly it means, in a sentence.
        group: heading above several columns.
        numeric: figures stand to the right.
        rank: where the width is short, columns with a high rank go first.
    """

    title: str
    unit: str = ""
    note: str = ""
    group: str = ""
    numeric: bool = True
    rank: int = 0

    @property
    def heading(self) -> str:
        """Title and unit: ``weights, MB``."""
        return f"{self.title}, {self.unit}" if self.unit else self.title


@dataclass(frozen=True)
class Row:
    """One line; ``message`` replaces the cells of a row that was not measured, where the renderer can do so."""

    name: str
    cells: tuple[Cell, ...]
    message: str = ""
    dense: bool = False


@dataclass(frozen=True)
class Group:
    """Rows under one sub-heading."""

    rows: tuple[Row, ...]
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Columns, groups of rows and what was left out.

    Attributes:
        name: short and unique, for anchors.
        caption: what the table shows.
        columns: without the first one, which names the row.
        omitted: columns without a single value, with the reason: (heading, reason).
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    head: str = "variant"
    omitted: tuple[tuple[str, str], ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows of all groups."""
        return tuple(row for group in self.groups for row in group.rows)

    def without_empty_columns(self) -> Table:
        """Leave out columns in which no measured row has a value, and remember why."""
        measured = [row for row in self.rows if not row.message]
        kept, omitted = [], list(self.omitted)
        for index, column in enumerate(self.columns):
            cells = [row.cells[index] for row in measured]
            if any(not cell.reason for cell in cells) or not cells:
                kept.append(index)
            else:
                omitted.append((column.title, "; ".join(dict.fromkeys(cell.reason for cell in cells))))
        return replace(self.select(kept), omitted=tuple(omitted))

    def select(self, indexes: Iterable[int]) -> Table:
        """Keep the columns of these indexes, in this order."""
        chosen = list(indexes)

        def cut(row: Row) -> Row:
            return replace(row, cells=tuple(row.cells[index] for index in chosen))

        groups = tuple(replace(group, rows=tuple(cut(row) for row in group.rows)) for group in self.groups)
        return replace(self, columns=tuple(self.columns[index] for index in chosen), groups=groups)


@dataclass
class Footnotes:
    """Numbers the reasons of missing values; the same reason gets the same number.

    Attributes:
        texts: in order of their numbers, the first is 1.
    """

    texts: list[str] = field(default_factory=list)

    def number(self, reason: str) -> int:
        """Return the number of a reason, a new one if it was not met before."""
        if reason not in self.texts:
            self.texts.append(reason)
        return self.texts.index(reason) + 1


def printable(text: str) -> str:
    """Replace what could steer a terminal or turn the reading direction; line breaks become spaces."""
    flat = " ".join(text.split())
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in flat)
