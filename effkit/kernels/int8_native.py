"""The native INT8 kernel as a torch operator, so that torch.compile can pass over it.

Eager calls go straight to the library: the dispatch of an operator registered from Python costs more than a small
matrix-vector product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from effkit.kernels import native
from effkit.kernels.select import Call, Kernel, register


@torch.library.custom_op("effkit::int8_rows", mutates_args=(), device_types="cpu")
def _operator(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    return native.int8_rows(rows, weight, scale)


@_operator.register_fake
def _shapes(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:  # noqa: ARG001 - the operator's signature
    return rows.new_empty(rows.shape[0], weight.shape[0])


# torch.compile must not look into the loading of a library
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _missing() -> str:
    library = native.load()
    return library if isinstance(library, str) else ""


def _refuses(call: Call) -> str:
    if missing := _missing():
        return str(missing)
    if call.needs_grad:
        return "it has no backward"
    return "there are no rows" if call.rows == 0 else ""


def _run(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    wide = rows.float()
    output = _operator(wide, weight, scale) if torch.compiler.is_compiling() else native.int8_rows(wide, weight, scale)
    return output.to(rows.dtype)


register(
    Kernel(
        name="int8-native",
        scheme="int8-weight-only",
        device="cpu",
        summary="our own library: exact int32 sums over inputs rounded to 14 bits per row (relative error about 1e-4); "
        "few rows read a quarter of FP32's bytes, many rows use integer arithmetic",
        refuses=_refuses,
        run=_run,
    )
)
