"""Checks of a model directory before anything runs: which files hold the weights, and are they whole.

Reads only headers, never weights, and follows no name out of the folder. Knows nothing of torch.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from effkit.errors import CheckpointError, SourceError
from effkit.models.files import why

SAFETENSORS_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_DTYPE_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
_MAX_HEADER_BYTES = 100_000_000
_SINGLE = (("model.safetensors", "safetensors"), ("pytorch_model.bin", "pickle"))
_INDEXES = (("model.safetensors.index.json", "safetensors"), ("pytorch_model.bin.index.json", "pickle"))


@dataclass(frozen=True)
class TensorHeader:
    """One tensor as a safetensors header describes it; ``begin`` and ``end`` count from the file's start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Weights:
    """The weight files of one directory.

    Attributes:
        files: in order, whole and inside the folder (a symlinked file counts as inside).
        format: ``safetensors`` or ``pickle``.
        tensors: by name; empty for pickled weights, whose content is not looked at before loading.
    """

    files: tuple[Path, ...]
    format: str
    tensors: Mapping[str, TensorHeader]

    @property
    def file_bytes(self) -> int:
        """Bytes of all weight files."""
        return sum(file.stat().st_size for file in self.files)

    def dtypes(self) -> dict[str, int]:
        """Bytes of tensor data by dtype, the largest share first."""
        count: Counter[str] = Counter()
        for tensor in self.tensors.values():
            count[tensor.dtype] += tensor.end - tensor.begin
        return dict(count.most_common())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: it cannot be read, or is not a JSON object; says where.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {why(error)}") from None
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path} is not valid JSON: {error.msg} at line {error.lineno}") from None
    except (UnicodeDecodeError, RecursionError):
        raise CheckpointError(f"{path} is not a JSON text file") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a JSON {type(value).__name__}, expected an object")
    return value


def read_header(path: Path) -> dict[str, TensorHeader]:
    """Read the header of a safetensors file and check it against the file's size.

    Raises:
        CheckpointError: truncated, damaged, or not a safetensors file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            first = stream.read(8)
            length = struct.unpack("<Q", first)[0] if len(first) == 8 else -1
            if length < 2 or length > min(_MAX_HEADER_BYTES, size - 8):
                raise CheckpointError(f"{path} is truncated or not a safetensors file ({size} bytes)")
            raw = stream.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {why(error)}") from None
    try:
        entries = json.loads(raw)
        tensors = {n: _tensor(n, e, 8 + length) for n, e in entries.items() if n != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(f"{path} has a damaged safetensors header") from None
    needed = max((tensor.end for tensor in tensors.values()), default=8 + length)
    if needed != size:
        state = "truncated" if size < needed else "longer than it says"
        raise CheckpointError(f"{path} is {state}: its header describes {needed} bytes, the file has {size}")
    return tensors


def _tensor(name: str, entry: dict[str, Any], offset: int) -> TensorHeader:
    begin, end = (int(position) for position in entry["data_offsets"])
    dtype = SAFETENSORS_DTYPES.get(entry["dtype"], str(entry["dtype"]).lower())
    shape = tuple(int(size) for size in entry["shape"])
    expected = _DTYPE_BYTES.get(dtype, 1 if dtype in SAFETENSORS_DTYPES.values() else 0)
    for size in shape:
        expected *= size
    if begin < 0 or end < begin or (expected and end - begin != expected):
        raise ValueError(name)
    return TensorHeader(name, dtype, shape, offset + begin, offset + end)


def find_weights(folder: Path) -> Weights:
    """Find and check the weight files of a directory.

    Raises:
        SourceError: there are none.
        CheckpointError: a shard is missing, truncated, or named so that it leaves the folder.
    """
    for name, kind in (_SINGLE[0], _INDEXES[0], _SINGLE[1], _INDEXES[1]):
        path = folder / name
        if path.is_symlink() and not path.exists():
            raise CheckpointError(f"{path} is a symbolic link to {path.readlink()}, which does not exist")
        if not path.is_file():
            continue
        indexed = name.endswith(".index.json")
        files = _shards(folder, path) if indexed else (path,)
        tensors = _headers(files) if kind == "safetensors" else {}
        if indexed and kind == "safetensors":
            _check_index(path, tensors)
        return Weights(files, kind, tensors)
    others = sorted(p.name for p in folder.iterdir() if p.suffix in (".gguf", ".safetensors", ".bin", ".pt", ".pth"))
    seen = f"; there is {', '.join(others[:5])}" if others else ""
    hint = " (give the .gguf file itself)" if any(name.endswith(".gguf") for name in others) else ""
    raise SourceError(f"{folder} holds no model.safetensors (or its index) and no pytorch_model.bin{seen}{hint}")


def inside(folder: Path, name: object, told_by: Path) -> Path:
    """Return ``folder / name`` if the name stays in the folder.

    Raises:
        CheckpointError: absolute names, ``..``, empty names and names that are not text.
    """
    text = name if isinstance(name, str) else ""
    windows = PureWindowsPath(text)
    leaves = PurePosixPath(text).is_absolute() or windows.is_absolute() or windows.drive or ".." in windows.parts
    if not text or leaves or "\0" in text or PurePosixPath(text) == PurePosixPath("."):
        raise CheckpointError(f"{told_by} names the file {name!r}, which leaves the model's folder; it is not read")
    return folder / text


def _shards(folder: Path, index: Path) -> tuple[Path, ...]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map")
    names = sorted({inside(folder, name, index).relative_to(folder).as_posix() for name in weight_map.values()})
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder} is incomplete: {len(missing)} of {len(names)} shards are missing ({', '.join(missing[:5])})"
        )
    return tuple(folder / name for name in names)


def _headers(files: tuple[Path, ...]) -> dict[str, TensorHeader]:
    tensors: dict[str, TensorHeader] = {}
    for file in files:
        tensors |= read_header(file)
    return tensors


def _check_index(index: Path, tensors: Mapping[str, TensorHeader]) -> None:
    absent = sorted(set(read_json(index)["weight_map"]) - set(tensors))
    if absent:
        raise CheckpointError(f"{index} lists tensors that its shards do not hold: {', '.join(absent[:5])}")
