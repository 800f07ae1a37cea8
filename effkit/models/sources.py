"""What a user may name as a model, and what can be known and loaded from it.

A hub id, a local directory, a ``.gguf`` file, ``sample:NAME``, or a directory that effkit saved. Resolving reads
configurations and headers only; a damaged or incomplete checkpoint is refused here, before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from effkit.errors import CheckpointError, SourceError, UsageError, did_you_mean
from effkit.inventory import take_inventory
from effkit.models import architecture, dense, fingerprint, hub, restore, samples
from effkit.models.architecture import Task
from effkit.models.atomic import MANIFEST, recover
from effkit.models.gguf import GgufHeader, gguf_config, read_gguf
from effkit.models.integrity import Weights, find_weights, read_json
from effkit.models.manifest import Manifest, attach_notes, read_manifest
from effkit.records import ModelInfo

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Kind = Literal["hub", "directory", "gguf", "sample", "effkit"]
ACCEPTED = (
    "a hub id (owner/name), a directory with config.json and weights, a .gguf file, an effkit checkpoint, or "
    + " or ".join(samples.PREFIX + name for name in samples.SAMPLES)
)
_DENSE_DTYPES = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class ModelSource:
    """A model that was found and checked, but not loaded.

    Attributes:
        source: as the user named it.
        kind: what it turned out to be.
        path: its directory, or its ``.gguf`` file.
        notes: what every report on it must say.
        stored_dtype: dtype of most of its weight bytes, such as ``bfloat16`` or ``Q4_1``.
        task: what the model is for.
    """

    source: str
    kind: Kind
    path: Path
    notes: tuple[str, ...]
    stored_dtype: str
    task: Task
    trust_remote_code: bool = False
    config: Any = field(default=None, repr=False, compare=False)
    gguf: GgufHeader | None = field(default=None, repr=False, compare=False)
    manifest: Manifest | None = field(default=None, repr=False, compare=False)

    def info(self) -> ModelInfo:
        """Return the record of this model; hashes its weight files on first use, and fetches them if need be."""
        files, texts = self._content()
        return ModelInfo(
            source=self.source,
            kind=self.task,
            architecture=self._architecture(),
            parameters=self._parameters(),
            stored_dtype=self.stored_dtype,
            fingerprint=fingerprint.fingerprint(files, *texts),
            notes=self.notes,
        )

    def meta_model(self) -> nn.Module:
        """Build the dense model on the meta device: no weights are read, ties are kept.

        Raises:
            UsageError: an effkit checkpoint of a plain module, whose architecture only its author's code knows.
        """
        if self.config is None:
            raise UsageError(f"{self.source} holds a plain module; only your code can build it")
        kind = architecture.model_class(self.config, self.task, self.trust_remote_code)
        settings: dict[str, bool] = {}
        if self.manifest is not None:
            kind, settings = architecture.named_class(self.manifest.model_class), self.manifest.settings
        elif self.gguf is None and self._has_weights():
            settings = dense.pooler_settings(kind, self.config, self._weights())
        model = architecture.build_on_meta(self.config, kind, self._load_dtype(), self.trust_remote_code, **settings)
        if self.manifest is not None:
            restore.rebuild_layers(model, self.manifest, self.path)
        return model

    def load(self, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> nn.Module:
        """Load the model in evaluation mode.

        Args:
            dtype: dtype of the dense weights; None keeps the stored one (float32 for a quantized GGUF).
            device: where the weights go.

        Raises:
            CheckpointError: damaged, incomplete or unsafe files, or not enough free memory.
        """
        if self.manifest is not None:
            model = restore.load_checkpoint(self.path, device, trust_remote_code=self.trust_remote_code)
            return model.to(dtype) if dtype is not None else model
        chosen = dtype if dtype is not None else self._load_dtype()
        # transformers holds the dequantized tensors and the model at once for a moment
        copies = 2 if self.gguf is not None else 1
        dense.require_memory(copies * self.expanded_bytes(chosen), self.source)
        if self.gguf is not None:
            model = dense.load_gguf(self.path, self.config, self.task, chosen)
        else:
            weights = self._weights()
            model = dense.load_directory(self.path, self.config, weights, self.task, chosen, self.trust_remote_code)
        attach_notes(model, self.notes)
        return model.to(device)

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer that came with the model.

        Raises:
            SourceError: it has none, or one that needs code of its own.
        """
        from transformers import AutoTokenizer

        folder = self.path.parent if self.gguf is not None else self.path
        settings: dict[str, Any] = {"gguf_file": self.path.name} if self.gguf is not None else {}
        try:
            with architecture.quietly():
                loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                    str(folder), trust_remote_code=self.trust_remote_code, local_files_only=True, **settings
                )
        except Exception as error:  # tokenizers raise whatever their parsers raise
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise SourceError(f"{self.source} has no usable tokenizer: {reason[:300]}") from error
        return loaded

    def weight_file_bytes(self) -> int:
        """Bytes of the weight files on disk; fetches them if need be."""
        if self.gguf is not None:
            return self.path.stat().st_size
        if self.manifest is not None:
            return sum(entry.bytes for entry in self.manifest.files.values())
        return self._weights().file_bytes

    def expanded_bytes(self, dtype: torch.dtype | None = None) -> int:
        """Bytes of the weights once loaded in ``dtype``; a GGUF expands to several times its size.

        Args:
            dtype: None means the dtype that :meth:`load` would choose.
        """
        if self.manifest is not None:
            return sum(entry.bytes for entry in self.manifest.files.values())
        width = torch.empty(0, dtype=dtype if dtype is not None else self._load_dtype()).element_size()
        return self._parameters() * width

    def _load_dtype(self) -> torch.dtype:
        name = self.gguf.load_dtype if self.gguf is not None else self.stored_dtype
        if self.gguf is None and self.manifest is None and self.kind == "hub":
            dtypes = [d for d in self._weights().dtypes() if d in _DENSE_DTYPES] if self._has_weights() else []
            name = dtypes[0] if dtypes else name
        found = getattr(torch, name, None)
        return found if isinstance(found, torch.dtype) and found.is_floating_point else torch.float32

    def _has_weights(self) -> bool:
        return any(self.path.glob("model*.safetensors")) or any(self.path.glob("pytorch_model*.bin"))

    def _weights(self) -> Weights:
        if self.kind == "hub" and not self._has_weights():
            hub.fetch_weights(self.source, self.path.name, self.path)
        return _checked_weights(self.source, self.path, {})

    def _content(self) -> tuple[tuple[Path, ...], tuple[str, ...]]:
        """Files and texts that make up the fingerprint."""
        if self.gguf is not None:
            return (self.path,), ()
        if self.manifest is not None:
            text = self.manifest.model_dump_json(include={"model_class", "settings", "modules", "aliases"})
            files = tuple(self.path / name for name in sorted(self.manifest.files))
        else:
            text, files = "", self._weights().files
        config = self.path / "config.json"
        return files, (text, config.read_text(encoding="utf-8") if config.is_file() else "")

    def _architecture(self) -> str:
        if self.manifest is not None:
            return self.manifest.model_class
        names = tuple(self.config.architectures or ())
        return names[0] if names else str(self.config.model_type)

    def _parameters(self) -> int:
        if self.manifest is None:
            return take_inventory(self.meta_model()).parameters
        if self.manifest.source is not None:
            return self.manifest.source.parameters
        headers = restore.read_headers(self.path, self.manifest)
        sizes = (torch.Size(t.shape).numel() for tensors in headers.values() for t in tensors.values())
        return sum(sizes)


def resolve(source: str | Path, *, trust_remote_code: bool = False, revision: str | None = None) -> ModelSource:
    """Find a model and check everything that can be checked without loading it.

    Args:
        source: a hub id, a directory, a ``.gguf`` file, ``sample:NAME``, or an effkit checkpoint.
        trust_remote_code: run Python code that comes with the model; only ever switched on by the caller.
        revision: branch, tag or commit of a hub id.

    Raises:
        SourceError: nothing is found there; says what can be given.
        CheckpointError: something is found, but it is damaged, incomplete or unsafe.
    """
    text = str(source)
    if not text.strip():
        raise SourceError(f"the model's name is empty; give {ACCEPTED}")
    if text.startswith(samples.PREFIX):
        return _sample(text)
    path = Path(text).expanduser()
    recover(path.absolute())
    if path.exists():
        if revision is not None:
            raise UsageError(f"{text} is a local path, which has no revision {revision!r}")
        return _local(text, path.absolute(), trust_remote_code)
    if isinstance(source, str) and hub.looks_like_hub_id(text):
        return _hub(text, trust_remote_code, revision)
    raise SourceError(f"there is no {text}{_nearest(path)}; give {ACCEPTED}")


def _sample(text: str) -> ModelSource:
    sample = samples.sample_named(text)
    path = samples.fetch_sample(sample.name)
    found = _gguf(text, path) if path.suffix == ".gguf" else _directory(text, path, "sample", False)
    return replace(found, kind="sample", notes=found.notes + sample.notes)


def _local(text: str, path: Path, trust_remote_code: bool) -> ModelSource:
    if path.is_file():
        if path.suffix.lower() == ".gguf":
            return _gguf(text, path)
        hint = "; give the directory it lies in" if (path.parent / "config.json").is_file() else f"; give {ACCEPTED}"
        raise SourceError(f"{text} is a file, not a model's directory{hint}")
    if (path / MANIFEST).is_file():
        return _effkit(text, path, trust_remote_code)
    if (path / "adapter_config.json").is_file():
        raise SourceError(
            f"{text} is an adapter without its base model; merge it into the model first (PEFT: merge_and_unload)"
        )
    if not (path / "config.json").is_file():
        inside = sorted(entry.name for entry in path.glob("*.gguf"))
        hint = f"; give the file: {path / inside[0]}" if inside else ""
        raise SourceError(f"{text} has no config.json, so it is not a model's directory{hint or f'; give {ACCEPTED}'}")
    return _directory(text, path, "directory", trust_remote_code)


def _gguf(text: str, path: Path) -> ModelSource:
    header = read_gguf(path)
    config = gguf_config(path)
    return ModelSource(
        source=text,
        kind="gguf",
        path=path,
        notes=header.notes,
        stored_dtype=header.load_dtype if not header.is_quantized else header.dominant_type,
        task=architecture.task_of(config),
        config=config,
        gguf=header,
    )


def _effkit(text: str, path: Path, trust_remote_code: bool) -> ModelSource:
    manifest = read_manifest(path)
    headers = restore.read_headers(path, manifest)
    config = None
    if manifest.builder == "transformers":
        config = architecture.read_config(path, trust_remote_code)
        vars(config).pop("quantization_config", None)
    weights = Weights(tuple(headers), "safetensors", {n: t for h in headers.values() for n, t in h.items()})
    return ModelSource(
        source=text,
        kind="effkit",
        path=path,
        notes=manifest.notes,
        stored_dtype=next(iter(weights.dtypes()), "float32"),
        task=architecture.task_of(config) if config is not None else "other",
        trust_remote_code=trust_remote_code,
        config=config,
        manifest=manifest,
    )


def _directory(text: str, path: Path, kind: Kind, trust_remote_code: bool) -> ModelSource:
    config = architecture.read_config(path, trust_remote_code)
    weights = _checked_weights(text, path, read_json(path / "config.json"))
    dtypes = [name for name in weights.dtypes() if name in _DENSE_DTYPES]
    stored = dtypes[0] if dtypes else str(config.dtype or "float32").removeprefix("torch.")
    others = [name for name in dtypes if name != stored]
    notes = (f"stored mostly as {stored}, some tensors as {', '.join(others)}; loaded as one dtype",) if others else ()
    return ModelSource(
        source=text,
        kind=kind,
        path=path,
        notes=notes,
        stored_dtype=stored,
        task=architecture.task_of(config),
        trust_remote_code=trust_remote_code,
        config=config,
    )


def _hub(text: str, trust_remote_code: bool, revision: str | None) -> ModelSource:
    try:
        path = hub.fetch_small(text, revision, trust_remote_code)
    except SourceError as error:
        near = did_you_mean(samples.PREFIX + text, [samples.PREFIX + name for name in samples.SAMPLES])
        hint = f" ({near})" if near else _nearest(Path(text))
        raise SourceError(
            f"{error}; there is no local file or directory of that name either{hint}; give {ACCEPTED}"
        ) from error
    config = architecture.read_config(path, trust_remote_code)
    _refuse_quantized(text, read_json(path / "config.json"), None)
    return ModelSource(
        source=text,
        kind="hub",
        path=path,
        notes=(),
        stored_dtype=str(config.dtype or "float32").removeprefix("torch."),
        task=architecture.task_of(config),
        trust_remote_code=trust_remote_code,
        config=config,
    )


def _checked_weights(text: str, path: Path, config: dict[str, Any]) -> Weights:
    weights = find_weights(path)
    if weights.format == "pickle":
        weights = replace(weights, tensors=dense.read_pickled(weights.files))
    _refuse_quantized(text, config, weights)
    return weights


def _refuse_quantized(text: str, config: dict[str, Any], weights: Weights | None) -> None:
    """effkit compresses dense models; what another tool has compressed has no dense baseline any more."""
    method = (config.get("quantization_config") or {}).get("quant_method")
    kinds = weights.dtypes() if weights is not None else {}
    main = next(iter(kinds), "float32")
    if method or main not in _DENSE_DTYPES:
        how = f"quantized ({method})" if method else f"stored as {main}"
        raise SourceError(f"{text} is already {how}; give the dense model it was made from")


def _nearest(path: Path) -> str:
    parent = path.parent if str(path.parent) else Path(".")
    if not parent.is_dir():
        return ""
    try:
        hint = did_you_mean(path.name, [entry.name for entry in parent.iterdir()])
    except OSError:
        return ""
    return f"; {hint}" if hint else ""


__all__ = ["ACCEPTED", "CheckpointError", "Kind", "ModelSource", "resolve"]
