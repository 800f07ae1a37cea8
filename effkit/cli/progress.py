"""Shows a running study: one bar with stage and remaining time on a terminal, one line per finished row elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from effkit.cli.common import err_console, say

if TYPE_CHECKING:
    from effkit.study.events import Event, Planned, Progress, RowFinished

STAGES = {
    "prepare": ("preparing", 0.0, 0.2),
    "load": ("loading", 0.2, 0.25),
    "baseline": ("accuracy", 0.25, 0.6),
    "accuracy": ("accuracy", 0.25, 0.6),
    "speed": ("speed", 0.6, 0.9),
    "energy": ("memory, energy", 0.9, 1.0),
}
"""What a stage is called, and about which part of a variant's time it takes."""


class StudyProgress:
    """A listener for :func:`effkit.study.run_study`; a context manager that leaves the terminal clean.

    Args:
        quiet: show nothing at all.
        variants: number of rows to come.
    """

    def __init__(self, *, quiet: bool, variants: int) -> None:
        self._console = err_console()
        self._quiet = quiet
        self._estimate = Estimate(variants)
        self._bar: Any = None
        self._task: Any = None
        if not quiet and self._console.is_terminal:
            from rich.progress import BarColumn, SpinnerColumn, TextColumn
            from rich.progress import Progress as Bar

            texts = [TextColumn(f"{{task.{field}}}") for field in ("description", "fields[rows]", "fields[left]")]
            self._bar = Bar(SpinnerColumn(), texts[0], BarColumn(20), *texts[1:], console=self._console, transient=True)
            self._task = self._bar.add_task("checking", total=variants, rows="", left="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        from effkit.study.events import Notice, Planned, Progress, RowFinished, StageStarted

        if self._quiet:
            return
        if isinstance(event, Planned):
            self._plan(event)
        elif isinstance(event, StageStarted):
            self._estimate.enter(event.stage)
            self._show(f"{event.variant}: {STAGES[event.stage][0]}")
        elif isinstance(event, Progress):
            self._step(event)
        elif isinstance(event, RowFinished):
            self._finish(event)
        elif isinstance(event, Notice):
            say(self._console, f"note: {event.message}")

    def _plan(self, event: Planned) -> None:
        from effkit.cli.plan import summary_line

        lines = [f"{event.source}: {event.size}", *(f"note: {note}" for note in event.notes)]
        for line in (*lines, *(summary_line(plan) for plan in event.plans)):
            say(self._console, line)

    def _step(self, event: Progress) -> None:
        self._estimate.enter(event.stage, event.done / max(event.total, 1))
        self._show(f"{event.variant}: {STAGES[event.stage][0]} {event.done}/{event.total}")

    def _finish(self, event: RowFinished) -> None:
        self._estimate.finish(event.reused)
        row = event.row
        how = "measured before" if event.reused else "done" if row.status == "ok" else f"{row.status}: {row.reason}"
        say(self._console, f"{row.name}: {how}")
        self._show(f"{row.name}: done")

    def _show(self, description: str) -> None:
        if self._bar is not None:
            estimate = self._estimate
            rows = f"{estimate.finished}/{estimate.rows} variants"
            self._bar.update(
                self._task, description=description, completed=estimate.done, rows=rows, left=estimate.words()
            )


class Estimate:
    """How far a study is, and about how long it still takes; rows measured before take no time.

    Args:
        rows: number of rows.
        clock: seconds, monotonic; for tests.
    """

    def __init__(self, rows: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rows = rows
        self.finished = 0
        self.done = 0.0
        self._reused = 0
        self._clock = clock
        self._start: float | None = None

    def enter(self, stage: str, share: float = 0.0) -> None:
        """A stage has begun, or ``share`` of it is over; never goes back, as for the baseline's own stages."""
        if self._start is None:
            self._start = self._clock()
        _, begin, end = STAGES[stage]
        self.done = max(self.done, self.finished + begin + share * (end - begin))

    def finish(self, reused: bool) -> None:
        """A row is in the store."""
        self.finished += 1
        self._reused += reused
        self.done = max(self.done, float(self.finished))

    def left_s(self) -> float | None:
        """Seconds still to go, or None while nothing is known."""
        worked = self.done - self._reused
        if self._start is None or worked < 0.05:  # too little to tell
            return None
        return (self._clock() - self._start) * (self.rows - self.done) / worked

    def words(self) -> str:
        """``about 2:05 left``, or nothing while that is unknown."""
        left = self.left_s()
        return "" if left is None else f"about {int(left) // 60}:{int(left) % 60:02d} left"
