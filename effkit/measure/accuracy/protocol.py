"""The measuring protocol in words and numbers, as it stands in every report."""

from __future__ import annotations

from effkit.measure.accuracy.windows import Windows
from effkit.records import Protocol
from effkit.suite import Suite


def text_protocol(
    suite: Suite, windows: Windows, *, interleaved: bool, isolation: str, notes: tuple[str, ...] = ()
) -> Protocol:
    """Describe how everything of a run was measured.

    Args:
        suite: as used, that is, fitted to the model.
        windows: as scored.
        interleaved: whether speed samples alternate with the dense FP32 baseline's.
        isolation: in words, such as "one fresh process per variant".
        notes: further remarks, for instance from ``Suite.fitted``.
    """
    compared = min(suite.kl_windows, len(windows))
    scope = (f"divergences and top-1 agreement over the first {compared} windows",) if windows.scored_tokens else ()
    decode = f"decode: {suite.decode_tokens} greedy steps after {suite.decode_context} tokens of context"
    return Protocol(
        suite=suite.name,
        text=suite.text_label,
        window_tokens=suite.window,
        stride_tokens=suite.stride,
        windows=len(windows),
        bos_policy=windows.bos_policy,
        aggregation="token-weighted mean of the negative log-likelihood (float32 log-softmax, summed in float64)"
        if windows.scored_tokens
        else "mean over passages of distances between mean-pooled output vectors",
        batch_size=suite.batch_size,
        prompt_tokens=suite.prompt_tokens,
        decode_tokens=suite.decode_tokens,
        decode_batches=suite.decode_batches,
        warmup=suite.warmup,
        repeats=suite.repeats,
        interleaved=interleaved,
        isolation=isolation,
        statistic="median with a 95 % percentile bootstrap interval; ratios of paired samples",
        seed=suite.seed,
        tf32=False,
        notes=(*scope, decode, *windows.notes, *notes),
    )
