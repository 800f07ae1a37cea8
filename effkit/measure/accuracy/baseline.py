"""What the dense FP32 run leaves on disk for the variants that follow: likelihoods, logits, output vectors.

A store is written under a temporary name and renamed when complete, so a reader never meets half of one. It names
the fingerprint of what was measured and the digest of the windows, and refuses to be read for anything else.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from effkit.errors import MeasureError

FORMAT_VERSION = 1
HEADER = "baseline.json"

FloatArray = npt.NDArray[np.float64]
LogitArray = npt.NDArray[np.float32]


class BaselineStore:
    """A finished store, opened for reading; arrays are memory-mapped.

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

    def read(self, name: str) -> npt.NDArray[Any]:
        """Memory-map one array.

        Raises:
            MeasureError: the store holds no such array, or it is damaged.
        """
        if name not in self.arrays:
            raise MeasureError(f"the baseline at {self.path} holds no {name} (it holds {', '.join(self.arrays)})")
        try:
            array: npt.NDArray[Any] = np.load(self.path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise MeasureError(f"the baseline at {self.path} is damaged: {name}: {error}") from None
        return array


class BaselineWriter:
    """Writes a store; a context manager that renames it into place at the end, or leaves no trace on failure.

    Args:
        path: the store's final folder; one that is there is replaced.
        key, digest: see :class:`BaselineStore`.
    """

    def __init__(self, path: Path, *, key: str, digest: str) -> None:
        self.path = path
        self._header: dict[str, Any] = {"format_version": FORMAT_VERSION, "key": key, "windows_digest": digest}
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", dir=self.path.parent))
        except OSError as error:
            raise MeasureError(f"cannot write the baseline at {self.path}: {error.strerror}") from None
        return self

    def create(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Begin a memory-mapped array of that shape.

        Raises:
            MeasureError: not enough room on the disk.
        """
        folder = self._open_folder()
        needed = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise MeasureError(
                f"the baseline's {name} need {needed / 1e9:.2f} GB at {self.path}, {free / 1e9:.2f} GB are free; "
                "lower kl_windows in the suite"
            )
        array = np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=np.dtype(dtype), shape=shape)
        self._arrays[name] = array
        return array

    def write(self, name: str, values: npt.NDArray[Any]) -> None:
        """Write a whole array."""
        self.create(name, values.shape, values.dtype)[...] = values

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        folder = self._open_folder()
        try:
            if kind is None:
                self._finish(folder)
        finally:
            self._arrays.clear()
            shutil.rmtree(folder, ignore_errors=True)

    def _finish(self, folder: Path) -> None:
        for array in self._arrays.values():
            if isinstance(array, np.memmap):
                array.flush()
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
