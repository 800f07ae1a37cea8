"""Damaged, incomplete and hostile directories are refused from their headers alone."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from effkit.errors import CheckpointError, SourceError
from effkit.models import resolve
from effkit.models.integrity import find_weights, inside, read_header
from tests.tiny import save_tiny, tiny_llama

INDEX = "model.safetensors.index.json"


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "model", tiny_llama(), max_shard_size="100KB")


def edit_index(folder: Path, old: str, new: object) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"] = {k: (new if v == old else v) for k, v in index["weight_map"].items()}
    (folder / INDEX).write_text(json.dumps(index))


def first_shard(folder: Path) -> Path:
    return sorted(folder.glob("model-*.safetensors"))[0]


def test_a_missing_shard_is_named(sharded: Path) -> None:
    first_shard(sharded).unlink()
    with pytest.raises(CheckpointError, match=r"incomplete: 1 of \d shards are missing \(model-00001"):
        resolve(sharded)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_shard_is_named(keep: int, sharded: Path) -> None:
    path = first_shard(sharded)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=rf"{path.name} is truncated"):
        resolve(sharded)


def test_bytes_after_the_end_are_noticed(sharded: Path) -> None:
    with first_shard(sharded).open("ab") as stream:
        stream.write(b"more")
    with pytest.raises(CheckpointError, match="longer than it says"):
        resolve(sharded)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "a/../../b.safetensors", "", 3, None])
def test_a_shard_that_leaves_the_folder_is_refused_even_where_it_exists(name: object, sharded: Path) -> None:
    save_file({"x": torch.zeros(2)}, sharded.parent / "outside.safetensors")
    edit_index(sharded, first_shard(sharded).name, name)
    with pytest.raises(CheckpointError, match="leaves the model's folder"):
        resolve(sharded)


def test_an_index_that_lists_tensors_no_shard_holds_is_refused(sharded: Path) -> None:
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["model.ghost.weight"] = first_shard(sharded).name
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"model\.ghost\.weight"):
        resolve(sharded)


def test_a_broken_link_is_named(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("../gone")
    with pytest.raises(CheckpointError, match=r"symbolic link to \.\./gone"):
        resolve(folder)


def test_a_directory_without_weights_lists_what_it_has(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    with pytest.raises(SourceError, match=r"no model\.safetensors.*there is weights\.safetensors"):
        find_weights(folder)


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_header_reader(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.mktemp("header") / "x.safetensors"
    for content in (raw, struct.pack("<Q", len(raw)) + raw):
        path.write_bytes(content)
        with pytest.raises(CheckpointError):
            read_header(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        [],
    ],
)
def test_headers_that_contradict_themselves_are_refused(entry: object, tmp_path: Path) -> None:
    header = json.dumps({"x": entry}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    with pytest.raises(CheckpointError, match="damaged"):
        read_header(path)


def test_names_in_subfolders_are_fine(tmp_path: Path) -> None:
    assert inside(tmp_path, "a/b.safetensors", tmp_path) == tmp_path / "a" / "b.safetensors"
