"""Runs transformers models as they are, op by op.

Knows the calling convention of transformers' models and caches; knows no pass and no measurement.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from effkit.errors import MeasureError
from effkit.runtimes.base import EncoderRuntime, TextRuntime, TextState

CACHE_NAMES = ("cache", "cache_params", "past_key_values")
"""What transformers calls the cache: ``cache`` since 5.24, before that one of the other two, by model family."""


def eager_runtime(model: nn.Module, device: str | torch.device, task: str) -> TextRuntime | EncoderRuntime:
    """Wrap ``model`` for its task.

    Args:
        model: put into evaluation mode; must already be on ``device``.
        device: where inputs go.
        task: ``causal-lm`` or ``encoder``.

    Raises:
        MeasureError: another task.
    """
    if task == "causal-lm":
        return EagerRuntime(model, device)
    if task == "encoder":
        return EagerEncoder(model, device)
    raise MeasureError(
        f"{type(model).__name__} is neither a causal language model nor an encoder; "
        "effkit.compare(model, variant, inputs) measures any module on your own inputs"
    )


class _Eager:
    """What both tasks share: evaluation mode, device, position limit, accepted arguments."""

    name = "eager"

    def __init__(self, model: nn.Module, device: str | torch.device = "cpu") -> None:
        self.model = model.eval()
        self.device = torch.device(device)
        self.max_positions = max_positions(model)
        self._accepted = frozenset(inspect.signature(model.forward).parameters)
        self._cache_argument = next((name for name in CACHE_NAMES if name in self._accepted), CACHE_NAMES[-1])

    def _accepts(self, argument: str) -> bool:
        return argument in self._accepted

    def _inputs(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """Move inputs; add the mask and, where the model takes them, positions that skip padding."""
        inputs = {"input_ids": input_ids.to(self.device)}
        if attention_mask is not None and not bool(attention_mask.all()):
            mask = attention_mask.to(self.device)
            inputs["attention_mask"] = mask
            if self._accepts("position_ids"):
                inputs["position_ids"] = positions_of(mask)
        return inputs


class EagerRuntime(_Eager):
    """A transformers causal language model, in evaluation and inference mode."""

    @torch.inference_mode()
    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Score every position: [B, T] -> [B, T, V]; see :class:`TextRuntime`."""
        inputs = self._inputs(input_ids, attention_mask)
        if self._accepts("use_cache"):
            return _logits(self.model(**inputs, use_cache=False))
        return _logits(self.model(**inputs))

    @torch.inference_mode()
    def prefill(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, TextState]:
        """Read a prompt: [B, T] -> logits [B, V] and state; see :class:`TextRuntime`.

        Raises:
            MeasureError: padded on the right, or a model without a cache.
        """
        if attention_mask is not None and not bool(attention_mask[:, -1].all()):
            raise MeasureError("prompts must be padded on the left: a next token cannot follow padding")
        inputs = self._inputs(input_ids, attention_mask)
        extra: dict[str, Any] = {"logits_to_keep": 1} if self._accepts("logits_to_keep") else {}
        output = self.model(**inputs, use_cache=True, **extra)
        mask = inputs.get("attention_mask")
        batch, length = input_ids.shape
        if mask is None:
            positions = torch.full((batch, 1), length, device=self.device)
        else:
            positions = mask.sum(dim=1, keepdim=True)
        return _logits(output)[:, -1], _state(self.model, output, positions, mask)

    @torch.inference_mode()
    def decode(self, token_ids: torch.Tensor, state: TextState) -> tuple[torch.Tensor, TextState]:
        """Append one token per sequence: [B, 1] -> logits [B, V] and state; see :class:`TextRuntime`."""
        inputs: dict[str, Any] = {"input_ids": token_ids.to(self.device), self._cache_argument: state.cache}
        mask = state.attention_mask
        if mask is not None:
            mask = torch.cat([mask, mask.new_ones(mask.shape[0], 1)], dim=1)
            inputs["attention_mask"] = mask
            if self._accepts("position_ids"):
                inputs["position_ids"] = state.positions
        output = self.model(**inputs, use_cache=True)
        return _logits(output)[:, -1], _state(self.model, output, state.positions + 1, mask)


class EagerEncoder(_Eager):
    """A transformers encoder, in evaluation and inference mode."""

    @torch.inference_mode()
    def outputs(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Encode: [B, T] -> last hidden state [B, T, H]; see :class:`EncoderRuntime`.

        Positions are left to the model: encoders number them from the left edge, padding included.
        """
        output = self.model(input_ids=input_ids.to(self.device), attention_mask=attention_mask.to(self.device))
        hidden = getattr(output, "last_hidden_state", None)
        if hidden is None:
            hidden = output[0] if isinstance(output, tuple) else getattr(output, "logits", None)
        if not isinstance(hidden, torch.Tensor):
            raise MeasureError(f"{type(self.model).__name__} returned no last_hidden_state and no logits")
        return hidden


def positions_of(attention_mask: torch.Tensor) -> torch.Tensor:
    """Number real tokens from 0 and skip padding: mask [B, T] -> positions [B, T] int64 (0 on left padding)."""
    return (attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)


def max_positions(model: nn.Module) -> int | None:
    """Return the longest sequence the model's configuration allows, or None where it names none."""
    config = getattr(model, "config", None)
    if config is None:
        return None
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    limit = getattr(text, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        return None
    # RoBERTa's family counts positions from pad_token_id + 1, so its table is that much longer than a sequence can be.
    offset_family = getattr(text, "model_type", "") in {"roberta", "xlm-roberta", "camembert", "mpnet", "longformer"}
    return limit - (int(text.pad_token_id or 0) + 1) if offset_family else limit


def _logits(output: Any) -> torch.Tensor:
    logits = getattr(output, "logits", None)
    if not isinstance(logits, torch.Tensor) or logits.ndim != 3:
        raise MeasureError(f"expected logits of shape [batch, positions, vocabulary], got {type(logits).__name__}")
    return logits


def _state(model: nn.Module, output: Any, positions: torch.Tensor, mask: torch.Tensor | None) -> TextState:
    cache = next((found for name in CACHE_NAMES if (found := getattr(output, name, None)) is not None), None)
    if cache is None:
        raise MeasureError(f"{type(model).__name__} returned no cache, so single tokens cannot be decoded from it")
    return TextState(cache, positions, mask)
