"""Nothing that came with a model runs or is read as code unless the caller alone says so."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
import transformers.dynamic_module_utils

from effkit.errors import CheckpointError, SourceError
from effkit.models import load_checkpoint, resolve, save_checkpoint
from tests.models.compressed import outputs
from tests.tiny import save_tiny, tiny_llama

CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path({marker!r}).touch()
class TheirConfig(LlamaConfig):
    model_type = {kind!r}
class TheirModel(LlamaForCausalLM):
    config_class = TheirConfig
"""


def hostile(folder: Path, marker: Path, kind: str) -> Path:
    """A model whose files ask in every known way for its own code to be run."""
    save_tiny(folder)
    (folder / "theirs.py").write_text(CODE.format(marker=str(marker), kind=kind))
    auto_map = {"AutoConfig": "theirs.TheirConfig", "AutoModelForCausalLM": "theirs.TheirModel"}
    wishes = {"auto_map": auto_map, "trust_remote_code": True}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | wishes | {"model_type": kind}))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    wishes["auto_map"] = {"AutoTokenizer": ["theirs.TheirTokenizer", "theirs.TheirTokenizer"]}  # type: ignore[dict-item]
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer | wishes))
    return folder


def test_code_of_a_known_architecture_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    marker = tmp_path / "marker"
    source = resolve(hostile(tmp_path / "model", marker, "llama"))
    for file in ("config.json", "tokenizer_config.json"):
        assert any(file in line and "ignoring trust_remote_code, auto_map" in line for line in caplog.messages)
    model = source.load()
    source.meta_model()
    source.info()
    assert source.tokenizer()("the").input_ids == [260]
    assert torch.equal(outputs(model), outputs(tiny_llama()))
    save_checkpoint(model, tmp_path / "out", tokenizer=source.tokenizer())
    load_checkpoint(tmp_path / "out")
    assert not marker.exists()


def test_a_model_that_needs_its_own_code_says_how_to_trust_it(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    folder = hostile(tmp_path / "model", marker, "their_llama")
    with pytest.raises(SourceError, match="pass trust_remote_code=True"):
        resolve(folder)
    assert not marker.exists()


def test_the_caller_can_trust_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    marker = tmp_path / "marker"
    folder = hostile(tmp_path / "model", marker, "their_llama")
    model = resolve(folder, trust_remote_code=True).load()
    assert type(model).__name__ == "TheirModel" and marker.exists()


class Malicious:
    """Unpickled, it creates a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_malicious_pickle_is_refused_before_anything_runs(legacy: bool, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    state = {"lm_head.weight": torch.zeros(2), "x": Malicious(tmp_path / "marker")}
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(CheckpointError, match="holds more than tensors"):
        resolve(folder)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04junk"])
def test_a_damaged_pickle_is_a_clear_error(content: bytes, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        resolve(folder)


def test_a_config_cannot_name_other_weight_files(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    save_tiny(tmp_path / "model" / "other", tiny_llama(seed=1))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers_weights": "other/model.safetensors"}))
    assert torch.equal(outputs(resolve(folder).load()), outputs(tiny_llama()))


def test_a_config_cannot_ask_for_downloaded_kernels(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    for key in ("attn_implementation", "_attn_implementation"):
        (folder / "config.json").write_text(json.dumps(config | {key: "someone/kernel"}))
        assert torch.equal(outputs(resolve(folder).load()), outputs(tiny_llama()))
