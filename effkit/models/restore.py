"""Load an effkit checkpoint: build the architecture without data, exchange its layers, then fill in every tensor.

Tensors are read into memory of their own, one at a time: the peak is the model itself, and measured speed and
memory do not depend on what the page cache holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import torch
from torch import nn

from effkit.errors import CheckpointError, EffkitError, SourceError, UsageError
from effkit.models.architecture import build_empty, model_class, named_class, read_config, task_of
from effkit.models.atomic import MANIFEST, recover
from effkit.models.checkpoint import BUFFER_FILE
from effkit.models.dense import finished, require_memory
from effkit.models.files import sha256, why
from effkit.models.integrity import TensorHeader, inside, read_header, read_json
from effkit.models.manifest import Manifest, attach_notes, read_manifest
from effkit.modules import rebuild


def load_checkpoint(
    path: Path | str,
    device: torch.device | str = "cpu",
    *,
    model: nn.Module | None = None,
    trust_remote_code: bool = False,
) -> nn.Module:
    """Load what :func:`effkit.models.save_checkpoint` wrote; its outputs are bit-identical to those before saving.

    Args:
        path: the checkpoint's directory.
        device: where the weights go.
        model: for modules that are not transformers models: the dense module as your code builds it. It is
            edited and returned; its weights are replaced, so it may be on the meta device.
        trust_remote_code: run Python code that came with the original model.

    Returns:
        The model in evaluation mode.

    Raises:
        SourceError: ``path`` is not an effkit checkpoint.
        UsageError: the checkpoint holds a plain module and ``model`` is missing.
        CheckpointError: damaged, incomplete, or for another ``model``.
    """
    folder = checkpoint_folder(path)
    manifest = read_manifest(folder)
    headers = read_headers(folder, manifest)
    skeleton = _skeleton(folder, manifest, model, trust_remote_code)
    rebuild_layers(skeleton, manifest, folder)
    if torch.device(device).type == "cpu":
        require_memory(sum(t.end - t.begin for entries in headers.values() for t in entries.values()), str(folder))
    _fill(skeleton, folder, manifest, headers, torch.device(device))
    attach_notes(skeleton, manifest.notes)
    return finished(skeleton, str(folder))


def checkpoint_folder(path: Path | str) -> Path:
    """Return the directory of an effkit checkpoint, finishing a swap that was cut off.

    Raises:
        SourceError: it is not one.
    """
    folder = Path(path).expanduser().absolute()
    recover(folder)
    if not (folder / MANIFEST).is_file():
        state = "is not an effkit checkpoint (no effkit.json)" if folder.is_dir() else "is not a directory"
        raise SourceError(f"{folder} {state}")
    return folder


def verify_checkpoint(path: Path | str) -> None:
    """Read every weight file completely and compare it with the SHA-256 that was noted on saving.

    Raises:
        CheckpointError: naming the file that differs.
    """
    folder = checkpoint_folder(path)
    manifest = read_manifest(folder)
    read_headers(folder, manifest)
    for name, entry in manifest.files.items():
        if sha256(folder / name) != entry.sha256:
            raise CheckpointError(f"{folder / name} is damaged: its SHA-256 differs from the one in {MANIFEST}")


def read_headers(folder: Path, manifest: Manifest) -> dict[Path, dict[str, TensorHeader]]:
    """Check all weight files against the manifest without reading weights, and return their headers.

    Raises:
        CheckpointError: a file is missing, has another size or other tensors, or its name leaves the folder.
    """
    headers = {}
    for name, entry in manifest.files.items():
        path = inside(folder, name, folder / MANIFEST)
        if not path.is_file():
            raise CheckpointError(f"{folder} is incomplete: {name} is missing")
        if path.stat().st_size != entry.bytes:
            raise CheckpointError(f"{path} has {path.stat().st_size} bytes, {MANIFEST} says {entry.bytes}")
        headers[path] = read_header(path)
    found = {n: t.dtype for path, h in headers.items() if path.name != BUFFER_FILE for n, t in h.items()}
    kept = {n: t.dtype for path, h in headers.items() if path.name == BUFFER_FILE for n, t in h.items()}
    for what, told, seen in (("tensors", manifest.tensors, found), ("buffers", manifest.buffers, kept)):
        differ = sorted(set(told) ^ set(seen)) or sorted(n for n in told if told[n] != seen[n])
        if differ:
            raise CheckpointError(f"{folder}: {what} differ from what {MANIFEST} lists: {', '.join(differ[:5])}")
    return headers


def rebuild_layers(model: nn.Module, manifest: Manifest, folder: Path) -> None:
    """Exchange the layers that were compressed for empty compressed ones; edits ``model``.

    Raises:
        CheckpointError: a layer that is not known here or does not fit the model.
    """
    try:
        rebuild(model, manifest.modules)
    except EffkitError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"{folder / MANIFEST} describes a layer that cannot be built: {error!r}") from error


def _skeleton(folder: Path, manifest: Manifest, model: nn.Module | None, trust_remote_code: bool) -> nn.Module:
    if model is not None:
        return model
    if manifest.builder == "caller":
        raise UsageError(
            f"{folder} holds a {manifest.model_class}, which only your code can build: pass the dense module, "
            f"effkit.models.load_checkpoint(path, model={manifest.model_class}(...))"
        )
    config = read_config(folder, trust_remote_code)
    vars(config).pop("quantization_config", None)
    if manifest.attention and "/" not in manifest.attention:
        config._attn_implementation = manifest.attention
    if manifest.experts and "/" not in manifest.experts:
        config._experts_implementation = manifest.experts
    foreign = trust_remote_code and bool(getattr(config, "auto_map", None))
    kind = model_class(config, task_of(config), True) if foreign else named_class(manifest.model_class)
    dtype = getattr(torch, str(config.dtype or "float32").removeprefix("torch."), torch.float32)
    model = build_empty(config, kind, dtype, trust_remote_code, **manifest.settings)
    if (folder / "generation_config.json").is_file():
        model.generation_config = _generation_config(folder)
    return model


def _generation_config(folder: Path) -> Any:
    from transformers import GenerationConfig

    raw = read_json(folder / "generation_config.json")
    try:
        return GenerationConfig.from_dict(raw)
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{folder / 'generation_config.json'} is not usable: {error}") from error


def _fill(
    model: nn.Module,
    folder: Path,
    manifest: Manifest,
    headers: dict[Path, dict[str, TensorHeader]],
    device: torch.device,
) -> None:
    """Give every tensor of ``model`` its data and its ties; edits ``model``."""
    _check_names(model, folder, manifest)
    places: dict[str, list[str]] = {name: [name] for name in (*manifest.tensors, *manifest.buffers)}
    for alias, owner in manifest.aliases.items():
        places[owner].append(alias)
    for path, tensors in headers.items():
        for header, tensor in _read_tensors(path, tensors):
            _place(model, places[header.name], tensor.to(device), folder)
    for name, buffer in list(model.named_buffers(remove_duplicate=False)):
        if buffer.is_meta and not buffer.numel():
            owner, _, attribute = name.rpartition(".")
            model.get_submodule(owner)._buffers[attribute] = torch.empty_like(buffer, device=device)
    if device.type != "cpu":
        model.to(device)


def _check_names(model: nn.Module, folder: Path, manifest: Manifest) -> None:
    expected = set(model.state_dict())
    given = {*manifest.tensors, *manifest.aliases}
    missing, surplus = sorted(expected - given), sorted(given - expected)
    dangling = sorted(a for a, owner in manifest.aliases.items() if owner not in manifest.tensors)
    problems = [
        f"{len(names)} {words} ({', '.join(names[:5])})"
        for names, words in (
            (missing, "tensors of the model are missing"),
            (surplus, "tensors do not belong to the model"),
            (dangling, "tied tensors have no owner"),
        )
        if names
    ]
    if problems:
        raise CheckpointError(f"{folder} does not fit {type(model).__name__}: {'; '.join(problems)}")


def _read_tensors(path: Path, tensors: dict[str, TensorHeader]) -> Iterator[tuple[TensorHeader, torch.Tensor]]:
    """Yield (header, tensor) in the file's order."""
    try:
        with path.open("rb", buffering=0) as stream:
            for header in sorted(tensors.values(), key=lambda entry: entry.begin):
                dtype = getattr(torch, header.dtype, None)
                if not isinstance(dtype, torch.dtype):
                    raise CheckpointError(f"{path}: {header.name} has the dtype {header.dtype}, unknown to torch")
                tensor = torch.empty(header.shape, dtype=dtype)
                _read_into(stream, header, tensor, path)
                yield header, tensor
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {why(error)}") from None


def _read_into(stream: FileIO, header: TensorHeader, tensor: torch.Tensor, path: Path) -> None:
    if not tensor.numel():
        return
    view = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    stream.seek(header.begin)
    done = 0
    while done < len(view):
        count = stream.readinto(view[done:])
        if not count:
            raise CheckpointError(f"{path} ends inside {header.name}")
        done += count


def _place(model: nn.Module, names: list[str], tensor: torch.Tensor, folder: Path) -> None:
    """Put one tensor under all its names; parameters under several names become one parameter."""
    parameter: nn.Parameter | None = None
    for name in names:
        owner, _, attribute = name.rpartition(".")
        try:
            module = model.get_submodule(owner)
        except AttributeError:
            raise CheckpointError(f"{folder} holds {name}, which {type(model).__name__} does not have") from None
        old = module._parameters.get(attribute)
        before = old if old is not None else module._buffers.get(attribute)
        if before is not None and before.shape != tensor.shape:
            raise CheckpointError(
                f"{folder}: {name} has shape {tuple(tensor.shape)}, {type(model).__name__} has {tuple(before.shape)}"
            )
        if old is not None:
            if parameter is None:
                parameter = nn.Parameter(tensor, requires_grad=old.requires_grad and tensor.is_floating_point())
            module._parameters[attribute] = parameter
        elif attribute in module._buffers:
            module._buffers[attribute] = tensor
        else:
            raise CheckpointError(f"{folder} holds {name}, which {type(model).__name__} does not have")
