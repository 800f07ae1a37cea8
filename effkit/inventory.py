"""What a model consists of: every distinct storage once, its aliases, and the layers that read it.

Works on the meta device, so a plan needs no weights. Ties are found by storage, never by name. Knows no pass;
for each layer it also says whether anything forbids exchanging it (``obstacle``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from effkit.modules import CompressedModule

Kind = Literal["linear", "conv1d", "embedding", "conv2d", "experts", "norm", "other"]

READS_CHILD_WEIGHTS = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


@dataclass(frozen=True)
class Storage:
    """One distinct piece of memory.

    Attributes:
        name: first dotted name under which it is found.
        aliases: all other dotted names of tensors on the same memory.
        shape: shape of the tensor called ``name``.
        dtype: torch's name without the prefix, such as ``float32``.
        elements: number of elements the memory holds.
        bytes: size of the memory.
        persistent: False for buffers that a checkpoint does not hold.
    """

    name: str
    aliases: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    elements: int
    bytes: int
    persistent: bool = True


@dataclass(frozen=True)
class Layer:
    """A module, or a bare 3-D expert parameter, that holds weights.

    Attributes:
        name: dotted name (of the parameter for ``experts``).
        aliases: other dotted names of the very same module.
        kind: what it computes.
        class_name: name of the module's class.
        shape: its main weight as [out, in] for linear and conv1d, [rows, dim] for embedding, [experts, out, in]
            for experts, as stored otherwise.
        weight: dotted name of its main weight storage.
        weight_bytes: bytes of that storage (shared with ``tied``).
        other_bytes: bytes of its further parameters, such as a bias.
        dtype: dtype of its main weight.
        tied: names of other layers that read the same storage.
        format: ``dense``, or the format of a compressed module.
        obstacle: why no pass may exchange it; empty where one may.
    """

    name: str
    aliases: tuple[str, ...]
    kind: Kind
    class_name: str
    shape: tuple[int, ...]
    weight: str
    weight_bytes: int
    other_bytes: int
    dtype: str
    tied: tuple[str, ...] = ()
    format: str = "dense"
    obstacle: str = ""


@dataclass(frozen=True)
class Inventory:
    """Everything of a model that takes memory.

    Attributes:
        model_class: class name of the model.
        layers: in the order of the modules.
        storages: every distinct storage once.
        on_meta: dotted names of parameters without data.
    """

    model_class: str
    layers: tuple[Layer, ...]
    storages: tuple[Storage, ...]
    on_meta: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Bytes of all distinct storages as they are."""
        return sum(storage.bytes for storage in self.storages)

    @property
    def parameters(self) -> int:
        """Elements of all distinct storages that a checkpoint holds."""
        return sum(storage.elements for storage in self.storages if storage.persistent)

    @property
    def fp32_bytes(self) -> int:
        """Bytes of all distinct storages if every element took four bytes."""
        return 4 * sum(storage.elements for storage in self.storages)

    def layer(self, name: str) -> Layer:
        """Return a layer by its dotted name or one of its aliases."""
        return next(layer for layer in self.layers if name == layer.name or name in layer.aliases)

    def classes(self) -> dict[str, str]:
        """Class name by layer name, aliases included: what targets are matched against."""
        return {name: layer.class_name for layer in self.layers for name in (layer.name, *layer.aliases)}

    def with_formats(self, formats: dict[str, tuple[str, int]]) -> Inventory:
        """Return the inventory as it will be: ``formats`` gives (format, weight bytes) by layer name."""

        def after(layer: Layer) -> Layer:
            if layer.name not in formats:
                return layer
            new, size = formats[layer.name]
            return replace(layer, format=new, weight_bytes=size, obstacle=_already(new))

        return replace(self, layers=tuple(after(layer) for layer in self.layers))


def take_inventory(model: nn.Module) -> Inventory:
    """Look through ``model`` without changing it; parameters may be on the meta device."""
    storages = _storages(model)
    by_name = {name: storage for storage in storages for name in (storage.name, *storage.aliases)}
    by_memory = {storage_key(tensor): by_name[name] for name, tensor in _named_tensors(model)}
    layers = [layer for entry in _modules(model) for layer in _layers_of(*entry, by_memory)]
    users: dict[str, list[str]] = {}
    for layer in layers:
        users.setdefault(layer.weight, []).append(layer.name)
    tied = tuple(replace(layer, tied=tuple(n for n in users[layer.weight] if n != layer.name)) for layer in layers)
    on_meta = tuple(name for name, parameter in model.named_parameters() if parameter.is_meta)
    return Inventory(type(model).__name__, tied, storages, on_meta)


def storage_key(tensor: torch.Tensor) -> int:
    """Identify the memory behind a tensor; distinct on the meta device too, where every address is 0."""
    return int(tensor.untyped_storage()._cdata)


def _storages(model: nn.Module) -> tuple[Storage, ...]:
    groups: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for name, tensor in _named_tensors(model):
        groups.setdefault(storage_key(tensor), []).append((name, tensor))
    persistent = set(model.state_dict().keys())
    found = []
    for members in groups.values():
        name, tensor = members[0]
        size = tensor.untyped_storage().nbytes()
        found.append(
            Storage(
                name=name,
                aliases=tuple(other for other, _ in members[1:]),
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                elements=size // tensor.element_size(),
                bytes=size,
                persistent=any(member in persistent for member, _ in members),
            )
        )
    return tuple(found)


def _named_tensors(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    parameters = list(model.named_parameters(remove_duplicate=False))
    return parameters + list(model.named_buffers(remove_duplicate=False))


def _modules(model: nn.Module) -> list[tuple[str, tuple[str, ...], nn.Module, nn.Module | None]]:
    """(name, aliases, module, parent) of every distinct module."""
    names: dict[int, list[str]] = {}
    modules: dict[int, nn.Module] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(name)
        modules[id(module)] = module
    by_name = {name: modules[key] for key, group in names.items() for name in group}
    return [
        (group[0], tuple(group[1:]), modules[key], by_name.get(group[0].rpartition(".")[0]) if group[0] else None)
        for key, group in names.items()
    ]


def _layers_of(
    name: str,
    aliases: tuple[str, ...],
    module: nn.Module,
    parent: nn.Module | None,
    storages: dict[int, Storage],
) -> list[Layer]:
    own: dict[str, torch.Tensor] = dict(module.named_parameters(recurse=False))
    if isinstance(module, CompressedModule):
        own = dict(module.named_buffers(recurse=False)) | own
        own = {"weight": module.weight} | own if isinstance(module.weight, torch.Tensor) else own  # a tied one's
    if not own:
        return []
    prefix = f"{name}." if name else ""
    if is_fused_experts(module):
        return _experts(prefix, aliases, module, own, storages)
    main = "weight" if "weight" in own else max(own, key=lambda n: own[n].numel())
    storage = storages[storage_key(own[main])]
    return [
        Layer(
            name=name or "(root)",
            aliases=aliases,
            kind=_kind(module),
            class_name=type(module).__name__,
            shape=_shape(module, own[main]),
            weight=storage.name,
            weight_bytes=storage.bytes,
            other_bytes=sum(t.numel() * t.element_size() for n, t in own.items() if n != main),
            dtype=str(own[main].dtype).removeprefix("torch."),
            format=module.format if isinstance(module, CompressedModule) else "dense",
            obstacle=_obstacle(name, module, parent, own[main]),
        )
    ]


def _experts(
    prefix: str,
    aliases: tuple[str, ...],
    module: nn.Module,
    own: dict[str, torch.Tensor],
    storages: dict[int, Storage],
) -> list[Layer]:
    found = []
    for name, tensor in own.items():
        storage = storages[storage_key(tensor)]
        experts = tensor.ndim == 3
        shape = tuple(tensor.shape)
        if experts and module.is_transposed:
            shape = (shape[0], shape[2], shape[1])
        found.append(
            Layer(
                name=prefix + name,
                aliases=tuple(f"{alias}.{name}" for alias in aliases),
                kind="experts" if experts else "other",
                class_name=type(module).__name__,
                shape=shape,
                weight=storage.name,
                weight_bytes=storage.bytes,
                other_bytes=0,
                dtype=str(tensor.dtype).removeprefix("torch."),
                obstacle="" if experts else "not a matrix of weights",
            )
        )
    return found


def is_fused_experts(module: nn.Module) -> bool:
    """True for transformers' expert collections, which keep all experts in one 3-D parameter.

    Their eager forward reads one expert at a time by index; ``is_transposed`` says whether each is [in, out].
    Source: transformers/integrations/moe.py, ``use_experts_implementation``.
    """
    marked = hasattr(module, "is_transposed") and hasattr(module, "is_concatenated") and hasattr(module, "config")
    return marked and any(p.ndim == 3 for p in module._parameters.values() if p is not None)


def is_conv1d(module: nn.Module) -> bool:
    """True for transformers' Conv1D, a linear layer whose weight is stored as [in, out]."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def _kind(module: nn.Module) -> Kind:
    if isinstance(module, CompressedModule):
        return module.kind
    if isinstance(module, nn.Linear):
        return "linear"
    if is_conv1d(module):
        return "conv1d"
    if isinstance(module, nn.Embedding):
        return "embedding"
    if isinstance(module, nn.Conv2d):
        return "conv2d"
    return "norm" if "norm" in type(module).__name__.lower() else "other"


def _shape(module: nn.Module, weight: torch.Tensor) -> tuple[int, ...]:
    shape = tuple(weight.shape)
    return shape[::-1] if is_conv1d(module) else shape


def _already(format_name: str) -> str:
    return f"already compressed ({format_name})"


def _obstacle(name: str, module: nn.Module, parent: nn.Module | None, weight: torch.Tensor) -> str:
    if isinstance(module, CompressedModule):
        return _already(module.format)
    if not name:
        return "the model itself is this layer; wrap it in nn.Sequential so that it can be exchanged"
    if isinstance(parent, READS_CHILD_WEIGHTS):
        return f"its parent {type(parent).__name__} reads the weight directly"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "max_norm rewrites the weight while it is read"
    if isinstance(module, (nn.Linear, nn.Embedding)) and type(module) not in (nn.Linear, nn.Embedding):
        return f"{type(module).__name__} is a subclass whose forward is not known"
    if not isinstance(module._parameters.get("weight"), nn.Parameter) and _kind(module) != "other":
        return "its weight is computed from other parameters"
    if module._forward_hooks or module._forward_pre_hooks or hasattr(module, "_hf_hook"):
        return "it carries forward hooks, which would be lost"
    if weight.numel() == 0:
        return "its weight is empty"
    return ""
