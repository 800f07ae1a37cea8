"""The user's cache, locks between processes, and words for what the operating system refused.

Knows no model format. Reading never needs write access; whoever writes goes through a temporary name and a rename.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

_CHUNK_BYTES = 1 << 22


class BusyError(Exception):
    """Another process holds the lock."""


def user_cache() -> Path:
    """Return effkit's cache folder: ``$EFFKIT_CACHE``, else ``$XDG_CACHE_HOME/effkit``, else ``~/.cache/effkit``."""
    if own := os.environ.get("EFFKIT_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and os.path.isabs(base) else Path("~/.cache").expanduser()) / "effkit"


def why(error: OSError) -> str:
    """Say in words why a file could not be written or read."""
    words = {
        errno.EACCES: "permission denied",
        errno.EPERM: "permission denied",
        errno.EROFS: "the file system is read-only",
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.ENOENT: "no such file or directory",
        errno.ENOTDIR: "a part of the path is a file, not a directory",
        errno.ENAMETOOLONG: "the name is too long",
    }
    return words.get(error.errno or 0, error.strerror or str(error))


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def fsync_tree(folder: Path) -> None:
    """Force every file of a folder, and the folder itself, to the disk."""
    for entry in sorted(folder.rglob("*")):
        if entry.is_file():
            fsync(entry)
    for entry in sorted(folder.rglob("*")):
        if entry.is_dir():
            fsync(entry)
    fsync(folder)


def fsync(path: Path) -> None:
    """Force one file or directory to the disk; file systems that cannot sync a directory are forgiven."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` between processes; the file is removed on release.

    A killed process leaves the file but not the lock, so nothing ever has to be cleaned by hand.

    Raises:
        BusyError: another process holds it and ``wait`` is False.
        OSError: the lock file cannot be made.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            raise BusyError(str(path)) from None
        if _is_still(path, descriptor):
            break
        os.close(descriptor)  # its holder removed it between our open and our lock: try the new one
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
