"""Evaluation suites: which text, cut how, scored and timed how; read from one strict YAML file and never changed.

Knows no model and no torch. All faults of a suite are raised together.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from effkit.errors import RecipeError, UsageError, did_you_mean
from effkit.strictyaml import Located, StrictModel, read_yaml, validate

PACKAGE_DIR = Path(__file__).parent

TOPICS = "pydoc-topics"
FILE = "FILE"


class Suite(StrictModel):
    """An evaluation set with its sample limits, timing plan and seed.

    Attributes:
        name: short name, printed in every report.
        description: one sentence for people.
        kind: what is evaluated; ``text`` is the only kind so far.
        text: ``pydoc-topics`` (the reference topics that ship with CPython), or the path of a UTF-8 text file,
            relative to the suite's own file. ``FILE`` stands for a file that the user still has to name.
        window: tokens per window, BOS included.
        stride: tokens by which the next window moves on; below ``window``, windows overlap and each token is still
            scored once.
        windows: how many windows from the start of the text, or ``all``.
        bos: ``auto`` (one BOS per window if the tokenizer adds it by default), ``always`` or ``never``.
        batch_size: windows per forward pass when scoring.
        kl_windows: windows whose whole distribution is compared with the baseline's; each takes
            window x vocabulary x 4 bytes on disk.
        prompt_tokens: prompt of the prefill timing.
        decode_context: tokens in the cache before decode timing begins.
        decode_tokens: greedy steps per decode sample.
        decode_batches: batch sizes of the decode timing.
        warmup: untimed calls before the samples of each kind.
        repeats: timed samples of each kind.
        seed: of the bootstrap intervals.
    """

    name: str
    description: str = ""
    kind: Literal["text"] = "text"
    text: str = TOPICS
    window: int = Field(default=1024, ge=2)
    stride: int = Field(default=1024, ge=1)
    windows: int | Literal["all"] = 4
    bos: Literal["auto", "never", "always"] = "auto"
    batch_size: int = Field(default=1, ge=1)
    kl_windows: int = Field(default=4, ge=0)
    prompt_tokens: int = Field(default=128, ge=1)
    decode_context: int = Field(default=32, ge=1)
    decode_tokens: int = Field(default=32, ge=1)
    decode_batches: tuple[int, ...] = (1, 8)
    warmup: int = Field(default=2, ge=0)
    repeats: int = Field(default=7, ge=1)
    seed: int = Field(default=0, ge=0)

    @field_validator("windows")
    @classmethod
    def _some_windows(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 1:
            raise ValueError("must be at least 1, or 'all'")
        return value

    @field_validator("decode_batches")
    @classmethod
    def _distinct_batches(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1 or len(set(value)) != len(value):
            raise ValueError("must be one or more different batch sizes of at least 1")
        return value

    @model_validator(mode="after")
    def _stride_within_window(self) -> Self:
        if self.stride > self.window:
            raise ValueError(f"stride {self.stride} is above window {self.window}: tokens between would go unscored")
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data with every default filled in."""
        data: dict[str, Any] = self.model_dump(mode="json")
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Suite:
        """Build a suite from plain data, such as ``to_dict`` returns.

        Raises:
            RecipeError: with every problem at once.
        """
        return validate(cls, Located(data, source="suite"))

    def fingerprint(self) -> str:
        """SHA-256 (hex) over the settings and the text itself; name, description and paths do not count."""
        data = self.to_dict()
        for key in ("name", "description", "text"):
            data.pop(key)
        data["text_sha256"] = hashlib.sha256(self.read_text().encode()).hexdigest()
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()

    def read_text(self) -> str:
        """Return the whole text.

        The topics are joined in the order of their sorted keys with one empty line between two of them.

        Raises:
            UsageError: no file named yet, or it cannot be read as UTF-8, or it holds nothing but white space.
        """
        if self.text == TOPICS:
            return _topics()
        if self.text == FILE:
            raise UsageError(f"suite {self.name!r} needs a text file: write it as {self.name}:path/to/file.txt")
        try:
            text = Path(self.text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            detail = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"suite {self.name!r}: {self.text} cannot be read as UTF-8 text: {detail}") from None
        if not text.strip():
            raise UsageError(f"suite {self.name!r}: {self.text} is empty")
        return text

    @property
    def text_label(self) -> str:
        """What the text is, in words for reports."""
        return "reference topics of CPython (pydoc_data.topics)" if self.text == TOPICS else Path(self.text).name

    def fitted(self, max_positions: int | None) -> tuple[Suite, tuple[str, ...]]:
        """Return the suite a model with ``max_positions`` positions can take, and a note for each change.

        Args:
            max_positions: longest sequence of the model, or None where it has no limit.
        """
        if max_positions is None:
            return self, ()
        changes: dict[str, int] = {}
        if self.window > max_positions:
            changes["window"] = max_positions
            changes["stride"] = min(self.stride, max_positions)
        if self.prompt_tokens > max_positions:
            changes["prompt_tokens"] = max_positions
        if self.decode_context + self.decode_tokens > max_positions:
            changes["decode_context"] = max(1, min(self.decode_context, max_positions // 2))
            changes["decode_tokens"] = max(1, max_positions - changes["decode_context"])
        changes = {key: value for key, value in changes.items() if value != getattr(self, key)}
        notes = tuple(
            f"{key} is {value} instead of {getattr(self, key)}: the model takes {max_positions} positions"
            for key, value in changes.items()
        )
        return self.model_copy(update=changes), notes


def load_suite(name_or_path: str | Path) -> Suite:
    """Read a suite.

    Args:
        name_or_path: a ready suite (``text-quick``), a suite file (``mine.yaml``), a text file (``notes.txt``: the
            settings of text-quick over that text), or ready suite and text file (``text-wikitext2:notes.txt``).

    Raises:
        UsageError: none of these.
        RecipeError: the suite file is wrong; lists every problem with its line.
    """
    text = str(name_or_path)
    ready = ready_suites()
    if text in ready:
        return _resolve(ready[text])
    base, _, file = text.partition(":")
    if file and base in ready:
        return _over_file(_resolve(ready[base]), Path(file))
    path = Path(name_or_path)
    if path.suffix in {".yaml", ".yml"} and path.is_file():
        return _resolve(path)
    if path.is_file():
        return _over_file(_resolve(ready["text-quick"]), path)
    if path.suffix or "/" in text:
        raise UsageError(f"no suite or text file at {text}; ready suites: {', '.join(ready)}")
    hint = did_you_mean(text, ready)
    raise UsageError(f"no suite is called {text!r} ({hint + '; ' if hint else ''}ready suites: {', '.join(ready)})")


def ready_suites() -> dict[str, Path]:
    """Return the suites that ship with effkit, by name."""
    installed = PACKAGE_DIR / "evals"
    folder = installed if installed.is_dir() else PACKAGE_DIR.parent / "evals"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def default_suite(task: str) -> str:
    """Name the ready suite for a task: ``encoder-quick`` for encoders, else ``text-quick``."""
    return "encoder-quick" if task == "encoder" else "text-quick"


def _resolve(path: Path) -> Suite:
    located = read_yaml(path)
    suite = validate(Suite, located)
    if suite.text in {TOPICS, FILE}:
        return suite
    text = path.parent / Path(suite.text).expanduser()
    if not text.is_file():
        hint = f"allowed: {TOPICS}, or the path of a text file relative to {path.parent}"
        raise RecipeError([located.problem(("text",), f"no text file at {suite.text!r}", hint)], located.source)
    return suite.model_copy(update={"text": str(text.resolve())})


def _over_file(suite: Suite, path: Path) -> Suite:
    if not path.is_file():
        raise UsageError(f"no text file at {path}")
    return suite.model_copy(update={"name": f"{suite.name}:{path.name}", "text": str(path.resolve())})


def _topics() -> str:
    from pydoc_data.topics import topics

    return "\n\n".join(topics[key] for key in sorted(topics))
