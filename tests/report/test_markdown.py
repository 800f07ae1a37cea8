"""Markdown is GitHub-flavoured, safe against what models and recipes are named, and explains every dash."""

from __future__ import annotations

import re

import pytest

from effkit.report import markdown
from effkit.report.render_markdown import escape
from tests.report.fixtures import fp32, model, not_ok, sample_results
from tests.report.pages import markdown_tables


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a|b", "a\\|b"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("AT&T &lt;", "AT&amp;T &amp;lt;"),
        ("two\nlines\r\n", "two lines"),
        (
            "snake_case *bold* `code` [link](x) ~~gone~~",
            "snake\\_case \\*bold\\* \\`code\\` \\[link\\](x) \\~\\~gone\\~\\~",
        ),
        ("costs $5 and $6", "costs \\$5 and \\$6"),
        ("C:\\path", "C:\\\\path"),
        ("模型 übersetzt", "模型 übersetzt"),
    ],
)
def test_text_is_never_read_as_markup(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_a_pipe_in_a_name_does_not_break_the_table() -> None:
    rows = markdown_tables(markdown(sample_results()))[0]
    assert len({len(row) for row in rows}) == 1
    assert [row[0] for row in rows] == ["fp32", "bf16", "int8", "int4-rtn", "int8-smooth", "int8|group:64"]


def test_every_dash_leads_to_a_note_that_says_why() -> None:
    text = markdown(sample_results())
    used = set(re.findall(r"–\[\^(\d+)\]", text))
    defined = dict(re.findall(r"^\[\^(\d+)\]: (.+)$", text, flags=re.MULTILINE))
    assert used == set(defined)
    assert "out of memory: killed at 23.1 GB resident while compressing layer 12 of 30" in defined.values()
    bare = [line.split(" | ")[0] for line in text.splitlines() if "| – |" in line]
    assert bare == ["| int8-smooth", "| int8\\|group:64"]  # their first dash leads to the reason of all


def test_what_a_reader_must_know_of_the_model_stands_at_the_top() -> None:
    head = markdown(sample_results()).split("## Verdicts")[0]
    assert "> [!IMPORTANT]\n> dequantized from Q4\\_1: the weights lie on a 4-bit grid" in head


def test_skipped_layers_are_listed_with_their_reasons() -> None:
    text = markdown(sample_results())
    assert "skipped by the recipe: tied to model.embed\\_tokens (1 layer, 113 MB): lm\\_head\\|tied" in text
    assert "RMSNorm: no matrix to compress (61 layers, 141 kB)" in text
    assert "and 49 more (all are in results.json)" in text


def test_energy_says_that_it_is_estimated_and_how() -> None:
    assert "- all rows: estimated, not counted: seconds x 2 busy cores x 5 W per core" in markdown(sample_results())


def test_a_run_without_any_measured_row_still_makes_a_report() -> None:
    rows = (not_ok("fp32", "out_of_memory", "killed").model_copy(update={"recipe": None}),)
    text = markdown(sample_results(variants=rows))
    assert "**fp32**: out of memory: killed" in text
    assert "No row was measured." in text
    assert "## Protocol" in markdown(sample_results(variants=()))


def test_a_hostile_model_name_stays_text() -> None:
    text = markdown(sample_results(model=model(source="<script>|x|</script>"), variants=(fp32(),)))
    assert "<script>" not in text
    assert text.startswith("# effkit report: &lt;script&gt;\\|x\\|&lt;/script&gt;\n")
