"""What a plan lets one expect before anything runs: bytes moved per token, decode speed, peak memory.

Pure arithmetic on inventory and plan. Every figure names its formula; none is a measurement. Decode at batch 1 is
bounded by bandwidth: tokens/s <= bandwidth / (weight bytes read per token + KV-cache bytes).
Source: Pope et al. 2022, arXiv 2211.05102, section 2 (memory time of a decode step).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from effkit.inventory import Inventory
from effkit.planning import Plan

RUNTIME_BYTES = 450 << 20
"""Python, torch and transformers without any model: resident size measured on Linux x86-64, torch 2.13 CPU."""


@dataclass(frozen=True)
class TextShape:
    """The sizes of a transformer that decide its KV cache and activations.

    Attributes:
        layers, kv_heads, head_dim: of the attention.
        hidden, intermediate, vocabulary: widths.
        experts, experts_per_token: 1 and 1 for dense models.
    """

    layers: int
    kv_heads: int
    head_dim: int
    hidden: int
    intermediate: int
    vocabulary: int
    experts: int = 1
    experts_per_token: int = 1

    @classmethod
    def from_config(cls, config: Any) -> TextShape | None:
        """Read the sizes from a transformers configuration; None where it has no such fields."""
        text = config.get_text_config() if hasattr(config, "get_text_config") else config

        def first(*names: str, default: int = 0) -> int:
            return next((int(v) for n in names if isinstance(v := getattr(text, n, None), int)), default)

        layers, hidden = first("num_hidden_layers", "n_layer"), first("hidden_size", "n_embd")
        heads = first("num_attention_heads", "n_head")
        if not (layers and hidden and heads):
            return None
        return cls(
            layers=layers,
            kv_heads=first("num_key_value_heads", default=heads),
            head_dim=first("head_dim", default=hidden // heads),
            hidden=hidden,
            intermediate=first("intermediate_size", "n_inner", default=4 * hidden),
            vocabulary=first("vocab_size"),
            experts=first("num_experts", "num_local_experts", "n_routed_experts", default=1),
            experts_per_token=first("num_experts_per_tok", default=1),
        )


@dataclass(frozen=True)
class Prediction:
    """Expected figures of one variant.

    Attributes:
        weight_bytes: all distinct storages.
        decode_bytes_per_token: weights and KV cache read for one token at the given context, batch 1.
        decode_tokens_per_s: upper bound, bandwidth / decode_bytes_per_token; None without a bandwidth.
        kv_cache_bytes: at the given batch and context.
        activations_bytes: the largest layer's intermediate results in float32 during prefill.
        runtime_bytes: interpreter and libraries, see RUNTIME_BYTES.
        peak_bytes: sum of the four.
        compress_peak_bytes: the dense model, its largest layer once more, and the runtime.
    """

    weight_bytes: int
    decode_bytes_per_token: int
    decode_tokens_per_s: float | None
    kv_cache_bytes: int
    activations_bytes: int
    runtime_bytes: int
    peak_bytes: int
    compress_peak_bytes: int


def decode_weight_bytes(inventory: Inventory, plan: Plan | None = None, shape: TextShape | None = None) -> int:
    """Weight bytes that one decoded token reads.

    A table that only an embedding reads contributes nothing to speak of (one row); of fused experts only the
    share that a token is routed to.
    """
    after = _bytes_after(plan)
    active = shape.experts_per_token / shape.experts if shape else 1.0
    total = 0.0
    seen: set[str] = set()
    for layer in inventory.layers:
        sharing = [name for name in layer.tied if (name in after) == (layer.name in after)]
        if {layer.kind, *(inventory.layer(name).kind for name in sharing)} == {"embedding"}:
            continue
        size = after.get(layer.name)
        if size is None:
            size = 0 if layer.weight in seen else layer.weight_bytes
            seen.add(layer.weight)
        total += (size + layer.other_bytes) * (active if layer.kind == "experts" else 1.0)
    return int(total)


def kv_cache_bytes(shape: TextShape, *, batch: int, context: int, element_bytes: int) -> int:
    """2 (keys, values) x layers x KV heads x head width x context x batch x element size."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * context * batch * element_bytes


def predict(
    inventory: Inventory,
    plan: Plan | None = None,
    *,
    shape: TextShape | None = None,
    bandwidth_bytes_per_s: float | None = None,
    batch: int = 1,
    context: int = 1024,
    element_bytes: int = 4,
) -> Prediction:
    """Predict the figures of a dense model (``plan`` None) or of a planned variant.

    Args:
        inventory: of the dense model.
        plan: what will be done to it.
        shape: sizes for KV cache and activations; without it both count as 0.
        bandwidth_bytes_per_s: read bandwidth of the memory that holds the weights.
        batch, context: sequences and tokens per sequence.
        element_bytes: of activations and KV cache (4 for FP32).
    """
    weights = plan.bytes_after if plan else inventory.total_bytes
    cache = kv_cache_bytes(shape, batch=batch, context=context, element_bytes=element_bytes) if shape else 0
    one_sequence = kv_cache_bytes(shape, batch=1, context=context, element_bytes=element_bytes) if shape else 0
    activations = 0
    if shape:
        widths = 4 * shape.hidden + 3 * shape.intermediate
        activations = batch * context * widths * element_bytes + batch * shape.vocabulary * element_bytes
    read = decode_weight_bytes(inventory, plan, shape) + one_sequence
    largest = max((layer.weight_bytes for layer in inventory.layers), default=0)
    return Prediction(
        weight_bytes=weights,
        decode_bytes_per_token=read,
        decode_tokens_per_s=bandwidth_bytes_per_s / read if bandwidth_bytes_per_s and read else None,
        kv_cache_bytes=cache,
        activations_bytes=activations,
        runtime_bytes=RUNTIME_BYTES,
        peak_bytes=weights + cache + activations + RUNTIME_BYTES,
        compress_peak_bytes=inventory.total_bytes + 2 * largest + RUNTIME_BYTES,
    )


def _bytes_after(plan: Plan | None) -> dict[str, int]:
    if plan is None:
        return {}
    return {layer.name: layer.bytes_after for each in plan.passes for layer in each.changed}
