"""What a running study tells its caller: plain values, so that a progress bar, a log and a test can all listen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from effkit.records import Variant

if TYPE_CHECKING:
    from effkit.planning import Plan

Stage = Literal["prepare", "load", "accuracy", "speed", "energy", "baseline"]


@dataclass(frozen=True)
class Planned:
    """Everything was checked; what will be done to which model."""

    source: str
    size: str
    notes: tuple[str, ...]
    plans: tuple[Plan, ...]


@dataclass(frozen=True)
class StageStarted:
    """A variant enters a stage."""

    variant: str
    stage: Stage


@dataclass(frozen=True)
class Progress:
    """``done`` of ``total`` steps of a stage are finished."""

    variant: str
    stage: Stage
    done: int
    total: int
    detail: str = ""


@dataclass(frozen=True)
class RowFinished:
    """A row is in the store; ``reused`` where an earlier run had measured it."""

    row: Variant
    reused: bool


@dataclass(frozen=True)
class Notice:
    """Something the user should know."""

    message: str


Event = Planned | StageStarted | Progress | RowFinished | Notice
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Listen to nothing."""
