"""Save a model, compressed or not, as safetensors + configuration + tokenizer + ``effkit.json``, all or nothing.

Each piece of memory is written once, whatever names it has; what was written is reopened and checked before it
takes the place of an older checkpoint. Files of compressed models are not called ``model.safetensors``: stock
transformers does not know effkit's layers, ignores a ``quant_method`` it does not know, and would load integers
as if they were weights.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from effkit import __version__
from effkit.errors import CheckpointError
from effkit.inventory import storage_key
from effkit.models.atomic import MANIFEST, current_umask, replaced_directory
from effkit.models.files import sha256
from effkit.models.integrity import read_header
from effkit.models.manifest import FileEntry, Manifest, merged, notes_of
from effkit.modules import compressed_modules, specs
from effkit.records import ModelInfo

DEFAULT_SHARD_BYTES = 4 << 30
BUFFER_FILE = "effkit-buffers.safetensors"


@dataclass(frozen=True)
class Contents:
    """The tensors of a model, each piece of memory once.

    Attributes:
        tensors: what a state_dict lists.
        aliases: further names -> name in ``tensors``.
        buffers: what a state_dict leaves out.
    """

    tensors: dict[str, torch.Tensor]
    aliases: dict[str, str]
    buffers: dict[str, torch.Tensor]


def save_checkpoint(
    model: nn.Module,
    out: Path | str,
    *,
    tokenizer: Any = None,
    recipe: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    source: ModelInfo | None = None,
    notes: Sequence[str] = (),
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
) -> None:
    """Write ``model`` to the directory ``out``; the model is not changed.

    Args:
        model: any module; only transformers models can be loaded again without the caller's help.
        out: a new or empty directory, or an effkit checkpoint, which is replaced in one step.
        tokenizer: saved beside the weights if given.
        recipe, plan: JSON of what was done to the model.
        source: the dense model it was made from; its notes are kept.
        notes: further notes, next to those found on the model.
        max_shard_bytes: weight files are split above this size.

    Raises:
        UsageError: ``out`` is a file or holds something else.
        CheckpointError: a scale is NaN or infinite, a tensor has no data, the disk refuses, or what was written
            cannot be read back. ``out`` is as it was then.
    """
    contents = collect(model)
    with replaced_directory(out) as folder:
        files = _write_weights(contents, folder, bool(compressed_modules(model)), max_shard_bytes)
        manifest = Manifest(
            effkit_version=__version__,
            builder="transformers" if _is_transformers(model) else "caller",
            model_class=type(model).__name__,
            settings=_settings(model),
            attention=str(_of_config(model, "_attn_implementation")),
            experts=str(_of_config(model, "_experts_implementation")),
            modules=specs(model),
            tensors={name: _name(tensor.dtype) for name, tensor in contents.tensors.items()},
            aliases=contents.aliases,
            buffers={name: _name(tensor.dtype) for name, tensor in contents.buffers.items()},
            files=files,
            recipe=recipe,
            plan=plan,
            source=source,
            notes=merged(source.notes if source else (), notes_of(model), tuple(notes)),
        )
        _write_configuration(model, folder, contents)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        (folder / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")


def collect(model: nn.Module) -> Contents:
    """Gather what has to be saved and refuse what must not be.

    Raises:
        CheckpointError: tensors without data, non-finite scales, quantized tensor subclasses.
    """
    tensors = {n: t.detach() for n, t in model.state_dict(keep_vars=True).items() if isinstance(t, torch.Tensor)}
    extra = sorted(set(model.state_dict()) - set(tensors))
    if extra:
        raise CheckpointError(f"{', '.join(extra[:5])}: extra state that is not a tensor cannot be saved")
    everything = dict(model.named_buffers(remove_duplicate=False))
    buffers = {n: t.detach() for n, t in everything.items() if n not in tensors and t.numel()}
    no_data = [name for name, tensor in (tensors | buffers).items() if tensor.is_meta]
    if no_data:
        raise CheckpointError(
            f"{len(no_data)} tensors are on the meta device and hold no data ({', '.join(no_data[:5])})"
        )
    plain = (torch.Tensor, nn.Parameter)
    foreign = [n for n, t in tensors.items() if type(t) not in plain or t.layout != torch.strided]
    if foreign:
        raise CheckpointError(
            f"{', '.join(foreign[:5])}: tensors of {type(tensors[foreign[0]]).__name__} cannot be saved"
        )
    _refuse_non_finite(model)
    kept, aliases = _without_duplicates(tensors)
    _tie_again(model, kept, aliases)
    return Contents(kept, aliases, buffers)


def _refuse_non_finite(model: nn.Module) -> None:
    for name, module in compressed_modules(model).items():
        for tensor_name, tensor in [*module.named_buffers(recurse=False), *module.named_parameters(recurse=False)]:
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise CheckpointError(f"{name}.{tensor_name} holds NaN or infinity; the checkpoint is not written")


def _without_duplicates(tensors: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    first: dict[tuple[Any, ...], str] = {}
    kept: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    for name, tensor in tensors.items():
        key = (storage_key(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and key in first:
            aliases[name] = first[key]
        else:
            first[key] = name
            kept[name] = tensor
    return kept, aliases


def _tie_again(model: nn.Module, kept: dict[str, torch.Tensor], aliases: dict[str, str]) -> None:
    """Save a head once if the configuration ties it and it still equals the embedding; edits both mappings."""
    names = _embedding_names(model)
    if names is None or not _of_config(model, "tie_word_embeddings"):
        return
    table, head = names
    if (
        table in kept
        and head in kept
        and kept[table].dtype == kept[head].dtype
        and torch.equal(kept[table], kept[head])
    ):
        del kept[head]
        aliases[head] = table


def _embedding_names(model: nn.Module) -> tuple[str, str] | None:
    """Names of the input embedding's and the head's weight."""
    found = []
    for getter in ("get_input_embeddings", "get_output_embeddings"):
        try:
            module = getattr(model, getter)()
        except (AttributeError, NotImplementedError):
            return None
        name = next((n for n, m in model.named_modules() if m is module), None) if module is not None else None
        if name is None:
            return None
        found.append(f"{name}.weight")
    return found[0], found[1]


def _write_weights(contents: Contents, folder: Path, compressed: bool, max_shard_bytes: int) -> dict[str, FileEntry]:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    stem = "effkit" if compressed else "model"
    groups = _shards(contents.tensors, max_shard_bytes)
    count = len(groups)
    names = (
        [f"{stem}.safetensors"]
        if count == 1
        else [f"{stem}-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    )
    plan = {name: {key: contents.tensors[key] for key in group} for name, group in zip(names, groups, strict=True)}
    if contents.buffers:
        plan[BUFFER_FILE] = contents.buffers
    entries = {}
    for name, tensors in plan.items():
        try:
            save_file({k: _own_copy(t) for k, t in tensors.items()}, folder / name, metadata={"format": "pt"})
        except SafetensorError as error:
            raise CheckpointError(f"{name} could not be written beside {folder.parent}: {error}") from error
        (folder / name).chmod(0o666 & ~current_umask())  # safetensors writes for the owner alone
        _check_written(folder / name, tensors)
        entries[name] = FileEntry(bytes=(folder / name).stat().st_size, sha256=sha256(folder / name))
    if count > 1 and not compressed:
        weight_map = {key: name for name, tensors in plan.items() if name != BUFFER_FILE for key in tensors}
        total = sum(tensor.numel() * tensor.element_size() for tensor in contents.tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    return entries


def _own_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous, on the CPU and alone on its memory, as safetensors asks."""
    dense = tensor.contiguous().cpu()
    alone = dense.untyped_storage().nbytes() == dense.numel() * dense.element_size()
    return dense if alone else dense.clone()


def _shards(tensors: dict[str, torch.Tensor], limit: int) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    filled = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if groups[-1] and filled + size > limit:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    return groups


def _check_written(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    found = read_header(path)
    for name, tensor in tensors.items():
        entry = found.get(name)
        if entry is None or entry.dtype != _name(tensor.dtype) or entry.shape != tuple(tensor.shape):
            raise CheckpointError(f"{name} was not written to {path.name} as it is in memory")
    if len(found) != len(tensors):
        raise CheckpointError(f"{path.name} holds {len(found)} tensors, expected {len(tensors)}")


def _write_configuration(model: nn.Module, folder: Path, contents: Contents) -> None:
    """Write config.json and generation_config.json so that they tell the truth about what lies beside them."""
    if not _is_transformers(model):
        return
    saved = model.config.to_diff_dict()  # type: ignore[union-attr, operator]
    saved["architectures"] = [type(model).__name__]
    main = max(contents.tensors.values(), key=lambda t: t.numel() if t.is_floating_point() else 0, default=None)
    if main is not None and main.is_floating_point():
        saved["dtype"] = _name(main.dtype)
    if _is_untied(model, contents):
        saved["tie_word_embeddings"] = False
    saved.pop("quantization_config", None)
    if formats := sorted({module.format for module in compressed_modules(model).values()}):
        saved["quantization_config"] = {
            "quant_method": "effkit",
            "formats": formats,
            "note": "load with effkit.load(directory)",
        }
    (folder / "config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        (folder / "generation_config.json").write_text(generation.to_json_string(), encoding="utf-8")


def _is_untied(model: nn.Module, contents: Contents) -> bool:
    """True if the configuration speaks of tied embeddings and the model's are two different tensors by now."""
    names = _embedding_names(model)
    if names is None or not _of_config(model, "tie_word_embeddings"):
        return False
    return all(name in contents.tensors for name in names)


def _is_transformers(model: nn.Module) -> bool:
    from transformers import PreTrainedModel

    return isinstance(model, PreTrainedModel)


def _of_config(model: nn.Module, name: str) -> Any:
    return getattr(getattr(model, "config", None), name, None) or ""


def _settings(model: nn.Module) -> dict[str, bool]:
    accepts = "add_pooling_layer" in inspect.signature(type(model).__init__).parameters
    return {"add_pooling_layer": False} if accepts and getattr(model, "pooler", 0) is None else {}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
