"""Runtime layers over compressed weights, and how a model is rebuilt from their specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import nn

from effkit.errors import CheckpointError, EffkitError, did_you_mean
from effkit.modules.base import CompressedModule, Spec
from effkit.modules.int8 import Int8Embedding, Int8Experts, Int8Linear, Int8TiedEmbedding, Int8TiedLinear, _Tied

__all__ = [
    "CompressedModule",
    "Int8Embedding",
    "Int8Experts",
    "Int8Linear",
    "Int8TiedEmbedding",
    "Int8TiedLinear",
    "Spec",
    "compressed_modules",
    "install",
    "rebuild",
    "register_format",
    "specs",
]

C = TypeVar("C", bound=type[CompressedModule])

_formats: dict[str, type[CompressedModule]] = {}


def register_format(module_type: C) -> C:
    """Class decorator: make a module's format loadable from checkpoints.

    Raises:
        EffkitError: another class has that format.
    """
    known = _formats.setdefault(module_type.format, module_type)
    if known is not module_type:
        raise EffkitError(f"the format {module_type.format!r} belongs to {known.__module__}.{known.__qualname__}")
    return module_type


for _built_in in (Int8Linear, Int8Embedding, Int8TiedLinear, Int8TiedEmbedding, Int8Experts):
    register_format(_built_in)


def compressed_modules(model: nn.Module) -> dict[str, CompressedModule]:
    """Return every compressed module by its first dotted name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, CompressedModule)}


def install(model: nn.Module, name: str, module: CompressedModule) -> None:
    """Put ``module`` in the place of the module or parameter called ``name``; edits ``model``."""
    parent_name, _, attribute = name.rpartition(".")
    module.install(model.get_submodule(parent_name), attribute)


def specs(model: nn.Module) -> dict[str, Spec]:
    """Return what :func:`rebuild` needs, by dotted name; a module under several names stands under each."""
    first_name: dict[int, str] = {}
    result: dict[str, Spec] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if not isinstance(module, CompressedModule):
            continue
        spec = module.spec()
        if isinstance(module, _Tied):
            spec["owner"] = next(n for n, m in model.named_modules() if m is module.owner)
        if id(module) in first_name:
            spec = {"format": "same-module", "owner": first_name[id(module)]}
        first_name.setdefault(id(module), name)
        result[name] = spec
    return result


def rebuild(model: nn.Module, module_specs: Mapping[str, Spec], device: torch.device | str = "meta") -> nn.Module:
    """Exchange layers of a dense ``model`` for empty compressed ones; edits and returns it.

    Raises:
        CheckpointError: a format that is not known, or a name the model does not have.
    """
    built: dict[str, CompressedModule] = {}
    late = {name: spec for name, spec in module_specs.items() if "owner" in spec}
    for name, spec in module_specs.items():
        if name not in late:
            built[name] = _format(name, spec).from_spec(spec, device)
    for name, spec in late.items():
        owner = built.get(spec["owner"])
        if owner is None:
            raise CheckpointError(
                f"{name} shares the weight of {spec['owner']}, which the checkpoint does not describe"
            )
        if spec["format"] == "same-module":
            built[name] = owner
        else:
            built[name] = _format(name, spec).from_owner(spec, owner, device)  # type: ignore[attr-defined]
    for name, module in built.items():
        try:
            install(model, name, module)
        except AttributeError:
            raise CheckpointError(
                f"the checkpoint describes {name}, which {type(model).__name__} does not have"
            ) from None
    return model


def _format(name: str, spec: Spec) -> type[CompressedModule]:
    known = _formats.get(spec.get("format", ""))
    if known is None:
        hint = did_you_mean(str(spec.get("format")), _formats) or f"known: {', '.join(sorted(_formats))}"
        raise CheckpointError(f"{name}: the format {spec.get('format')!r} is not known here ({hint}); update effkit")
    return known
