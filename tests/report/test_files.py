"""Reports are written whole or not at all; results are read back with clear errors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from effkit.errors import UsageError
from effkit.report import files, load_results, to_json, with_verdicts, write_reports
from tests.report.fixtures import encoder_results, sample_results


def test_three_files_are_written_and_named(tmp_path: Path) -> None:
    written = write_reports(sample_results(), tmp_path / "out" / "demo")
    assert {name: path.name for name, path in written.items()} == {
        "html": "report.html",
        "md": "report.md",
        "json": "results.json",
    }
    assert sorted(os.listdir(tmp_path / "out" / "demo")) == ["report.html", "report.md", "results.json"]


def test_only_what_was_asked_for_is_written(tmp_path: Path) -> None:
    write_reports(sample_results(), tmp_path, formats=("json", "json"))
    assert os.listdir(tmp_path) == ["results.json"]


def test_an_unknown_format_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no report format 'htm'; allowed: html, md, json \(did you mean 'html'"):
        write_reports(sample_results(), tmp_path / "out", formats=("json", "htm"))
    assert not (tmp_path / "out").exists()


def test_a_write_that_breaks_off_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_reports(encoder_results(), tmp_path)
    before = (tmp_path / "report.html").read_bytes()

    def broken(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", broken)
    with pytest.raises(UsageError, match=r"cannot write the report to .*: No space left on device"):
        write_reports(sample_results(), tmp_path)
    assert (tmp_path / "report.html").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["report.html", "report.md", "results.json"]


def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="cannot write the report"):
        write_reports(sample_results(), tmp_path / "out")


def test_reports_are_readable_by_others_as_the_mask_says(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        path = write_reports(sample_results(), tmp_path)["html"]
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o644


def test_results_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = write_reports(sample_results(), tmp_path)["json"]
    assert load_results(path) == load_results(tmp_path) == with_verdicts(sample_results())


def test_a_missing_figure_is_null_with_its_reason() -> None:
    row = json.loads(to_json(sample_results()))["variants"][2]
    assert row["memory"]["peak_device_bytes"] is None
    assert row["memory"]["reasons"]["peak_device_bytes"] == "the device is the CPU"


def test_names_outside_ascii_stay_readable(tmp_path: Path) -> None:
    text = to_json(sample_results())
    assert "übersetzt-模型" in text
    assert text.endswith("}\n")


def edited(tmp_path: Path, **changes: Any) -> Path:
    data = json.loads(to_json(sample_results()))
    path = tmp_path / "results.json"
    path.write_text(json.dumps(data | changes), encoding="utf-8")
    return path


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="schema_version 2; this effkit reads up to 1: use a newer effkit"):
        load_results(edited(tmp_path, schema_version=2, something_new={}))


@pytest.mark.parametrize("version", [None, "1", True, 1.0])
def test_a_file_without_a_schema_version_is_no_results(tmp_path: Path, version: Any) -> None:
    with pytest.raises(UsageError, match="holds no results of effkit"):
        load_results(edited(tmp_path, schema_version=version))


def test_all_faults_of_a_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        load_results(edited(tmp_path, protocol={"suite": 3}, surprise=1))
    text = str(error.value)
    assert "  - protocol.suite: " in text
    assert "  - surprise: " in text or "and " in text


def test_what_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*results.json: No such file"):
        load_results(tmp_path)
    (tmp_path / "results.json").write_text("{ half")
    with pytest.raises(UsageError, match="is not JSON"):
        load_results(tmp_path)
    (tmp_path / "results.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is not JSON"):
        load_results(tmp_path)
    (tmp_path / "results.json").write_text("[1]")
    with pytest.raises(UsageError, match="holds no results"):
        load_results(tmp_path)
