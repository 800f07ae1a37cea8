"""Results for the terminal: as many columns as fit, the verdicts, and the reasons of every dash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from effkit.records import Results, Variant
from effkit.report import prose, sections
from effkit.report.quantities import BYTES_NOTE
from effkit.report.table import Cell, Column, Footnotes, Table
from effkit.report.wording import headlines, with_verdicts

STYLES = {"": "", "better": "green", "worse": "red", "muted": "dim"}
GAP = 2
FULL_NAME_WIDTH = 24


@dataclass(frozen=True)
class TerminalReport:
    """A Rich renderable that suits itself to the width it is given."""

    results: Results

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _heading(self.results)
        table = sections.results_table(self.results)
        shown = table.select(fitting(table, options.max_width))
        notes = Footnotes()
        yield _grid(shown, notes)
        yield from _footnotes(notes, table, shown)
        yield Text("")
        for line in headlines(self.results):
            yield Text(line, style="bold")
        for row in self.results.variants:
            yield from _verdict(row)


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
    names = max((cell_len(row.name) for row in table.rows), default=0)
    used = min(max(names, cell_len(table.head)), FULL_NAME_WIDTH)
    chosen: list[int] = []
    for index in sorted(range(len(table.columns)), key=lambda each: (table.columns[each].rank, each)):
        needed = _width(table, index) + GAP
        if chosen and used + needed > width:
            break
        chosen.append(index)
        used += needed
    return sorted(chosen)


def _width(table: Table, index: int) -> int:
    cells = (cell_len(row.cells[index].text) + (2 if row.cells[index].reason else 0) for row in table.rows)
    return max(_head_width(table.columns[index]), *cells, 0)


def _head_width(column: Column) -> int:
    return max(cell_len(line) for line in _head(column).split("\n"))


def _head(column: Column) -> str:
    """Break a heading into two lines, so that columns stay narrow."""
    title, _, rest = column.title.partition(", ")
    lower = " ".join(part for part in (rest, column.unit) if part)
    if not lower:
        title, _, lower = column.title.rpartition(" ")
    return f"{title}\n{lower}" if title else lower


def _heading(results: Results) -> Iterator[Text]:
    yield Text(results.model.source, style="bold")
    yield Text(f"{prose.model_line(results)}; {results.environment.device_name}", style="dim")
    for note in results.model.notes:
        yield Text(f"Note: {note}", style="yellow")
    yield Text("")


def _grid(table: Table, notes: Footnotes) -> RichTable:
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, GAP, 0, 0), show_edge=False, header_style="bold")
    grid.add_column(f"\n{table.head}", overflow="fold", max_width=FULL_NAME_WIDTH, vertical="bottom")
    for column in table.columns:
        grid.add_column(_head(column), justify="right" if column.numeric else "left", no_wrap=True, vertical="bottom")
    for row in table.rows:
        name = Text(row.name, style="bold" if not row.dense else "")
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
        yield Text(f"{superscript(index)} {reason}", style="dim")
    hidden = [column.title for column in table.columns if column not in shown.columns]
    where = f"; a wider terminal also shows {', '.join(hidden)}" if hidden else ""
    yield Text(f"{BYTES_NOTE}; tok/s: tokens per second; ~ is estimated{where}", style="dim")


def _verdict(variant: Variant) -> Iterator[Text | Padding]:
    style = "red" if variant.status != "ok" else "bold"
    line = Text.assemble((variant.name, style), f": {variant.verdict}")
    yield line
    for note in variant.notes:
        yield Padding(Text(f"note: {note}", style="dim"), (0, 0, 0, 2))


def superscript(number: int) -> str:
    """Write a number in superscript digits."""
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
