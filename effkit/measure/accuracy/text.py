"""Perplexity of a causal language model, and its divergence from the dense baseline token by token.

Receives a runtime and windows; knows no pass. Dimensions: B windows, T positions, V vocabulary, N scored tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
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
    scorer = _Scorer(runtime, windows, suite, pad_side, baseline)
    with ExitStack() as stack:
        stack.enter_context(full_fp32())
        if write_baseline is not None:
            writer = BaselineWriter(write_baseline, key=key, digest=windows.digest())
            scorer.writer = stack.enter_context(writer)
        for start in range(0, len(windows), suite.batch_size):
            scorer.score(start)
            if progress is not None:
                progress(min(start + suite.batch_size, len(windows)), len(windows))
        nll = scorer.nll.numpy()
        if scorer.writer is not None:
            scorer.writer.append("nll", nll, rows=len(nll))
    ratio = perplexity_ratio(baseline.read("nll"), nll, seed=suite.seed) if baseline else None
    return _record(suite, nll, scorer, ratio, is_baseline=write_baseline is not None and baseline is None)


class _Scorer:
    """Scores batch after batch and keeps numbers per token, never logits: those of one batch live in ``score``."""

    def __init__(
        self, runtime: TextRuntime, windows: Windows, suite: Suite, pad_side: str, baseline: BaselineStore | None
    ) -> None:
        self.runtime, self.windows, self.batch_size, self.pad_side = runtime, windows, suite.batch_size, pad_side
        self.baseline = baseline
        self.writer: BaselineWriter | None = None
        self.compared = min(suite.kl_windows, len(windows))
        self.rows = sum(int(mask.sum()) for mask in windows.scored[: self.compared])
        self.done = 0
        # Allocated before any logits, see effkit.measure.accuracy.divergence on the heap.
        self.nll = torch.empty(windows.scored_tokens, dtype=torch.float64)
        self.kl = torch.empty(self.rows if baseline else 0, dtype=torch.float64)
        self.same_top1 = torch.empty(self.rows if baseline else 0, dtype=torch.bool)

    def score(self, start: int) -> None:
        """Score the batch of windows that begins at ``start``."""
        ids, mask = self.windows.batch(start, self.batch_size, side=self.pad_side)
        logits = self.runtime.logits(ids, mask)
        for offset in range(ids.shape[0]):
            index = start + offset
            length = len(self.windows.ids[index])
            first = ids.shape[1] - length if self.pad_side == "left" else 0
            scored = torch.from_numpy(np.flatnonzero(self.windows.scored[index]))
            targets = torch.from_numpy(self.windows.ids[index])[scored].to(logits.device)
            self._window(index, _rows(logits[offset], first + scored - 1), targets)

    def _window(self, index: int, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Take in one window: logits [N, V] that predict its scored tokens, and those tokens [N]."""
        begin, self.done = self.done, self.done + len(targets)
        self.nll[begin : self.done] = _finite(token_nll(logits, targets), index)
        if index >= self.compared:
            return
        for part in chunks(logits):
            rows = slice(begin + part.start, begin + part.stop)
            if self.writer is not None:
                self.writer.append("logits", logits[part].float().cpu().numpy(), rows=self.rows)
            if self.baseline is not None:
                self._compare(self.baseline, rows, logits[part])

    def _compare(self, store: BaselineStore, rows: slice, logits: torch.Tensor) -> None:
        """Compare logits [n, V] with those rows of the baseline."""
        stored = store.read("logits", rows.start, rows.stop)
        if stored.shape != tuple(logits.shape):
            raise MeasureError(
                f"the baseline has {stored.shape[1]} words, this variant {logits.shape[1]}: "
                "a variant keeps the vocabulary"
            )
        expected = torch.from_numpy(stored)
        self.kl[rows] = kl_divergence(expected, logits)
        self.same_top1[rows] = same_top1(expected, logits)


def _rows(logits: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Select positions, without a copy where they are neighbours: [T, V] -> [N, V]."""
    start, count = int(positions[0]), len(positions)
    if int(positions[-1]) - start + 1 == count:
        return logits[start : start + count]
    return logits[positions.to(logits.device)]


def _finite(nll: torch.Tensor, window: int) -> torch.Tensor:
    bad = int((~torch.isfinite(nll)).sum())
    if bad:
        raise MeasureError(f"window {window}: the likelihood of {bad} of {len(nll)} tokens is NaN or infinite")
    return nll


def _record(
    suite: Suite, nll: FloatArray, scores: _Scorer, ratio: RatioInterval | None, *, is_baseline: bool
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
    elif scores.kl.numel():
        divergences, reason = _divergences(scores)
        fields |= divergences
        reasons |= dict.fromkeys([name for name in COMPARED if name not in divergences], reason)
    else:
        reason = "the suite compares no whole distributions (kl_windows: 0)" if ratio or is_baseline else ""
        reasons |= dict.fromkeys(COMPARED, reason or "no baseline was given")
    return Accuracy(suite=suite.name, **fields, reasons=reasons)


def _divergences(scores: _Scorer) -> tuple[dict[str, float], str]:
    """Fields of divergence and agreement, and the reason for those left out."""
    agreement = {"top1_agreement": float(scores.same_top1.double().mean())}
    kl = scores.kl.numpy()
    if not np.isfinite(kl).all():
        return agreement, "infinite: the variant excludes a token that the baseline does not"
    figures = {
        "kl_mean": float(kl.mean()),
        "kl_median": float(np.median(kl)),
        "kl_p99": float(np.quantile(kl, 0.99)),
        "kl_max": float(kl.max()),
    }
    return figures | agreement, ""
