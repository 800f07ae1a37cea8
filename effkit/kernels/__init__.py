"""Which implementation runs a compressed layer on this device and shape, and why.

Every operation has a reference kernel that runs everywhere and that defines the result; the others must agree
with it within the bound they state. ``select`` picks; ``available_kernels`` lists them for ``effkit doctor``.
"""

from __future__ import annotations

from effkit.kernels import int8_native as _preferred  # noqa: F401 - registered before int8, therefore preferred
from effkit.kernels.int8 import int8_linear
from effkit.kernels.select import Call, Choice, Kernel, available_kernels, select

__all__ = ["Call", "Choice", "Kernel", "available_kernels", "int8_linear", "select"]
