from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from effkit.errors import MeasureError
from effkit.measure.accuracy import BaselineStore, BaselineWriter

ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)


def write(path: Path, key: str = "k", digest: str = "d", rows: np.ndarray = ROWS) -> None:
    with BaselineWriter(path, key=key, digest=digest) as writer:
        writer.append("logits", rows[:4], rows=len(rows))
        writer.append("logits", rows[4:], rows=len(rows))


def test_rows_written_in_parts_are_read_back_in_any_range(tmp_path: Path) -> None:
    write(tmp_path / "b")
    store = BaselineStore(tmp_path / "b", key="k", digest="d")
    assert (store.read("logits") == ROWS).all()
    assert (store.read("logits", 3, 5) == ROWS[3:5]).all()


def test_files_are_plain_npy(tmp_path: Path) -> None:
    write(tmp_path / "b")
    assert (np.load(tmp_path / "b" / "logits.npy", allow_pickle=False) == ROWS).all()


@pytest.mark.parametrize(("key", "digest", "name"), [("other", "d", "key"), ("k", "other", "windows_digest")])
def test_a_store_of_another_model_or_other_tokens_is_refused(tmp_path: Path, key: str, digest: str, name: str) -> None:
    write(tmp_path / "b")
    with pytest.raises(MeasureError, match=f"belongs to something else: {name}"):
        BaselineStore(tmp_path / "b", key=key, digest=digest)


def test_a_missing_or_damaged_store_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="measure the fp32 variant first"):
        BaselineStore(tmp_path / "none", key="k", digest="d")
    write(tmp_path / "b")
    (tmp_path / "b" / "logits.npy").write_bytes((tmp_path / "b" / "logits.npy").read_bytes()[:-8])
    store = BaselineStore(tmp_path / "b", key="k", digest="d")
    with pytest.raises(MeasureError, match="damaged"):
        store.read("logits")
    with pytest.raises(MeasureError, match="holds no outputs"):
        store.read("outputs")


def test_a_new_store_replaces_the_old_one_whole(tmp_path: Path) -> None:
    write(tmp_path / "b")
    write(tmp_path / "b", key="new", rows=ROWS + 1)
    assert (BaselineStore(tmp_path / "b", key="new", digest="d").read("logits") == ROWS + 1).all()
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_a_failure_keeps_the_old_store_and_leaves_no_rest(tmp_path: Path) -> None:
    write(tmp_path / "b")
    writer = BaselineWriter(tmp_path / "b", key="new", digest="d")
    writer.__enter__()
    writer.append("logits", ROWS, rows=6)
    writer.__exit__(RuntimeError, RuntimeError(), None)
    BaselineStore(tmp_path / "b", key="k", digest="d")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_a_store_short_of_rows_is_never_put_in_place(tmp_path: Path) -> None:
    with (
        pytest.raises(MeasureError, match="not written to its end: logits"),
        BaselineWriter(tmp_path / "b", key="k", digest="d") as writer,
    ):
        writer.append("logits", ROWS, rows=7)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_does_not_fit_on_the_disk_is_refused_before_writing(tmp_path: Path) -> None:
    with (
        pytest.raises(MeasureError, match=r"are free; lower kl_windows"),
        BaselineWriter(tmp_path / "b", key="k", digest="d") as writer,
    ):
        writer.append("logits", ROWS, rows=10**15)


def test_pickled_arrays_are_not_read(tmp_path: Path) -> None:
    write(tmp_path / "b")
    np.save(tmp_path / "b" / "logits.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    store = BaselineStore(tmp_path / "b", key="k", digest="d")
    with pytest.raises(MeasureError, match="damaged"):
        store.read("logits")


def test_the_header_says_what_the_store_belongs_to(tmp_path: Path) -> None:
    write(tmp_path / "b")
    header = json.loads((tmp_path / "b" / "baseline.json").read_text())
    assert header == {"format_version": 1, "key": "k", "windows_digest": "d", "arrays": ["logits"]}
