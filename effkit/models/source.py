"""One model that was found: what can be known of it, and how it is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from effkit.errors import CheckpointError, SourceError, UsageError
from effkit.inventory import take_inventory
from effkit.models import architecture, dense, fingerprint, hub, restore
from effkit.models.architecture import Task
from effkit.models.gguf import GgufHeader
from effkit.models.integrity import Weights, find_weights
from effkit.models.manifest import Manifest, attach_notes
from effkit.records import ModelInfo

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Kind = Literal["hub", "directory", "gguf", "sample", "effkit"]
DENSE_DTYPES = ("float64", "float32", "float16", "bfloat16")


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

    def size_note(self, dtype: torch.dtype | None = None) -> str:
        """Say how large the model is on disk and once loaded, such as ``98.4 MB on disk, 538.1 MB as float32``."""
        chosen = dtype if dtype is not None else self._load_dtype()
        loaded = self.expanded_bytes(chosen) / 1e6
        name = "loaded" if self.manifest is not None else f"as {str(chosen).removeprefix('torch.')}"
        return f"{self.weight_file_bytes() / 1e6:.1f} MB on disk, {loaded:.1f} MB {name}"

    def _load_dtype(self) -> torch.dtype:
        name = self.gguf.load_dtype if self.gguf is not None else self.stored_dtype
        if self.gguf is None and self.manifest is None and self.kind == "hub":
            dtypes = [d for d in self._weights().dtypes() if d in DENSE_DTYPES] if self._has_weights() else []
            name = dtypes[0] if dtypes else name
        found = getattr(torch, name, None)
        return found if isinstance(found, torch.dtype) and found.is_floating_point else torch.float32

    def _has_weights(self) -> bool:
        return any(self.path.glob("model*.safetensors")) or any(self.path.glob("pytorch_model*.bin"))

    def _weights(self) -> Weights:
        if self.kind == "hub":
            try:
                find_weights(self.path)
            except (SourceError, CheckpointError):  # not fetched yet, or not all of them
                hub.fetch_weights(self.source, self.path.name, self.path)
        return checked_weights(self.source, self.path, {})

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


def checked_weights(text: str, path: Path, config: dict[str, Any]) -> Weights:
    """Find the weights of a directory and check all of them that can be checked without reading them.

    Raises:
        SourceError: there are none, or they are not dense.
        CheckpointError: damaged, incomplete or unsafe.
    """
    weights = find_weights(path)
    if weights.format == "pickle":
        weights = replace(weights, tensors=dense.read_pickled(weights.files))
    refuse_quantized(text, config, weights)
    return weights


def refuse_quantized(text: str, config: dict[str, Any], weights: Weights | None) -> None:
    """Refuse what another tool has compressed: it has no dense baseline any more.

    Raises:
        SourceError: naming the method or the dtype.
    """
    method = (config.get("quantization_config") or {}).get("quant_method")
    kinds = weights.dtypes() if weights is not None else {}
    main = next(iter(kinds), "float32")
    if method or main not in DENSE_DTYPES:
        how = f"quantized ({method})" if method else f"stored as {main}"
        raise SourceError(f"{text} is already {how}; give the dense model it was made from")
