"""What the dense FP32 run leaves on disk for the variants that follow: likelihoods, logits, output vectors.

Files are .npy, written and read row by row: a memory map would count whole logits as resident memory of the process
whose peak is being measured. A store is written under a temporary name and renamed when complete, so a reader never
meets half of one. It names the fingerprint of what was measured and the digest of the windows, and refuses to be read
for anything else.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from effkit.errors import MeasureError

FORMAT_VERSION = 1
HEADER = "baseline.json"

Array = npt.NDArray[Any]


class BaselineStore:
    """A finished store, opened for reading.

    Args:
        path: the store's folder.
        key: fingerprint that the store must carry, from whoever ordered the baseline.
        digest: digest of the windows that are about to be scored.

    Raises:
        MeasureError: no complete store, or one of other content.
    """

    def __init__(self, path: Path, *, key: str, digest: str) -> None:
        self.path = path
        try:
            header = json.loads((path / HEADER).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise MeasureError(f"no complete baseline at {path}: {error}; measure the fp32 variant first") from None
        expected = {"format_version": FORMAT_VERSION, "key": key, "windows_digest": digest}
        wrong = [name for name, value in expected.items() if header.get(name) != value]
        if wrong:
            details = ", ".join(f"{name} is {header.get(name)!r}, needed {expected[name]!r}" for name in wrong)
            raise MeasureError(f"the baseline at {path} belongs to something else: {details}; measure fp32 again")
        self.arrays: tuple[str, ...] = tuple(header["arrays"])

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Array:
        """Read rows ``start`` to ``stop`` of one array (all by default) into memory of their own.

        Raises:
            MeasureError: the store holds no such array, it is damaged, or has fewer rows.
        """
        if name not in self.arrays:
            raise MeasureError(f"the baseline at {self.path} holds no {name} (it holds {', '.join(self.arrays)})")
        try:
            with (self.path / f"{name}.npy").open("rb") as file:
                return _read_rows(file, start, stop)
        except (OSError, ValueError) as error:
            raise MeasureError(f"the baseline at {self.path} is damaged: {name}: {error}") from None


@dataclass
class _OpenArray:
    """An array file that is being written."""

    file: BinaryIO
    rows: int
    written: int = 0


class BaselineWriter:
    """Writes a store; a context manager that renames it into place at the end, or leaves no trace on failure.

    Args:
        path: the store's final folder; one that is there is replaced.
        key, digest: see :class:`BaselineStore`.
    """

    def __init__(self, path: Path, *, key: str, digest: str) -> None:
        self.path = path
        self._header: dict[str, Any] = {"format_version": FORMAT_VERSION, "key": key, "windows_digest": digest}
        self._arrays: dict[str, _OpenArray] = {}
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", dir=self.path.parent))
        except OSError as error:
            raise MeasureError(f"cannot write the baseline at {self.path}: {error.strerror}") from None
        return self

    def append(self, name: str, values: Array, *, rows: int) -> None:
        """Write the next rows of an array.

        Args:
            name: of the array; its first rows begin it.
            values: [n, ...], the same dtype and width each time.
            rows: rows in all, for the file's header and the check that they fit on the disk.

        Raises:
            MeasureError: not enough room on the disk.
        """
        array = self._arrays.get(name) or self._begin(name, values, rows)
        values.tofile(array.file)
        array.written += len(values)

    def _begin(self, name: str, values: Array, rows: int) -> _OpenArray:
        folder = self._open_folder()
        shape = (rows, *values.shape[1:])
        needed, free = math.prod(shape) * values.itemsize, shutil.disk_usage(folder).free
        if needed > free:
            raise MeasureError(
                f"the baseline's {name} need {needed / 1e9:.2f} GB at {self.path}, {free / 1e9:.2f} GB are free; "
                "lower kl_windows in the suite"
            )
        array = _OpenArray((folder / f"{name}.npy").open("wb"), rows)
        header = {"descr": np.lib.format.dtype_to_descr(values.dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(array.file, header)
        self._arrays[name] = array
        return array

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        folder = self._open_folder()
        try:
            for array in self._arrays.values():
                array.file.close()
            if kind is None:
                self._finish(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _finish(self, folder: Path) -> None:
        short = [name for name, array in self._arrays.items() if array.written != array.rows]
        if short:
            raise MeasureError(f"the baseline was not written to its end: {', '.join(short)}")
        self._header["arrays"] = list(self._arrays)
        (folder / HEADER).write_text(json.dumps(self._header, indent=2) + "\n", encoding="utf-8")
        folder.chmod(0o755)
        if self.path.exists():  # a folder cannot be renamed over a full one: move the old one aside first
            old = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.old.", dir=self.path.parent))
            os.replace(self.path, old / "store")
            os.replace(folder, self.path)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(folder, self.path)

    def _open_folder(self) -> Path:
        if self._folder is None:
            raise MeasureError("a baseline is written inside its `with` block")
        return self._folder


def _read_rows(file: BinaryIO, start: int, stop: int | None) -> Array:
    """Read rows of an .npy file in C order."""
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"unknown .npy version {version}")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    if fortran_order or dtype.hasobject:
        raise ValueError("not a plain array in C order")
    stop = shape[0] if stop is None else stop
    width = math.prod(shape[1:])
    file.seek(start * width * dtype.itemsize, os.SEEK_CUR)
    values = np.fromfile(file, dtype=dtype, count=(stop - start) * width)
    if values.size != (stop - start) * width:
        raise ValueError(f"rows {start} to {stop} are not all there")
    return values.reshape(stop - start, *shape[1:])
