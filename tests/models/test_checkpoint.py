"""Saving and loading: the same model comes back, bit by bit, and nothing wrong is ever written or read."""

from __future__ import annotations

import copy
import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from effkit.errors import CheckpointError, SourceError, UsageError
from effkit.models import load_checkpoint, resolve, save_checkpoint, verify_checkpoint
from effkit.models.integrity import read_header
from effkit.modules import Int8Linear, compressed_modules
from effkit.records import ModelInfo
from tests.models.compressed import outputs, with_int8_experts, with_int8_linears, with_tied_int8_head
from tests.tiny import save_tiny, tiny_bert, tiny_gpt2, tiny_llama, tiny_moe, tiny_tokenizer

BUILDERS = {
    "llama-tied": lambda: with_tied_int8_head(with_int8_linears(tiny_llama(), "lm_head")),
    "llama-untied": lambda: with_int8_linears(tiny_llama(tied=False)),
    "llama-dense": tiny_llama,
    "llama-bfloat16": lambda: with_int8_linears(tiny_llama(), "lm_head").to(torch.bfloat16),
    "gpt2": tiny_gpt2,
    "bert": lambda: with_int8_linears(tiny_bert()),
    "bert-without-pooler": lambda: with_int8_linears(type(tiny_bert())(tiny_bert().config, add_pooling_layer=False)),
    "qwen3_moe": lambda: with_int8_experts(with_int8_linears(tiny_moe("qwen3_moe"))),
    "mixtral": lambda: with_int8_experts(tiny_moe("mixtral")),
}


def edit_manifest(folder: Path, **changes: object) -> None:
    path = folder / "effkit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_new_process_computes_bit_identical_outputs(tmp_path: Path, child_environment: dict[str, str]) -> None:
    for name, build in BUILDERS.items():
        model = build().eval()
        save_checkpoint(model, tmp_path / name)
        np.save(tmp_path / f"{name}.npy", outputs(model).float().numpy())
    script = (
        "import sys, numpy as np, pathlib\n"
        "from effkit.models import load_checkpoint\n"
        "from tests.models.compressed import outputs\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).glob('*.npy')):\n"
        "    found = outputs(load_checkpoint(path.with_suffix(''))).float().numpy()\n"
        "    print(path.stem, np.array_equal(found, np.load(path)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        env=child_environment,
        check=False,
    )
    assert set(done.stdout.splitlines()) == {f"{name} True" for name in BUILDERS}, done.stderr


@pytest.mark.parametrize("name", BUILDERS)
def test_names_dtypes_and_ties_survive(name: str, tmp_path: Path) -> None:
    model = BUILDERS[name]()
    save_checkpoint(model, tmp_path / "out")
    loaded = load_checkpoint(tmp_path / "out")
    before, after = model.state_dict(), loaded.state_dict()
    assert list(before) == list(after)
    assert all(before[key].dtype == after[key].dtype and torch.equal(before[key], after[key]) for key in before)
    assert not loaded.training
    assert not any(t.is_meta for t in (*loaded.parameters(), *loaded.buffers()))
    pointers = [
        {key: t.untyped_storage().data_ptr() for key, t in m.state_dict().items() if t.numel()} for m in (model, loaded)
    ]
    assert len(set(pointers[0].values())) == len(set(pointers[1].values()))


def test_a_tied_weight_is_written_once_and_loaded_as_one_parameter(tmp_path: Path) -> None:
    save_checkpoint(tiny_llama(tied=True), tmp_path / "out")
    shapes = [tensor.shape for tensor in read_header(tmp_path / "out" / "model.safetensors").values()]
    assert shapes.count((320, 64)) == 1
    loaded = load_checkpoint(tmp_path / "out")
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_a_tied_int8_table_is_written_once_and_stays_tied(tmp_path: Path) -> None:
    save_checkpoint(BUILDERS["llama-tied"](), tmp_path / "out")
    shapes = [tensor.shape for tensor in read_header(tmp_path / "out" / "effkit.safetensors").values()]
    assert shapes.count((320, 64)) == 1
    loaded = load_checkpoint(tmp_path / "out")
    assert loaded.lm_head.owner is loaded.model.embed_tokens
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is True


def test_config_tells_the_truth_when_only_the_head_was_compressed(tmp_path: Path) -> None:
    model = with_int8_linears(tiny_llama(tied=True))
    assert isinstance(model.lm_head, Int8Linear)
    save_checkpoint(model, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is False
    assert torch.equal(outputs(load_checkpoint(tmp_path / "out")), outputs(model))


def test_an_equal_copy_of_the_embedding_is_tied_again(tmp_path: Path) -> None:
    model = tiny_llama(tied=True)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    save_checkpoint(model, tmp_path / "out")
    loaded = load_checkpoint(tmp_path / "out")
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_a_head_that_was_trained_apart_stays_apart(tmp_path: Path) -> None:
    model = tiny_llama(tied=True)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach() * 2)
    save_checkpoint(model, tmp_path / "out")
    assert torch.equal(outputs(load_checkpoint(tmp_path / "out")), outputs(model))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is False


def test_a_shared_module_under_two_names_is_written_once(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 8)
            self.second = self.first

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    model = with_int8_linears(Twice())
    model.second = model.first
    save_checkpoint(model, tmp_path / "out")
    assert len(read_header(tmp_path / "out" / "effkit.safetensors")) == 3
    loaded = load_checkpoint(tmp_path / "out", model=Twice())
    assert loaded.second is loaded.first
    x = torch.randn(2, 8)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))


def test_a_plain_module_needs_the_callers_own_module_and_says_so(tmp_path: Path) -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))

    model = with_int8_linears(build(), "2").eval()
    save_checkpoint(model, tmp_path / "out")
    with pytest.raises(UsageError, match=r"pass the dense module.*model=Sequential"):
        load_checkpoint(tmp_path / "out")
    with torch.device("meta"):
        skeleton = build()
    x = torch.randn(3, 16)
    with torch.no_grad():
        assert torch.equal(load_checkpoint(tmp_path / "out", model=skeleton)(x), model(x))
    with pytest.raises(CheckpointError, match="Sequential"):
        load_checkpoint(tmp_path / "out", model=nn.Sequential(nn.Linear(16, 16)))


def test_transposed_and_sliced_weights_are_saved_contiguous(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 8))
    model[0].weight = nn.Parameter(torch.randn(32, 64).t())
    model[1].weight = nn.Parameter(torch.randn(8, 128)[:, :64])
    save_checkpoint(model, tmp_path / "out")
    loaded = load_checkpoint(tmp_path / "out", model=nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 8)))
    assert torch.equal(loaded[0].weight, model[0].weight) and torch.equal(loaded[1].weight, model[1].weight)
    assert (tmp_path / "out" / "model.safetensors").stat().st_size < 4 * (32 * 64 + 8 * 64 + 72) + 1000


def test_a_model_cast_as_a_whole_keeps_its_cast_buffers(tmp_path: Path) -> None:
    model = tiny_llama().to(torch.bfloat16)
    assert model.model.rotary_emb.inv_freq.dtype == torch.bfloat16
    save_checkpoint(model, tmp_path / "out")
    loaded = load_checkpoint(tmp_path / "out")
    assert loaded.model.rotary_emb.inv_freq.dtype == torch.bfloat16
    assert torch.equal(outputs(loaded), outputs(model))


def test_the_attention_implementation_is_the_saved_models(tmp_path: Path) -> None:
    model = tiny_llama()
    model.set_attn_implementation("eager")
    save_checkpoint(model, tmp_path / "out")
    loaded = load_checkpoint(tmp_path / "out")
    assert loaded.config._attn_implementation == "eager"
    assert torch.equal(outputs(loaded), outputs(model))


def test_large_models_are_split_into_shards(tmp_path: Path) -> None:
    for name, model in (("dense", tiny_llama()), ("int8", BUILDERS["llama-tied"]())):
        out = tmp_path / name
        save_checkpoint(model, out, max_shard_bytes=50_000)
        shards = sorted(out.glob("*-of-*.safetensors"))
        assert len(shards) > 1 and all(shard.stat().st_size < 100_000 for shard in shards)
        assert torch.equal(outputs(load_checkpoint(out)), outputs(model))
    assert torch.equal(outputs(type(tiny_llama()).from_pretrained(tmp_path / "dense")), outputs(tiny_llama()))


@pytest.mark.parametrize("name", ["llama-dense", "gpt2", "qwen3_moe", "mixtral"])
def test_stock_transformers_loads_a_dense_checkpoint(name: str, tmp_path: Path) -> None:
    model = {"qwen3_moe": tiny_moe, "mixtral": lambda: tiny_moe("mixtral")}.get(name, BUILDERS[name])()
    save_checkpoint(model, tmp_path / "out")
    loaded, report = type(model).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values())
    assert torch.equal(outputs(loaded), outputs(model))


def test_stock_transformers_refuses_a_compressed_checkpoint_instead_of_printing_garbage(tmp_path: Path) -> None:
    model = BUILDERS["llama-tied"]()
    save_checkpoint(model, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]["quant_method"] == "effkit"
    with pytest.raises(OSError, match="no file named"):
        type(model).from_pretrained(tmp_path / "out")


def test_everything_beside_the_weights_is_kept(tmp_path: Path) -> None:
    info = ModelInfo(
        source="here", kind="causal-lm", architecture="LlamaForCausalLM", parameters=82240, stored_dtype="Q4_1",
        fingerprint="f" * 64, notes=("dequantized from Q4_1",),
    )  # fmt: skip
    model = BUILDERS["llama-tied"]()
    model.generation_config.max_new_tokens = 7
    save_checkpoint(
        model, tmp_path / "out", tokenizer=tiny_tokenizer(), recipe={"name": "int8"}, plan={"bytes": 1}, source=info,
        notes=["made in a test"],
    )  # fmt: skip
    found = resolve(tmp_path / "out")
    assert found.kind == "effkit" and found.task == "causal-lm" and found.stored_dtype == "int8"
    assert found.info().notes == ("dequantized from Q4_1", "made in a test")
    assert found.info().parameters == 82240
    assert found.manifest is not None
    assert found.manifest.recipe == {"name": "int8"} and found.manifest.source == info
    assert found.manifest.tensors["model.norm.weight"] == "float32"
    assert found.tokenizer()("the").input_ids == tiny_tokenizer()("the").input_ids
    loaded = found.load()
    assert loaded.generation_config.max_new_tokens == 7
    save_checkpoint(loaded, tmp_path / "again")
    assert resolve(tmp_path / "again").notes == ("dequantized from Q4_1", "made in a test")


def test_meta_model_of_a_checkpoint_has_the_compressed_layers(tmp_path: Path) -> None:
    save_checkpoint(BUILDERS["llama-tied"](), tmp_path / "out")
    model = resolve(tmp_path / "out").meta_model()
    assert set(compressed_modules(model)) == set(compressed_modules(BUILDERS["llama-tied"]()))


def test_loading_leaves_the_checkpoint_usable_after_the_folder_moved(tmp_path: Path) -> None:
    model = tiny_llama()
    save_checkpoint(model, tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "moved")
    assert torch.equal(outputs(load_checkpoint(tmp_path / "moved")), outputs(model))


def test_weight_files_are_as_readable_as_the_rest(tmp_path: Path) -> None:
    save_checkpoint(tiny_llama(), tmp_path / "out")
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()}
    assert len(modes) == 1


def test_saving_does_not_change_the_model(tmp_path: Path) -> None:
    model = BUILDERS["llama-tied"]()
    before, config = copy.deepcopy(model.state_dict()), model.config.to_dict()
    save_checkpoint(model, tmp_path / "out")
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.config.to_dict() == config


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_non_finite_scale_is_refused_by_name_and_the_old_checkpoint_stays(value: float, tmp_path: Path) -> None:
    model = BUILDERS["llama-tied"]()
    save_checkpoint(model, tmp_path / "out")
    expected = outputs(model)
    model.model.layers[1].mlp.up_proj.weight_scale[3] = value
    with pytest.raises(CheckpointError, match=r"model\.layers\.1\.mlp\.up_proj\.weight_scale"):
        save_checkpoint(model, tmp_path / "out")
    assert torch.equal(outputs(load_checkpoint(tmp_path / "out")), expected)


def test_tensors_without_data_are_refused(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = tiny_llama()
    with pytest.raises(CheckpointError, match=r"meta device.*embed_tokens"):
        save_checkpoint(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_disk_that_refuses_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    model = tiny_llama()
    save_checkpoint(model, tmp_path / "out")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
    try:
        with pytest.raises(CheckpointError, match="written"):
            save_checkpoint(tiny_llama(seed=1), tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert torch.equal(outputs(load_checkpoint(tmp_path / "out")), outputs(model))
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_a_kill_while_saving_a_model_leaves_a_whole_checkpoint(
    tmp_path: Path, child_environment: dict[str, str]
) -> None:
    save_checkpoint(tiny_llama(), tmp_path / "out")
    script = (
        "import os, signal, sys, torch\n"
        "from effkit.models import load_checkpoint, resolve, save_checkpoint, verify_checkpoint\n"
        "from tests.tiny import tiny_llama\n"
        "torch.set_num_threads(1)\n"
        "out, seed, point = sys.argv[1], 1, 0\n"
        "while True:\n"
        "    point += 7\n"
        "    new = tiny_llama(seed=seed)\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        left = point\n"
        "        def hook(event, arguments):\n"
        "            global left\n"
        "            if event.split('.')[0] in ('open', 'os', 'shutil', 'ctypes', 'tempfile'):\n"
        "                left -= 1\n"
        "                if left == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        sys.addaudithook(hook)\n"
        "        save_checkpoint(new, out, max_shard_bytes=100_000)\n"
        "        os._exit(0)\n"
        "    status = os.waitpid(child, 0)[1]\n"
        "    verify_checkpoint(out)\n"
        "    found = load_checkpoint(out).state_dict()\n"
        "    same = [all(torch.equal(t, found[n]) for n, t in m.state_dict().items()) for m in (tiny_llama(), new)]\n"
        "    assert sum(same) == 1, (point, same)\n"
        "    print('new' if same[1] else 'old')\n"
        "    if same[1]: break\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env=child_environment,
        check=False,
    )
    said = done.stdout.splitlines()
    assert done.returncode == 0 and said[-1] == "new" and len(said) > 5, done.stderr
    save_checkpoint(tiny_llama(), tmp_path / "out")
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.gpu
def test_a_checkpoint_loads_straight_to_the_gpu(tmp_path: Path) -> None:
    model = BUILDERS["llama-tied"]()
    save_checkpoint(model, tmp_path / "out")
    loaded = load_checkpoint(tmp_path / "out", device="cuda")
    assert {t.device.type for t in (*loaded.parameters(), *loaded.buffers())} == {"cuda"}
    assert all(torch.equal(t, loaded.state_dict()[n].cpu()) for n, t in model.state_dict().items())


def test_a_flipped_byte_is_found_by_verify(tmp_path: Path) -> None:
    save_checkpoint(tiny_llama(), tmp_path / "out")
    verify_checkpoint(tmp_path / "out")
    path = tmp_path / "out" / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        verify_checkpoint(tmp_path / "out")


def test_missing_and_truncated_files_are_named_before_anything_runs(tmp_path: Path) -> None:
    save_checkpoint(tiny_llama(), tmp_path / "out")
    path = tmp_path / "out" / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(CheckpointError, match=r"model\.safetensors has \d+ bytes"):
        resolve(tmp_path / "out")
    path.unlink()
    with pytest.raises(CheckpointError, match=r"incomplete: model\.safetensors is missing"):
        load_checkpoint(tmp_path / "out")


def test_a_renamed_tensor_is_named(tmp_path: Path) -> None:
    save_checkpoint(tiny_llama(), tmp_path / "out")
    path = tmp_path / "out" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.0.mlp.renamed"] = tensors.pop("model.layers.0.mlp.up_proj.weight")
    save_file(tensors, path, metadata={"format": "pt"})
    manifest = json.loads((tmp_path / "out" / "effkit.json").read_text())
    manifest["files"]["model.safetensors"]["bytes"] = path.stat().st_size
    edit_manifest(tmp_path / "out", files=manifest["files"])
    with pytest.raises(CheckpointError, match=r"model\.layers\.0\.mlp\.renamed"):
        load_checkpoint(tmp_path / "out")
    told = manifest["tensors"]
    told["model.layers.0.mlp.renamed"] = told.pop("model.layers.0.mlp.up_proj.weight")
    edit_manifest(tmp_path / "out", tensors=told)
    with pytest.raises(CheckpointError, match=r"missing \(model\.layers\.0\.mlp\.up_proj\.weight\)"):
        load_checkpoint(tmp_path / "out")


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "..", "a/../../b", "C:\\x", ""])
def test_a_file_name_that_leaves_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    save_checkpoint(tiny_llama(), tmp_path / "out")
    edit_manifest(tmp_path / "out", files={name: {"bytes": 1, "sha256": "0"}})
    with pytest.raises(CheckpointError, match="leaves the model's folder"):
        load_checkpoint(tmp_path / "out")


def test_hostile_or_newer_manifests_are_clear_errors(tmp_path: Path) -> None:
    out = tmp_path / "out"
    save_checkpoint(BUILDERS["llama-tied"](), out)
    good = (out / "effkit.json").read_text()
    modules = json.loads(good)["modules"]
    name = "model.layers.0.mlp.up_proj"
    for changes, message in (
        ({"schema_version": 2}, "update it"),
        ({"schema_version": "1"}, "damaged at schema_version"),
        ({"files": {}}, "differ"),
        ({"modules": modules | {name: {"format": "int9"}}}, "int9"),
        ({"modules": modules | {name: {"format": "int8-linear"}}}, "cannot be built"),
        ({"modules": modules | {name: modules[name] | {"in_features": 32}}}, "shape"),
        ({"modules": modules | {"model.layers.7.mlp.up_proj": modules[name]}}, "does not have"),
        ({"model_class": "os.system"}, "no model class"),
        ({"settings": {"surprise": True}}, "no llama model can be built.*surprise"),
        ({"attention": "telepathy"}, "telepathy"),
        ({"aliases": {"lm_head.weight": "nowhere"}}, "have no owner"),
        ({"buffers": {"model.rotary_emb.surprise": "float32"}}, "buffers differ"),
    ):
        (out / "effkit.json").write_text(good)
        edit_manifest(out, **changes)
        with pytest.raises((CheckpointError, SourceError), match=message):
            load_checkpoint(out)
    (out / "effkit.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"not valid JSON.*line 1"):
        load_checkpoint(out)


def test_something_else_than_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a directory"):
        load_checkpoint(tmp_path / "nothing")
    with pytest.raises(SourceError, match=r"no effkit\.json"):
        load_checkpoint(save_tiny(tmp_path / "model"))
