"""From results to the tables of a report; one function per table, each usable alone.

Every renderer draws these same tables, so that no figure is computed or rounded twice. Detail tables hold only rows
that were measured; the table of all results also holds those that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from effkit.records import Accuracy, Results, Statistic, Variant
from effkit.report import quantities as q
from effkit.report.metrics import (
    Metric,
    Text,
    Work,
    accuracy_metrics,
    ceiling_share,
    first_token,
    milliseconds,
    speedup,
    works,
)
from effkit.report.quantities import ByteUnit, byte_unit
from effkit.report.table import Cell, Column, Group, Row, Table
from effkit.report.wording import BASELINE, size_words

NO_SAMPLES = "no samples were kept"
LEDGER = (
    ("weights_bytes", "weights"),
    ("kv_cache_bytes", "KV cache"),
    ("activations_bytes", "activations"),
    ("optimizer_bytes", "optimizer"),
    ("pinned_host_bytes", "pinned host"),
    ("runtime_bytes", "runtime"),
    ("unexplained_bytes", "unexplained"),
)


def report_byte_unit(results: Results) -> ByteUnit:
    """The unit of every byte column: the one that suits the smallest model."""
    return byte_unit(row.memory.weight_bytes or 0 for row in results.variants)


def accuracy_tables(results: Results) -> tuple[Table, ...]:
    """Accuracy on the main suite, then one table for each further suite."""
    metrics = accuracy_metrics()
    rows = [Row(row.name, row_cells(metrics, row), dense=row.recipe is None) for row in measured(results)]
    columns = [metric.column for metric in metrics]
    main = compact("accuracy", f"Accuracy on {results.protocol.suite}", columns, rows)
    others = dict.fromkeys(suite for row in measured(results) for suite in row.accuracy_by_suite)
    return (main, *(_suite_table(results, suite) for suite in others if suite != results.protocol.suite))


def speed_table(results: Results) -> Table:
    """Rates and times with intervals, paired speedups and shares of this machine's ceilings, by kind of work."""
    columns = (
        Column("median", "", "of all samples"),
        Column("95 % interval", "", "bootstrap interval of the median"),
        Column("samples", "", "how many were taken"),
        speedup("").column,
        Column("speedup, 95 % interval", "", "bootstrap interval of the paired ratio"),
        ceiling_share("", "ceiling").column,
    )
    groups, omitted = [], []
    for work in works(results.model.kind == "encoder"):
        rows = [
            Row(row.name, _speed_cells(work, row), dense=row.recipe is None)
            for row in measured(results)
            if work.median.value(row) is not None
        ]
        if rows:
            title = f"{work.title}, {work.median.column.unit}"
            groups.append(Group(tuple(rows), title, f"ceiling: {work.ceiling}" if work.ceiling else ""))
        else:
            reasons = dict.fromkeys(work.median.cell(row).reason for row in measured(results))
            omitted.append((work.title, "; ".join(reasons) or "no row was measured"))
    table = Table("speed", "Speed by kind of work", columns, tuple(groups), omitted=tuple(omitted))
    return table.without_empty_columns()


def latency_table(results: Results) -> Table:
    """Time to the first token, with intervals."""
    metric = first_token()
    columns = [metric.column, Column("95 % interval", metric.column.unit), Column("samples")]
    rows = []
    for row in measured(results):
        statistic = metric.statistic(row)
        samples = Cell(q.count(statistic.count)) if statistic else Cell.missing(metric.cell(row).reason or NO_SAMPLES)
        cells = (metric.cell(row), _interval(statistic, milliseconds, samples.reason), samples)
        rows.append(Row(row.name, cells, dense=row.recipe is None))
    return compact("latency", "Time to first token, batch 1", columns, rows)


def one_off_table(results: Results) -> Table:
    """Times that are spent once and are part of no other figure."""
    titles = (("load", "load_s"), ("compress", "compress_s"), ("compile", "compile_s"))
    metrics = [Metric(Column(title), f"speed.{field}", q.seconds) for title, field in titles]
    rows = [Row(row.name, row_cells(metrics, row), dense=row.recipe is None) for row in measured(results)]
    return compact("one-off", "One-off times", [metric.column for metric in metrics], rows)


def memory_table(results: Results) -> Table:
    """Weights, peaks and files."""
    unit = report_byte_unit(results)
    titles = (
        ("weights", "weight_bytes", "every distinct storage of parameters and buffers once"),
        ("peak RSS", "peak_rss_bytes", "resident memory while evaluating and generating, in a fresh process"),
        (
            "peak, compressing",
            "peak_compress_rss_bytes",
            "resident memory while loading the dense model and compressing it",
        ),
        ("peak device", "peak_device_bytes", "accelerator memory while evaluating and generating"),
        ("files", "checkpoint_bytes", "weight files on disk"),
    )
    metrics = [Metric(Column(t, unit.name, note), f"memory.{f}", unit.text, bar=True) for t, f, note in titles]
    ratio = Metric(Column("of fp32", note="weights / weights of dense FP32"), "memory.weight_bytes_ratio", q.share)
    metrics.insert(1, ratio)
    rows = [
        Row(row.name, row_cells(metrics, row, measured(results)), dense=row.recipe is None) for row in measured(results)
    ]
    return compact("memory", "Memory", [metric.column for metric in metrics], rows)


def ledger_table(results: Results) -> Table:
    """The measured peak taken apart; the entries add up to it."""
    unit = report_byte_unit(results)
    metrics = [Metric(Column(t, unit.name), f"memory.ledger.{f}", unit.text) for f, t in LEDGER]
    device = any(row.memory.peak_device_bytes is not None for row in measured(results))
    field, title = ("peak_device_bytes", "peak device") if device else ("peak_rss_bytes", "peak RSS")
    metrics.append(Metric(Column(f"= {title}", unit.name, "the measured peak"), f"memory.{field}", unit.text))
    metrics.append(
        Metric(Column("on disk", unit.name, "beside the peak, not part of it"), "memory.ledger.disk_bytes", unit.text)
    )
    rows = [Row(row.name, row_cells(metrics, row), dense=row.recipe is None) for row in measured(results)]
    return compact("ledger", f"The {title} taken apart", [metric.column for metric in metrics], rows)


def energy_table(results: Results) -> Table:
    """Energy and where the figures come from."""
    prefill = "encoding" if results.model.kind == "encoder" else "prefill"
    metrics = [
        Metric(Column(prefill, "J/token"), "energy.prefill_j_per_token", q.significant),
        Metric(Column("decoding", "J/token"), "energy.decode_j_per_token", q.significant),
        Metric(Column("mean power", "W"), "energy.power_w", q.significant),
    ]
    columns = [*(metric.column for metric in metrics), Column("source", numeric=False)]
    rows = [
        Row(row.name, (*row_cells(metrics, row), Cell(row.energy.source)), dense=row.recipe is None)
        for row in measured(results)
    ]
    return compact("energy", "Energy", columns, rows)


def coverage_table(results: Results) -> Table:
    """What share of the weights each recipe changed."""
    unit = report_byte_unit(results)
    columns = [
        Column("recipe", numeric=False),
        Column("covered", note="share of all dense weight bytes, each storage counted once"),
        Column("layers compressed"),
        Column("layers skipped"),
        Column("before", unit.name, "in dense FP32", "compressed storages"),
        Column("after", unit.name, "scales included", "compressed storages"),
        Column("change", group="compressed storages", numeric=False),
        Column("all weights before", unit.name, "all distinct storages in FP32"),
    ]
    rows = []
    for row in results.variants:
        found = row.coverage
        if found is None:
            continue
        value, words, judgement = size_words(found.compressed_bytes_before, found.compressed_bytes_after)
        cells = (
            Cell(row.recipe or q.MISSING),
            Cell(q.share(found.share), bar=found.share),
            Cell(q.count(found.compressed_layers)),
            Cell(q.count(found.skipped_layers)),
            Cell(unit.text(found.compressed_bytes_before)),
            Cell(unit.text(found.compressed_bytes_after)),
            Cell(f"{value} {words}".strip(), tone=tone_of(judgement)),
            Cell(unit.text(found.total_bytes)),
        )
        rows.append(Row(row.name, cells))
    return compact("coverage", "Coverage", columns, rows)


def measured(results: Results) -> list[Variant]:
    """Rows whose measurements are there."""
    return [row for row in results.variants if row.status == "ok"]


def _speed_cells(work: Work, variant: Variant) -> tuple[Cell, ...]:
    scale = 1e3 if work.median.column.unit == "ms" else 1.0
    statistic = work.median.statistic(variant)
    cells = [work.median.cell(variant), _interval(statistic, lambda value: q.significant(value * scale))]
    cells.append(Cell(q.count(statistic.count)) if statistic else Cell.missing(NO_SAMPLES))
    cells += [speedup(work.speedup).cell(variant), _paired_interval(variant, work.speedup)]
    if work.share:
        cells.append(ceiling_share(work.share, work.ceiling).cell(variant))
    else:
        cells.append(Cell.missing("no ceiling is known for this work"))
    return tuple(cells)


def _paired_interval(variant: Variant, field: str) -> Cell:
    statistic = variant.speed.statistics.get(field)
    if statistic is None and variant.name == BASELINE:
        return Cell.missing("the baseline is compared with itself")
    return _interval(statistic, q.ratio)


def _interval(statistic: Statistic | None, text: Text, reason: str = NO_SAMPLES) -> Cell:
    if statistic is None:
        return Cell.missing(reason)
    return Cell(f"{text(statistic.low)} to {text(statistic.high)}")


def _suite_table(results: Results, suite: str) -> Table:
    metrics = accuracy_metrics()
    rows = []
    for row in measured(results):
        found = row.accuracy_by_suite.get(suite) or Accuracy.missing("this suite was not run", suite=suite)
        shown = row.model_copy(update={"accuracy": found})
        rows.append(Row(row.name, row_cells(metrics, shown), dense=row.recipe is None))
    return compact(f"accuracy-{suite}", f"Accuracy on {suite}", [metric.column for metric in metrics], rows)


def row_cells(metrics: Iterable[Metric], variant: Variant, among: Iterable[Variant] = ()) -> tuple[Cell, ...]:
    """Cells of one row; bars are drawn where the rows they are to be compared with are given."""
    rows = list(among)
    return tuple(
        metric.cell(variant, max((metric.value(row) or 0.0 for row in rows), default=0.0)) for metric in metrics
    )


def compact(name: str, caption: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    """Make a table of one group of rows, without columns that no row has."""
    return Table(name, caption, tuple(columns), (Group(tuple(rows)),)).without_empty_columns()


def tone_of(judgement: str) -> Literal["", "better", "worse"]:
    """Colour a judgement; only better and worse have one."""
    if judgement == "better":
        return "better"
    return "worse" if judgement == "worse" else ""
