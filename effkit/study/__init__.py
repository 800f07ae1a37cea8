"""Studies: every variant measured under one protocol, each in fresh processes, resumable at any point.

Names are imported on first use: rebuilding a report from a store needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "StudyConfig": "effkit.study.config",
    "run_study": "effkit.study.run",
    "load_results": "effkit.study.store",
}

__all__ = ["StudyConfig", "load_results", "run_study"]

if TYPE_CHECKING:
    from effkit.study.config import StudyConfig
    from effkit.study.run import run_study
    from effkit.study.store import load_results


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'effkit.study' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
