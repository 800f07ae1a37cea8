"""effkit makes a PyTorch model smaller, faster and cheaper to run, and proves it.

Public names are listed in ``__all__`` and imported on first use, so that ``import effkit`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "load": "effkit.api",
    "load_tokenizer": "effkit.api",
    "plan": "effkit.api",
    "compress": "effkit.api",
    "save": "effkit.api",
    "evaluate": "effkit.api",
    "compare": "effkit.api",
    "Recipe": "effkit.recipe",
    "load_recipe": "effkit.recipe",
    "Plan": "effkit.planning",
    "Results": "effkit.records",
    "EffkitError": "effkit.errors",
    "RecipeError": "effkit.errors",
    "PlanError": "effkit.errors",
    "MeasureError": "effkit.errors",
    "CheckpointError": "effkit.errors",
}

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from effkit.api import compare, compress, evaluate, load, load_tokenizer, plan, save
    from effkit.errors import CheckpointError, EffkitError, MeasureError, PlanError, RecipeError
    from effkit.planning import Plan
    from effkit.recipe import Recipe, load_recipe
    from effkit.records import Results


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'effkit' has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name])
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
