"""Where models come from and how they are kept: sources, samples, integrity, fingerprints, checkpoints.

Names are imported on first use: fetching a sample needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "ModelSource": "effkit.models.source",
    "resolve": "effkit.models.sources",
    "SAMPLES": "effkit.models.samples",
    "fetch_sample": "effkit.models.samples",
    "check_writable": "effkit.models.atomic",
    "save_checkpoint": "effkit.models.checkpoint",
    "load_checkpoint": "effkit.models.restore",
    "verify_checkpoint": "effkit.models.restore",
    "notes_of": "effkit.models.manifest",
}

__all__ = [
    "SAMPLES",
    "ModelSource",
    "check_writable",
    "fetch_sample",
    "load_checkpoint",
    "notes_of",
    "resolve",
    "save_checkpoint",
    "verify_checkpoint",
]

if TYPE_CHECKING:
    from effkit.models.atomic import check_writable
    from effkit.models.checkpoint import save_checkpoint
    from effkit.models.manifest import notes_of
    from effkit.models.restore import load_checkpoint, verify_checkpoint
    from effkit.models.samples import SAMPLES, fetch_sample
    from effkit.models.source import ModelSource
    from effkit.models.sources import resolve


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'effkit.models' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
