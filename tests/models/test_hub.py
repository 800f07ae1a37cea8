"""Hub ids go through the hub's own cache: offline it is all there is, online errors are put in words."""

from __future__ import annotations

import hashlib
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch

from effkit.errors import SourceError
from effkit.models import resolve
from effkit.models.hub import looks_like_hub_id
from tests.models.compressed import outputs
from tests.tiny import save_tiny, tiny_llama

COMMIT = "c" * 40


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that holds owner/tiny, laid out as huggingface_hub does."""
    folder = tmp_path / "hub"
    repo = folder / "models--owner--tiny"
    snapshot = repo / "snapshots" / COMMIT
    for part in (snapshot, repo / "blobs", repo / "refs"):
        part.mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    for file in save_tiny(tmp_path / "made").iterdir():
        raw = file.read_bytes()
        name = hashlib.sha256(raw).hexdigest()
        (repo / "blobs" / name).write_bytes(raw)
        (snapshot / file.name).symlink_to(f"../../blobs/{name}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return folder


def test_a_cached_model_loads_offline(hub_cache: Path, tmp_path: Path) -> None:
    source = resolve("owner/tiny")
    assert source.kind == "hub" and source.path.name == COMMIT
    assert torch.equal(outputs(source.load()), outputs(tiny_llama()))
    assert source.tokenizer()("the").input_ids == [260]
    assert source.info().fingerprint == resolve(tmp_path / "made").info().fingerprint


def test_a_model_that_is_not_cached_says_so_offline(hub_cache: Path) -> None:
    with pytest.raises(SourceError, match="owner/other is not in the local cache and offline mode is on"):
        resolve("owner/other")


def test_a_cache_without_the_weights_is_a_clear_error(hub_cache: Path) -> None:
    (hub_cache / "models--owner--tiny" / "snapshots" / COMMIT / "model.safetensors").unlink()
    source = resolve("owner/tiny")
    source.meta_model()
    with pytest.raises(SourceError, match=r"holds no model\.safetensors"):
        source.load()


def test_a_hub_that_cannot_be_reached_is_a_clear_error(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceError, match="hub cannot be reached"):
        resolve("owner/other")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt2", True),
        ("owner/model-1.5_b", True),
        ("./model", False),
        ("/model", False),
        ("~/model", False),
        ("a/b/c", False),
        ("../model", False),
        ("a..b", False),
        ("model.gguf", False),
        ("", False),
        ("two words", False),
    ],
)
def test_paths_are_told_from_hub_ids(name: str, expected: bool) -> None:
    assert looks_like_hub_id(name) is expected
