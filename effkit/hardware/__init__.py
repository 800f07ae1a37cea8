"""Published figures of accelerators and processors, with prices, electricity, carbon intensity and their sources.

The tables under ``effkit/data/hardware`` are kept as they were gathered: a cell may say ``-`` or ``<=4096``. Here
each cell becomes a number in base units, or None with a reason, and keeps what is known of its worth: read in a
source, derived, or written from memory. Figures are peaks from data sheets, not measurements, except
:func:`efficiencies`. Knows no torch and no model.

- ``specs``: what a device can do.
- ``market``: what it costs to buy, rent and run; what was measured on it; where the figures come from.
- ``tables``: reading the files.
"""

from __future__ import annotations

from effkit.hardware.market import (
    Carbon,
    Claim,
    Efficiency,
    Electricity,
    Portability,
    Price,
    Source,
    carbon,
    claims,
    efficiencies,
    electricity,
    portability,
    prices,
    sources,
)
from effkit.hardware.specs import Device, device, devices

__all__ = [
    "Carbon",
    "Claim",
    "Device",
    "Efficiency",
    "Electricity",
    "Portability",
    "Price",
    "Source",
    "carbon",
    "claims",
    "device",
    "devices",
    "efficiencies",
    "electricity",
    "portability",
    "prices",
    "sources",
]
