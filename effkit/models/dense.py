"""Load dense weights through transformers, strictly: every key accounted for, no parameter left without data.

Knows checkpoints in transformers' formats and GGUF, not effkit's own.
"""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors import SafetensorError
from torch import nn

from effkit.errors import CheckpointError
from effkit.models.architecture import Task, model_class, quietly
from effkit.models.gguf import dequantizing, fast_name_maps, forget_gguf
from effkit.models.integrity import TensorHeader, Weights

# Buffers that old checkpoints hold and newer classes compute.
_HARMLESS = (".position_ids", ".token_type_ids", ".inv_freq", ".attn.bias", ".masked_bias", ".attention.bias")


def load_directory(
    folder: Path, config: Any, weights: Weights, task: Task, dtype: torch.dtype, trust_remote_code: bool
) -> nn.Module:
    """Load a checked directory of safetensors or pickled weights.

    Raises:
        CheckpointError: missing, unexpected or mis-shaped tensors, a pickle that holds more than tensors.
    """
    kind = model_class(config, task, trust_remote_code)
    settings = pooler_settings(kind, config, weights)
    try:
        with quietly():
            model, report = kind.from_pretrained(
                str(folder),
                config=config,
                dtype=dtype,
                trust_remote_code=trust_remote_code,
                local_files_only=True,
                weights_only=True,
                use_safetensors=weights.format == "safetensors",
                ignore_mismatched_sizes=True,  # they are reported, and refused by name below
                output_loading_info=True,
                **settings,
            )
    except (RuntimeError, OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"{folder} could not be loaded: {_explain(error)}") from error
    _check_keys(folder, report, model, task)
    return finished(model, str(folder))


def load_gguf(path: Path, config: Any, task: Task, dtype: torch.dtype) -> nn.Module:
    """Load a GGUF file as a dense model that can be saved like any other.

    Raises:
        CheckpointError: tensors that the architecture lacks or that the file does not hold.
    """
    kind = model_class(config, task, False)
    try:
        with quietly(), fast_name_maps():
            model, report = kind.from_pretrained(
                str(path.parent),
                gguf_file=path.name,
                config=config,
                dtype=dtype,
                local_files_only=True,
                output_loading_info=True,
                **dequantizing(),
            )
    except (RuntimeError, OSError, ValueError, KeyError, NotImplementedError) as error:
        raise CheckpointError(f"{path} could not be loaded: {_explain(error)}") from error
    forget_gguf(model)
    _check_keys(path, report, model, task)
    return finished(model, str(path))


def finished(model: nn.Module, source: str) -> nn.Module:
    """Put the model in evaluation mode and make sure that nothing is left on the meta device.

    Raises:
        CheckpointError: naming what holds no data.
    """
    tensors = [*model.named_parameters(), *model.named_buffers()]
    empty = [name for name, tensor in tensors if tensor.is_meta]
    if empty:
        raise CheckpointError(f"{source}: {len(empty)} tensors got no data ({_some(empty)})")
    return model.eval()


def require_memory(needed_bytes: int, source: str) -> None:
    """Refuse to load what cannot fit in the memory that is free now.

    Raises:
        CheckpointError: with needed and available bytes.
    """
    available = psutil.virtual_memory().available
    if needed_bytes > available:
        raise CheckpointError(
            f"{source} needs {needed_bytes} bytes of memory ({needed_bytes / 2**30:.1f} GiB) and {available} bytes "
            f"({available / 2**30:.1f} GiB) are available; load it in a smaller dtype or on a larger machine"
        )


def read_pickled(files: tuple[Path, ...]) -> dict[str, TensorHeader]:
    """List the tensors of pickled weight files; only tensors are ever unpickled, and no data is read.

    Raises:
        CheckpointError: a file that holds anything but tensors, or is damaged.
    """
    found: dict[str, TensorHeader] = {}
    for file in files:
        try:
            state = torch.load(file, map_location="meta", weights_only=True)
        except pickle.UnpicklingError as error:
            raise CheckpointError(
                f"{file} holds more than tensors and is not read, because reading it could run any code; ask its "
                "author for safetensors"
            ) from error
        except Exception as error:  # zip, pickle and torch each have their own for damaged files
            raise CheckpointError(f"{file} is truncated or damaged: {_explain(error)}") from error
        for name, tensor in state.items():
            if isinstance(tensor, torch.Tensor):
                dtype = str(tensor.dtype).removeprefix("torch.")
                size = tensor.numel() * tensor.element_size()
                found[name] = TensorHeader(name, dtype, tuple(tensor.shape), 0, size)
    return found


def pooler_settings(kind: Any, config: Any, weights: Weights) -> dict[str, bool]:
    """Leave out a pooler that the checkpoint does not hold: transformers would fill it with random numbers."""
    if not weights.tensors or any("pooler." in name for name in weights.tensors):
        return {}
    mapping = getattr(kind, "_model_mapping", None)
    concrete = mapping.get(type(config), None) if mapping is not None else kind
    if isinstance(concrete, tuple):
        concrete = concrete[0]
    accepts = concrete is not None and "add_pooling_layer" in inspect.signature(concrete.__init__).parameters
    return {"add_pooling_layer": False} if accepts else {}


def _check_keys(source: Path, report: dict[str, Any], model: nn.Module, task: Task) -> None:
    missing = sorted(str(key) for key in report["missing_keys"])
    unexpected = sorted(str(k) for k in report["unexpected_keys"] if not f".{k}".endswith(_HARMLESS))
    if task == "encoder":  # heads that a bare encoder does not have
        prefix = f"{getattr(model, 'base_model_prefix', '')}."
        own = {name.split(".")[0] for name, _ in model.named_children()}
        unexpected = [k for k in unexpected if k.startswith(prefix) or k.split(".")[0] in own]
    wrong = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    problems = [
        f"{len(names)} {words} ({_some(names)})"
        for names, words in (
            (missing, "tensors of the model are missing"),
            (unexpected, "tensors do not belong to the model"),
            (wrong, "tensors have another shape than the configuration says"),
            (sorted(report.get("error_msgs") or ()), "errors"),
        )
        if names
    ]
    if problems:
        raise CheckpointError(f"{source} does not fit {type(model).__name__}: {'; '.join(problems)}")


def _explain(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:400] or type(error).__name__


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
