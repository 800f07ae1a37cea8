"""Shows a running study: bars with stage and remaining time on a terminal, one line per finished row elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from effkit.cli.common import err_console

if TYPE_CHECKING:
    from rich.progress import TaskID

    from effkit.study.events import Event, Planned

STAGES = {
    "prepare": "loading and compressing",
    "load": "loading the finished variant",
    "accuracy": "accuracy",
    "speed": "speed",
    "energy": "memory and energy",
    "baseline": "baseline",
}


class StudyProgress:
    """A listener for :func:`effkit.study.run_study`; a context manager that leaves the terminal clean.

    Args:
        quiet: show nothing at all.
        variants: number of rows to come.
    """

    def __init__(self, *, quiet: bool, variants: int) -> None:
        self._console = err_console()
        self._quiet = quiet
        self._bars = None
        self._row: TaskID | None = None
        if not quiet and self._console.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
            from rich.progress import TimeElapsedColumn as Elapsed
            from rich.progress import TimeRemainingColumn as Remaining

            left = Remaining(compact=True)
            self._bars = Progress(
                SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
                TextColumn("left"), left, TextColumn("·"), Elapsed(),
                console=self._console, transient=True,
            )  # fmt: skip
            self._all = self._bars.add_task("variants", total=variants)

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        from effkit.study.events import Notice, Planned, Progress, RowFinished, StageStarted

        if self._quiet:
            return
        if isinstance(event, Planned):
            self._plan(event)
        elif isinstance(event, StageStarted):
            self._stage(f"{event.variant}: {STAGES[event.stage]}", None)
        elif isinstance(event, Progress):
            if self._bars is not None and self._row is not None:
                self._bars.update(self._row, total=event.total, completed=event.done)
        elif isinstance(event, RowFinished):
            row = event.row
            how = "measured before" if event.reused else "done" if row.status == "ok" else f"{row.status}: {row.reason}"
            self._console.print(f"{row.name}: {how}", markup=False)
            if self._bars is not None:
                self._bars.advance(self._all)
        elif isinstance(event, Notice):
            self._console.print(f"note: {event.message}", markup=False)

    def _plan(self, event: Planned) -> None:
        from effkit.cli.plan import summary_line

        lines = [f"{event.source}: {event.size}", *(f"note: {note}" for note in event.notes)]
        for line in (*lines, *(summary_line(plan) for plan in event.plans)):
            self._console.print(line, markup=False, soft_wrap=True)

    def _stage(self, description: str, total: int | None) -> None:
        if self._bars is None:
            return
        if self._row is not None:
            self._bars.remove_task(self._row)
        self._row = self._bars.add_task(description, total=total)
