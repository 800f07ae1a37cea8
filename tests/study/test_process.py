"""Workers: answers never mix with what libraries print, a death becomes a reason, and none outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from effkit.study.process import Worker, WorkerError
from effkit.study.worker import _classify
from tests.study.helpers import write_model


def test_an_unknown_order_is_an_error_and_the_worker_lives_on(tmp_path: Path) -> None:
    with Worker(tmp_path / "log") as worker:
        with pytest.raises(WorkerError, match="nonsense") as caught:
            worker.ask("nonsense")
        assert caught.value.status == "failed"
        with pytest.raises(WorkerError, match="nonsense"):
            worker.ask("nonsense")
    assert not psutil.pid_exists(worker.pid) or psutil.Process(worker.pid).status() == psutil.STATUS_ZOMBIE


def test_a_killed_worker_is_a_failure_when_memory_was_left(tmp_path: Path) -> None:
    with Worker(tmp_path / "log") as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="SIGKILL, with memory to spare") as caught:
            worker.ask("load")
    assert caught.value.status == "failed"


def test_a_worker_killed_when_memory_was_gone_ran_out_of_it(tmp_path: Path) -> None:
    with Worker(tmp_path / "log") as worker:
        worker._least_available = 1 << 20
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="1 MiB of memory were left") as caught:
            worker.ask("load")
    assert caught.value.status == "out_of_memory"


def test_a_worker_that_crashes_leaves_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("of an earlier run\n")
    with Worker(tmp_path / "log") as worker:
        assert worker._process.stdin is not None
        worker._process.stdin.write(b"no JSON\n")
        with pytest.raises(WorkerError, match=r"exit code 1 \(json.decoder.JSONDecodeError: .*log: ") as caught:
            worker.ask("load")
    assert caught.value.status == "failed"


def test_a_worker_ended_by_a_signal_does_not_blame_what_it_printed(tmp_path: Path) -> None:
    with Worker(tmp_path / "log") as worker:
        (tmp_path / "log").write_text("a harmless warning\n")
        os.kill(worker.pid, signal.SIGTERM)
        with pytest.raises(WorkerError, match="ended by SIGTERM; log: "):
            worker.ask("load")


def test_a_worker_aborted_by_its_memory_limit_ran_out_of_memory(tmp_path: Path) -> None:
    with Worker(tmp_path / "log", memory_limit_bytes=1 << 30) as worker:
        with (tmp_path / "log").open("a") as log:
            log.write("terminate called after throwing an instance of 'std::bad_alloc'\n")
        os.kill(worker.pid, signal.SIGABRT)
        with pytest.raises(WorkerError, match="at its memory limit") as caught:
            worker.ask("load")
    assert caught.value.status == "out_of_memory"


def test_answers_that_arrive_together_are_read_one_by_one(tmp_path: Path) -> None:
    with Worker(tmp_path / "log") as worker:
        receive, send = os.pipe()
        os.dup2(receive, worker._answers)
        os.write(send, b'{"kind": "progress", "done": 1, "total": 1}\n{"kind": "result", "value": 7}\n{"kind": "res')
        os.close(send)
        steps: list[tuple[int, int]] = []
        assert worker.ask("nonsense", on_progress=lambda done, total: steps.append((done, total))) == 7
        assert steps == [(1, 1)]
        worker._process.kill()
        with pytest.raises(WorkerError, match="SIGKILL"):
            worker.ask("nonsense")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MemoryError(), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), "out_of_memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_memory"),
        (RuntimeError("shape mismatch"), "failed"),
    ],
)
def test_running_out_of_memory_is_told_from_other_failures(error: Exception, status: str) -> None:
    assert _classify(error)["status"] == status


def test_a_memory_limit_makes_an_out_of_memory_answer(tmp_path: Path) -> None:
    source = write_model(tmp_path)
    with (
        Worker(tmp_path / "log", memory_limit_bytes=150 << 20) as worker,
        pytest.raises(WorkerError) as caught,
    ):
        worker.ask("prepare", source=str(source), dtype="float32", recipe=None, out=str(tmp_path / "out"), trust=False)
    assert caught.value.status == "out_of_memory", caught.value


def test_a_worker_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom effkit.study.process import Worker\n"
        "worker = Worker(Path(sys.argv[1]))\nprint(worker.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        time.sleep(0.5)
        parent.kill()
    gone, alive = psutil.wait_procs([child], timeout=20)
    assert gone and not alive
