"""GGUF files load as ordinary dense models; what they were before travels with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from effkit.errors import CheckpointError, SourceError
from effkit.models import notes_of, resolve, save_checkpoint
from effkit.models.gguf import read_gguf
from tests.models.compressed import outputs
from tests.tiny import tiny_llama, tiny_tokenizer

Type = gguf.GGMLQuantizationType
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q and k in GGUF's order. Source: llama.cpp convert_hf_to_gguf.py, LlamaModel.permute."""
    rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return rows.swapaxes(1, 2).reshape(weight.shape)


def gguf_name(name: str) -> str:
    if not name.startswith("model.layers."):
        return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}.get(
            name, "output.weight"
        )
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def write(path: Path, model: Any, kind: Type, architecture: str = "llama") -> Path:
    """Write a tiny Llama and the tiny tokenizer; vectors stay F32, as llama.cpp does it."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    vocabulary = tiny_tokenizer().get_vocab()
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens + [f"<unused{n}>" for n in range(config.vocab_size - len(tokens))])
    writer.add_token_merges(["t h", "th e", "i n", "a n", "an d", "e r", "Ġ the", "Ġ a"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.float().numpy()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            values = interleaved(values, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        used = kind if values.ndim > 1 else Type.F32
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, used), raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def as_stored(model: Any, kind: Type) -> Any:
    """The model with every matrix rounded as the file holds it; edits and returns it."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                stored = gguf.quants.quantize(parameter.float().numpy(), kind)
                parameter.copy_(torch.from_numpy(gguf.quants.dequantize(stored, kind)))
    return model


@pytest.mark.parametrize("kind", [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_1])
@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_loads_as_the_model_it_holds(kind: Type, tied: bool, tmp_path: Path) -> None:
    source = resolve(write(tmp_path / "tiny.gguf", tiny_llama(tied=tied), kind))
    model = source.load(torch.float32)
    expected = as_stored(tiny_llama(tied=tied), kind)
    assert source.kind == "gguf" and source.task == "causal-lm"
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in expected.state_dict().items())
    assert torch.equal(outputs(model), outputs(expected))
    assert (model.lm_head.weight is model.model.embed_tokens.weight) is tied
    assert (source.meta_model().lm_head.weight.is_meta) and source.info().architecture == "LlamaForCausalLM"
    assert source.tokenizer()("the and").input_ids == tiny_tokenizer()("the and").input_ids


@pytest.mark.parametrize(
    ("kind", "stored", "dtype"),
    [
        (Type.F16, "float16", torch.float16),
        (Type.BF16, "bfloat16", torch.bfloat16),
        (Type.Q8_0, "Q8_0", torch.float32),
        (Type.F32, "float32", torch.float32),
    ],
)
def test_float_types_are_kept_and_quantized_ones_become_float32(
    kind: Type, stored: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    source = resolve(write(tmp_path / "tiny.gguf", tiny_llama(), kind))
    assert source.stored_dtype == stored
    assert {parameter.dtype for parameter in source.load().parameters()} == {dtype}
    assert source.expanded_bytes() == 82240 * dtype.itemsize


def test_the_note_of_what_it_was_travels_through_every_save(tmp_path: Path) -> None:
    source = resolve(write(tmp_path / "tiny.gguf", tiny_llama(), Type.Q8_0))
    note = "dequantized from Q8_0 (99% of its weight bytes; the rest is F32)"
    assert source.notes == source.info().notes == (note,)
    model = source.load()
    assert notes_of(model) == (note,)
    save_checkpoint(model, tmp_path / "out")
    again = resolve(tmp_path / "out")
    assert again.info().notes == (note,) and notes_of(again.load()) == (note,)
    save_checkpoint(again.load(), tmp_path / "out2")
    assert resolve(tmp_path / "out2").notes == (note,)


def test_after_loading_it_is_an_ordinary_model_that_can_be_saved(tmp_path: Path) -> None:
    model: Any = resolve(write(tmp_path / "tiny.gguf", tiny_llama(), Type.Q8_0)).load()
    assert getattr(model.config, "quantization_config", None) is None
    assert getattr(model, "hf_quantizer", None) is None
    model.save_pretrained(tmp_path / "saved")
    loaded = resolve(tmp_path / "saved").load()
    assert torch.equal(outputs(loaded), outputs(model))
    model.to(torch.bfloat16)


def test_the_expanded_size_is_known_and_checked_before_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = resolve(write(tmp_path / "tiny.gguf", tiny_llama(), Type.Q8_0))
    assert source.expanded_bytes() == 4 * 82240 > 2 * source.weight_file_bytes()
    assert source.expanded_bytes(torch.bfloat16) == 2 * 82240
    assert source.size_note() == "0.1 MB on disk, 0.3 MB as float32"
    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=1000))
    with pytest.raises(CheckpointError, match=r"needs 657920 bytes .*1000 bytes"):
        source.load()


def test_our_header_reader_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", tiny_llama(tied=False), Type.Q4_1)
    reader, header = gguf.GGUFReader(path), read_gguf(path)
    assert header.tensor_names == tuple(tensor.name for tensor in reader.tensors)
    assert header.elements == sum(int(tensor.n_elements) for tensor in reader.tensors)
    for name, count in header.bytes_by_type.items():
        assert count == sum(int(t.n_bytes) for t in reader.tensors if t.tensor_type.name == name)
    assert header.dominant_type == "Q4_1" and header.architecture == "llama"


def test_truncated_files_are_named_wherever_they_end(tmp_path: Path) -> None:
    whole = write(tmp_path / "tiny.gguf", tiny_llama(), Type.Q8_0).read_bytes()
    path = tmp_path / "cut.gguf"
    for length in (0, 3, 4, 8, 20, 100, 1000, 5000, len(whole) // 2, len(whole) - 64):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"cut\.gguf"):
            resolve(path)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.mktemp("gguf") / "x.gguf"
    for content in (raw, b"GGUF\x03\0\0\0" + raw, b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0" + raw):
        path.write_bytes(content)
        with pytest.raises(CheckpointError):
            read_gguf(path)


def test_an_architecture_that_transformers_cannot_read_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", tiny_llama(), Type.F16, architecture="warp-drive")
    with pytest.raises(SourceError, match="warp-drive"):
        resolve(path)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    model = tiny_llama(layers=1)
    model.config.num_hidden_layers = 2
    path = write(tmp_path / "tiny.gguf", model, Type.F16)
    with pytest.raises(CheckpointError, match=r"missing \(model\.layers\.1\."):
        resolve(path).load()
