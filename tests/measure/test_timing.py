from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from effkit.measure.statistics import summarise
from effkit.measure.timing import HostTimer, repeat, timer_for


class FakeClock:
    """Nanoseconds that pass only when work says so."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def work(self, *seconds: float) -> Callable[[], None]:
        durations = iter(seconds)

        def run() -> None:
            self.now_ns += round(next(durations) * 1e9)

        return run


def test_a_slow_first_call_moves_no_sample_after_warm_up() -> None:
    clock = FakeClock()
    samples = repeat(clock.work(1.0, 0.01, 0.01, 0.01), warmup=1, repeats=3, timer=HostTimer(clock_ns=clock))
    assert samples == (0.01,) * 3


def test_a_slow_first_call_does_not_move_the_median_even_without_warm_up() -> None:
    clock = FakeClock()
    samples = repeat(clock.work(1.0, *[0.01] * 6), warmup=0, repeats=7, timer=HostTimer(clock_ns=clock))
    assert summarise(samples, "s").median == 0.01


def test_the_device_is_idle_before_each_read_of_the_clock() -> None:
    events: list[str] = []

    def clock() -> int:
        events.append("read")
        return 0

    HostTimer(synchronise=lambda: events.append("wait"), clock_ns=clock).seconds(lambda: events.append("work"))
    assert events == ["wait", "read", "work", "wait", "read"]


def test_the_cpu_is_timed_by_the_host() -> None:
    assert isinstance(timer_for("cpu"), HostTimer)


@pytest.mark.gpu
def test_cuda_events_see_the_whole_of_the_queued_work() -> None:
    x = torch.ones(4096, 4096, device="cuda")
    timer = timer_for("cuda")
    timer.seconds(lambda: x @ x)
    one, many = timer.seconds(lambda: x @ x), timer.seconds(lambda: [x @ x for _ in range(20)])
    assert many > 5 * one
