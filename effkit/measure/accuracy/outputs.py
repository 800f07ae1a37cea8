"""Distance of output vectors from the baseline's: encoders over passages, and any module over given inputs.

Cosine alone does not see a wrong global scale, so the relative error ||y - y0|| / ||y0|| stands beside it.
Dimensions: P passages, H width.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from effkit.errors import MeasureError
from effkit.measure.accuracy.baseline import BaselineStore, BaselineWriter
from effkit.measure.accuracy.text import Progress
from effkit.measure.accuracy.windows import Windows
from effkit.measure.precision import full_fp32
from effkit.records import Accuracy
from effkit.runtimes.base import EncoderRuntime
from effkit.suite import Suite

NO_TOKENS = "only for causal language models: this model gives vectors, not a distribution over tokens"


def evaluate_outputs(
    runtime: EncoderRuntime,
    windows: Windows,
    *,
    suite: Suite,
    key: str = "",
    baseline: BaselineStore | None = None,
    write_baseline: Path | None = None,
    progress: Progress | None = None,
) -> Accuracy:
    """Encode every passage and compare its vector, the mean over its real tokens, with the baseline's.

    Args:
        runtime: an encoder.
        windows: from :func:`effkit.measure.accuracy.encoder_windows`.
        suite: batch size.
        key, baseline, write_baseline, progress: as in :func:`effkit.measure.accuracy.evaluate_text`.

    Raises:
        MeasureError: outputs that are not finite or of another width than the baseline's.
    """
    pooled: list[torch.Tensor] = []
    with full_fp32():
        for start in range(0, len(windows), suite.batch_size):
            ids, mask = windows.batch(start, suite.batch_size)
            pooled.append(mean_pool(runtime.outputs(ids, mask), mask).cpu())
            if progress is not None:
                progress(min(start + suite.batch_size, len(windows)), len(windows))
    vectors = torch.cat(pooled)
    if not bool(torch.isfinite(vectors).all()):
        bad = int((~torch.isfinite(vectors).all(dim=1)).sum())
        raise MeasureError(f"the outputs of {bad} of {len(vectors)} passages are NaN or infinite")
    if write_baseline is not None:
        with BaselineWriter(write_baseline, key=key, digest=windows.digest()) as writer:
            writer.append("outputs", vectors.numpy(), rows=len(vectors))
    if baseline is not None:
        return compare_outputs(vectors, torch.from_numpy(baseline.read("outputs")), suite.name)
    if write_baseline is not None:  # the baseline is its own: distance 0 by definition
        return Accuracy.missing(NO_TOKENS, suite=suite.name, output_cosine_mean=1.0, output_relative_error_mean=0.0)
    return Accuracy.missing(NO_TOKENS, suite=suite.name, reasons=_no_baseline())


def mean_pool(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over real tokens: [B, T, H] and mask [B, T] -> [B, H] float32."""
    weights = mask.to(hidden.device).unsqueeze(-1)
    total = torch.where(weights.bool(), hidden.float(), 0.0).sum(dim=1)
    return total / weights.sum(dim=1).clamp(min=1)


def compare_outputs(outputs: Any, baseline: Any, suite: str) -> Accuracy:
    """Compare two outputs of the same structure (a tensor, or nested tuples, lists, dicts and dataclasses of them).

    Args:
        outputs: of the variant.
        baseline: of the dense model on the same inputs.
        suite: what to call the inputs.

    Returns:
        Means over all vectors, that is, over all positions of the last axis.

    Raises:
        MeasureError: different structure or shapes, nothing to compare, values that are not finite.
    """
    here, there = flatten_outputs(outputs), flatten_outputs(baseline)
    shapes, wanted = [tuple(t.shape) for t in here], [tuple(t.shape) for t in there]
    if shapes != wanted or not here:
        raise MeasureError(f"outputs have the shapes {shapes}, the baseline's {wanted}")
    distances = [output_distances(mine, other) for mine, other in zip(here, there, strict=True)]
    cosine = torch.cat([pair[0] for pair in distances])
    error = torch.cat([pair[1] for pair in distances])
    if not bool(torch.isfinite(cosine).all() and torch.isfinite(error).all()):
        raise MeasureError("the outputs hold NaN or infinity")
    return Accuracy.missing(
        NO_TOKENS,
        suite=suite,
        output_cosine_mean=float(cosine.mean()),
        output_relative_error_mean=float(error.mean()),
    )


def output_distances(outputs: torch.Tensor, baseline: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and relative error of each vector along the last axis, in float64.

    Args:
        outputs, baseline: [..., H]; a scalar counts as one vector of width 1.

    Returns:
        cosine [P] and relative error [P]. Two zero vectors are equal (1 and 0); against a zero baseline alone the
        error is relative to the smallest positive float32, so it is huge, not infinite.
    """
    mine = outputs.detach().double().cpu().reshape(-1, outputs.shape[-1] if outputs.ndim else 1)
    other = baseline.detach().double().cpu().reshape(mine.shape)
    norm, reference = mine.norm(dim=1), other.norm(dim=1)
    tiny = torch.finfo(torch.float32).tiny
    cosine = (mine * other).sum(dim=1) / (norm * reference).clamp(min=tiny * tiny)
    cosine = torch.where((norm == 0) & (reference == 0), 1.0, cosine.clamp(-1.0, 1.0))
    error = (mine - other).norm(dim=1) / reference.clamp(min=tiny)
    return cosine, error


def flatten_outputs(value: Any) -> list[torch.Tensor]:
    """Collect the floating-point tensors of a model's output in a fixed order."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() and value.numel() else []
    if isinstance(value, dict):
        return [tensor for key in value for tensor in flatten_outputs(value[key])]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [tensor for item in value for tensor in flatten_outputs(item)]
    if hasattr(value, "__dict__"):
        return [tensor for item in vars(value).values() for tensor in flatten_outputs(item)]
    return []


def _no_baseline() -> dict[str, str]:
    return dict.fromkeys(("output_cosine_mean", "output_relative_error_mean"), "no baseline was given")
