"""SHA-256 of what a model is: the content of its weight files and its configuration, whatever they are called.

Hashing 100 GB takes minutes, so digests are remembered in the user's cache under path, size, time and inode;
where the cache cannot be written they are computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from effkit.models.files import sha256, user_cache

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SETTLED_NS = 2_000_000_000


def fingerprint(files: Sequence[Path], *texts: str) -> str:
    """Return one SHA-256 over the content of ``files``, in their order, and over ``texts``."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"file {file_digest(file)}\n".encode())
    for text in texts:
        digest.update(f"text {hashlib.sha256(text.encode()).hexdigest()}\n".encode())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, remembered between calls and processes.

    A file of the Hugging Face cache is a link to a blob named by its SHA-256, which was checked on download.
    """
    real = Path(os.path.realpath(path))
    if real.parent.name == "blobs" and _SHA256.fullmatch(real.name):
        return real.name
    state = real.stat()
    key = hashlib.sha256(f"{real}\0{state.st_size}\0{state.st_mtime_ns}\0{state.st_ino}".encode()).hexdigest()
    note = user_cache() / "fingerprints" / key
    with contextlib.suppress(OSError, UnicodeDecodeError):
        known = note.read_text(encoding="ascii")
        if _SHA256.fullmatch(known):
            return known
    found = sha256(real)
    # A file changed twice within the clock's grain would keep its key: remember only settled ones.
    if time.time_ns() - state.st_mtime_ns > _SETTLED_NS and real.stat().st_mtime_ns == state.st_mtime_ns:
        _remember(note, found)
    return found


def _remember(note: Path, digest: str) -> None:
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        temporary = note.with_name(f".{note.name}.{os.getpid()}")
        temporary.write_text(digest, encoding="ascii")
        os.replace(temporary, note)
