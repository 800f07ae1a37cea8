"""Replace a whole directory in one step: written beside it, synced, then swapped.

A process killed at any point leaves the old directory or the new one. Only directories that effkit wrote are
ever replaced. Knows no model.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from effkit.errors import CheckpointError, UsageError
from effkit.models.files import BusyError, fsync, fsync_tree, locked, why

MANIFEST = "effkit.json"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def check_writable(out: Path | str, needed_bytes: int = 0) -> Path:
    """Find out before long work whether a checkpoint can be written to ``out``; leaves nothing behind.

    Args:
        out: where the checkpoint is to go.
        needed_bytes: what will be written; an older checkpoint there is only removed afterwards.

    Returns:
        The absolute path, links resolved.

    Raises:
        UsageError: ``out`` is a file, or a directory that holds something other than an effkit checkpoint.
        CheckpointError: the disk is full, read-only, or the place is not allowed to be written.
    """
    try:
        target = _target(out)
    except OSError as error:  # a name too long for the file system, a loop of links
        raise UsageError(f"{out} cannot be a directory: {why(error)}") from None
    try:
        existing = next(parent for parent in target.parents if parent.exists())
        with tempfile.TemporaryDirectory(prefix=_beside(target, "probe-").name, dir=existing):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        raise CheckpointError(f"nothing can be written to {target}: {why(error)} ({target.parent})") from None
    if free < needed_bytes:
        raise CheckpointError(f"{target} needs {needed_bytes} bytes and the disk has {free} bytes free")
    return target


@contextlib.contextmanager
def replaced_directory(out: Path | str) -> Iterator[Path]:
    """Yield an empty directory; when the block ends without an error it takes the place of ``out``.

    Raises:
        UsageError: as :func:`check_writable`.
        CheckpointError: another process is writing to ``out``, or the disk refuses.
    """
    target = check_writable(out)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(_beside(target, "lock"), wait=False):
            recover(target)
            _sweep(target)
            work = Path(tempfile.mkdtemp(prefix=_beside(target, "tmp-").name, dir=target.parent))
            try:
                work.chmod(0o777 & ~current_umask())
                yield work
                fsync_tree(work)
                _swap(work, target)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except BusyError:
        raise CheckpointError(
            f"another process is writing to {target}; wait for it or choose another directory"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{target} could not be written: {why(error)}") from error


def recover(target: Path) -> None:
    """Bring the old directory back if a swap without kernel support was cut off half way; no-op otherwise."""
    backup = _beside(target, "old")
    if backup.is_dir() and not target.exists():
        with contextlib.suppress(OSError):
            os.rename(backup, target)


def _target(out: Path | str) -> Path:
    target = Path(os.path.realpath(Path(out).expanduser()))
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file; give a directory for the checkpoint")
    if target.is_dir() and any(target.iterdir()) and not (target / MANIFEST).is_file():
        raise UsageError(
            f"{target} exists and is not an effkit checkpoint (it has no {MANIFEST}); it is not overwritten: give a "
            "new or empty directory"
        )
    if target == target.parent:
        raise UsageError(f"{target} cannot be a checkpoint")
    return target


def _beside(target: Path, what: str) -> Path:
    return target.with_name(f".{target.name}.effkit-{what}")


def _sweep(target: Path) -> None:
    """Remove what killed saves left; the lock is held, so no living process uses it."""
    for kind in ("tmp-", "probe-"):
        for stale in target.parent.glob(f"{glob.escape(_beside(target, kind).name)}*"):
            shutil.rmtree(stale, ignore_errors=True)
    if target.exists():
        shutil.rmtree(_beside(target, "old"), ignore_errors=True)


def _swap(work: Path, target: Path) -> None:
    if not target.exists():
        os.rename(work, target)
    elif _exchange(work, target):
        pass  # the old directory now stands under the temporary name, and goes with it
    else:
        backup = _beside(target, "old")
        os.rename(target, backup)
        os.rename(work, target)
        shutil.rmtree(backup, ignore_errors=True)
    fsync(target.parent)


def _exchange(left: Path, right: Path) -> bool:
    """Swap two names in one step; False where the C library, kernel or file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if rename(_AT_FDCWD, os.fsencode(left), _AT_FDCWD, os.fsencode(right), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(right))


def current_umask() -> int:
    """Return the process's umask; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
