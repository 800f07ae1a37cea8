"""Results for the terminal: as many columns as fit, the verdicts, and the reasons of every dash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from effkit.records import Results
from effkit.report import overview, prose
from effkit.report.quantities import BYTES_NOTE
from effkit.report.table import Cell, Footnotes, Table, printable
from effkit.report.wording import headlines, with_verdicts

STYLES = {"": "", "better": "green", "worse": "red", "muted": "dim"}
GAP = 2
NAME_LIMIT = 24


@dataclass(frozen=True)
class TerminalReport:
    """A Rich renderable that suits itself to the width it is given."""

    results: Results

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _heading(self.results)
        table = overview.results_table(self.results)
        shown = table.select(fitting(table, options.max_width))
        notes = Footnotes()
        yield _grid(shown, notes)
        yield from _footnotes(notes, table, shown)
        yield Text("")
        for line in headlines(self.results):
            yield Text(printable(line), style="bold")
        yield _verdicts(self.results)


def terminal_table(results: Results) -> TerminalReport:
    """Return a Rich renderable of the results; print it with ``rich.console.Console().print``.

    It reads well from 60 columns on; wider terminals show more columns.
    """
    return TerminalReport(with_verdicts(results))


def fitting(table: Table, width: int) -> list[int]:
    """Choose columns by rank until the width is used up.

    Args:
        table: all columns.
        width: characters available.

    Returns:
        Indexes of the columns to show, in the table's order; the first by rank is always among them.
    """
    used = _names_width(table)
    chosen: list[int] = []
    for index in sorted(range(len(table.columns)), key=lambda each: (table.columns[each].rank, each)):
        needed = _width(table, index) + GAP
        if chosen and used + needed > width:
            break
        chosen.append(index)
        used += needed
    return sorted(chosen)


def _names_width(table: Table) -> int:
    widest = max((cell_len(row.name) for row in table.rows), default=0)
    return min(max(widest, cell_len(table.head)), NAME_LIMIT)


def _body_width(table: Table, index: int) -> int:
    return max((cell_len(_cell(row.cells[index], Footnotes()).plain) for row in table.rows), default=0)


def _width(table: Table, index: int) -> int:
    lines = _head(table, index).split("\n")
    return max(_body_width(table, index) + 1, *(cell_len(line) for line in lines))  # room for a note of two digits


def _head(table: Table, index: int) -> str:
    """Break a heading into two lines, so that columns stay narrow; the unit stands below."""
    column = table.columns[index]
    upper, _, lower = column.title.partition(", ")
    lower = " ".join(part for part in (lower, column.unit) if part)
    if not lower and cell_len(upper) > _body_width(table, index):
        upper, _, lower = upper.rpartition(" ")
    return f"{upper}\n{lower}" if upper and lower else upper or lower


def _heading(results: Results) -> Iterator[Text]:
    yield Text(printable(results.model.source), style="bold")
    yield Text(printable(f"{prose.model_line(results)}; {results.environment.device_name}"), style="dim")
    for note in results.model.notes:
        yield Text(f"Note: {printable(note)}", style="yellow")
    yield Text("")


def _grid(table: Table, notes: Footnotes) -> RichTable:
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    grid.add_column(table.head, overflow="fold", width=_names_width(table), vertical="bottom")
    for index, column in enumerate(table.columns):
        justify: Literal["left", "right"] = "right" if column.numeric else "left"
        grid.add_column(_head(table, index), justify=justify, no_wrap=True, vertical="bottom")
    for row in table.rows:
        name = Text(printable(row.name), style="bold" if not row.dense else "")
        grid.add_row(name, *(_cell(cell, notes) for cell in row.cells))
    return grid


def _cell(cell: Cell, notes: Footnotes) -> Text:
    text = Text(cell.text, style=STYLES[cell.tone])
    if cell.reason:
        text.append(superscript(notes.number(cell.reason)), style="dim")
    return text


def _footnotes(notes: Footnotes, table: Table, shown: Table) -> Iterator[Text]:
    yield Text("")
    for index, reason in enumerate(notes.texts, 1):
        yield Text(f"{superscript(index)} {printable(reason)}", style="dim")
    hidden = [column.title for column in table.columns if column not in shown.columns]
    where = f"; a wider terminal also shows {', '.join(hidden)}" if hidden else ""
    yield Text(f"{BYTES_NOTE}; tok/s: tokens per second; ~ is estimated{where}", style="dim")


def _verdicts(results: Results) -> RichTable:
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(overflow="fold", max_width=NAME_LIMIT)
    grid.add_column(overflow="fold")
    for row in results.variants:
        text = Text(printable(row.verdict), style="red" if row.status != "ok" else "")
        for note in row.notes:
            text.append(f"\nnote: {printable(note)}", style="dim")
        grid.add_row(Text(printable(row.name), style="bold"), text)
    return grid


def superscript(number: int) -> str:
    """Write a number in superscript digits."""
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
