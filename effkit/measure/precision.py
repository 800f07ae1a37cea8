"""FP32 that is FP32: reduced-precision matrix products switched off for as long as a measurement lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def full_fp32() -> Iterator[None]:
    """Switch TF32 (CUDA) and BF16 products of FP32 matrices (oneDNN) off; restore the user's settings at the end.

    torch has two generations of switches and refuses to read the older one after the newer ones were set otherwise,
    so this context speaks the generation that the user speaks (torch documentation, "TensorFloat-32 (TF32) on Ampere
    and later devices").
    """
    fields: tuple[Any, ...] = (
        torch.backends.cuda.matmul,
        torch.backends.mkldnn.matmul,  # type: ignore[attr-defined]
        torch.backends.cudnn.conv,  # type: ignore[attr-defined]
        torch.backends.cudnn.rnn,
    )
    before = [field.fp32_precision for field in fields]
    older = _older_settings()
    try:
        if older is None:
            _set(fields, ["ieee"] * len(fields))
        else:
            torch.set_float32_matmul_precision("highest")
            torch.backends.cudnn.allow_tf32 = False
        yield
    finally:
        if older is not None:
            torch.set_float32_matmul_precision(older[0])
            torch.backends.cudnn.allow_tf32 = older[1]
        _set(fields, before)


def _older_settings() -> tuple[str, bool] | None:
    """The older switches, or None where the user has set the newer ones otherwise."""
    try:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return None


def _set(fields: tuple[Any, ...], precisions: list[str]) -> None:
    for field, precision in zip(fields, precisions, strict=True):
        if field.fp32_precision != precision:
            field.fp32_precision = precision
