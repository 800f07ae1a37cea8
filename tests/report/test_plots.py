"""Plots show every measured variant inside the frame, with labels apart and honest axes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effkit.records import Results, Variant
from effkit.report.axes import Axis, log_ticks, nice_ticks
from effkit.report.labels import shorten, text_width
from effkit.report.picture import BOTTOM, LEFT, RIGHT, TOP, Plot, Point
from effkit.report.plots import plots
from tests.report.fixtures import bf16, encoder_results, fp32, int4, int8, module_results, sample_results


def with_ratio(variant: Variant, name: str, ratio: float, weights: int) -> Variant:
    accuracy = variant.accuracy.model_copy(
        update={
            "perplexity_ratio": ratio,
            "perplexity_ratio_low": ratio * 0.99,
            "perplexity_ratio_high": ratio * 1.01,
        }
    )
    memory = variant.memory.model_copy(update={"weight_bytes": weights})
    return variant.model_copy(update={"name": name, "accuracy": accuracy, "memory": memory})


def by_name(plot: Plot) -> dict[str, Point]:
    return {point.label: point for point in plot.points}


def box(point: Point) -> tuple[float, float, float, float]:
    width = text_width(point.label)
    left = point.label_x - {"start": 0.0, "middle": width / 2, "end": width}[point.anchor]
    return left, point.label_y - 10, left + width, point.label_y + 2


@pytest.mark.parametrize("results", [sample_results(), encoder_results(), module_results()])
def test_two_plots_show_all_measured_rows_inside_the_frame(results: Results) -> None:
    drawn = plots(results)
    assert [plot.name for plot in drawn] == ["memory", "speed"]
    measured = [row.name for row in results.variants if row.status == "ok"]
    for plot in drawn:
        assert [point.label for point in plot.points] == measured
        for point in plot.points:
            assert LEFT <= point.x <= RIGHT
            assert TOP <= point.y <= BOTTOM


def test_lower_is_better_and_the_better_corner_is_marked() -> None:
    memory, speed = plots(sample_results())
    points = by_name(memory)
    assert points["int4-rtn"].y < points["int8"].y < points["fp32"].y  # y grows downwards
    assert points["int8"].x < points["bf16"].x < points["fp32"].x
    assert (memory.better, speed.better) == ("left", "right")


def test_intervals_become_error_bars_around_the_point() -> None:
    _, speed = plots(sample_results())
    point = by_name(speed)["int4-rtn"]
    assert point.x_bar is not None and point.x_bar[0] < point.x < point.x_bar[1]
    assert point.y_bar is not None and point.y_bar[1] < point.y < point.y_bar[0]


def test_only_variants_that_another_beats_on_both_axes_are_hollow() -> None:
    memory, speed = plots(sample_results())
    assert [name for name, point in by_name(memory).items() if point.beaten] == ["int4-rtn"]
    assert [name for name, point in by_name(speed).items() if point.beaten] == ["int4-rtn"]


def test_labels_do_not_cover_one_another() -> None:
    crowd = [
        with_ratio(int8(), f"variant-{index}", 1.004 + index * 0.0004, 141_000_000 + index * 2_000_000)
        for index in range(6)
    ]
    memory = plots(sample_results(variants=(fp32(), bf16(), *crowd)))[0]
    for one, other in itertools.combinations(map(box, memory.points), 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_a_ruined_variant_turns_the_axis_logarithmic() -> None:
    ruined = with_ratio(int4(), "int2", 480.0, 90_000_000)
    memory = plots(sample_results(variants=(fp32(), bf16(), int8(), ruined)))[0]
    assert [tick.text for tick in memory.y_ticks] == ["0 %", "2x", "5x", "10x", "20x", "50x", "100x", "200x", "500x"]
    assert by_name(memory)["int2"].y < by_name(memory)["int8"].y


def test_equal_accuracies_still_make_a_plot() -> None:
    same = with_ratio(int8(), "int8", 1.0, 141_000_000)
    memory = plots(sample_results(variants=(fp32(), same)))[0]
    assert len(memory.y_ticks) >= 2
    assert "0 %" in [tick.text for tick in memory.y_ticks]


@pytest.mark.parametrize("rows", [(), (fp32(),)])
def test_fewer_than_two_rows_make_no_plot(rows: tuple[Variant, ...]) -> None:
    assert plots(sample_results(variants=rows)) == ()


def test_the_axis_of_size_starts_at_zero() -> None:
    memory = plots(sample_results())[0]
    assert memory.x_ticks[0].text == "0"
    assert memory.x_ticks[0].at == LEFT


@given(st.floats(min_value=-1e6, max_value=1e6), st.floats(min_value=1e-6, max_value=1e6))
def test_ticks_are_few_even_and_cover_the_range(low: float, spread: float) -> None:
    ticks = nice_ticks(low, low + spread)
    assert 2 <= len(ticks) <= 8
    assert ticks[0] <= low + 1e-6 * spread + 1e-9 * abs(low)
    assert ticks[-1] >= low + spread * (1 - 1e-6) - 1e-9 * abs(low)


@given(st.floats(min_value=1.0, max_value=1e9))
def test_logarithmic_ticks_begin_at_one_and_cover_the_range(high: float) -> None:
    ticks = log_ticks(high)
    assert ticks[0] == 1.0
    assert ticks[-1] >= high
    assert list(ticks) == sorted(set(ticks))


def test_an_axis_holds_values_inside() -> None:
    axis = Axis(1.0, 100.0, 0.0, 10.0, log=True)
    assert (axis.at(10.0), axis.at(-5.0), axis.at(1e9)) == (5.0, 0.0, 10.0)


def test_long_names_are_cut_and_wide_characters_count_twice() -> None:
    assert shorten("x" * 40) == "x" * 23 + "…"
    assert shorten("int8") == "int8"
    assert text_width("模型") == text_width("abcd")
