"""Tiny, seeded models and a tokenizer, built offline in milliseconds; shared by all tests.

The models are random but not degenerate: weights are wide enough that logits differ from token to token, and
sizes are chosen so that a wrong axis shows (no two dimensions of a matrix are equal except in attention).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

VOCAB_SIZE = 320
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>")
_MERGES = [("t", "h"), ("th", "e"), ("i", "n"), ("a", "n"), ("an", "d"), ("e", "r"), ("Ġ", "the"), ("Ġ", "a")]
_COMMON = {"vocab_size": VOCAB_SIZE, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.1}


def tiny_llama(
    *, tied: bool = True, seed: int = 0, layers: int = 2, hidden: int = 64, **settings: Any
) -> PreTrainedModel:
    """Llama: grouped-query attention, gated MLP, RMSNorm; about 0.1 million parameters."""
    given = {
        "hidden_size": hidden,
        "intermediate_size": 96,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": tied,
    }
    return _build(LlamaForCausalLM, LlamaConfig(**(_COMMON | given | settings)), seed)


def tiny_gpt2(*, seed: int = 0, layers: int = 2, **settings: Any) -> PreTrainedModel:
    """GPT-2: Conv1D layers (weights stored as [in, out]), tied head, learned positions."""
    given = {"n_layer": layers, "n_embd": 64, "n_head": 4, "n_inner": 96, "n_positions": 256}
    return _build(GPT2LMHeadModel, GPT2Config(**(_COMMON | given | settings)), seed)


def tiny_bert(*, seed: int = 0, layers: int = 2, **settings: Any) -> PreTrainedModel:
    """BERT: an encoder without a head."""
    given = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
    }
    return _build(BertModel, BertConfig(**(_COMMON | given | settings)), seed)


def tiny_moe(
    kind: Literal["qwen3_moe", "mixtral"] = "qwen3_moe", *, seed: int = 0, layers: int = 2, **settings: Any
) -> PreTrainedModel:
    """A mixture of four experts, two of them used per token, kept as fused 3-D parameters; untied head."""
    given = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "num_experts_per_tok": 2,
        "tie_word_embeddings": False,
    }
    if kind == "mixtral":
        config: Any = MixtralConfig(**(_COMMON | given | {"num_local_experts": 4} | settings))
        return _build(MixtralForCausalLM, config, seed)
    experts = {"num_experts": 4, "moe_intermediate_size": 48, "head_dim": 16}
    return _build(Qwen3MoeForCausalLM, Qwen3MoeConfig(**(_COMMON | given | experts | settings)), seed)


def tiny_tokenizer(directory: Path | None = None, *, adds_bos: bool = False) -> PreTrainedTokenizerFast:
    """Byte-level BPE over 256 bytes, three special tokens and eight merges; saved into ``directory`` if given.

    Args:
        adds_bos: put ``<s>`` before every text, as Llama's tokenizer does.
    """
    tokens = [*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(left + right for left, right in _MERGES)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=_MERGES))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    if adds_bos:
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", vocabulary["<s>"])]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>", model_max_length=256
    )
    if directory is not None:
        tokenizer.save_pretrained(directory)
    return tokenizer


def save_tiny(directory: Path, model: PreTrainedModel | None = None, *, adds_bos: bool = False, **options: Any) -> Path:
    """Save a model (a tied tiny Llama by default) and the tiny tokenizer; ``options`` go to save_pretrained."""
    directory.mkdir(parents=True, exist_ok=True)
    (tiny_llama() if model is None else model).save_pretrained(directory, **options)
    tiny_tokenizer(directory, adds_bos=adds_bos)
    return directory


def tiny_ids(batch: int = 2, length: int = 12, *, seed: int = 0) -> torch.Tensor:
    """Random token ids [batch, length] without special tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(len(SPECIAL_TOKENS), VOCAB_SIZE, (batch, length), generator=generator)


def _build(kind: Any, config: Any, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = kind(config)
    return model.eval()
