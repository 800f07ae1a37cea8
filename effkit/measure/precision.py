"""FP32 that is FP32: reduced-precision matrix products switched off for as long as a measurement lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def full_fp32() -> Iterator[None]:
    """Switch TF32 (CUDA) and BF16 products of FP32 matrices (oneDNN) off; restore the user's settings at the end.

    Uses torch's older switch, which also sets the newer ``fp32_precision`` fields: setting only the newer ones makes
    torch refuse to read the older ones (https://docs.pytorch.org/docs/stable/notes/cuda.html, "TF32 on Ampere").
    """
    matmul = torch.get_float32_matmul_precision()
    convolution = torch.backends.cudnn.allow_tf32
    fields: list[Any] = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
    before = [field.fp32_precision for field in fields]
    try:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = convolution
        for field, precision in zip(fields, before, strict=True):
            if field.fp32_precision != precision:
                field.fp32_precision = precision
