"""The seam between what runs a model and what measures it.

Dimensions: B sequences, T positions, V vocabulary, H width of an output vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch


@dataclass
class TextState:
    """What a runtime keeps between two decode steps; owned by the runtime that made it, changed by ``decode``.

    Attributes:
        cache: keys and values in the runtime's own form.
        positions: [B, 1] int64, the position that each sequence's next token takes.
        attention_mask: [B, T] int64, zeros on padding; None where there is none.
    """

    cache: Any
    positions: torch.Tensor
    attention_mask: torch.Tensor | None

    def cache_bytes(self) -> int:
        """Bytes of the cache's distinct tensors."""
        storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in _tensors(self.cache)}
        return sum(storages.values())


@runtime_checkable
class TextRuntime(Protocol):
    """Runs a causal language model."""

    name: str
    device: torch.device
    max_positions: int | None

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Score every position without a cache.

        Args:
            input_ids: [B, T] int64.
            attention_mask: [B, T], zeros on padding (left or right); None where nothing is padded.

        Returns:
            [B, T, V]; rows on padding are undefined.
        """
        ...

    def prefill(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, TextState]:
        """Read a prompt and compute the last position only.

        Args:
            input_ids: [B, T] int64, padded on the left if at all.
            attention_mask: [B, T], zeros on padding.

        Returns:
            logits [B, V] of the next token, and the state for ``decode``.
        """
        ...

    def decode(self, token_ids: torch.Tensor, state: TextState) -> tuple[torch.Tensor, TextState]:
        """Append one token per sequence.

        Args:
            token_ids: [B, 1] int64.
            state: from ``prefill`` or the last ``decode``; must not be used again afterwards.

        Returns:
            logits [B, V] of the next token, and the new state.
        """
        ...


@runtime_checkable
class EncoderRuntime(Protocol):
    """Runs a model that turns a sequence into vectors."""

    name: str
    device: torch.device
    max_positions: int | None

    def outputs(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Encode.

        Args:
            input_ids: [B, T] int64.
            attention_mask: [B, T], zeros on padding.

        Returns:
            [B, T, H], the last hidden state; rows on padding are undefined.
        """
        ...


def _tensors(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Find the tensors of a cache: transformers keeps them in layers, and within those in attributes."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 5:
        if isinstance(value, dict):
            children: Any = value.values()
        elif isinstance(value, (list, tuple)):
            children = value
        else:
            children = vars(value).values() if hasattr(value, "__dict__") else ()
        for child in children:
            yield from _tensors(child, depth + 1)
