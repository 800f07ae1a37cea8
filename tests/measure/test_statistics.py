from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effkit.errors import MeasureError
from effkit.measure.statistics import paired_ratios, perplexity_ratio, summarise


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30))
def test_the_interval_holds_the_median_and_lies_within_the_samples(samples: list[float]) -> None:
    statistic = summarise(samples, "s")
    assert min(samples) <= statistic.low <= statistic.median <= statistic.high <= max(samples)
    assert statistic.count == len(samples)
    assert statistic.samples == tuple(samples)


def test_an_outlier_does_not_move_the_median() -> None:
    assert summarise([1.0, 0.01, 0.01, 0.01, 0.01], "s").median == 0.01


def test_the_same_seed_gives_the_same_interval() -> None:
    samples = list(np.random.default_rng(3).random(9))
    assert summarise(samples, "s", seed=5) == summarise(samples, "s", seed=5)


def test_the_interval_covers_the_true_median_about_as_often_as_it_claims() -> None:
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        statistic = summarise(list(generator.normal(10.0, 1.0, 25)), "s")
        hits += statistic.low <= 10.0 <= statistic.high
    assert 0.88 <= hits / 200 <= 1.0


@pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [float("inf")]])
def test_no_samples_or_infinite_ones_are_refused(samples: list[float]) -> None:
    with pytest.raises(MeasureError):
        summarise(samples, "s")


def test_speedups_are_paired_so_a_drift_of_the_machine_cancels() -> None:
    drift = [1.0, 2.0, 4.0, 8.0]
    assert paired_ratios([2 * x for x in drift], drift) == (2.0,) * 4


@pytest.mark.parametrize(("baseline", "variant"), [([1.0], [1.0, 2.0]), ([1.0], [0.0])])
def test_samples_that_cannot_be_paired_are_refused(baseline: list[float], variant: list[float]) -> None:
    with pytest.raises(MeasureError):
        paired_ratios(baseline, variant)


def test_equal_likelihoods_have_the_ratio_one_and_no_width() -> None:
    nll = np.random.default_rng(0).random(500)
    interval = perplexity_ratio(nll, nll)
    assert (interval.ratio, interval.low, interval.high) == (1.0, 1.0, 1.0)
    assert interval.contains_one


def test_the_perplexity_ratio_is_token_weighted_and_paired() -> None:
    generator = np.random.default_rng(0)
    baseline = generator.exponential(3.0, 4000)
    variant = baseline + generator.normal(0.01, 0.05, 4000)
    interval = perplexity_ratio(baseline, variant)
    assert interval.ratio == pytest.approx(np.exp(variant.mean()) / np.exp(baseline.mean()))
    assert 1.0 < interval.low < interval.ratio < interval.high < 1.02  # unpaired, the spread of 3 would drown it
    assert not interval.contains_one


def test_differences_that_come_in_runs_widen_the_interval() -> None:
    generator = np.random.default_rng(0)
    baseline = np.zeros(4096)
    runs = np.repeat(generator.normal(0.0, 0.1, 64), 64)
    shuffled = generator.permutation(runs)
    in_runs, mixed = perplexity_ratio(baseline, runs), perplexity_ratio(baseline, shuffled)
    assert (in_runs.high - in_runs.low) > 3 * (mixed.high - mixed.low)


@pytest.mark.parametrize("count", [1, 2, 7, 63, 65])
def test_short_texts_still_get_an_interval(count: int) -> None:
    interval = perplexity_ratio(np.zeros(count), np.full(count, 0.5))
    assert interval.ratio == pytest.approx(np.exp(0.5))
    assert interval.low == pytest.approx(interval.high)


def test_other_tokens_cannot_be_paired() -> None:
    with pytest.raises(MeasureError, match="cannot pair 3 scored tokens with 2"):
        perplexity_ratio(np.zeros(2), np.zeros(3))


def test_hopeless_likelihoods_do_not_overflow() -> None:
    assert np.isfinite(perplexity_ratio(np.zeros(9), np.full(9, 5000.0)).ratio)
