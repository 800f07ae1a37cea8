"""``effkit.json``: what an effkit checkpoint says of itself. Knows no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from effkit.errors import CheckpointError
from effkit.models.atomic import MANIFEST
from effkit.models.integrity import read_json
from effkit.records import ModelInfo, Record

SCHEMA_VERSION = 1
_NOTES = "_effkit_notes"


class FileEntry(Record):
    """One weight file."""

    bytes: int
    sha256: str


class Manifest(Record):
    """Everything needed to rebuild a model whose tensors lie beside it.

    Attributes:
        builder: ``transformers`` where config.json gives the architecture; ``caller`` where the caller must
            bring the dense module.
        model_class: class of the model that was saved.
        settings: arguments of the model's class besides its configuration.
        attention, experts: implementations that the model ran with; empty where it has none.
        modules: spec of every compressed module by dotted name.
        tensors: dtype of every saved tensor.
        aliases: names of tensors that are the same memory as a saved one.
        buffers: tensors that a state_dict does not list, such as rotary frequencies, kept so that a loaded
            model computes exactly the same; by dtype.
        files: weight files by name.
        recipe, plan: as they were applied, or None.
        source: the dense model this was made from, or None.
        notes: what every report on this model must say.
    """

    schema_version: Literal[1] = 1
    effkit_version: str
    builder: Literal["transformers", "caller"]
    model_class: str
    settings: dict[str, bool] = Field(default_factory=dict)
    attention: str = ""
    experts: str = ""
    modules: dict[str, dict[str, Any]] = Field(default_factory=dict)
    tensors: dict[str, str]
    aliases: dict[str, str] = Field(default_factory=dict)
    buffers: dict[str, str] = Field(default_factory=dict)
    files: dict[str, FileEntry]
    recipe: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    source: ModelInfo | None = None
    notes: tuple[str, ...] = ()


def read_manifest(folder: Path) -> Manifest:
    """Read ``effkit.json``.

    Raises:
        CheckpointError: missing, malformed, or written by a newer effkit.
    """
    path = folder / MANIFEST
    raw = read_json(path)
    version = raw.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} has schema version {version}, written by effkit {raw.get('effkit_version')}; this effkit reads up "
            f"to {SCHEMA_VERSION}: update it"
        )
    try:
        return Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CheckpointError(f"{path} is damaged at {where}: {first['msg']}") from None


def notes_of(model: Any) -> tuple[str, ...]:
    """Return what was noted about a model when it was loaded, such as ``dequantized from Q4_1 ...``."""
    return tuple(getattr(model, _NOTES, ()))


def attach_notes(model: Any, notes: tuple[str, ...]) -> None:
    """Keep notes on the model itself, so that they reach its checkpoint; edits ``model``."""
    object.__setattr__(model, _NOTES, merged(notes_of(model), notes))


def merged(*groups: tuple[str, ...]) -> tuple[str, ...]:
    """Join notes in order, each once."""
    return tuple(dict.fromkeys(note for group in groups for note in group))
