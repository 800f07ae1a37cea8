"""Whatever names a model is found and checked, or refused in one clear sentence, before weights are read."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertForMaskedLM,
    BertForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
)

from effkit.errors import CheckpointError, SourceError, UsageError
from effkit.inventory import take_inventory
from effkit.models import notes_of, resolve
from tests.models.compressed import outputs
from tests.tiny import save_tiny, tiny_bert, tiny_gpt2, tiny_llama, tiny_moe, tiny_tokenizer

MODELS = {
    "llama": tiny_llama,
    "llama-untied": lambda: tiny_llama(tied=False),
    "gpt2": tiny_gpt2,
    "bert": tiny_bert,
    "qwen3_moe": tiny_moe,
    "mixtral": lambda: tiny_moe("mixtral"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_directory_loads_as_the_same_model(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    source = resolve(save_tiny(tmp_path / "model", model))
    loaded = source.load()
    assert source.kind == "directory"
    assert source.task == ("encoder" if name == "bert" else "causal-lm")
    assert type(loaded) is type(model) and not loaded.training
    assert torch.equal(outputs(loaded), outputs(model))
    assert source.info().parameters == take_inventory(model).parameters
    assert source.info().architecture == type(model).__name__


@pytest.mark.parametrize("name", MODELS)
def test_the_meta_model_has_the_same_layers_and_ties_and_no_data(name: str, tmp_path: Path) -> None:
    source = resolve(save_tiny(tmp_path / "model", MODELS[name]()))
    (tmp_path / "model" / "model.safetensors").chmod(0)
    skeleton = source.meta_model()
    assert all(parameter.is_meta for parameter in skeleton.parameters())
    found, expected = take_inventory(skeleton), take_inventory(MODELS[name]())
    assert found.layers == expected.layers
    assert found.parameters == expected.parameters


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_stored_dtype_is_kept_unless_another_is_asked_for(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model", tiny_llama().to(dtype))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "float32"}))  # the weights decide, not this
    source = resolve(folder)
    assert source.stored_dtype == str(dtype).removeprefix("torch.")
    assert {parameter.dtype for parameter in source.load().parameters()} == {dtype}
    assert {parameter.dtype for parameter in source.meta_model().parameters()} == {dtype}
    assert {parameter.dtype for parameter in source.load(torch.float32).parameters()} == {torch.float32}


def test_building_and_loading_leave_the_source_as_it_was(tmp_path: Path) -> None:
    source = resolve(save_tiny(tmp_path / "model", tiny_moe()))
    before = source.config.to_dict()
    source.meta_model()
    source.load(torch.bfloat16)
    assert source.config.to_dict() == before


def test_mixed_dtypes_are_noted(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model", tiny_llama().to(torch.bfloat16))
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].float()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    source = resolve(folder)
    assert source.stored_dtype == "bfloat16"
    assert source.notes == ("stored mostly as bfloat16, some tensors as float32; loaded as one dtype",)
    assert notes_of(source.load()) == source.notes


def test_sharded_and_linked_checkpoints_load(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model", tiny_llama(), max_shard_size="100KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    (tmp_path / "blobs").mkdir()
    for number, file in enumerate(sorted(folder.iterdir())):
        file.rename(tmp_path / "blobs" / str(number))
        file.symlink_to(f"../blobs/{number}")
    (tmp_path / "link").symlink_to(folder)
    source = resolve(tmp_path / "link")
    assert torch.equal(outputs(source.load()), outputs(tiny_llama()))
    assert source.weight_file_bytes() > 4 * 80_000


def test_pickled_weights_of_tensors_only_load(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model", tiny_llama().to(torch.bfloat16))
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    source = resolve(folder)
    assert source.stored_dtype == "bfloat16"
    loaded = source.load()
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in state.items())
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_heads_of_an_encoder_are_left_out_and_a_missing_pooler_is_not_invented(tmp_path: Path) -> None:
    model = BertForMaskedLM(tiny_bert().config).eval()
    source = resolve(save_tiny(tmp_path / "model", model))
    assert source.task == "encoder"
    loaded = source.load()
    assert type(loaded).__name__ == "BertModel" and loaded.pooler is None
    assert source.meta_model().pooler is None
    assert torch.equal(outputs(loaded), outputs(model.bert))


def test_other_architectures_load_as_their_own_class(tmp_path: Path) -> None:
    classifier = BertForSequenceClassification(tiny_bert().config).eval()
    small = {"d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 1, "num_heads": 4, "vocab_size": 320}
    albert = AlbertConfig(
        vocab_size=320, embedding_size=16, hidden_size=64, intermediate_size=96, num_attention_heads=4
    )
    for name, model, task in (
        ("bert", classifier, "other"),
        ("t5", T5ForConditionalGeneration(T5Config(**small)).eval(), "other"),
        ("albert", AlbertModel(albert).eval(), "encoder"),
    ):
        source = resolve(save_tiny(tmp_path / name, model))
        loaded = source.load()
        assert type(loaded) is type(model) and source.task == task
        assert all(torch.equal(t, loaded.state_dict()[n]) for n, t in model.state_dict().items())


def test_renamed_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model", tiny_llama())
    path = folder / "model.safetensors"
    good = load_file(path)
    name = "model.layers.1.self_attn.q_proj.weight"
    renamed = {("other" if key == name else key): tensor for key, tensor in good.items()}
    short = {key: (tensor[:32].clone() if key == name else tensor) for key, tensor in good.items()}
    for tensors, message in (
        (renamed, rf"missing \({name}\).*do not belong to the model \(other\)"),
        (short, rf"another shape.*{name}"),
    ):
        save_file(tensors, path, metadata={"format": "pt"})
        with pytest.raises(CheckpointError, match=message):
            resolve(folder).load()


def test_too_little_free_memory_is_said_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = resolve(save_tiny(tmp_path / "model"))
    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=1000))
    with pytest.raises(CheckpointError, match=r"needs 328960 bytes.*1000 bytes"):
        source.load()
    with pytest.raises(CheckpointError, match="needs 164480 bytes"):
        source.load(torch.bfloat16)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./modle", "did you mean 'model'"),
        ("model/config.json", "is a file.*give the directory"),
        ("empty", "no config.json"),
        ("notes.txt", "is a file, not a model's directory"),
        ("no/such/place/at/all", "there is no no/such/place/at/all"),
        ("model.ggu", "there is no"),
        ("  ", "name is empty"),
        ("./" + 300 * "x", "the name is too long"),
        ("adapter", "merge it into the model"),
        ("with-gguf", r"give the file: .*some\.gguf"),
        ("sample:smollm2-135", "did you mean 'smollm2-135m'"),
        ("sample:minilm-l6x", "sample:smollm2-135m, sample:minilm-l6"),
        ("smollm2-135m", "did you mean 'sample:smollm2-135m'"),
        ("owner/unknown", "not in the local cache and offline mode is on.*give a hub id"),
    ],
)
def test_every_wrong_name_gets_one_clear_sentence(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "model")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    (tmp_path / "with-gguf").mkdir()
    (tmp_path / "with-gguf" / "some.gguf").write_bytes(b"GGUF")
    with pytest.raises(SourceError, match=message) as caught:
        resolve(name)
    assert "\n" not in str(caught.value)


def test_a_directory_of_the_name_of_a_hub_model_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "owner" / "model")
    assert resolve("owner/model").kind == "directory"
    with pytest.raises(UsageError, match="has no revision 'main'"):
        resolve("owner/model", revision="main")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "not valid JSON: .* at line 1"),
        ("[]", "expected an object"),
        ("{}", "names no model_type"),
        ('{"model_type": "lama"}', "does not know the model type 'lama'.*did you mean 'llama'"),
        ('{"model_type": "llama", "hidden_size": "wide"}', "not a usable configuration"),
    ],
)
def test_a_broken_config_is_named(config: str, message: str, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "config.json").write_text(config)
    with pytest.raises((CheckpointError, SourceError), match=message):
        resolve(folder)


def test_a_config_that_contradicts_itself_is_a_clear_error(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "wishful"}))
    source = resolve(folder)
    with pytest.raises(CheckpointError, match=r"no llama model can be built from this configuration.*wishful"):
        source.meta_model()
    with pytest.raises(CheckpointError, match="wishful"):
        source.load()


def test_what_another_tool_has_quantized_is_refused(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gptq"}}))
    with pytest.raises(SourceError, match=r"already quantized \(gptq\)"):
        resolve(folder)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SourceError, match="already stored as float8_e4m3fn"):
        resolve(folder)


def test_a_model_without_tokenizer_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tiny_llama().save_pretrained(folder)
    with pytest.raises(SourceError, match="no usable tokenizer"):
        resolve(folder).tokenizer()
    tiny_tokenizer(folder, adds_bos=True)
    assert resolve(folder).tokenizer()("the").input_ids[0] == 1


def test_reading_needs_no_write_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    for path in (*folder.iterdir(), folder, cache):
        path.chmod(0o555 if path.is_dir() else 0o444)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("EFFKIT_CACHE", "/proc/nonexistent")  # not writable for root either
    source = resolve(folder)
    assert len(source.info().fingerprint) == 64
    assert torch.equal(outputs(source.load()), outputs(tiny_llama()))
    folder.chmod(0o755)
    cache.chmod(0o755)
