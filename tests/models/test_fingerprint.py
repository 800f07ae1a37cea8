"""A fingerprint follows the content, never the name, and is not computed twice for the same file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from effkit.models import fingerprint, resolve
from effkit.models.fingerprint import file_digest
from tests.tiny import save_tiny, tiny_llama


def age(path: Path, seconds: int = 3600) -> None:
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns - seconds * 10**9))


def test_copies_agree_and_any_change_shows(tmp_path: Path) -> None:
    first = resolve(save_tiny(tmp_path / "a")).info().fingerprint
    assert resolve(save_tiny(tmp_path / "b")).info().fingerprint == first
    assert resolve(save_tiny(tmp_path / "c", tiny_llama(seed=1))).info().fingerprint != first
    config = tmp_path / "b" / "config.json"
    config.write_text(config.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    assert resolve(tmp_path / "b").info().fingerprint != first


def test_a_settled_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"content")
    age(path)
    expected = hashlib.sha256(b"content").hexdigest()
    assert file_digest(path) == expected
    monkeypatch.setattr(fingerprint, "sha256", lambda _path: pytest.fail("hashed again"))
    assert file_digest(path) == expected


def test_a_changed_file_is_hashed_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"content")
    age(path)
    file_digest(path)
    path.write_bytes(b"CONTENT")
    assert file_digest(path) == hashlib.sha256(b"CONTENT").hexdigest()
    path.write_bytes(b"cOnTeNt")  # fresh files are not remembered: the clock may not tell them apart
    assert file_digest(path) == hashlib.sha256(b"cOnTeNt").hexdigest()


def test_a_cache_that_cannot_be_written_or_is_damaged_is_tolerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"content")
    age(path)
    expected = file_digest(path)
    for note in (cache / "fingerprints").iterdir():
        note.write_bytes(b"\xff garbage")
    assert file_digest(path) == expected
    monkeypatch.setenv("EFFKIT_CACHE", "/proc/nothing")
    assert file_digest(path) == expected


def test_blobs_of_the_hub_cache_are_known_by_their_name(tmp_path: Path) -> None:
    blob = tmp_path / "blobs" / ("ab" * 32)
    blob.parent.mkdir()
    blob.write_bytes(b"not read")
    (tmp_path / "model.safetensors").symlink_to(blob)
    assert file_digest(tmp_path / "model.safetensors") == "ab" * 32
