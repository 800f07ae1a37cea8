"""What a user may name as a model: a hub id, a directory, a ``.gguf`` file, ``sample:NAME``, an effkit checkpoint.

Resolving reads configurations and headers only; a damaged or incomplete checkpoint is refused here, before
anything runs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from effkit.errors import SourceError, UsageError, did_you_mean
from effkit.models import architecture, hub, restore, samples
from effkit.models.atomic import MANIFEST, recover
from effkit.models.files import why
from effkit.models.gguf import gguf_config, read_gguf
from effkit.models.integrity import Weights, read_json
from effkit.models.manifest import read_manifest
from effkit.models.source import DENSE_DTYPES, Kind, ModelSource, checked_weights, refuse_quantized

ACCEPTED = (
    "a hub id (owner/name), a directory with config.json and weights, a .gguf file, an effkit checkpoint, or "
    + " or ".join(samples.PREFIX + name for name in samples.SAMPLES)
)


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
    try:
        recover(path.absolute())
        exists = path.exists()
    except OSError as error:
        raise SourceError(f"{text} cannot be looked at: {why(error)}") from error
    if exists:
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
    weights = checked_weights(text, path, read_json(path / "config.json"))
    dtypes = [name for name in weights.dtypes() if name in DENSE_DTYPES]
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
    refuse_quantized(text, read_json(path / "config.json"), None)
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


def _nearest(path: Path) -> str:
    parent = path.parent if str(path.parent) else Path(".")
    if not parent.is_dir():
        return ""
    try:
        hint = did_you_mean(path.name, [entry.name for entry in parent.iterdir()])
    except OSError:
        return ""
    return f"; {hint}" if hint else ""
