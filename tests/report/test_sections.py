"""Tables hold every measured figure, and leave out only what no row has, saying why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from effkit.records import Accuracy, Memory, Results, Variant
from effkit.report.overview import results_table
from effkit.report.prose import energy_sources, environment_items, moment, omitted_lines, protocol_items, skipped_groups
from effkit.report.sections import (
    accuracy_tables,
    coverage_table,
    energy_table,
    latency_table,
    ledger_table,
    memory_table,
    one_off_table,
    speed_table,
)
from effkit.report.table import Table
from tests.report.fixtures import (
    encoder_results,
    fp32,
    int4,
    int8,
    module_results,
    not_ok,
    sample_results,
    text_accuracy,
)


def cells(table: Table, name: str) -> dict[str, str]:
    row = next(row for row in table.rows if row.name == name)
    return {column.heading: cell.text for column, cell in zip(table.columns, row.cells, strict=True)}


def test_the_main_table_has_one_row_for_each_variant_in_order() -> None:
    table = results_table(sample_results())
    assert [row.name for row in table.rows] == [row.name for row in sample_results().variants]
    assert cells(table, "int8")["vs fp32"] == "3.8x smaller"
    assert cells(table, "fp32")["vs fp32"] == "baseline"


def test_columns_that_no_row_has_are_left_out_with_their_reason() -> None:
    table = results_table(sample_results())
    assert "output error" not in [column.title for column in table.columns]
    assert ("output error", "only for models that give vectors") in table.omitted
    assert omitted_lines(table.omitted)[0] == ("output error, cosine", "only for models that give vectors")


def test_a_gain_is_coloured_only_where_it_could_be_shown() -> None:
    table = results_table(sample_results())
    at = [column.title for column in table.columns].index("change")
    tones = {row.name: row.cells[at].tone for row in table.rows if not row.message}
    assert tones == {"fp32": "", "bf16": "", "int8": "worse", "int4-rtn": "worse"}


def test_estimated_energy_is_marked_and_counted_energy_is_not() -> None:
    counted = int8().model_copy(update={"energy": int8().energy.model_copy(update={"source": "rapl", "formula": ""})})
    table = results_table(sample_results(variants=(fp32(), counted)))
    assert cells(table, "fp32")["energy, J/token"] == "~0.567"
    assert cells(table, "int8")["energy, J/token"] == "0.242"


def test_speed_stands_with_interval_samples_speedup_and_share_of_the_ceiling() -> None:
    groups = {group.title: group for group in speed_table(sample_results()).groups}
    assert list(groups) == [
        "Prefill at batch 1, tokens/s",
        "Decoding at batch 1, tokens/s",
        "Decoding at batch 8, tokens/s",
    ]
    row = groups["Decoding at batch 1, tokens/s"].rows[2]
    assert [cell.text for cell in row.cells] == ["41.3", "40.5 to 42.1", "9", "2.3x", "2.3x to 2.4x", "98.3 %"]


def test_a_module_has_its_forward_pass_and_no_tokens() -> None:
    table = speed_table(module_results())
    assert [group.title for group in table.groups] == ["One forward pass, ms"]
    assert [cell.text for cell in table.rows[0].cells[:3]] == ["2.14", "2.12 to 2.16", "9"]
    assert latency_table(module_results()).columns == ()


def test_the_entries_of_a_ledger_add_up_to_the_peak() -> None:
    row = cells(ledger_table(sample_results()), "int8")
    parts = [float(text) for name, text in row.items() if not name.startswith(("=", "on disk"))]
    assert abs(sum(parts) - float(row["= peak RSS, MB"])) < 0.5


def test_peaks_of_compressing_and_of_running_stand_apart() -> None:
    row = cells(memory_table(sample_results()), "int8")
    assert row["peak RSS, MB"] == "742.4"
    assert row["peak, compressing, MB"] == "1,489.0"
    assert row["of fp32"] == "26.2 %"


def test_on_an_accelerator_its_own_peak_is_taken_apart() -> None:
    reasons = {"peak_compress_rss_bytes": "dense", "peak_rss_bytes": "not asked for"}
    memory = Memory(
        weight_bytes=100_000_000,
        weight_bytes_ratio=1.0,
        peak_device_bytes=300_000_000,
        checkpoint_bytes=100_000_000,
        ledger=fp32().memory.ledger,
        reasons=reasons,
    )
    results = sample_results(variants=(fp32().model_copy(update={"memory": memory}),))
    assert ledger_table(results).caption == "The peak device taken apart"
    assert "peak device, MB" in [column.heading for column in results_table(results).columns]


def test_a_ledger_that_was_not_taken_says_why() -> None:
    table = ledger_table(module_results())
    assert table.columns == ()
    assert all("peak memory needs one process per variant" in reason for _, reason in table.omitted)


def test_coverage_is_a_share_of_bytes_with_sizes_before_and_after() -> None:
    row = cells(coverage_table(sample_results()), "int4-rtn")
    assert row["covered"] == "78.9 %"
    assert (row["before, MB"], row["after, MB"], row["change"]) == ("424.7", "59.7", "7.1x smaller")


def test_skipped_layers_are_grouped_by_reason_the_heaviest_first() -> None:
    groups = skipped_groups(int4())
    assert [(len(group.layers), group.bytes) for group in groups] == [(1, 113_246_208), (61, 61 * 2304)]


def test_further_suites_get_tables_of_their_own() -> None:
    other = text_accuracy(21.4, 1.013, 1.008, 1.019, 0.004, 0.95)
    row = int8().model_copy(update={"accuracy_by_suite": {"wikitext": other}})
    tables = accuracy_tables(sample_results(variants=(fp32(), row)))
    assert [table.caption for table in tables] == ["Accuracy on text-quick", "Accuracy on wikitext"]
    assert cells(tables[1], "int8")["change"] == "+1.3 %"
    assert tables[1].rows[0].cells[0].reason == "this suite was not run"


def test_one_off_times_are_apart_and_energy_names_its_source() -> None:
    assert cells(one_off_table(sample_results()), "int8") == {"load": "913 ms", "compress": "1.84 s"}
    assert cells(energy_table(sample_results()), "int8")["source"] == "estimated"


def test_energy_sources_are_named_row_by_row_where_they_differ() -> None:
    counted = int8().model_copy(update={"energy": int8().energy.model_copy(update={"source": "rapl", "formula": ""})})
    lines = energy_sources((fp32(), counted))
    assert lines[0].startswith("fp32: estimated, not counted: seconds x")
    assert lines[1] == "int8: counted by RAPL (whole processor)"


def test_environment_and_protocol_are_complete() -> None:
    machine = dict(environment_items(sample_results()))
    assert machine["measured ceiling: memory read"] == "22.8 GB/s"
    assert machine["measured ceiling: BF16"] == "– (not measured: no fast bfloat16 products on this CPU)"
    assert machine["memory"] == "25.3 GB"
    how = dict(protocol_items(sample_results()))
    assert how["windows"] == "4 of 1,024 tokens, stride 1,024"
    assert how["TF32"] == "off"


def test_times_of_day_are_readable_and_odd_ones_left_alone() -> None:
    assert moment("2026-12-01T04:05:31+01:00") == "2026-12-01 03:05 UTC"
    assert moment("2026-12-01T04:05:31") == "2026-12-01T04:05:31"
    assert moment("yesterday") == "yesterday"
    assert moment("") == ""


SECTIONS = ("accuracy", "memory", "speed", "energy")


def with_each_figure_changed(variant: Variant) -> Iterator[tuple[str, Variant]]:
    for part in SECTIONS:
        section = getattr(variant, part)
        for name in type(section).model_fields:
            value = getattr(section, name)
            if isinstance(value, (int, float)):
                yield name, variant.model_copy(update={part: section.model_copy(update={name: other(value)})})
    ledger = variant.memory.ledger
    for name in type(ledger).model_fields if ledger is not None else ():
        value = getattr(ledger, name)
        if isinstance(value, int):
            changed = ledger.model_copy(update={name: other(value)})
            yield name, variant.model_copy(update={"memory": variant.memory.model_copy(update={"ledger": changed})})


def other(value: float) -> float:
    if isinstance(value, bool):
        return not value
    return value * 2 + 1_000_000 if isinstance(value, int) else value * 1.5 + 0.01


def all_tables(results: Results) -> tuple[Table, ...]:
    one = (results_table, speed_table, latency_table, one_off_table, memory_table, ledger_table, energy_table)
    return (*(make(results) for make in one), *accuracy_tables(results))


@pytest.mark.parametrize("results", [sample_results(), encoder_results(), module_results()])
def test_every_measured_figure_has_a_column(results: Results) -> None:
    """Change one figure at a time: some table must change with it."""
    *rest, recipe = [row for row in results.variants if row.status == "ok"]
    before = all_tables(results.model_copy(update={"variants": (*rest, recipe)}))
    silent = [
        name
        for name, changed in with_each_figure_changed(recipe)
        if all_tables(results.model_copy(update={"variants": (*rest, changed)})) == before
    ]
    assert silent == []


def test_an_unknown_reason_is_never_shown_as_a_figure() -> None:
    row = int8().model_copy(update={"accuracy": Accuracy.missing("broken", suite="text-quick")})
    table = results_table(sample_results(variants=(fp32(), row)))
    assert cells(table, "int8")["perplexity"] == "–"


def test_what_a_failed_row_measured_before_it_failed_stays_in_sight() -> None:
    dead = not_ok("int8", "out_of_memory", "killed while decoding")
    memory = Memory.missing("killed", weight_bytes=141_210_624, weight_bytes_ratio=0.262)
    row = dead.model_copy(update={"memory": memory, "coverage": int8().coverage})
    shown = next(each for each in results_table(sample_results(variants=(fp32(), row))).rows if each.name == "int8")
    assert [cell.text for cell in shown.cells[:2]] == ["141.2", "3.8x smaller"]
    assert shown.cells[3].reason == "out of memory: killed while decoding"
    assert not shown.message


def test_a_row_with_nothing_but_its_plan_is_told_in_words() -> None:
    row = not_ok("int8", "failed", "broken").model_copy(update={"coverage": int8().coverage})
    shown = next(each for each in results_table(sample_results(variants=(fp32(), row))).rows if each.name == "int8")
    assert shown.message == "failed: broken"
    assert coverage_table(sample_results(variants=(fp32(), row))).rows[0].name == "int8"
