"""Tiny models with INT8 layers, put in by hand so that these tests depend on no pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from effkit.modules import Int8Embedding, Int8Experts, Int8Linear, Int8TiedLinear, install
from tests.tiny import tiny_ids


def with_int8_linears(model: nn.Module, *skip: str) -> Any:
    """Exchange every nn.Linear but those named; edits and returns the model."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name not in skip:
            install(model, name, Int8Linear.from_dense(module.weight.detach(), module.bias))
    return model


def with_tied_int8_head(model: Any) -> Any:
    """Compress embedding and head of a tied causal LM into one INT8 table; edits and returns the model."""
    table = Int8Embedding.from_dense(model.get_input_embeddings().weight.detach())
    install(model, "model.embed_tokens", table)
    install(model, "lm_head", Int8TiedLinear(table, None))
    return model


def with_int8_experts(model: Any) -> Any:
    """Exchange all fused experts; edits and returns the model."""
    for name, parameter in list(model.named_parameters()):
        if parameter.ndim == 3 and "experts" in name:
            install(model, name, Int8Experts.from_dense(parameter.detach(), transposed=False))
    return model


@torch.no_grad()
def outputs(model: nn.Module) -> torch.Tensor:
    """Logits, or hidden states of an encoder, for fixed ids."""
    found: torch.Tensor = model(tiny_ids())[0]
    return found
