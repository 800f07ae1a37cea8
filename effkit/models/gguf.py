"""Single-file GGUF models: what is inside, how big they get, and loading them as ordinary dense models.

The header is read here, in milliseconds and with every length checked against the file; the weights are
dequantized by transformers.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from effkit.errors import CheckpointError, SourceError
from effkit.models.files import why

_MAGIC = b"GGUF"
_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# Byte sizes of metadata values by type code; 8 is a string, 9 an array.
# Source: ggml/docs/gguf.md, gguf_metadata_value_type.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_ENTRIES = 1 << 24


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says of itself.

    Attributes:
        path: the file.
        architecture: ``general.architecture``, such as ``llama``.
        bytes_by_type: bytes of tensor data by GGML type, the largest share first.
        elements: number of weights.
        tensor_names: in the file's order.
    """

    path: Path
    architecture: str
    bytes_by_type: dict[str, int]
    elements: int
    tensor_names: tuple[str, ...]

    @property
    def dominant_type(self) -> str:
        """The type that most weight bytes have, such as ``Q4_1``."""
        return next(iter(self.bytes_by_type))

    @property
    def is_quantized(self) -> bool:
        """True if any weight has to be dequantized."""
        return any(name not in _FLOATS for name in self.bytes_by_type)

    @property
    def load_dtype(self) -> str:
        """The dtype that holds these weights: their own where they are floats, else float32."""
        return _FLOATS.get(self.dominant_type, "float32")

    @property
    def notes(self) -> tuple[str, ...]:
        """What every report on this model must say."""
        if not self.is_quantized:
            return ()
        total = sum(self.bytes_by_type.values())
        quantized = [name for name in self.bytes_by_type if name not in _FLOATS]
        main = quantized[0]
        rest = [name for name in self.bytes_by_type if name != main]
        share = f"{self.bytes_by_type[main] / total:.0%} of its weight bytes" + (
            f"; the rest is {', '.join(rest)}" if rest else ""
        )
        return (f"dequantized from {main} ({share})",)


def read_gguf(path: Path) -> GgufHeader:
    """Read the header of a GGUF file.

    Raises:
        CheckpointError: truncated, damaged, of an unknown version, or not a GGUF file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            return _Reader(stream, path, size).header()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {why(error)}") from None


class _Reader:
    """Walks through a header, never past the end of the file."""

    def __init__(self, stream: BinaryIO, path: Path, size: int) -> None:
        self._stream, self._path, self._size = stream, path, size

    def header(self) -> GgufHeader:
        if self._stream.read(4) != _MAGIC:
            raise CheckpointError(f"{self._path} is not a GGUF file")
        version = self._number("I")
        if version not in (2, 3):
            raise CheckpointError(f"{self._path} has GGUF version {version}; versions 2 and 3 (little-endian) are read")
        tensor_count, entry_count = self._number("Q"), self._number("Q")
        if not 0 < tensor_count <= _MAX_ENTRIES or entry_count > _MAX_ENTRIES:
            raise self._damaged()
        metadata = dict(self._entry() for _ in range(entry_count))
        tensors = [self._tensor() for _ in range(tensor_count)]
        alignment = int(metadata.get("general.alignment") or 32)
        if alignment < 1:
            raise self._damaged()
        begin = -(-self._stream.tell() // alignment) * alignment
        end = begin + max(offset + size for _, _, _, size, offset in tensors)
        if end > self._size:
            raise CheckpointError(f"{self._path} is truncated: it describes {end} bytes, the file has {self._size}")
        count: Counter[str] = Counter()
        for _, kind, _, size, _ in tensors:
            count[kind] += size
        return GgufHeader(
            path=self._path,
            architecture=str(metadata.get("general.architecture", "")),
            bytes_by_type=dict(count.most_common()),
            elements=sum(elements for _, _, elements, _, _ in tensors),
            tensor_names=tuple(name for name, *_ in tensors),
        )

    def _entry(self) -> tuple[str, Any]:
        key = self._text()
        return key, self._value(self._number("I"))

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY or depth > 3:
            raise self._damaged()
        element, length = self._number("I"), self._number("Q")
        if length > self._size:
            raise self._damaged()
        if element in _SCALARS:
            self._skip(length * struct.calcsize("<" + _SCALARS[element]))
        elif element == _STRING:
            for _ in range(length):
                self._skip(self._number("Q"))
        else:
            for _ in range(length):
                self._value(element, depth + 1)
        return None

    def _tensor(self) -> tuple[str, str, int, int, int]:
        """(name, type, elements, bytes, offset)."""
        name = self._text()
        dimensions = self._number("I")
        if dimensions > 8:
            raise self._damaged()
        elements = 1
        for _ in range(dimensions):
            elements *= self._number("Q")
        code, offset = self._number("I"), self._number("Q")
        try:
            kind = GGMLQuantizationType(code)
        except ValueError:
            raise CheckpointError(f"{self._path}: {name} has the GGML type {code}, which is not known here") from None
        block, block_bytes = GGML_QUANT_SIZES[kind]
        return name, kind.name, elements, elements // block * block_bytes, offset

    def _text(self) -> str:
        length = self._number("Q")
        if length > self._size - self._stream.tell():
            raise self._damaged()
        return self._stream.read(length).decode("utf-8", errors="replace")

    def _number(self, code: str) -> Any:
        width = struct.calcsize("<" + code)
        raw = self._stream.read(width)
        if len(raw) != width:
            raise self._damaged()
        return struct.unpack("<" + code, raw)[0]

    def _skip(self, count: int) -> None:
        if count > self._size - self._stream.tell():
            raise self._damaged()
        self._stream.seek(count, os.SEEK_CUR)

    def _damaged(self) -> CheckpointError:
        return CheckpointError(f"{self._path} is truncated or damaged: its GGUF header cannot be read")


def gguf_config(path: Path) -> Any:
    """Read the model's configuration out of a GGUF file, as transformers understands it.

    Raises:
        SourceError: an architecture that transformers cannot load from GGUF.
    """
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    try:
        config = AutoConfig.from_pretrained(str(path.parent), gguf_file=path.name, local_files_only=True)
    except Exception as error:  # transformers raises ValueError, KeyError, RuntimeError ... for what it cannot read
        raise SourceError(f"{path}: transformers cannot read this GGUF model: {_first_line(error)}") from error
    if not config.architectures and config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        config.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]]
    return config


def dequantizing() -> dict[str, Any]:
    """Arguments of from_pretrained that ask for dense weights on every device, where this version knows them.

    Newer transformers may otherwise keep the blocks packed on a GPU.
    """
    try:
        from transformers.utils.quantization_config import GgufConfig
    except ImportError:
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}


@contextlib.contextmanager
def fast_name_maps() -> Iterator[None]:
    """Build each architecture's table of tensor names once instead of once per submodule, and show no bar.

    transformers 5.24 rebuilds that table of thousands of names for every submodule of the model
    (modeling_gguf_pytorch_utils.get_gguf_hf_weights_map), which takes longer than dequantizing.
    """
    import gguf

    loader: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    slow, bar = gguf.get_tensor_name_map, loader.tqdm
    gguf.get_tensor_name_map = functools.cache(slow)
    loader.tqdm = functools.partial(bar, disable=True)
    try:
        yield
    finally:
        gguf.get_tensor_name_map, loader.tqdm = slow, bar


def forget_gguf(model: Any) -> None:
    """Make a model loaded from GGUF an ordinary dense one, which save_pretrained accepts; edits ``model``.

    transformers marks it as quantized (``hf_quantizer``, ``config.quantization_config``) although every weight
    is dense by then.
    """
    for owner in (model, model.config):
        for name in ("hf_quantizer", "quantization_config", "_pre_quantization_dtype", "quantization_method"):
            if name in vars(owner):
                delattr(owner, name)
    if getattr(model, "is_quantized", False):
        model.is_quantized = False


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
