"""The optional native library: INT8 kernels in C++ behind a plain C interface.

``pip install`` builds it where a C++ compiler is at hand; without it everything works through torch's operators,
more slowly, and :func:`status` says why. The instruction set is chosen when the library is loaded.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

import torch  # loaded first: it brings the OpenMP runtime that the library then shares

from effkit.errors import EffkitError

INSTRUCTION_SETS = {1: "avx2", 2: "avx512-vnni"}


@dataclass(frozen=True)
class Library:
    """The loaded library.

    Attributes:
        handle: the C functions.
        instruction_sets: those this processor has, best first.
    """

    handle: ctypes.CDLL
    instruction_sets: tuple[int, ...]


@functools.cache
def load() -> Library | str:
    """Load the library once; where it cannot be used, return the reason instead."""
    built = sorted(Path(__file__).parent.glob("_library*.so"))
    if not built:
        return "the native library was not built (no C++ compiler at installation?); see docs/native.md"
    try:
        handle = ctypes.CDLL(str(built[-1]))
    except OSError as error:
        return f"the native library cannot be loaded: {error}"
    best = handle.effkit_instruction_set()
    if best == 0:
        return "this processor has neither AVX2 nor AVX-512 with VNNI"
    call = handle.effkit_int8_rows
    pointer, number = ctypes.c_void_p, ctypes.c_int
    call.argtypes = [number, pointer, pointer, pointer, pointer, number, number, number, number]
    return Library(handle, tuple(range(best, 0, -1)))


def status() -> str:
    """One line for ``effkit doctor``: the instruction set in use, or why there is none."""
    library = load()
    return library if isinstance(library, str) else INSTRUCTION_SETS[library.instruction_sets[0]]


def int8_rows(
    rows: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, *, instruction_set: int | None = None
) -> torch.Tensor:
    """rows (weight * scale)^T on the CPU, summed exactly in int32 over 14-bit rounded inputs.

    Args:
        rows: float32 [M, K].
        weight: int8 [N, K] without -128, contiguous.
        scale: float32 [N, 1] or [N], contiguous.
        instruction_set: a key of INSTRUCTION_SETS; the best one by default.

    Returns:
        float32 [M, N]; the error is about 1e-4 of the size of the products. A row that holds NaN or infinity gives
        NaN. The result does not depend on the number of threads.

    Raises:
        EffkitError: no library, or no memory for the rounded rows.
    """
    library = load()
    if isinstance(library, str):
        raise EffkitError(library)
    rows, weight, scale = rows.contiguous(), weight.contiguous(), scale.contiguous()
    output = torch.empty(rows.shape[0], weight.shape[0], dtype=torch.float32)
    failed = library.handle.effkit_int8_rows(
        library.instruction_sets[0] if instruction_set is None else instruction_set,
        rows.data_ptr(),
        weight.data_ptr(),
        scale.data_ptr(),
        output.data_ptr(),
        rows.shape[0],
        weight.shape[0],
        weight.shape[1],
        torch.get_num_threads(),
    )
    if failed:
        reason = "out of memory" if failed == 1 else f"the instruction set {instruction_set} is not to be had here"
        raise EffkitError(f"the native INT8 kernel failed: {reason}")
    return output
