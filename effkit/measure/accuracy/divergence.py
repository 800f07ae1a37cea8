"""Per-token likelihood and divergence from logits, a few positions at a time.

Pure tensor maths. A window of 1024 positions over 49,152 words is 200 MB of logits; working in chunks keeps the
intermediate results at a few megabytes. Results are allocated before the chunks: small tensors that outlive a chunk
would lie between its freed blocks and keep glibc's heap, and so the measured peak, from shrinking.
Dimensions: N positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

CHUNK_ELEMENTS = 1 << 20


def token_nll(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood of each target.

    Args:
        logits: [N, V], any floating dtype.
        targets: [N] int64.

    Returns:
        [N] float64 on the CPU, nats; from a float32 log-softmax.
    """
    result = torch.empty(logits.shape[0], dtype=torch.float64)
    for rows in chunks(logits):
        likely = torch.log_softmax(logits[rows].float(), dim=-1).gather(1, targets[rows, None])
        result[rows] = -likely.squeeze(1).double().cpu()
    return result


def kl_divergence(baseline: torch.Tensor, variant: torch.Tensor) -> torch.Tensor:
    """KL(baseline || variant) at each position.

    Args:
        baseline, variant: logits [N, V].

    Returns:
        [N] float64 on the CPU, nats, never below 0. Words that the baseline excludes (-inf) contribute nothing.
    """
    result = torch.empty(variant.shape[0], dtype=torch.float64)
    for rows in chunks(variant):
        log_p = torch.log_softmax(baseline[rows].to(variant.device).float(), dim=-1)
        log_q = torch.log_softmax(variant[rows].float(), dim=-1)
        terms = torch.where(log_p.isneginf(), 0.0, log_p.exp() * (log_p - log_q))
        result[rows] = terms.sum(dim=-1, dtype=torch.float64).clamp(min=0.0).cpu()
    return result


def same_top1(baseline: torch.Tensor, variant: torch.Tensor) -> torch.Tensor:
    """Whether the most likely token is the same: logits [N, V] twice -> [N] bool on the CPU."""
    return baseline.argmax(dim=-1).cpu() == variant.argmax(dim=-1).cpu()


def chunks(logits: torch.Tensor) -> Iterator[slice]:
    """Slices over the positions of [N, V], each of at most CHUNK_ELEMENTS logits (but at least one position)."""
    rows = max(1, CHUNK_ELEMENTS // max(1, logits.shape[-1]))
    for start in range(0, logits.shape[0], rows):
        yield slice(start, min(start + rows, logits.shape[0]))
