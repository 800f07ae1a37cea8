"""Progress of a study: an estimate that never goes back, and nothing but lines where there is no terminal."""

from __future__ import annotations

import pytest

from effkit.cli.progress import STAGES, Estimate, StudyProgress
from effkit.study.events import Notice, Progress, StageStarted


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_estimate_follows_the_share_of_the_work_that_is_over() -> None:
    clock = Clock()
    estimate = Estimate(2, clock)
    estimate.enter("prepare")
    assert estimate.left_s() is None and estimate.words() == ""
    clock.now = 30.0
    estimate.finish(reused=False)
    assert estimate.left_s() == pytest.approx(30.0)
    assert estimate.words() == "about 0:30 left"


def test_rows_measured_before_take_no_time_in_the_estimate() -> None:
    clock = Clock()
    estimate = Estimate(3, clock)
    estimate.finish(reused=True)
    estimate.enter("prepare")
    clock.now = 60.0
    estimate.finish(reused=False)
    assert estimate.left_s() == pytest.approx(60.0)


def test_the_bar_never_goes_back() -> None:
    estimate = Estimate(2)
    seen = []
    for stage in ("prepare", "load", "accuracy", "speed", "load", "speed", "energy"):
        estimate.enter(stage)
        seen.append(estimate.done)
    assert seen == sorted(seen)


def test_every_stage_has_a_name_and_a_part_of_the_time() -> None:
    from typing import get_args

    from effkit.study.events import Stage

    assert set(STAGES) == set(get_args(Stage))


def test_without_a_terminal_stages_are_silent_and_notices_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with StudyProgress(quiet=False, variants=2) as show:
        show(StageStarted("fp32", "prepare"))
        show(Progress("fp32", "speed", 1, 7))
        show(Notice("something to know"))
    assert capsys.readouterr() == ("", "note: something to know\n")


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with StudyProgress(quiet=True, variants=2) as show:
        show(Notice("something to know"))
    assert capsys.readouterr() == ("", "")
