"""What a study reuses, makes again and survives, with workers that only pretend: no process, no numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from effkit.errors import UsageError
from effkit.measure import roofline
from effkit.records import Accuracy, Ceilings, Energy, Memory, Results, Speed
from effkit.study import StudyConfig, ahead, run_study
from effkit.study.config import FP32
from effkit.study.events import Event, Notice
from effkit.study.process import WorkerError
from effkit.study.run import _Study
from tests.study.helpers import HEAD_DENSE, INT8, config, small_suite, write_model

WHY = "a pretended worker measures nothing"


class PretendedWorker:
    """Answers like a worker: checkpoints and baselines are small files that tell what they were made from."""

    def __init__(self, variant: str, job: str, orders: list[tuple[str, str, str]]) -> None:
        self.variant, self.job, self.orders = variant, job, orders
        self.checkpoint: Any = None
        self.companion_samples: Any = None

    def __enter__(self) -> PretendedWorker:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Nothing to end."""

    def ask(self, order: str, *, on_progress: Any = None, **given: Any) -> Any:
        """Obey, and remember who was asked what."""
        self.orders.append((self.variant, self.job, order))
        return getattr(self, order)(**given)

    def prepare(self, recipe: Any, out: str, **_: Any) -> dict[str, Any]:
        Path(out).mkdir(parents=True, exist_ok=True)
        (Path(out) / "effkit.json").write_text(json.dumps(recipe))
        return {"coverage": None, "checkpoint_bytes": 1, "compress_s": None, "peak_compress_rss_bytes": 1}

    def load(self, checkpoint: str, **_: Any) -> dict[str, Any]:
        self.checkpoint = json.loads((Path(checkpoint) / "effkit.json").read_text())
        return {"load_s": 1.0, "weight_bytes": 1}

    def accuracy(self, suite: Any, key: str, baseline: str | None, write_baseline: str | None) -> dict[str, Any]:
        if write_baseline:
            Path(write_baseline).mkdir(parents=True, exist_ok=True)
            (Path(write_baseline) / "baseline.json").write_text(json.dumps({"key": key}))
        if baseline and json.loads((Path(baseline) / "baseline.json").read_text())["key"] != key:
            raise WorkerError("failed", "the baseline belongs to something else")
        return Accuracy.missing("no baseline", suite=suite["name"]).model_dump(mode="json")

    def start_speed(self, suite: Any) -> list[str]:
        return ["prefill"]

    def warm_up(self, kind: str) -> None:
        """Nothing to warm."""

    def sample(self, kind: str) -> float:
        return 1.0

    def finish(self, baseline_samples: Any, **_: Any) -> dict[str, Any]:
        self.companion_samples = baseline_samples
        sections = {"memory": Memory.missing(WHY), "speed": Speed.missing(WHY), "energy": Energy.missing(WHY)}
        return {name: section.model_dump(mode="json") for name, section in sections.items()}


class Stage:
    """A study on pretended workers; ``fail`` decides which orders fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.orders: list[tuple[str, str, str]] = []
        self.events: list[Event] = []
        self.workers: list[PretendedWorker] = []
        self.fail: Callable[[str, str, str], bool] = lambda variant, job, order: False

    def worker(self, spec: Any, job: str) -> PretendedWorker:
        """Stands in for ``_Study._worker``."""
        stage = self

        class Failing(PretendedWorker):
            def ask(self, order: str, **given: Any) -> Any:
                if stage.fail(self.variant, self.job, order):
                    raise WorkerError("out_of_memory", f"{self.job} has no memory for {order}")
                return super().ask(order, **given)

        self.workers.append(Failing(spec.name, job, self.orders))
        return self.workers[-1]

    def run(self, **changes: Any) -> Results:
        """Run the study, and forget what earlier runs asked for."""
        self.orders.clear(), self.events.clear(), self.workers.clear()
        return run_study(config(self.folder, **changes), self.events.append)

    def measured(self, variant: str) -> PretendedWorker:
        """The worker that measured a variant in the last run."""
        return next(each for each in self.workers if (each.variant, each.job) == (variant, "measure"))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    write_model(tmp_path)
    made = Stage(tmp_path)
    ceilings = Ceilings.missing("not measured in this test", device="cpu")
    monkeypatch.setattr(roofline, "measure_ceilings", lambda device, refresh=False: ceilings)
    monkeypatch.setattr(ahead, "_busy_note", lambda: "")
    monkeypatch.setattr(_Study, "_worker", lambda self, spec, job: made.worker(spec, job))
    return made


def test_a_checkpoint_of_another_recipe_of_the_same_name_is_never_measured(stage: Stage) -> None:
    stage.fail = lambda variant, job, order: (variant, job, order) == ("int8", "measure", "load")
    assert stage.run().variants[1].status == "out_of_memory"  # prepared, but not measured
    stage.fail = lambda *_: False
    assert stage.run(recipes=(HEAD_DENSE,)).variants[1].status == "ok"
    assert stage.run(recipes=(INT8,)).variants[1].status == "ok"
    assert ("int8", "prepare", "prepare") in stage.orders
    assert stage.measured("int8").checkpoint == INT8.to_dict()


def test_a_reused_rows_checkpoint_is_its_own_again(stage: Stage) -> None:
    first = stage.run()
    stage.run(recipes=(HEAD_DENSE,))
    again = stage.run()
    assert again.variants[1] == first.variants[1], "the finished row was reused"
    assert [order for order in stage.orders if order[0] == "int8"] == [("int8", "prepare", "prepare")]
    checkpoint = stage.folder / "run" / "variants" / "int8" / "effkit.json"
    assert json.loads(checkpoint.read_text()) == INT8.to_dict()


def test_ceilings_are_measured_again_before_rows_are_and_never_for_reused_ones(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def measure(device: str, refresh: bool = False) -> Ceilings:
        asked.append(refresh)
        return Ceilings.missing("not measured in this test", device=device)

    monkeypatch.setattr(roofline, "measure_ceilings", measure)
    stage.run()
    assert asked == [False, True]
    stage.run()
    assert asked == [False, True, False]


def test_a_prepared_checkpoint_is_not_made_twice(stage: Stage) -> None:
    stage.fail = lambda variant, job, order: (variant, job, order) == ("int8", "measure", "load")
    stage.run()
    stage.fail = lambda *_: False
    stage.run()
    assert ("int8", "prepare", "prepare") not in stage.orders
    assert not any(variant == FP32 and job == "measure" for variant, job, _ in stage.orders), "fp32 was finished"


def test_a_baseline_of_another_model_is_made_again(stage: Stage) -> None:
    stage.fail = lambda variant, job, order: (variant, job, order) == ("int8", "measure", "load")
    stage.run()
    header = stage.folder / "run" / "baseline" / "small" / "baseline.json"
    header.write_text(json.dumps({"key": "of another model"}))
    stage.fail = lambda *_: False
    assert [row.status for row in stage.run().variants] == ["ok", "ok"]
    assert (FP32, "baseline", "accuracy") in stage.orders


def test_a_baseline_that_cannot_be_made_again_costs_the_comparison_only(stage: Stage) -> None:
    assert len(stage.run(recipes=()).variants) == 1
    stage.fail = lambda variant, job, order: job == "baseline"
    int8 = stage.run().variants[1]
    assert int8.status == "ok"
    assert "could not be made again: baseline has no memory for load" in int8.accuracy.reasons["kl_mean"]
    assert any(isinstance(event, Notice) for event in stage.events)


@pytest.mark.parametrize("order", ["load", "start_speed", "warm_up", "sample"])
def test_the_end_of_the_fp32_companion_costs_speedups_only(stage: Stage, order: str) -> None:
    stage.fail = lambda variant, job, asked: (job, asked) == ("companion", order)
    results = stage.run(recipes=(INT8, HEAD_DENSE))
    assert [row.status for row in results.variants] == ["ok", "ok", "ok"]
    assert stage.measured("int8").companion_samples is None
    notices = [event.message for event in stage.events if isinstance(event, Notice)]
    assert notices and f"companion has no memory for {order}" in notices[0]


def test_samples_are_taken_alternately_in_the_order_a_b_b_a(stage: Stage) -> None:
    stage.run()
    order = [job for _, job, asked in stage.orders if asked == "sample" and job in {"measure", "companion"}]
    assert order[-6:] == ["measure", "companion", "companion", "measure", "measure", "companion"]
    assert stage.measured("int8").companion_samples == {"prefill": [1.0, 1.0, 1.0]}


def test_two_suites_of_one_name_are_refused(stage: Stage) -> None:
    suite = small_suite(stage.folder)
    with pytest.raises(UsageError, match="names of their own: small, small"):
        stage.run(suites=(suite, suite))
    assert stage.orders == []


def test_a_resumed_run_may_use_the_disk_that_its_own_files_take(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    stage.run(recipes=())
    left = stage.folder / "run" / "variants" / "old.safetensors"
    left.parent.mkdir(parents=True, exist_ok=True)
    with left.open("wb") as file:
        file.truncate(1 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1 << 40, 1 << 40, 1000))
    assert [row.status for row in stage.run().variants] == ["ok", "ok"]


@pytest.mark.parametrize(("percent", "told"), [(80.0, True), (10.0, False)])
def test_a_busy_machine_is_told_and_noted_for_good(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, percent: float, told: bool
) -> None:
    monkeypatch.undo()
    ceilings = Ceilings.missing("not measured in this test", device="cpu")
    monkeypatch.setattr(roofline, "measure_ceilings", lambda device, refresh=False: ceilings)
    monkeypatch.setattr(_Study, "_worker", lambda self, spec, job: stage.worker(spec, job))
    monkeypatch.setattr(ahead.psutil, "cpu_percent", lambda interval: percent)
    results = stage.run()
    assert any("busy" in note for note in results.protocol.notes) == told
    assert any(isinstance(event, Notice) and "busy" in event.message for event in stage.events) == told
    monkeypatch.setattr(ahead.psutil, "cpu_percent", lambda interval: 100.0 - percent)
    assert stage.run().protocol.notes == results.protocol.notes, "nothing was measured, so nothing changes"


def test_recipes_of_one_name_become_rows_of_their_own(stage: Stage) -> None:
    results = stage.run(recipes=(INT8, HEAD_DENSE))
    assert [row.name for row in results.variants] == ["fp32", "int8", "int8-2"]
    assert [row.recipe for row in results.variants] == [None, "int8", "int8"]


def test_a_study_is_a_plain_value() -> None:
    with pytest.raises(AttributeError):
        StudyConfig("a", (), (), Path("b")).source = "c"  # type: ignore[misc]
