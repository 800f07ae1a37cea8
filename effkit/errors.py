"""The exceptions a user of effkit can meet; each one names the thing, the allowed values and the mend.

Knows nothing of torch, models or files. ``exit_code`` is what the command line ends with: 2 when the
request itself was wrong, 1 when a right request could not be carried out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class EffkitError(Exception):
    """Base of every error that effkit raises on purpose."""

    exit_code = 1


class UsageError(EffkitError):
    """The request cannot be meant: an unknown name, an option out of range, a path that is not there."""

    exit_code = 2


@dataclass(frozen=True)
class Problem:
    """One fault of a recipe or suite file.

    Attributes:
        where: dotted path of the setting, such as ``passes[0].weights``.
        message: what is wrong, with the value found.
        mend: what to write instead; empty where nothing better can be said.
        line: 1-based line in the file, or None for settings that came from Python.
    """

    where: str
    message: str
    mend: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}, {self.where}" if self.line is not None else self.where
        return f"{place}: {self.message}" + (f" ({self.mend})" if self.mend else "")


class RecipeError(UsageError):
    """A recipe (or suite) is wrong; carries every problem found, not only the first."""

    def __init__(self, problems: Sequence[Problem], source: str = "recipe") -> None:
        self.problems = tuple(problems)
        self.source = source
        count = len(self.problems)
        head = f"{source}: {count} problem{'s' if count != 1 else ''}"
        super().__init__("\n".join([head, *(f"  - {problem}" for problem in self.problems)]))


class PlanError(UsageError):
    """The recipe is well formed but does not fit this model."""


class SourceError(UsageError):
    """The model source cannot be resolved: unknown hub id, missing directory, no sample of that name."""


class CheckpointError(EffkitError):
    """A checkpoint is damaged, incomplete or unsafe, or could not be written."""


class MeasureError(EffkitError):
    """A measurement could not be taken."""


class StudyError(EffkitError):
    """A run of several variants could not go on."""


def did_you_mean(word: str, known: Iterable[str], limit: int = 3) -> str:
    """Return ``"did you mean 'a' or 'b'?"`` for the nearest known words, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=limit, cutoff=0.6)
    return f"did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
