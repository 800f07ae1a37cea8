"""Greedy generation over any text runtime; the same tokens at every batch size.

Prompts of different length are padded on the left and carry a mask and positions that skip the padding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from effkit.errors import MeasureError
from effkit.runtimes.base import TextRuntime


def greedy(
    runtime: TextRuntime,
    prompts: Sequence[Sequence[int]],
    steps: int,
    *,
    batch_size: int = 1,
    stop_id: int | None = None,
) -> list[list[int]]:
    """Continue each prompt with its most likely tokens.

    Args:
        runtime: a causal language model.
        prompts: token ids, each at least one.
        steps: new tokens per prompt.
        batch_size: prompts per forward pass.
        stop_id: token that ends a continuation; it is not part of the result.

    Returns:
        New token ids, one list per prompt.

    Raises:
        MeasureError: an empty prompt.
    """
    empty = [index for index, prompt in enumerate(prompts) if not len(prompt)]
    if empty:
        raise MeasureError(f"prompt {empty[0]} is empty: give at least one token")
    results: list[list[int]] = []
    for start in range(0, len(prompts), batch_size):
        ids, mask = pad([list(p) for p in prompts[start : start + batch_size]], side="left")
        rows = _continue(runtime, ids, mask, steps)
        results += [row if stop_id is None or stop_id not in row else row[: row.index(stop_id)] for row in rows]
    return results


def pad(rows: Sequence[Sequence[int]], *, side: str, pad_id: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Bring rows to one length.

    Args:
        rows: token ids.
        side: ``left`` or ``right``.
        pad_id: any valid id; it is masked, never read.

    Returns:
        ids [B, T] int64 and mask [B, T] int64, ones on real tokens.
    """
    length = max(len(row) for row in rows)
    ids = torch.full((len(rows), length), pad_id, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        place = slice(length - len(row), length) if side == "left" else slice(0, len(row))
        ids[index, place] = torch.as_tensor(row, dtype=torch.int64)
        mask[index, place] = 1
    return ids, mask


def _continue(runtime: TextRuntime, ids: torch.Tensor, mask: torch.Tensor, steps: int) -> list[list[int]]:
    if steps < 1:
        return [[] for _ in range(ids.shape[0])]
    logits, state = runtime.prefill(ids, mask)
    tokens = [logits.argmax(dim=-1, keepdim=True)]
    for _ in range(steps - 1):
        logits, state = runtime.decode(tokens[-1], state)
        tokens.append(logits.argmax(dim=-1, keepdim=True))
    rows: list[list[int]] = torch.cat(tokens, dim=1).tolist()
    return rows
