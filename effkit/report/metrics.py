"""Which field of the records stands in which column, how it is written and what it means.

A column of a report is one :class:`Metric`; every table takes its columns from the lists below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from effkit.records import Section, Statistic, Variant
from effkit.report import quantities as q
from effkit.report.table import Cell, Column, Tone

Text = Callable[[float], str]
Judge = Literal["", "ratio-high", "ratio-low"]


@dataclass(frozen=True)
class Metric:
    """A column that shows one field of one section.

    Attributes:
        path: section and field, such as ``memory.weight_bytes`` or ``memory.ledger.kv_cache_bytes``.
        text: writes the value.
        judge: ``ratio-high``: above 1 is better; ``ratio-low``: below 1 is better; empty: no judgement.
        bar: draw the value as a bar, as a share of the column's largest.
    """

    column: Column
    path: str
    text: Text
    judge: Judge = ""
    bar: bool = False

    def value(self, variant: Variant) -> float | None:
        """Return the field's value, or None."""
        section, field = self._owner(variant)
        found: float | None = getattr(section, field) if section is not None else None
        return found

    def cell(self, variant: Variant, largest: float = 0.0) -> Cell:
        """Write the field of one row.

        Args:
            variant: the row.
            largest: value of the column that fills the bar.
        """
        section, field = self._owner(variant)
        if section is None:
            return Cell.missing(self._reason_of_owner(variant))
        value: float | None = getattr(section, field)
        if value is None:
            return Cell.missing(section.reasons.get(field, "not measured"))
        bar = min(1.0, value / largest) if self.bar and largest > 0 else None
        return Cell(self.text(value), tone=self._tone(variant, field, value), bar=bar)

    def statistic(self, variant: Variant) -> Statistic | None:
        """Return the raw samples behind the value, where there are any."""
        return variant.speed.statistics.get(self.path.rpartition(".")[2])

    def _owner(self, variant: Variant) -> tuple[Section | None, str]:
        *sections, field = self.path.split(".")
        owner: Section | None = None
        for name in sections:
            owner = getattr(variant if owner is None else owner, name)
        return owner, field

    def _reason_of_owner(self, variant: Variant) -> str:
        first, second, *_ = self.path.split(".")
        outer: Section = getattr(variant, first)
        return outer.reasons.get(second, "not measured")

    def _tone(self, variant: Variant, field: str, value: float) -> Tone:
        if not self.judge or value == 1.0:
            return ""
        if field == "perplexity_ratio" and variant.accuracy.within_noise:
            return ""
        samples = self.statistic(variant)
        if samples is not None and samples.low <= 1.0 <= samples.high:
            return ""
        return "better" if (value > 1.0) == (self.judge == "ratio-high") else "worse"


def yes_no(value: float) -> str:
    """Write a truth value."""
    return "yes" if value else "no"


def accuracy_metrics() -> tuple[Metric, ...]:
    """Everything known of a variant's quality."""

    def at(field: str) -> str:
        return f"accuracy.{field}"

    nats = "nats"
    return (
        Metric(Column("perplexity", note="exp of the mean negative log-likelihood"), at("perplexity"), q.perplexity),
        Metric(
            Column("change", note="of perplexity against FP32 on the same tokens; 0 is as good as FP32", rank=1),
            at("perplexity_ratio"),
            q.change,
            "ratio-low",
        ),
        Metric(
            Column("interval from", note="lower end of the 95 % interval of that change"),
            at("perplexity_ratio_low"),
            q.change,
        ),
        Metric(
            Column("interval to", note="upper end of the 95 % interval of that change"),
            at("perplexity_ratio_high"),
            q.change,
        ),
        Metric(Column("within noise", note="yes: the interval contains 0"), at("within_noise"), yes_no),
        Metric(
            Column("KL mean", nats, "mean divergence from FP32's predictions; 0 is identical"),
            at("kl_mean"),
            q.significant,
        ),
        Metric(Column("KL median", nats), at("kl_median"), q.significant),
        Metric(Column("KL p99", nats, "99 % of all tokens diverge less"), at("kl_p99"), q.significant),
        Metric(Column("KL max", nats), at("kl_max"), q.significant),
        Metric(
            Column("same top-1", note="share of positions with FP32's most likely token"), at("top1_agreement"), q.share
        ),
        Metric(
            Column("output error", note="||y - y0|| / ||y0|| against FP32's vectors, mean"),
            at("output_relative_error_mean"),
            q.share,
        ),
        Metric(Column("cosine", note="of the output vectors with FP32's, mean"), at("output_cosine_mean"), q.cosine),
        Metric(Column("NLL", "nats", "mean negative log-likelihood per token"), at("nll_mean"), q.perplexity),
        Metric(Column("scored tokens"), at("scored_tokens"), lambda value: q.count(int(value))),
    )


@dataclass(frozen=True)
class Work:
    """One kind of timed work: its rate or time, its speedup and its share of a ceiling."""

    title: str
    median: Metric
    speedup: str
    share: str = ""
    ceiling: str = ""


def works(encoder: bool) -> tuple[Work, ...]:
    """Kinds of work in the order of the report.

    Args:
        encoder: the model gives vectors, so what is prefill for a text model is encoding here.
    """
    prefill = "Encoding" if encoder else "Prefill"
    bandwidth = "memory read bandwidth"
    return (
        Work(f"{prefill} at batch 1", _rate("prefill_tokens_per_s"), "prefill_speedup", "prefill_flop_share", "FLOP/s"),
        Work(
            "Decoding at batch 1", _rate("decode_tokens_per_s"), "decode_speedup", "decode_bandwidth_share", bandwidth
        ),
        Work(
            "Decoding at batch 8",
            _rate("decode_tokens_per_s_batch_8"),
            "decode_speedup_batch_8",
            "decode_bandwidth_share_batch_8",
            bandwidth,
        ),
        Work("One forward pass", _time("forward_s"), "forward_speedup"),
    )


def speedup(field: str) -> Metric:
    """Column of a paired speedup."""
    note = "ratio of paired samples; above 1 is faster than FP32"
    return Metric(Column("speedup", note=note), f"speed.{field}", q.ratio, "ratio-high")


def ceiling_share(field: str, ceiling: str) -> Metric:
    """Column of an achieved share of one of this machine's ceilings."""
    return Metric(Column("of ceiling", note=f"share of this machine's measured {ceiling}"), f"speed.{field}", q.share)


def _rate(field: str) -> Metric:
    return Metric(Column("median", "tokens/s"), f"speed.{field}", q.significant, bar=True)


def first_token() -> Metric:
    """Column of the time from the prompt to the first token."""
    return _time("ttft_s")


def _time(field: str) -> Metric:
    return Metric(Column("median", "ms"), f"speed.{field}", milliseconds)


def milliseconds(value: float) -> str:
    """Write seconds as milliseconds."""
    return q.significant(value * 1e3)
