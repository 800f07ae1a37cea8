"""Perplexity of a causal language model, and its divergence from the dense baseline token by token.

Receives a runtime and windows; knows no pass. Dimensions: B windows, T positions, V vocabulary, N scored tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from effkit.errors import MeasureError
from effkit.measure.accuracy.baseline import BaselineStore, BaselineWriter
from effkit.measure.accuracy.divergence import chunks, kl_divergence, same_top1, token_nll
from effkit.measure.accuracy.windows import Windows
from effkit.measure.precision import full_fp32
from effkit.measure.statistics import RatioInterval, perplexity_ratio
from effkit.records import Accuracy
from effkit.runtimes.base import TextRuntime
from effkit.suite import Suite

Progress = Callable[[int, int], None]
FloatArray = npt.NDArray[np.float64]

NOT_TEXT = dict.fromkeys(("output_cosine_mean", "output_relative_error_mean"), "only for models that give vectors")
COMPARED = ("kl_mean", "kl_median", "kl_p99", "kl_max", "top1_agreement")
PAIRED = ("perplexity_ratio", "perplexity_ratio_low", "perplexity_ratio_high", "within_noise")


@dataclass
class _Scores:
    """Per-token results, window by window."""

    nll: list[torch.Tensor] = field(default_factory=list)
    kl: list[torch.Tensor] = field(default_factory=list)
    same_top1: list[torch.Tensor] = field(default_factory=list)


def evaluate_text(
    runtime: TextRuntime,
    windows: Windows,
    *,
    suite: Suite,
    key: str = "",
    baseline: BaselineStore | None = None,
    write_baseline: Path | None = None,
    progress: Progress | None = None,
    pad_side: str = "right",
) -> Accuracy:
    """Score every window.

    Args:
        runtime: a causal language model.
        windows: from :func:`effkit.measure.accuracy.windows`.
        suite: batch size, number of windows whose distributions are compared, seed.
        key: fingerprint that a written baseline carries.
        baseline: the dense FP32 run's results to compare with; None where this is that run, or there is none.
        write_baseline: folder to leave this run's results in, for the variants to come.
        progress: called with windows done and windows in all.
        pad_side: ``right`` or ``left``; results do not depend on it.

    Returns:
        Perplexity and, against a baseline, ratio, divergences and agreement. A run that writes the baseline is its
        own: ratio 1 and divergence 0 by definition.

    Raises:
        MeasureError: nothing to score, likelihoods that are not finite, another vocabulary than the baseline's.
    """
    if not windows.scored_tokens:
        raise MeasureError("the windows hold no token to score")
    compared = min(suite.kl_windows, len(windows)) if baseline or write_baseline else 0
    rows = sum(int(mask.sum()) for mask in windows.scored[:compared])
    scores = _Scores()
    with ExitStack() as stack:
        stack.enter_context(full_fp32())
        writer = None
        if write_baseline is not None:
            writer = stack.enter_context(BaselineWriter(write_baseline, key=key, digest=windows.digest()))
        row = 0
        for index, logits, targets in _scored_logits(runtime, windows, suite.batch_size, pad_side):
            scores.nll.append(_finite(token_nll(logits, targets), index))
            if index < compared:
                for part in chunks(logits):
                    if writer is not None:
                        writer.append("logits", logits[part].float().cpu().numpy(), rows=rows)
                    if baseline is not None:
                        _compare(scores, baseline, row + part.start, logits[part])
                row += len(targets)
            if progress is not None:
                progress(index + 1, len(windows))
        nll = torch.cat(scores.nll).numpy()
        if writer is not None:
            writer.append("nll", nll, rows=len(nll))
    ratio = perplexity_ratio(baseline.read("nll"), nll, seed=suite.seed) if baseline else None
    return _record(suite, nll, scores, ratio, is_baseline=write_baseline is not None and baseline is None)


def _scored_logits(
    runtime: TextRuntime, windows: Windows, batch_size: int, pad_side: str
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Yield per window its index, the logits [N, V] that predict its scored tokens, and those tokens [N]."""
    for start in range(0, len(windows), batch_size):
        ids, mask = windows.batch(start, batch_size, side=pad_side)
        logits = runtime.logits(ids, mask)
        for offset in range(ids.shape[0]):
            index = start + offset
            length = len(windows.ids[index])
            first = ids.shape[1] - length if pad_side == "left" else 0
            scored = torch.from_numpy(np.flatnonzero(windows.scored[index]))
            targets = torch.from_numpy(windows.ids[index])[scored].to(logits.device)
            yield index, _rows(logits[offset], first + scored - 1), targets


def _rows(logits: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Select positions, without a copy where they are neighbours: [T, V] -> [N, V]."""
    start, count = int(positions[0]), len(positions)
    if int(positions[-1]) - start + 1 == count:
        return logits[start : start + count]
    return logits[positions.to(logits.device)]


def _compare(scores: _Scores, store: BaselineStore, row: int, logits: torch.Tensor) -> None:
    """Compare logits [n, V] with the baseline's rows from ``row`` on."""
    stored = store.read("logits", row, row + len(logits))
    if stored.shape != tuple(logits.shape):
        raise MeasureError(
            f"the baseline has {stored.shape[1]} words, this variant {logits.shape[1]}: a variant keeps the vocabulary"
        )
    baseline = torch.from_numpy(stored)
    scores.kl.append(kl_divergence(baseline, logits))
    scores.same_top1.append(same_top1(baseline, logits))


def _finite(nll: torch.Tensor, window: int) -> torch.Tensor:
    bad = int((~torch.isfinite(nll)).sum())
    if bad:
        raise MeasureError(f"window {window}: the likelihood of {bad} of {len(nll)} tokens is NaN or infinite")
    return nll


def _record(
    suite: Suite, nll: FloatArray, scores: _Scores, ratio: RatioInterval | None, *, is_baseline: bool
) -> Accuracy:
    mean = float(np.mean(nll, dtype=np.float64))
    fields: dict[str, Any] = {"scored_tokens": nll.size, "nll_mean": mean}
    reasons = dict(NOT_TEXT)
    if mean < math.log(1e300):
        fields["perplexity"] = math.exp(mean)
    else:
        reasons["perplexity"] = f"exp({mean:.0f}) is beyond the range of a number"
    if is_baseline:
        fields |= {"perplexity_ratio": 1.0, "perplexity_ratio_low": 1.0, "perplexity_ratio_high": 1.0}
        fields |= {"within_noise": True}
    elif ratio is not None:
        fields |= {"perplexity_ratio": ratio.ratio, "perplexity_ratio_low": ratio.low}
        fields |= {"perplexity_ratio_high": ratio.high, "within_noise": ratio.contains_one}
    else:
        reasons |= dict.fromkeys(PAIRED, "no baseline was given")
    if is_baseline and suite.kl_windows:
        fields |= {"kl_mean": 0.0, "kl_median": 0.0, "kl_p99": 0.0, "kl_max": 0.0, "top1_agreement": 1.0}
    elif scores.kl:
        divergences, reason = _divergences(scores)
        fields |= divergences
        reasons |= dict.fromkeys([name for name in COMPARED if name not in divergences], reason)
    else:
        reason = "the suite compares no whole distributions (kl_windows: 0)" if ratio or is_baseline else ""
        reasons |= dict.fromkeys(COMPARED, reason or "no baseline was given")
    return Accuracy(suite=suite.name, **fields, reasons=reasons)


def _divergences(scores: _Scores) -> tuple[dict[str, float], str]:
    """Fields of divergence and agreement, and the reason for those left out."""
    agreement = {"top1_agreement": float(torch.cat(scores.same_top1).double().mean())}
    kl = torch.cat(scores.kl).numpy()
    if not np.isfinite(kl).all():
        return agreement, "infinite: the variant excludes a token that the baseline does not"
    figures = {
        "kl_mean": float(kl.mean()),
        "kl_median": float(np.median(kl)),
        "kl_p99": float(np.quantile(kl, 0.99)),
        "kl_max": float(kl.max()),
    }
    return figures | agreement, ""
