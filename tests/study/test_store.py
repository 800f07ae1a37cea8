"""The store keeps what is finished, finds it by fingerprint only, and refuses what is not its own."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path

import pytest

from effkit.errors import StudyError, UsageError
from effkit.records import Accuracy, Energy, Memory, Speed, Variant
from effkit.study.store import FILE, Store, check_out, load_results, locked


def row(name: str = "int8", fingerprint: str = "a") -> Variant:
    why = "not measured in this test"
    return Variant(
        name=name,
        recipe=name,
        runtime="eager",
        device="cpu",
        status="ok",
        fingerprint=fingerprint,
        accuracy=Accuracy.missing(why, suite="s"),
        memory=Memory.missing(why),
        speed=Speed.missing(why),
        energy=Energy.missing(why),
    )


def test_a_row_is_found_again_by_its_fingerprint_and_by_no_other(tmp_path: Path) -> None:
    Store(tmp_path).put_row(row())
    store = Store(tmp_path)
    assert store.row("int8", "a") == row()
    assert store.row("int8", "b") is None
    assert store.row("int4", "a") is None


def test_a_stage_is_replaced_by_a_newer_result(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("int8", "prepare", "a", {"n": 1})
    store.put("int8", "prepare", "a", {"n": 2})
    assert store.get("int8", "prepare", "a") == {"n": 2}


def test_a_committed_row_survives_a_process_that_is_killed(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_put_and_die, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -9
    assert Store(tmp_path).row("int8", "a") == row()


def _put_and_die(folder: Path) -> None:
    import os
    import signal

    Store(folder).put_row(row())
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_store_can_be_read_without_write_access(tmp_path: Path) -> None:
    Store(tmp_path).put_row(row())
    Store(tmp_path).close()
    assert Store(tmp_path, read_only=True).row("int8", "a") == row()


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("PRAGMA application_id=7")
    with pytest.raises(StudyError, match="another program"):
        Store(tmp_path)


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("not a database, but long enough to be taken for one" * 40)
    with pytest.raises(StudyError, match=FILE):
        Store(tmp_path)


def test_a_store_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store._db.execute("PRAGMA user_version=999")
    with pytest.raises(StudyError, match="newer effkit"):
        Store(tmp_path)


def test_results_need_a_finished_row(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no run\.sqlite"):
        load_results(tmp_path)
    Store(tmp_path).close()
    with pytest.raises(StudyError, match="holds no run"):
        load_results(tmp_path)


def test_a_second_run_into_one_directory_is_refused_and_a_later_one_is_not(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(UsageError, match="another effkit run"), locked(tmp_path):
        pass
    with locked(tmp_path):
        assert (tmp_path / ".lock").exists()


def test_an_output_directory_is_checked_before_any_work(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        check_out(file)
    with pytest.raises(UsageError, match="not empty and was not written by effkit"):
        check_out(tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        check_out(file / "below")
    assert file.read_text() == "mine"
    check_out(tmp_path / "new" / "deep")
    assert (tmp_path / "new" / "deep").is_dir()
