"""Medians, bootstrap intervals and paired comparisons; numpy only, seeded, knows nothing of models.

Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", chapter 13 (percentile interval); Kunsch 1989
(blocks for dependent observations).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from effkit.errors import MeasureError
from effkit.records import Statistic

FloatArray = npt.NDArray[np.float64]

LEVEL = 0.95
RESAMPLES = 2000
BLOCK_TOKENS = 64


@dataclass(frozen=True)
class RatioInterval:
    """A ratio with its bootstrap interval; ``contains_one`` means: no difference could be shown."""

    ratio: float
    low: float
    high: float

    @property
    def contains_one(self) -> bool:
        """True when the interval holds 1."""
        return self.low <= 1.0 <= self.high


def summarise(samples: Sequence[float], unit: str, seed: int = 0) -> Statistic:
    """Median of ``samples`` and the percentile bootstrap interval of that median.

    Args:
        samples: at least one finite value.
        unit: of the samples, such as ``s`` or ``tokens/s``.
        seed: of the resampling.

    Raises:
        MeasureError: no samples, or one that is not finite.
    """
    values = _checked(samples)
    low, high = _median_interval(values, seed)
    return Statistic(
        unit=unit,
        median=float(np.median(values)),
        low=low,
        high=high,
        level=LEVEL,
        count=len(values),
        samples=tuple(values.tolist()),
    )


def paired_ratios(baseline_s: Sequence[float], variant_s: Sequence[float]) -> tuple[float, ...]:
    """Speedups from alternating samples: baseline time / variant time, pair by pair.

    Raises:
        MeasureError: different counts, or a time that is not above zero.
    """
    baseline, variant = _checked(baseline_s), _checked(variant_s)
    if len(baseline) != len(variant):
        raise MeasureError(f"paired samples differ in number: {len(baseline)} of the baseline, {len(variant)} here")
    if min(baseline.min(), variant.min()) <= 0:
        raise MeasureError("a measured time is not above zero: the clock is too coarse for this work")
    return tuple((baseline / variant).tolist())


def perplexity_ratio(
    baseline_nll: FloatArray, variant_nll: FloatArray, *, seed: int = 0, block: int = BLOCK_TOKENS
) -> RatioInterval:
    """Ratio of perplexities on the same tokens with a paired block bootstrap interval.

    Neighbouring tokens depend on one another, so blocks of consecutive tokens are drawn, not single tokens. The same
    draw applies to both sides: exp(mean(variant - baseline)) over the drawn tokens.

    Args:
        baseline_nll, variant_nll: [N] negative log-likelihoods in nats, token by token in the same order.
        seed: of the resampling.
        block: tokens per block; shortened where the text has fewer than eight blocks of that size.

    Raises:
        MeasureError: different lengths or nothing to compare.
    """
    if baseline_nll.shape != variant_nll.shape or baseline_nll.size == 0:
        raise MeasureError(f"cannot pair {variant_nll.size} scored tokens with {baseline_nll.size} of the baseline")
    difference = variant_nll.astype(np.float64) - baseline_nll.astype(np.float64)
    count = difference.size
    block = max(1, min(block, count // 8))
    edges = np.arange(0, count, block)
    sums = np.add.reduceat(difference, edges)
    sizes = np.diff(np.append(edges, count))
    draws = np.random.default_rng(seed).integers(0, len(edges), size=(RESAMPLES, len(edges)))
    means = sums[draws].sum(axis=1) / sizes[draws].sum(axis=1)
    low, high = np.exp(np.clip(np.quantile(means, _tails()), -700.0, 700.0))
    ratio = float(np.exp(np.clip(difference.mean(), -700.0, 700.0)))
    return RatioInterval(ratio, float(low), float(high))


def _median_interval(values: FloatArray, seed: int) -> tuple[float, float]:
    if len(values) == 1:
        return float(values[0]), float(values[0])
    draws = np.random.default_rng(seed).integers(0, len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[draws], axis=1), _tails())
    return float(low), float(high)


def _tails() -> tuple[float, float]:
    return (1 - LEVEL) / 2, (1 + LEVEL) / 2


def _checked(samples: Sequence[float]) -> FloatArray:
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise MeasureError("no samples were taken")
    if not np.isfinite(values).all():
        raise MeasureError(f"a sample is not finite: {values.tolist()}")
    return values
