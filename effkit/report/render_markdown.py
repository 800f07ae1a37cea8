"""Results as GitHub-flavoured Markdown. Draws the tables of :mod:`effkit.report.sections`; computes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from effkit.records import Results, Variant
from effkit.report import overview, prose, sections
from effkit.report.quantities import BYTES_NOTE, byte_text
from effkit.report.table import Cell, Footnotes, Row, Table, printable
from effkit.report.wording import headlines, with_verdicts

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$#])")
MAX_NAMES = 12


def markdown(results: Results) -> str:
    """Write the whole report as one Markdown document."""
    results = with_verdicts(results)
    notes = Footnotes()
    blocks = [
        f"# {escape(prose.title(results))}",
        f"{escape(prose.model_line(results))}.  \n{escape(prose.machine_line(results))}.",
        *(f"> [!IMPORTANT]\n> {escape(note)}" for note in results.model.notes),
        "## Verdicts",
        "\n".join(f"{escape(line)}" for line in headlines(results)),
        _bullets(f"**{escape(row.name)}**: {escape(row.verdict)}" for row in results.variants),
        "## Results",
        _table(overview.results_table(results), notes),
        f"{BYTES_NOTE}. tok/s: tokens per second. ~ marks estimated energy.",
        "## Accuracy",
        *(_captioned(table, notes) for table in sections.accuracy_tables(results)),
        "## Speed",
        _table(sections.speed_table(results), notes),
        _captioned(sections.latency_table(results), notes),
        _captioned(sections.one_off_table(results), notes),
        "## Memory",
        _table(sections.memory_table(results), notes),
        _captioned(sections.ledger_table(results), notes),
        "## Energy",
        _table(sections.energy_table(results), notes),
        _bullets(escape(line) for line in prose.energy_sources(sections.measured(results))),
        "## Coverage",
        *_coverage(results, notes),
        "## Environment",
        _items(prose.environment_items(results)),
        "## Protocol",
        _items(prose.protocol_items(results)),
        "## Model and variants",
        _items(prose.model_items(results)),
        _bullets(_variant_line(row) for row in results.variants),
        "## How to read this",
        _bullets(f"**{escape(head)}.** {escape(text)}" for head, text in prose.READING),
        "\n".join(f"[^{index}]: {escape(text)}" for index, text in enumerate(notes.texts, 1)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(text: str) -> str:
    """Make text safe for a line or a table cell: nothing in it is read as markup, HTML or a new line."""
    return _SPECIAL.sub(r"\\\1", printable(text).replace("&", "&amp;")).replace("\\<", "&lt;").replace("\\>", "&gt;")


def _captioned(table: Table, notes: Footnotes) -> str:
    return f"### {escape(table.caption)}\n\n{_table(table, notes)}"


def _table(table: Table, notes: Footnotes) -> str:
    """Draw one table for each group of rows, then what was left out."""
    parts = []
    for group in table.groups:
        if group.title:
            remark = f" ({escape(group.note)})" if group.note else ""
            parts.append(f"**{escape(group.title)}**{remark}")
        if group.rows:
            parts.append(_grid(table, group.rows, notes))
    if not table.rows:
        parts.append("No row was measured.")
    if table.omitted:
        left_out = (f"{escape(names)} ({escape(why)})" for names, why in prose.omitted_lines(table.omitted))
        parts.append(f"Not shown: {'; '.join(left_out)}.")
    return "\n\n".join(parts)


def _grid(table: Table, rows: Sequence[Row], notes: Footnotes) -> str:
    heads = [escape(table.head), *(escape(column.heading) for column in table.columns)]
    rules = [":---", *("---:" if column.numeric else ":---" for column in table.columns)]
    body = [[escape(row.name), *_cells(row, notes)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, rules, *body])


def _cells(row: Row, notes: Footnotes) -> list[str]:
    """Write the cells of a row; one that was not measured refers to its reason once, not in every cell."""
    first = next((index for index, cell in enumerate(row.cells) if cell.reason), 0) if row.message else None
    return [
        _cell(cell, notes) if first in (None, index) or not cell.reason else escape(cell.text)
        for index, cell in enumerate(row.cells)
    ]


def _cell(cell: Cell, notes: Footnotes) -> str:
    return escape(cell.text) + (f"[^{notes.number(cell.reason)}]" if cell.reason else "")


def _coverage(results: Results, notes: Footnotes) -> Iterable[str]:
    table = sections.coverage_table(results)
    if not table.rows:
        yield "No recipe was applied."
        return
    yield _table(table, notes)
    for row in results.variants:
        groups = prose.skipped_groups(row)
        if not groups:
            continue
        lines = [f"<details><summary>{escape(row.name)}: layers left dense, and why</summary>", ""]
        for group in groups:
            names = ", ".join(escape(layer.name) for layer in group.layers[:MAX_NAMES])
            more = len(group.layers) - MAX_NAMES
            rest = f" and {more} more (all are in results.json)" if more > 0 else ""
            count = f"{len(group.layers)} layer{'s' if len(group.layers) != 1 else ''}, {byte_text(group.bytes)}"
            lines.append(f"- {escape(group.reason)} ({count}): {names}{rest}")
        yield "\n".join([*lines, "", "</details>"])


def _variant_line(variant: Variant) -> str:
    facts = "; ".join(f"{name} {escape(text)}" for name, text in prose.variant_items(variant))
    notes = "".join(f" Note: {escape(note)}." for note in variant.notes)
    return f"**{escape(variant.name)}**: {facts}.{notes}"


def _items(items: prose.Items) -> str:
    lines = ["| | |", "| :--- | :--- |", *(f"| {escape(name)} | {escape(text)} |" for name, text in items)]
    return "\n".join(lines)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
