"""Figures are written one way: with a fixed number of digits, no false zero and no false hundred per cent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effkit.report import quantities as q


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3.81, "3.8x"),
        (1.91, "1.91x"),
        (1.999, "2.0x"),
        (0.912, "0.91x"),
        (0.9999, "1.00x"),
        (12.34, "12x"),
        (9.96, "10x"),
        (1234.0, "1,234x"),
        (0.00312, "0.0031x"),
    ],
)
def test_a_factor_has_more_digits_near_one(value: float, expected: str) -> None:
    assert q.ratio(value) == expected


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (1.0042, "+0.42 %"),
        (0.9997, "−0.03 %"),
        (1.0, "0.00 %"),
        (1.00002, "0.00 %"),
        (0.99998, "0.00 %"),
        (1.0996, "+10.0 %"),
        (1.2077, "+20.8 %"),
        (3.5, "+250.0 %"),
        (17.3, "17x"),
    ],
)
def test_a_ratio_of_perplexities_reads_as_a_signed_change(factor: float, expected: str) -> None:
    assert q.change(factor) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "100 %"),
        (0.99962, "99.96 %"),
        (0.5, "50.0 %"),
        (0.0, "0 %"),
        (0.0002, "0.02 %"),
        (0.9999999, "99.99999 %"),
        (3e-12, "3.0e-10 %"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(value: float, expected: str) -> None:
    assert q.share(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (13.118, "13.1"),
        (99.96, "100"),
        (1234.5, "1,234"),
        (0.00187, "0.00187"),
        (8.52e-5, "8.52e-5"),
        (-2.5, "−2.50"),
        (3.2e9, "3.20e9"),
    ],
)
def test_figures_keep_three_significant_digits(value: float, expected: str) -> None:
    assert q.significant(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0852, "85.2 ms"),
        (12.34, "12.3 s"),
        (125.0, "2 min 5 s"),
        (99.96, "1 min 40 s"),
        (4e-5, "40.0 µs"),
        (0.99996, "1.00 s"),
        (0.0, "0 s"),
    ],
)
def test_a_duration_takes_the_unit_that_suits_it(value: float, expected: str) -> None:
    assert q.seconds(value) == expected


def test_all_bytes_of_a_report_share_the_unit_of_the_smallest_model() -> None:
    unit = q.byte_unit([538_060_032, 269_030_016, 141_210_624])
    assert unit.full(141_210_624) == "141.2 MB"
    assert unit.full(1_488_973_824) == "1,489.0 MB"
    assert q.byte_unit([28_000_000_000, 3_500_000_000]).full(3_500_000_000) == "3.500 GB"
    assert q.byte_unit([40_000]).full(40_000) == "40.00 kB"
    assert q.byte_unit([0]).name == "MB"


def test_bytes_that_would_round_to_zero_say_that_they_are_not_zero() -> None:
    unit = q.byte_unit([141_210_624])
    assert (unit.text(0), unit.text(2_304), unit.text(-2_304)) == ("0.0", "<0.1", "−<0.1")
    assert unit.text(-99_200_000) == "−99.2"


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_no_figure_is_further_off_than_its_last_digit(value: float) -> None:
    assert float(q.significant(value, 3).replace(",", "")) == pytest.approx(value, rel=0.00501)


@given(st.integers(min_value=1, max_value=10**14))
def test_a_byte_count_alone_is_within_half_a_per_cent(count: int) -> None:
    text, name = q.byte_text(count).split(" ")
    factor = {"bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}[name]
    assert float(text.replace(",", "")) * factor == pytest.approx(count, rel=0.00501)


@given(st.floats(min_value=0.0, max_value=1.0))
def test_a_cosine_below_one_never_reads_as_one(value: float) -> None:
    assert (q.cosine(value) == "1") == (value == 1.0) or value > 1 - 1e-8


def test_rates_and_parameters_take_decimal_prefixes() -> None:
    assert q.rate(22_840_000_000.0, "B/s") == "22.8 GB/s"
    assert q.millions(134_515_008) == "134.5 M"
    assert q.millions(7_248_023_552) == "7.248 B"
    assert q.millions(12) == "12"
