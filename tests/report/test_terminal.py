"""The terminal shows as many columns as fit, never a broken line, and the reason of every dash."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from effkit.records import Results
from effkit.report import terminal_table
from tests.report.fixtures import encoder_results, int8, model, module_results, sample_results


def screen(results: Results, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(terminal_table(results))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 140, 200])
@pytest.mark.parametrize("results", [sample_results(), encoder_results(), module_results()])
def test_no_line_is_wider_than_the_terminal(results: Results, width: int) -> None:
    assert max(cell_len(line) for line in screen(results, width)) <= width


@pytest.mark.parametrize("width", [80, 120, 140])
def test_every_variant_takes_one_line_of_the_table(width: int) -> None:
    lines = screen(sample_results(), width)
    rule = next(index for index, line in enumerate(lines) if line.startswith("─"))
    names = [line.split()[0] for line in lines[rule + 1 : rule + 7]]
    assert names == ["fp32", "bf16", "int8", "int4-rtn", "int8-smooth", "int8|group:64"]


def test_eighty_columns_hold_size_accuracy_and_decoding() -> None:
    line = next(line for line in screen(sample_results(), 80) if line.startswith("int8 "))
    assert line.split() == ["int8", "141.2", "3.8x", "smaller", "13.17", "+0.42", "%", "41.3", "2.3x"]


def test_a_wider_terminal_shows_more_and_a_narrow_one_says_what_it_hides() -> None:
    narrow, wide = " ".join(screen(sample_results(), 80)), " ".join(screen(sample_results(), 200))
    assert "a wider terminal also shows peak RSS" in narrow
    assert "a wider terminal" not in wide
    assert "742.4" in wide


def test_every_dash_has_its_reason_below() -> None:
    text = "\n".join(screen(sample_results(), 200))
    assert "–²" in text
    assert "² failed: MeasureError: window 2: the likelihood of 17 of 1023 tokens is NaN" in text
    assert "³ out of memory: killed at 23.1 GB resident" in text


def test_the_note_on_the_model_is_shown() -> None:
    assert any(line.startswith("Note: dequantized from Q4_1") for line in screen(sample_results(), 80))


def test_markup_in_a_name_is_shown_as_it_is() -> None:
    odd = int8().model_copy(update={"name": "[red]x[/red]", "notes": ("[link=http://x]y[/link]",)})
    text = "\n".join(screen(sample_results(variants=(odd,)), 120))
    assert "[red]x[/red]" in text
    assert "[link=http://x]y[/link]" in text


def test_a_long_name_is_folded_not_cut() -> None:
    long = int8().model_copy(update={"name": "smoothed-int8-with-a-very-long-name"})
    text = "".join(line.split(" ")[0] for line in screen(sample_results(variants=(long,)), 80))
    assert "smoothed-int8-with-a-very-long-name" in text


def test_no_rows_make_an_empty_table() -> None:
    assert any("variant" in line for line in screen(sample_results(variants=()), 80))


def test_control_characters_of_a_name_do_not_reach_the_terminal() -> None:
    odd = int8().model_copy(update={"name": "a\x1b[2Jb\u202e", "notes": ("bell \x07",)})
    text = "\n".join(screen(sample_results(variants=(odd,), model=model(source="m\x1b]0;x\x07")), 120))
    assert not [each for each in text if each != "\n" and not each.isprintable()]
    assert "a�[2Jb�" in text
