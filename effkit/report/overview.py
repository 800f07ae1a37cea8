"""The table of all variants with their main figures: what a reader looks at first, in every format."""

from __future__ import annotations

from collections.abc import Sequence

from effkit.records import Results, Variant
from effkit.report import quantities as q
from effkit.report.metrics import Metric, Text, accuracy_metrics, milliseconds, speedup
from effkit.report.quantities import ByteUnit
from effkit.report.sections import compact, report_byte_unit, row_cells, tone_of
from effkit.report.table import Cell, Column, Row, Table
from effkit.report.wording import BASELINE, Fact, size_words, status_words


def results_table(results: Results) -> Table:
    """Every variant with its main figures; the table to read first."""
    unit, encoder = report_byte_unit(results), results.model.kind == "encoder"
    metrics = _main_metrics(results, unit, encoder)
    rows = [_result_row(row, metrics, results) for row in results.variants]
    columns = [metric.column for metric in metrics]
    columns[1:1] = [Column("vs fp32", note="weights against dense FP32", group="memory", numeric=False, rank=1)]
    columns.append(Column("energy", "J/token", "~ estimated, not counted", "energy", rank=6))
    columns.append(Column("covered", note="share of the weight bytes that the recipe changed", group="recipe", rank=5))
    return compact("results", "All variants", columns, rows)


def absolute_facts(results: Results, variant: Variant) -> tuple[Fact, ...]:
    """The main figures of the baseline, with which all others are compared."""
    unit, encoder = report_byte_unit(results), results.model.kind == "encoder"
    shown: tuple[tuple[str, str, float | None, Text], ...] = (
        ("size", "of weights", variant.memory.weight_bytes, unit.full),
        ("decode", "tokens/s at decoding", variant.speed.decode_tokens_per_s, q.significant),
        (
            "prefill",
            f"tokens/s at {'encoding' if encoder else 'prefill'}",
            variant.speed.prefill_tokens_per_s,
            q.significant,
        ),
        ("forward", "for a forward pass", variant.speed.forward_s, q.seconds),
        ("accuracy", "perplexity", variant.accuracy.perplexity, q.perplexity),
    )
    return tuple(
        Fact(topic, text(value), words, "none", f"{text(value)} {words}")
        for topic, words, value, text in shown
        if value is not None
    )


def _main_metrics(results: Results, unit: ByteUnit, encoder: bool) -> list[Metric]:
    def pick(path: str, title: str, group: str, rank: int) -> Metric:
        found = next(metric for metric in accuracy_metrics() if metric.path == path)
        column = Column(title, found.column.unit, found.column.note, group, rank=rank)
        return Metric(column, found.path, found.text, found.judge)

    device = any(row.memory.peak_device_bytes is not None for row in results.variants)
    peak, title = ("peak_device_bytes", "peak device") if device else ("peak_rss_bytes", "peak RSS")
    prefill = "encode" if encoder else "prefill"
    return [
        Metric(
            Column("weights", unit.name, "every distinct storage once", "memory"),
            "memory.weight_bytes",
            unit.text,
            bar=True,
        ),
        Metric(Column(title, unit.name, "in a fresh process", "memory", rank=3), f"memory.{peak}", unit.text, bar=True),
        pick("accuracy.perplexity", "perplexity", "accuracy", 0),
        pick("accuracy.perplexity_ratio", "change", "accuracy", 1),
        pick("accuracy.kl_mean", "KL mean", "accuracy", 4),
        pick("accuracy.top1_agreement", "same top-1", "accuracy", 6),
        pick("accuracy.output_relative_error_mean", "output error", "accuracy", 0),
        pick("accuracy.output_cosine_mean", "cosine", "accuracy", 2),
        _rate(prefill, "prefill_tokens_per_s", 3),
        _speedup("prefill_speedup", prefill, 4),
        _rate("decode", "decode_tokens_per_s", 0),
        _speedup("decode_speedup", "decode", 1),
        _rate("decode batch 8", "decode_tokens_per_s_batch_8", 7),
        Metric(Column("forward pass", "ms", group="speed"), "speed.forward_s", milliseconds, bar=True),
        _speedup("forward_speedup", "forward", 1),
    ]


def _rate(title: str, field: str, rank: int) -> Metric:
    return Metric(Column(title, "tok/s", group="speed", rank=rank), f"speed.{field}", q.significant, bar=True)


def _speedup(field: str, title: str, rank: int) -> Metric:
    found = speedup(field)
    column = Column(f"{title} speedup", note=found.column.note, group="speed", rank=rank)
    return Metric(column, found.path, found.text, found.judge)


def _result_row(variant: Variant, metrics: Sequence[Metric], results: Results) -> Row:
    cells = list(row_cells(metrics, variant, results.variants))
    cells[1:1] = [_size_cell(variant, results.baseline)]
    cells.append(_energy_cell(variant, results.model.kind == "encoder"))
    if variant.coverage is not None:
        cells.append(Cell(q.share(variant.coverage.share)))
    else:
        dense = variant.recipe is None
        cells.append(Cell.missing("dense: no recipe was applied" if dense else "no plan was recorded"))
    message = ""
    if variant.status != "ok":
        message = f"{status_words(variant)}: {variant.reason or 'no reason was recorded'}"
        cells = [Cell.missing(message) if cell.reason else cell for cell in cells]
    partly = any(not cell.reason for cell in cells[:-1])  # what was measured before the failure is kept in sight
    return Row(variant.name, tuple(cells), "" if partly else message, dense=variant.recipe is None)


def _size_cell(variant: Variant, baseline: Variant | None) -> Cell:
    if variant.name == BASELINE and variant.memory.weight_bytes is not None:
        return Cell("baseline", tone="muted")
    before = baseline.memory.weight_bytes if baseline is not None else None
    if before is None or variant.memory.weight_bytes is None:
        return Cell.missing(variant.memory.reasons.get("weight_bytes", "no dense fp32 row to compare with"))
    value, words, judgement = size_words(before, variant.memory.weight_bytes)
    return Cell(f"{value} {words}".strip(), tone=tone_of(judgement))


def _energy_cell(variant: Variant, encoder: bool) -> Cell:
    field = "prefill_j_per_token" if encoder else "decode_j_per_token"
    sign = "~" if variant.energy.source == "estimated" else ""
    return Metric(Column(""), f"energy.{field}", lambda value: f"{sign}{q.significant(value)}").cell(variant)
