"""The page is one file without a network, well formed, accessible, and safe against hostile names."""

from __future__ import annotations

import re

import pytest

from effkit.records import Results
from effkit.report import html
from effkit.report.render_html import ledger_bars
from tests.report.fixtures import (
    coverage,
    encoder_results,
    environment,
    fp32,
    int8,
    model,
    module_results,
    norms,
    not_ok,
    protocol,
    sample_results,
)
from tests.report.pages import Element, html_tables, read_html

PAGES = [sample_results(), encoder_results(), module_results(), sample_results(variants=())]
LOADING = ("src", "srcset", "action", "poster", "data", "background")


@pytest.fixture(scope="module")
def page() -> Element:
    return read_html(html(sample_results()))


@pytest.mark.parametrize("results", PAGES)
def test_the_page_is_well_formed_and_its_ids_are_unique(results: Results) -> None:
    root = read_html(html(results))
    ids = [each.attributes["id"] for each in root.everything() if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    anchors = {(a.attributes["href"] or "")[1:] for a in root.find_all("a")}
    assert anchors <= set(ids)


@pytest.mark.parametrize("results", PAGES)
def test_the_page_loads_nothing_and_runs_nothing(results: Results) -> None:
    text = html(results)
    root = read_html(text)
    assert not [e.tag for e in root.everything() if e.tag in ("script", "iframe", "img", "object", "embed")]
    for element in root.everything():
        assert not [name for name in element.attributes if name in LOADING or name.startswith("on")]
        assert (element.attributes.get("href") or "#").startswith(("#", "data:,"))
    assert not re.search(r"url\((?!#)|@import|https?://", text)
    policy = root.find_all("meta", **{"http-equiv": "Content-Security-Policy"})[0].attributes["content"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_the_same_results_give_the_same_page() -> None:
    assert html(sample_results()) == html(sample_results())


def test_every_table_has_a_caption_and_scoped_headings(page: Element) -> None:
    for table in page.find_all("table"):
        assert table.find_all("caption")[0].text
        assert all(cell.attributes.get("scope") for cell in table.find_all("th"))
    for region in page.find_all("div", class_="scroll"):
        assert region.attributes["role"] == "region"
        assert region.attributes["aria-label"]
        assert region.attributes["tabindex"] == "0"


def test_every_dash_has_its_reason_as_a_tip_and_as_a_note(page: Element) -> None:
    notes = {each.attributes["id"]: each.text for each in page.find_all("li") if "id" in each.attributes}
    dashes = page.find_all("span", class_="missing")
    assert dashes
    for dash in dashes:
        link = dash.find_all("a")[0]
        assert notes[(link.attributes["href"] or "")[1:]] == dash.attributes["title"]
    used = {(dash.find_all("a")[0].attributes["href"] or "")[1:] for dash in dashes}
    assert used == set(notes)


def test_rows_that_failed_say_so_in_the_table(page: Element) -> None:
    rows = html_tables(html(sample_results()))["All variants"]
    assert ["int8-smooth", "failed: MeasureError: window 2: the likelihood of 17 of 1023 tokens is NaN"] in rows
    assert ["int8|group:64", "out of memory: killed at 23.1 GB resident while compressing layer 12 of 30"] in rows


def test_what_a_reader_must_know_of_the_model_stands_before_everything_else(page: Element) -> None:
    header = page.find_all("header")[0]
    assert "dequantized from Q4_1" in header.find_all("p", role="note")[0].text


def test_plots_are_named_and_described_in_words(page: Element) -> None:
    drawings = page.find_all("svg", role="img")
    assert len(drawings) == 2
    for drawing in drawings:
        ids = (drawing.attributes["aria-labelledby"] or "").split()
        named = {each.attributes.get("id"): each for each in page.everything()}
        words = " ".join(named[each].text for each in ids)
        assert "int8: " in words
        assert "better is at the bottom" in words


def test_all_sections_are_there(page: Element) -> None:
    names = [section.attributes["id"] for section in page.find_all("section")]
    assert names == [
        "verdicts",
        "results",
        "plots",
        "accuracy",
        "speed",
        "memory",
        "energy",
        "coverage",
        "environment",
        "protocol",
        "model",
        "reading",
        "notes",
    ]


def test_light_dark_phone_and_print_are_provided_for(page: Element) -> None:
    style = page.find_all("style")[0].text
    for rule in ("(prefers-color-scheme: dark)", "(max-width: 46rem)", "@media print", "overflow-x: auto"):
        assert rule in style
    assert page.find_all("meta", name="viewport")[0].attributes["content"] == "width=device-width, initial-scale=1"


HOSTILE = "\"><script>alert('1')</script>&amp;{{ 7 * 7 }}"


def test_nothing_from_outside_becomes_markup() -> None:
    bad = int8().model_copy(
        update={
            "name": HOSTILE,
            "recipe": HOSTILE,
            "notes": (HOSTILE,),
            "coverage": coverage(0.9, 0.25, ()).model_copy(
                update={"skipped": (norms(1)[0].model_copy(update={"name": HOSTILE, "reason": HOSTILE}),)}
            ),
        }
    )
    dead = not_ok(HOSTILE + "2", "failed", HOSTILE)
    results = sample_results(
        model=model(source=HOSTILE, notes=(HOSTILE,), architecture=HOSTILE),
        environment=environment().model_copy(update={"cpu_model": HOSTILE, "packages": {HOSTILE: HOSTILE}}),
        protocol=protocol().model_copy(update={"text": HOSTILE, "notes": (HOSTILE,)}),
        variants=(fp32(), bad, dead),
    )
    text = html(results)
    assert "<script" not in text
    assert "{{ 7 * 7 }}" in text
    root = read_html(text)
    assert root.find_all("h1")[0].text == HOSTILE
    assert not root.find_all("script")


def test_a_ledger_is_drawn_to_the_scale_of_the_longest() -> None:
    bars = ledger_bars(sample_results())
    ends = {bar.name: bar.segments[-1].start + bar.segments[-1].length for bar in bars}
    assert max(ends.values()) == pytest.approx(100, abs=0.01)
    assert ends["bf16"] == pytest.approx(873_046_016 / 1_162_412_032 * 100, abs=0.01)
    assert "weights 538.1 MB, KV cache 11.8 MB" in bars[0].description


def test_a_negative_rest_is_in_the_table_but_not_in_the_bar() -> None:
    row = fp32()
    ledger = row.memory.ledger
    assert ledger is not None
    memory = row.memory.model_copy(update={"ledger": ledger.model_copy(update={"unexplained_bytes": -5_000_000})})
    results = sample_results(variants=(row.model_copy(update={"memory": memory}),))
    assert "unexplained" not in [segment.name for bar in ledger_bars(results) for segment in bar.segments]
    assert "−5.0" in html_tables(html(results))["The peak RSS taken apart"][0]
