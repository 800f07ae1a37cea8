"""Whole studies on a tiny model: rows, resumption after any kind of end, failures as rows, nothing mistaken."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from effkit.cli import main
from effkit.errors import PlanError, UsageError
from effkit.recipe import Recipe
from effkit.records import Results, Variant
from effkit.study import load_results, run_study
from effkit.study.events import Event, Planned, RowFinished, StageStarted
from effkit.study.run import _Study
from effkit.study.store import Store
from tests.study.helpers import HEAD_DENSE, INT8, config, write_model, write_suite


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    """One complete study with fp32, bf16 and int8, shared by the tests that only look."""
    folder = tmp_path_factory.mktemp("study")
    write_model(folder)
    return folder, run_study(config(folder, include_bf16=True))


def row(results: Results, name: str) -> Variant:
    found = results.variant(name)
    assert found is not None
    return found


def without_timings(results: Results) -> dict[str, Any]:
    """All that must not depend on when and how fast something ran."""
    kept = {"name", "recipe", "status", "fingerprint", "coverage", "accuracy", "accuracy_by_suite"}
    rows = [variant.model_dump(include=kept) for variant in results.variants]
    sizes = [(v.memory.weight_bytes, v.memory.weight_bytes_ratio, v.memory.checkpoint_bytes) for v in results.variants]
    notes = [note for note in results.protocol.notes if "busy" not in note]
    return {"rows": rows, "sizes": sizes, "protocol": {**results.protocol.model_dump(), "notes": notes}}


def test_every_variant_is_a_complete_row(finished: tuple[Path, Results]) -> None:
    _, results = finished
    assert [variant.name for variant in results.variants] == ["fp32", "bf16", "int8"]
    for variant in results.variants:
        assert variant.status == "ok" and variant.fingerprint
        assert variant.accuracy.perplexity is not None and variant.accuracy.kl_mean is not None
        assert variant.memory.peak_rss_bytes is not None and variant.memory.peak_compress_rss_bytes is not None
        assert variant.speed.decode_tokens_per_s is not None and variant.speed.decode_bandwidth_share is not None
        assert variant.energy.decode_j_per_token is not None
    assert len({variant.fingerprint for variant in results.variants}) == 3


def test_the_baseline_is_its_own_measure(finished: tuple[Path, Results]) -> None:
    fp32 = row(finished[1], "fp32")
    assert fp32.accuracy.perplexity_ratio == 1.0 and fp32.accuracy.kl_max == 0.0
    assert fp32.memory.weight_bytes_ratio == 1.0 and fp32.speed.decode_speedup == 1.0


def test_compressed_rows_are_smaller_and_close(finished: tuple[Path, Results]) -> None:
    int8, bf16 = row(finished[1], "int8"), row(finished[1], "bf16")
    assert int8.memory.weight_bytes_ratio is not None and int8.memory.weight_bytes_ratio < 0.3
    assert bf16.memory.weight_bytes_ratio is not None and 0.49 < bf16.memory.weight_bytes_ratio < 0.51
    assert int8.accuracy.perplexity_ratio is not None and abs(int8.accuracy.perplexity_ratio - 1) < 0.05
    assert int8.coverage is not None and int8.coverage.share > 0.99 and int8.coverage.skipped


def test_speedups_come_from_as_many_pairs_as_samples(finished: tuple[Path, Results]) -> None:
    results = finished[1]
    assert results.protocol.interleaved
    statistics = row(results, "int8").speed.statistics
    assert statistics["decode_speedup"].count == statistics["decode_tokens_per_s"].count == 3


def test_a_complete_run_leaves_the_compressed_checkpoint_and_no_large_scratch(finished: tuple[Path, Results]) -> None:
    out = finished[0] / "run"
    assert (out / "variants" / "int8" / "effkit.json").is_file()
    assert not (out / "variants" / "fp32").exists() and not (out / "baseline").exists()


def test_the_store_gives_the_same_results_as_the_run(finished: tuple[Path, Results]) -> None:
    folder, results = finished
    assert load_results(folder / "run") == results


def test_the_same_command_again_measures_nothing(finished: tuple[Path, Results]) -> None:
    folder, results = finished
    events: list[Event] = []
    again = run_study(config(folder, include_bf16=True), events.append)
    assert again.variants == results.variants and again.protocol == results.protocol  # "busy" is of the first run
    assert isinstance(events[0], Planned) and len(events) == 4
    assert all(isinstance(event, RowFinished) and event.reused for event in events[1:])


@pytest.mark.slow
def test_a_changed_recipe_of_the_same_name_is_measured_and_the_rest_reused(finished: tuple[Path, Results]) -> None:
    folder, results = finished
    events: list[Event] = []
    changed = run_study(config(folder, include_bf16=True, recipes=(HEAD_DENSE,)), events.append)
    reused = {event.row.name: event.reused for event in events if isinstance(event, RowFinished)}
    assert reused == {"fp32": True, "bf16": True, "int8": False}
    new, old = row(changed, "int8"), row(results, "int8")
    assert new.fingerprint != old.fingerprint
    assert new.memory.weight_bytes is not None and old.memory.weight_bytes is not None
    assert new.memory.weight_bytes > old.memory.weight_bytes
    assert new.accuracy.kl_mean is not None, "the baseline's logits were made again for the new row"


def test_reports_are_written_again_from_the_store_alone(
    finished: tuple[Path, Results], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, results = finished
    assert main(["report", str(folder / "run"), "--out", str(tmp_path / "again"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "again" / "results.json").read_text())
    assert [row["name"] for row in printed["variants"]] == [row.name for row in results.variants]
    assert "int8" in (tmp_path / "again" / "report.html").read_text()
    script = "import sys; from effkit.cli import main; main(['report', sys.argv[1]]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, str(folder / "run")], capture_output=True, text=True)
    assert done.stdout.endswith("False\n"), done.stderr


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "effkit", "compress-eval", str(folder / "model"), "--recipe", "int8", "--no-bf16",
        "--suite", str(write_suite(folder)), "--device", "cpu", "--out", str(folder / "run"), *options,
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Any, process: subprocess.Popen[str]) -> None:
    for _ in range(1200):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("the condition did not come true within a minute")


def fp32_finished_at(folder: Path) -> str | None:
    if not (folder / "run" / "run.sqlite").is_file():
        return None
    store = Store(folder / "run", read_only=True)
    try:
        found = store._db.execute("SELECT finished_at FROM stages WHERE variant='fp32' AND stage='row'").fetchone()
    except sqlite3.Error:  # not created yet
        return None
    finally:
        store.close()
    return None if found is None else str(found[0])


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGINT, signal.SIGTERM))]
)
def test_a_run_that_is_ended_in_its_second_variant_goes_on_from_there(
    tmp_path: Path, finished: tuple[Path, Results], how: signal.Signals
) -> None:
    write_model(tmp_path)
    process = start(tmp_path)
    log = tmp_path / "run" / "logs" / "int8-measure.log"
    wait_for(lambda: fp32_finished_at(tmp_path) and log.is_file(), process)
    process.send_signal(how)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == (-9 if how == signal.SIGKILL else 130)
    if how != signal.SIGKILL:
        assert "the same command goes on from there" in errors and "Traceback" not in errors
    first = fp32_finished_at(tmp_path)
    resumed = start(tmp_path, "--json")
    output, errors = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, errors
    assert [row["name"] for row in json.loads(output)["variants"]] == ["fp32", "int8"]
    assert "fp32: measured before" in errors and "int8: done" in errors
    assert fp32_finished_at(tmp_path) == first, "the finished row was not measured again"
    found = without_timings(load_results(tmp_path / "run"))
    whole = without_timings(finished[1].model_copy(update={"variants": finished[1].variants[::2]}))
    assert found == whole


@pytest.mark.slow
def test_a_variant_that_runs_out_of_memory_is_a_row_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path)
    usual = _Study._worker

    def starved(self: _Study, spec: Any, job: str) -> Any:
        if spec.name == "int8" and job == "prepare":
            from effkit.study.process import Worker

            return Worker(self.config.out / "logs" / "starved.log", memory_limit_bytes=120 << 20)
        return usual(self, spec, job)

    monkeypatch.setattr(_Study, "_worker", starved)
    results = run_study(config(tmp_path, recipes=(INT8, HEAD_DENSE)))
    assert [variant.status for variant in results.variants] == ["ok", "out_of_memory", "ok"]
    failed = results.variants[1]
    assert failed.reason and failed.accuracy.reasons["perplexity"] == "the variant ran out of memory"
    monkeypatch.undo()
    again = run_study(config(tmp_path, recipes=(INT8, HEAD_DENSE)))
    assert [variant.status for variant in again.variants] == ["ok"] * 3, "a failed row is tried again"


def test_without_a_baseline_the_others_are_measured_and_say_what_they_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path)
    usual = _Study._worker

    def no_fp32(self: _Study, spec: Any, job: str) -> Any:
        worker = usual(self, spec, job)
        if spec.name == "fp32":
            os.kill(worker.pid, signal.SIGKILL)
        return worker

    monkeypatch.setattr(_Study, "_worker", no_fp32)
    fp32, int8 = run_study(config(tmp_path)).variants
    assert fp32.status == "failed" and "SIGKILL" in fp32.reason
    assert int8.status == "ok" and int8.accuracy.perplexity is not None
    assert int8.accuracy.perplexity_ratio is None and "fp32" in int8.accuracy.reasons["perplexity_ratio"]
    assert int8.memory.weight_bytes_ratio is None and int8.speed.decode_speedup is None


def test_everything_is_checked_before_any_work(tmp_path: Path) -> None:
    write_model(tmp_path)
    events: list[Event] = []
    wrong = Recipe.from_dict({"name": "wrong", "passes": [{"use": "int8", "skip": ["lm_heads"]}]})
    with pytest.raises(PlanError, match="lm_head"):
        run_study(config(tmp_path, recipes=(INT8, wrong)), events.append)
    with pytest.raises(UsageError, match="--device 'gpu' is not known"):
        run_study(config(tmp_path, device="gpu"), events.append)
    assert not any(isinstance(event, StageStarted) for event in events)


def test_a_full_disk_is_told_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil
    from collections import namedtuple

    write_model(tmp_path)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 1000))
    with pytest.raises(UsageError, match="GB free, the run needs up to"):
        run_study(config(tmp_path))


def test_an_already_compressed_model_is_refused(tmp_path: Path, finished: tuple[Path, Results]) -> None:
    compressed = finished[0] / "run" / "variants" / "int8"
    settings = config(tmp_path)
    with pytest.raises(UsageError, match="already compressed"):
        run_study(type(settings)(**{**settings.__dict__, "source": str(compressed)}))


@pytest.mark.slow
def test_an_encoder_is_measured_by_its_vectors(tmp_path: Path) -> None:
    from tests.tiny import tiny_bert

    write_model(tmp_path, model=tiny_bert())
    fp32, int8 = run_study(config(tmp_path)).variants
    assert (fp32.status, int8.status) == ("ok", "ok"), (fp32.reason, int8.reason)
    assert int8.accuracy.output_cosine_mean is not None and int8.accuracy.output_cosine_mean > 0.99
    assert int8.accuracy.perplexity is None and int8.speed.decode_tokens_per_s is None
    assert int8.speed.prefill_speedup is not None
