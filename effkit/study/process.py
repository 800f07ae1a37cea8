"""A worker process: started fresh, told what to do by JSON lines, gone when its parent is gone.

Orders go to its standard input, answers come back on a pipe of their own; whatever it or a library prints goes to
a log file and can never be mistaken for an answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil

from effkit.errors import StudyError
from effkit.records import Status

NEARLY_NOTHING = 0.03
"""Share of memory below which a SIGKILL is taken for the kernel's out-of-memory killer."""

OUT_OF_MEMORY_WORDS = (
    "not enough memory",
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "unable to allocate",
    "memory allocation",
    "insufficient memory",
    "memoryerror",
    "bad_alloc",
    "failed to map segment",
)
CGROUP_EVENTS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))
SAMPLE_S = 0.5
TELLING = ("Error", "error:", "Fatal", "fatal", "terminate called", "Segmentation", "Killed")
READ_BYTES = 1 << 16


def speaks_of_memory(text: str) -> bool:
    """Whether a message of torch, CUDA, numpy, the C++ library or the loader says that memory was refused."""
    return any(words in text.lower() for words in OUT_OF_MEMORY_WORDS)


class WorkerError(StudyError):
    """A worker answered with an error, or died.

    Attributes:
        status: ``failed`` or ``out_of_memory``.
        reason: for the row, in words.
    """

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Worker:
    """One worker process; a context manager that ends it whatever happens.

    Args:
        log: file for everything it prints; appended to.
        memory_limit_bytes: limit on its private memory, or None.
    """

    def __init__(self, log: Path, *, memory_limit_bytes: int | None = None) -> None:
        self._log_path = log
        self._limit = memory_limit_bytes
        self._oom_kills = _oom_kills()
        self._least_available = psutil.virtual_memory().available
        log.parent.mkdir(parents=True, exist_ok=True)
        receive, send = os.pipe()
        with log.open("ab") as output:
            self._log_start = output.tell()
            numbers = (send, memory_limit_bytes or 0, os.getpid())
            self._process = subprocess.Popen(
                [sys.executable, "-m", "effkit.study.worker", *map(str, numbers)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(send,),
                start_new_session=True,  # Ctrl-C reaches the parent alone, which then ends its workers in order
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        os.close(send)
        self._answers = receive
        self._unread = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Process number."""
        return self._process.pid

    def ask(self, order: str, *, on_progress: Callable[[int, int], None] | None = None, **arguments: Any) -> Any:
        """Send an order and wait for its answer.

        Args:
            order: name of a method of ``effkit.study.worker.Orders``.
            on_progress: called with steps done and steps in all.
            arguments: JSON data.

        Raises:
            WorkerError: it answered with an error, or died.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps({"order": order, **arguments}) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None
        while line := self._read():
            answer = json.loads(line)
            if answer["kind"] == "progress":
                if on_progress is not None:
                    on_progress(answer["done"], answer["total"])
            elif answer["kind"] == "result":
                return answer["value"]
            else:
                raise WorkerError(answer["status"], answer["reason"] + self._limit_note(answer["status"]))
        raise self._death()

    def _read(self) -> bytes:
        """Next answer, or nothing at the end; keeps an eye on how much memory is left meanwhile.

        Reads the pipe itself: a buffered file may hold a second line already, of which select() knows nothing.
        """
        while b"\n" not in self._unread:
            self._least_available = min(self._least_available, psutil.virtual_memory().available)
            if not select.select([self._answers], [], [], SAMPLE_S)[0]:
                continue
            chunk = os.read(self._answers, READ_BYTES)
            if not chunk:
                return b""  # half a line without its end is the last breath of a killed worker
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _death(self) -> WorkerError:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return self._killed()
        last = self._last_line()
        if self._limit and speaks_of_memory(last):
            return WorkerError("out_of_memory", f"the process ended at its memory limit: {last}")
        what = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        quoted = f" ({last})" if last else ""
        return WorkerError("failed", f"the worker process {what}{quoted}; log: {self._log_path}")

    def _killed(self) -> WorkerError:
        """Tell the kernel's out-of-memory killer from anybody else who sent SIGKILL."""
        if _oom_kills() > self._oom_kills:
            return WorkerError(
                "out_of_memory", "the kernel's out-of-memory killer ended the process (cgroup count rose)"
            )
        if self._least_available < NEARLY_NOTHING * psutil.virtual_memory().total:
            left = self._least_available >> 20
            return WorkerError("out_of_memory", f"the process was killed when {left} MiB of memory were left")
        return WorkerError(
            "failed", "the process was ended by SIGKILL, with memory to spare: not by this machine's limits"
        )

    def _last_line(self) -> str:
        """The last line of this process's log that speaks of an error; libraries write warnings there as well."""
        with self._log_path.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        telling = [line.strip() for line in lines if speaks_of_memory(line) or any(word in line for word in TELLING)]
        return telling[-1][:200] if telling else ""

    def _limit_note(self, status: str) -> str:
        if status != "out_of_memory" or not self._limit:
            return ""
        return f" (each process was limited to {self._limit / 1e6:,.0f} MB of private memory)"

    def end(self) -> None:
        """End the process; at once where it does not leave by itself."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)


def _oom_kills() -> int:
    """How often the kernel's out-of-memory killer struck in this control group; 0 where that is not told."""
    for path in CGROUP_EVENTS:
        try:
            words = path.read_text().split()
        except OSError:
            continue
        if "oom_kill" in words:
            return int(words[words.index("oom_kill") + 1])
    return 0
