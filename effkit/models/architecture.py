"""From a configuration to a model without weights: which class, on the meta device or with empty parameters.

Reads configurations only. Code that comes with a model runs solely when the caller says ``trust_remote_code``.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from torch import nn
from transformers.models.auto import modeling_auto

from effkit.errors import CheckpointError, SourceError, did_you_mean
from effkit.models.integrity import read_json

Task = Literal["causal-lm", "encoder", "other"]
_log = logging.getLogger(__name__)
_UNTRUSTED_KEYS = ("trust_remote_code", "auto_map", "custom_pipelines")
_UNCHECKED_KEYS = ("transformers_weights",)
_JSON_FILES = ("config.json", "tokenizer_config.json", "generation_config.json", "quantization_config.json")


def read_config(folder: Path, trust_remote_code: bool) -> Any:
    """Read config.json as transformers understands it.

    Raises:
        SourceError: an unknown model type, or one that needs code of its own which the caller does not trust.
        CheckpointError: config.json is malformed or contradicts itself.
    """
    raw = read_json(folder / "config.json")
    if not trust_remote_code:
        _warn_of_untrusted_keys(folder)
        _refuse_foreign_code(folder, raw)
    try:
        config = transformers.AutoConfig.from_pretrained(
            str(folder), trust_remote_code=trust_remote_code, local_files_only=True
        )
    except Exception as error:  # whatever a configuration class raises for values it does not accept
        raise CheckpointError(f"{folder / 'config.json'} is not a usable configuration: {_short(error)}") from error
    for name in _UNCHECKED_KEYS:
        vars(config).pop(name, None)
    if "/" in str(getattr(config, "_attn_implementation", None) or ""):
        _log.warning("%s asks for the downloaded kernel %s; it is not used", folder, config._attn_implementation)
        config._attn_implementation = None
    return config


def _refuse_foreign_code(folder: Path, raw: dict[str, Any]) -> None:
    kind = raw.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise CheckpointError(f"{folder / 'config.json'} names no model_type")
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    if kind in known:
        return
    if raw.get("auto_map"):
        raise SourceError(
            f"{folder} needs Python code of its own (model type {kind!r}), which is not run unless you trust it: read "
            "it, then pass trust_remote_code=True (--trust-remote-code)"
        )
    hint = did_you_mean(kind, known)
    raise SourceError(
        f"{folder}: transformers {transformers.__version__} does not know the model type {kind!r}"
        + (f" ({hint})" if hint else "; a newer version may")
    )


def _warn_of_untrusted_keys(folder: Path) -> None:
    for name in _JSON_FILES:
        if not (folder / name).is_file():
            continue
        with contextlib.suppress(CheckpointError):
            found = [key for key in _UNTRUSTED_KEYS if read_json(folder / name).get(key)]
            if found:
                _log.warning("%s: ignoring %s; only you can switch it on", folder / name, ", ".join(found))


def task_of(config: Any) -> Task:
    """Say what a model is for, judged by the architecture its configuration names."""
    names = tuple(config.architectures or ())
    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    masked = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if not names:
        kind = config.model_type
        if kind in causal and kind not in masked:
            return "causal-lm"
        return "encoder" if kind in modeling_auto.MODEL_MAPPING_NAMES and not config.is_encoder_decoder else "other"
    name = names[0]
    if (name in causal.values() and name not in masked.values()) or name.endswith(("ForCausalLM", "LMHeadModel")):
        return "causal-lm"
    bare = name in masked.values() or name in modeling_auto.MODEL_MAPPING_NAMES.values()
    return "encoder" if bare and not config.is_encoder_decoder else "other"


def model_class(config: Any, task: Task, trust_remote_code: bool) -> Any:
    """Return the class (or transformers' auto class) that builds and loads this model.

    Raises:
        SourceError: config.json names an architecture that transformers does not have.
    """
    if task == "causal-lm":
        return transformers.AutoModelForCausalLM
    if task == "encoder" or (trust_remote_code and getattr(config, "auto_map", None)):
        return transformers.AutoModel
    names = tuple(config.architectures or ())
    if not names:
        return transformers.AutoModel
    return named_class(names[0])


def named_class(name: str) -> Any:
    """Return transformers' model class of that name.

    Raises:
        SourceError: there is none.
    """
    found = getattr(transformers, name, None) if name.isidentifier() else None
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        raise SourceError(f"transformers {transformers.__version__} has no model class {name!r}")
    return found


def build(config: Any, kind: Any, dtype: torch.dtype, trust_remote_code: bool = False, **settings: Any) -> nn.Module:
    """Build a model on the current default device; parameters get ``dtype``.

    Raises:
        CheckpointError: the configuration contradicts itself, or asks for what is not installed.
    """
    config = copy.deepcopy(config)  # building writes into it
    try:
        if hasattr(kind, "from_config"):
            extra: dict[str, Any] = {"trust_remote_code": True} if trust_remote_code else {}
            model = kind.from_config(config, dtype=dtype, **extra, **settings)
        else:
            model = kind._from_config(config, dtype=dtype, **settings)
    except (ArithmeticError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError) as error:
        kind_name = config.model_type
        raise CheckpointError(f"no {kind_name} model can be built from this configuration: {_short(error)}") from error
    built: nn.Module = model.eval()
    return built


def build_on_meta(
    config: Any, kind: Any, dtype: torch.dtype, trust_remote_code: bool = False, **settings: Any
) -> nn.Module:
    """Build a model whose parameters and buffers hold no data; ties are kept."""
    with torch.device("meta"):
        model = build(config, kind, dtype, trust_remote_code, **settings)
    if isinstance(model, transformers.PreTrainedModel):
        model.tie_weights()
    return model


def build_empty(
    config: Any, kind: Any, dtype: torch.dtype, trust_remote_code: bool = False, **settings: Any
) -> nn.Module:
    """Build a model whose parameters hold no data but whose buffers, such as rotary frequencies, are real."""
    from accelerate import init_empty_weights

    with init_empty_weights(include_buffers=False):
        return build(config, kind, dtype, trust_remote_code, **settings)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers' bars and warnings away while loading: effkit shows its own and checks every key itself."""
    from transformers.utils import logging as hub_logging

    shown, level = hub_logging.is_progress_bar_enabled(), hub_logging.get_verbosity()
    hub_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    hub_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        hub_logging.set_verbosity(level)
        if shown:
            hub_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:400] or type(error).__name__
