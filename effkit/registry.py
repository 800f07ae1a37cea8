"""Name <-> pass. A pass is one frozen settings class that can plan itself and apply itself.

Built-in passes are found by walking ``effkit.passes``; third parties register by the entry-point group
``effkit.passes`` (name = ``package.module:Class``). Two passes of one name are refused. Knows no recipe.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeGuard

from pydantic import BeforeValidator, Field

from effkit.errors import EffkitError, UsageError, did_you_mean
from effkit.strictyaml import StrictModel

if TYPE_CHECKING:
    import torch.nn as nn

    from effkit.inventory import Inventory
    from effkit.planning import PassPlan

ENTRY_POINT_GROUP = "effkit.passes"

Progress = Callable[[int, int, str], None]
"""Called as ``progress(done, total, layer name)``."""


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Patterns = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
"""Targets in the language of :mod:`effkit.targets`."""


class PassConfig(StrictModel, ABC):
    """Settings of one pass, frozen, and what the pass does with them.

    Subclasses set ``use`` to a Literal of their name and implement ``plan`` and ``apply``.
    """

    summary: ClassVar[str] = ""
    use: str
    targets: Patterns | None = Field(None, description="layers to change; every layer the pass can handle by default")
    skip: Patterns = Field((), description="layers to leave dense; wins over targets")
    min_coverage: float = Field(0.0, ge=0.0, le=1.0, description="share of the weight bytes that must be compressed")

    @abstractmethod
    def plan(self, inventory: Inventory) -> PassPlan:
        """Decide for each layer: action, or skip with its reason. Pure; needs no weights.

        Raises:
            PlanError: the settings do not fit this model.
        """

    @abstractmethod
    def apply(self, model: nn.Module, plan: PassPlan, progress: Progress | None = None) -> nn.Module:
        """Change ``model`` in place as planned and return it."""


def pass_types() -> dict[str, type[PassConfig]]:
    """Return every known pass by name, built-in ones first."""
    return {**_built_in(), **_third_party()}


def pass_type(name: str) -> type[PassConfig]:
    """Return the pass of that name.

    Raises:
        UsageError: no such pass; names the near ones.
    """
    known = pass_types()
    if name not in known:
        hint = did_you_mean(name, known) or f"known passes: {', '.join(sorted(known))}"
        raise UsageError(f"no pass is called {name!r} ({hint})")
    return known[name]


def name_of(config_type: type[PassConfig]) -> str:
    """Return the registered name of a pass class: the one value its ``use`` allows."""
    default = config_type.model_fields["use"].default
    if not isinstance(default, str) or not default:
        raise EffkitError(f"pass {config_type.__name__} must define `use: Literal['name'] = 'name'`")
    return default


def _is_pass(value: object) -> TypeGuard[type[PassConfig]]:
    return isinstance(value, type) and issubclass(value, PassConfig) and not value.__abstractmethods__


@functools.cache
def _built_in() -> dict[str, type[PassConfig]]:
    package = importlib.import_module("effkit.passes")
    found: dict[str, type[PassConfig]] = {}
    for module_info in pkgutil.walk_packages(package.__path__, "effkit.passes."):
        module = importlib.import_module(module_info.name)
        for value in vars(module).values():
            if _is_pass(value) and value.__module__ == module.__name__:
                _add(found, value)
    return found


def _third_party() -> dict[str, type[PassConfig]]:
    found: dict[str, type[PassConfig]] = {}
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            value = entry.load()
        except Exception as error:
            raise EffkitError(f"the pass {entry.name!r} ({entry.value}) cannot be imported: {error}") from error
        if not (isinstance(value, type) and issubclass(value, PassConfig)):
            raise EffkitError(f"the entry point {entry.name!r} ({entry.value}) is not a PassConfig class")
        if name_of(value) in _built_in():
            raise EffkitError(f"{entry.value} calls itself {name_of(value)!r}, which is a built-in pass; rename it")
        _add(found, value)
    return found


def _add(found: dict[str, type[PassConfig]], config_type: type[PassConfig]) -> None:
    name = name_of(config_type)
    if name in found and found[name] is not config_type:
        other = found[name]
        raise EffkitError(f"two passes are called {name!r}: {other.__module__} and {config_type.__module__}")
    found[name] = config_type
