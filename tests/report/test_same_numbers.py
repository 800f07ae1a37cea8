"""The same figures stand in the terminal, in Markdown, in HTML and (unrounded) in JSON."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from effkit.records import Results
from effkit.report import html, load_results, markdown, terminal_table, to_json, write_reports
from effkit.report import quantities as q
from effkit.report.overview import results_table
from effkit.report.sections import report_byte_unit
from tests.report.fixtures import encoder_results, module_results, sample_results
from tests.report.pages import html_tables, markdown_tables

ALL = [sample_results(), encoder_results(), module_results()]
NAMES = ["text", "encoder", "module"]


def terminal(results: Results, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(terminal_table(results))
    return console.file.getvalue()


def measured_rows(results: Results) -> dict[str, list[str]]:
    return {row.name: [cell.text for cell in row.cells] for row in results_table(results).rows if not row.message}


@pytest.mark.parametrize("results", ALL, ids=NAMES)
def test_markdown_html_and_terminal_hold_the_same_figures(results: Results) -> None:
    expected = measured_rows(results)
    in_html = {row[0]: row[1:] for row in html_tables(html(results))["All variants"]}
    in_markdown = {row[0]: row[1:] for row in markdown_tables(markdown(results))[0]}
    in_terminal = {line.split()[0]: line for line in terminal(results, 220).splitlines() if line.strip()}
    for name, cells in expected.items():
        assert in_html[name] == cells
        assert in_markdown[name] == cells
        line = next(line for line in terminal(results, 220).splitlines() if line.startswith(f"{name} "))
        for cell in cells:
            assert cell in line
    assert set(in_terminal) >= set(expected)


@pytest.mark.parametrize("results", ALL, ids=NAMES)
def test_every_table_of_the_page_is_in_markdown_too(results: Results) -> None:
    page = [row for rows in html_tables(html(results)).values() for row in rows]
    document = [row for rows in markdown_tables(markdown(results)) for row in rows]
    lost = {row.name for row in results_table(results).rows if row.message}
    assert [row for row in page if row[0] not in lost and row not in document] == []


@pytest.mark.parametrize("results", ALL, ids=NAMES)
def test_verdicts_are_the_same_everywhere(results: Results) -> None:
    in_json = {row["name"]: row["verdict"] for row in json.loads(to_json(results))["variants"]}
    page, document = html(results), markdown(results).replace("\\", "")
    screen = " ".join(terminal(results, 400).split())
    for sentence in in_json.values():
        assert sentence in page
        assert sentence in document
        assert sentence in screen


def test_figures_of_the_page_are_those_of_the_json() -> None:
    results = sample_results()
    unit = report_byte_unit(results)
    for row in json.loads(to_json(results))["variants"]:
        if row["status"] != "ok":
            continue
        shown = measured_rows(results)[row["name"]]
        assert unit.text(row["memory"]["weight_bytes"]) in shown
        assert unit.text(row["memory"]["peak_rss_bytes"]) in shown
        assert q.perplexity(row["accuracy"]["perplexity"]) in shown
        assert q.change(row["accuracy"]["perplexity_ratio"]) in shown
        assert q.significant(row["speed"]["decode_tokens_per_s"]) in shown
        assert q.ratio(row["speed"]["decode_speedup"]) in shown
        assert f"~{q.significant(row['energy']['decode_j_per_token'])}" in shown


@pytest.mark.parametrize("results", ALL, ids=NAMES)
def test_reports_made_again_from_the_json_are_the_same_byte_for_byte(results: Results, tmp_path: object) -> None:
    first = write_reports(results, f"{tmp_path}/first")
    again = write_reports(load_results(first["json"]), f"{tmp_path}/again")
    assert {name: path.read_bytes() for name, path in first.items()} == {
        name: path.read_bytes() for name, path in again.items()
    }
