"""Results as one self-contained HTML page: no network, no scripts, light and dark, phone to print.

Draws the tables and plots of this package through the templates beside it; everything that comes from a model, recipe
or machine is escaped by the template engine.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from effkit.records import Results, Variant
from effkit.report import overview, picture, prose, sections
from effkit.report.plots import plots
from effkit.report.quantities import BYTES_NOTE, byte_text
from effkit.report.table import Column, Footnotes
from effkit.report.wording import Fact, facts, headlines, status_words, with_verdicts


@dataclass(frozen=True)
class Headline:
    """The verdict on one variant: its tiles and its sentence."""

    variant: Variant
    status: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Segment:
    """One entry of a memory ledger as part of a bar; ``start`` and ``length`` in per cent of the longest bar."""

    name: str
    text: str
    start: float
    length: float


@dataclass(frozen=True)
class LedgerBar:
    """The ledger of one variant as a bar."""

    name: str
    segments: tuple[Segment, ...]

    @property
    def description(self) -> str:
        """All entries in words."""
        return f"{self.name}: " + ", ".join(f"{segment.name} {segment.text}" for segment in self.segments)


def html(results: Results) -> str:
    """Render the whole report as one HTML page."""
    results = with_verdicts(results)
    template = _templates().get_template("report.html.j2")
    return template.render(
        results=results,
        title=prose.title(results),
        model_line=prose.model_line(results),
        machine_line=prose.machine_line(results),
        headlines=headlines(results),
        verdicts=[_headline(row, results) for row in results.variants],
        main=overview.results_table(results),
        plots=plots(results),
        frame=picture,
        accuracy=sections.accuracy_tables(results),
        speed=sections.speed_table(results),
        latency=sections.latency_table(results),
        one_off=sections.one_off_table(results),
        memory=sections.memory_table(results),
        ledger=sections.ledger_table(results),
        ledger_bars=ledger_bars(results),
        energy=sections.energy_table(results),
        energy_sources=prose.energy_sources(sections.measured(results)),
        coverage=sections.coverage_table(results),
        skipped={row.name: prose.skipped_groups(row) for row in results.variants if prose.skipped_groups(row)},
        environment=prose.environment_items(results),
        protocol=prose.protocol_items(results),
        model=prose.model_items(results),
        variant_items=prose.variant_items,
        reading=prose.READING,
        bytes_note=BYTES_NOTE,
        notes=Footnotes(),
        omitted_lines=prose.omitted_lines,
    )


def ledger_bars(results: Results) -> tuple[LedgerBar, ...]:
    """Ledgers as bars of one common scale; entries that are missing, zero or negative are only in the table."""
    unit = sections.report_byte_unit(results)
    entries = [(row.name, _entries(row)) for row in sections.measured(results)]
    longest = max((sum(size for _, size in parts) for _, parts in entries), default=0)
    bars = []
    for name, parts in entries:
        segments, start = [], 0
        for title, size in parts:
            segments.append(
                Segment(title, unit.full(size), round(start / longest * 100, 3), round(size / longest * 100, 3))
            )
            start += size
        if segments:
            bars.append(LedgerBar(name, tuple(segments)))
    return tuple(bars)


def _entries(variant: Variant) -> Sequence[tuple[str, int]]:
    ledger = variant.memory.ledger
    if ledger is None:
        return ()
    found = ((title, getattr(ledger, field)) for field, title in sections.LEDGER)
    return [(title, size) for title, size in found if size is not None and size > 0]


def _headline(variant: Variant, results: Results) -> Headline:
    baseline = results.baseline
    found: tuple[Fact, ...] = ()
    if variant.status == "ok" and baseline is not None and baseline.status == "ok":
        found = overview.absolute_facts(results, variant) if variant is baseline else facts(variant, baseline)
    return Headline(variant, status_words(variant), found)


@functools.cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("effkit.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["anchor"] = _anchor
    environment.filters["bytes"] = byte_text
    environment.filters["groupby_run"] = _runs
    return environment


@dataclass(frozen=True)
class Run:
    """Neighbouring columns under one heading."""

    name: str
    count: int


def _runs(columns: Iterable[Column]) -> list[Run]:
    return [Run(name, len(list(run))) for name, run in itertools.groupby(columns, key=lambda column: column.group)]


def _anchor(text: str) -> str:
    """Make text fit for the id of an element."""
    return "".join(each if each.isascii() and each.isalnum() else "-" for each in text.lower()).strip("-") or "x"
