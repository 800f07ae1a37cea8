"""Verdicts say gains and losses in the same plain words."""

from __future__ import annotations

import pytest

from effkit.records import Accuracy, Memory, Results, Speed, Variant
from effkit.report import verdict, with_verdicts
from effkit.report.wording import headlines, size_words
from tests.report.fixtures import (
    bf16,
    encoder_results,
    fp32,
    int4,
    int8,
    module_results,
    not_ok,
    sample_results,
    statistic,
)


def changed(variant: Variant, section: str, **fields: object) -> Variant:
    return variant.model_copy(update={section: getattr(variant, section).model_copy(update=fields)})


def test_a_verdict_names_size_speed_accuracy_and_what_is_left_beside_bf16() -> None:
    assert verdict(int8(), fp32(), bf16()) == (
        "3.8x smaller, 2.3x as fast at decoding (faster) and 0.97x at prefill (slower), "
        "perplexity +0.42 % (worse; within noise: no); against bf16: 1.91x smaller, 1.58x as fast at decoding"
    )


def test_losses_are_as_plain_as_gains() -> None:
    big = changed(int4(), "memory", weight_bytes=600_000_000)
    text = verdict(big, fp32())
    assert text.startswith("1.12x bigger, 0.56x as fast at decoding (slower) and 0.28x at prefill (slower)")
    assert text.endswith("perplexity +20.8 % (worse; within noise: no)")


def test_without_a_bf16_row_nothing_is_said_about_it() -> None:
    assert "bf16" not in verdict(int8(), fp32())
    assert "bf16" not in verdict(int8(), fp32(), not_ok("bf16", "failed", "no bfloat16 here"))
    assert "against bf16" not in verdict(bf16(), fp32(), bf16())


def test_a_difference_that_could_not_be_shown_is_no_gain() -> None:
    assert verdict(bf16(), fp32()).endswith("perplexity +0.02 % (within noise: yes)")
    wide = statistic(1.02, "ratio", spread=0.3)
    near = changed(int8(), "speed", decode_speedup=1.02, statistics={"decode_speedup": wide})
    assert "1.02x as fast at decoding (no clear difference)" in verdict(near, fp32())


def test_a_better_perplexity_is_called_better() -> None:
    better = changed(int8(), "accuracy", perplexity_ratio=0.98)
    assert "perplexity −2.0 % (better; within noise: no)" in verdict(better, fp32())


def test_a_ruined_perplexity_is_given_as_a_factor() -> None:
    ruined = changed(int8(), "accuracy", perplexity_ratio=1234.5)
    assert "perplexity 1,234 times that of fp32 (worse; within noise: no)" in verdict(ruined, fp32())


def test_the_baseline_and_rows_without_measurements_say_what_they_are() -> None:
    assert verdict(fp32(), fp32()) == "the baseline: dense FP32"
    assert verdict(not_ok("x", "failed", "a | b"), fp32()) == "failed: a | b"
    assert verdict(not_ok("x", "out_of_memory", "killed at 23 GB"), fp32()) == "out of memory: killed at 23 GB"
    assert verdict(not_ok("x", "failed", ""), fp32()) == "failed: no reason was recorded"


@pytest.mark.parametrize(
    ("baseline", "lead"),
    [
        (None, "not compared: the run has no dense fp32 row; 141 MB of weights, perplexity 13.17"),
        (not_ok("fp32", "out_of_memory", "killed"), "not compared: the dense fp32 row ran out of memory; 141 MB"),
        (not_ok("fp32", "failed", "broken"), "not compared: the dense fp32 row failed; 141 MB"),
    ],
)
def test_without_a_baseline_a_verdict_says_so_and_gives_plain_figures(baseline: Variant | None, lead: str) -> None:
    assert verdict(int8(), baseline).startswith(lead)


def test_what_was_not_measured_is_said() -> None:
    bare = int8().model_copy(
        update={"speed": Speed.missing("not asked for"), "accuracy": Accuracy.missing("not asked for", suite="s")}
    )
    assert verdict(bare, fp32()) == "3.8x smaller, speed not measured, accuracy not measured"
    unknown = bare.model_copy(update={"memory": Memory.missing("not asked for")})
    assert verdict(unknown, fp32()) == "speed not measured, accuracy not measured"


def test_an_encoder_is_judged_by_its_outputs_and_by_encoding() -> None:
    row = with_verdicts(encoder_results()).variants[2]
    assert row.verdict.startswith(
        "3.9x smaller, 1.33x as fast at encoding (faster), outputs off by 2.5 % (cosine 0.9997)"
    )


def test_a_module_that_became_bigger_and_slower_is_told_so() -> None:
    row = with_verdicts(module_results()).variants[2]
    assert row.verdict.startswith("1.10x bigger, 0.51x as fast (slower), outputs off by 2.1 %")


def test_verdicts_are_written_anew_from_the_numbers() -> None:
    stale = fp32().model_copy(update={"verdict": "the best model in the world"})
    assert with_verdicts(sample_results(variants=(stale,))).variants[0].verdict == "the baseline: dense FP32"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (100, 100, ("", "the same size", "same")),
        (1000, 998, ("", "the same size", "same")),
        (100, 0, ("", "no weights left", "same")),
        (0, 0, ("", "the same size", "same")),
        (0, 100, ("", "bigger", "worse")),
        (400, 100, ("4.0x", "smaller", "better")),
        (100, 400, ("4.0x", "bigger", "worse")),
    ],
)
def test_sizes_are_compared_in_words(before: int, after: int, expected: tuple[str, str, str]) -> None:
    assert size_words(before, after) == expected


def test_headlines_name_the_smallest_and_the_fastest_within_noise() -> None:
    good = changed(int8(), "accuracy", within_noise=True)
    lines = headlines(sample_results(variants=(fp32(), bf16(), good, int4())))
    assert lines == (
        "Smallest within noise of dense FP32: int8, 3.8x smaller.",
        "Fastest within noise: int8, 2.3x as fast at decoding (faster).",
    )


def test_headlines_say_when_no_recipe_is_within_noise() -> None:
    (line,) = headlines(sample_results())
    assert line == (
        "No recipe keeps perplexity within noise of dense FP32; the plain cast to bf16 does. "
        "The nearest recipe is int8, perplexity +0.42 %."
    )


def test_headlines_say_when_nothing_near_is_faster() -> None:
    slow = changed(int8(), "speed", decode_speedup=0.8, statistics={})
    near = changed(slow, "accuracy", within_noise=True)
    assert headlines(sample_results(variants=(fp32(), near)))[1] == (
        "Nothing within noise of dense FP32 decodes faster than it."
    )


@pytest.mark.parametrize(
    "results", [encoder_results(), sample_results(variants=(int8(),)), sample_results(variants=())]
)
def test_headlines_are_silent_where_there_is_nothing_to_compare(results: Results) -> None:
    assert headlines(results) == ()
