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
from torch import nn

from effkit.errors import CheckpointError
from effkit.models.architecture import Task, model_class, quietly
from effkit.models.gguf import dequantizing, forget_gguf
from effkit.models.integrity import Weights

# Buffers that old checkpoints hold and newer classes compute.
_HARMLESS = ("position_ids", "token_type_ids", "inv_freq", "attn.bias", "masked_bias", "attention.bias", "rotary_emb")


def load_directory(
    folder: Path, config: Any, weights: Weights, task: Task, dtype: torch.dtype, trust_remote_code: bool
) -> nn.Module:
    """Load a checked directory of safetensors or pickled weights.

    Raises:
        CheckpointError: missing, unexpected or mis-shaped tensors, a pickle that holds more than tensors.
    """
    kind = model_class(config, task, trust_remote_code)
    settings = _settings(kind, config, weights)
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
                output_loading_info=True,
                **settings,
            )
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{weights.files[0]} holds more than tensors and is not read, because reading it could run any code; ask "
            "its author for safetensors"
        ) from error
    except (RuntimeError, OSError, ValueError, KeyError) as error:
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
        with quietly():
            model, report = kind.from_pretrained(
                str(path.parent),
                gguf_file=path.name,
                config=config,
                dtype=dtype,
                local_files_only=True,
                output_loading_info=True,
                **dict(dequantizing()),
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
    """Refuse to load what cannot fit.

    Raises:
        CheckpointError: with needed and available bytes.
    """
    available = psutil.virtual_memory().available
    if needed_bytes > available:
        raise CheckpointError(
            f"{source} needs {needed_bytes} bytes of memory ({needed_bytes / 2**30:.1f} GiB) and {available} bytes "
            f"({available / 2**30:.1f} GiB) are available; load it in a smaller dtype or on a larger machine"
        )


def _settings(kind: Any, config: Any, weights: Weights) -> dict[str, bool]:
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
    harmless = _HARMLESS
    missing = sorted(str(key) for key in report["missing_keys"])
    unexpected = sorted(str(k) for k in report["unexpected_keys"] if not any(word in str(k) for word in harmless))
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
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, pickle.UnpicklingError) or "weights_only" in str(seen).lower():
            return (
                "its weights are pickled and hold more than tensors; reading them could run any code; use safetensors"
            )
        seen = seen.__cause__ or seen.__context__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:400] or type(error).__name__


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
