"""The table of kernels and the choice among them; knows shapes, dtypes and devices, no tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Call:
    """What is asked of a kernel.

    Attributes:
        scheme: ``int8-weight-only`` or ``int8-dynamic-token``.
        device: torch device type.
        rows: number of input rows (tokens).
        in_features, out_features: the weight's sizes.
        dtype: dtype of the input and the output.
        needs_grad: the input's gradient will be asked for.
    """

    scheme: str
    device: str
    rows: int
    in_features: int
    out_features: int
    dtype: torch.dtype
    needs_grad: bool = False


@dataclass(frozen=True)
class Kernel:
    """One implementation.

    Attributes:
        name: as shown in doctor, plan and report.
        scheme: which operation it computes.
        device: torch device type, or ``any``.
        summary: what it does and how exact it is.
        refuses: gives the reason why it cannot run a call; empty where it can.
        run: (input [rows, in], weight int8 [out, in], scale [out, 1]) -> [rows, out].
    """

    name: str
    scheme: str
    device: str
    summary: str
    refuses: Callable[[Call], str]
    run: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Choice:
    """The kernel picked for a call, and why not the faster ones before it."""

    kernel: Kernel
    passed_over: tuple[tuple[str, str], ...] = ()

    @property
    def reason(self) -> str:
        """One line for people."""
        others = "; ".join(f"{name}: {why}" for name, why in self.passed_over)
        return f"{self.kernel.name}" + (f" (not {others})" if others else "")


_table: list[Kernel] = []


def register(kernel: Kernel) -> Kernel:
    """Add a kernel; those registered first are preferred."""
    _table.append(kernel)
    return kernel


def available_kernels(device: str | None = None) -> tuple[Kernel, ...]:
    """Return the kernels for a torch device type, fastest first; all of them for None."""
    return tuple(kernel for kernel in _table if device in (None, kernel.device) or kernel.device == "any")


def select(call: Call) -> Choice:
    """Pick the first kernel of the table that can run ``call``; the reference kernel always can."""
    passed_over: list[tuple[str, str]] = []
    for kernel in _table:
        if kernel.scheme != call.scheme or kernel.device not in (call.device, "any"):
            continue
        reason = kernel.refuses(call)
        if not reason:
            return Choice(kernel, tuple(passed_over))
        passed_over.append((kernel.name, reason))
    raise AssertionError(f"no reference kernel for {call.scheme}")
