"""Everything worth knowing about a CUDA device, in one run of under six minutes and one JSON file.

Called as ``python tools/gpu_check.py --out gpu.json``: device facts, bandwidths, matrix-product ceilings, INT8
against dense on a random Llama of one billion parameters, and every test marked ``gpu``. Each part runs in a process
of its own with a time limit; a part that cannot run, fails or is cut off says so in the file and keeps what it had.
Without a CUDA device the file says just that; ``--cpu-smoke`` runs all parts on the CPU with tiny sizes.

Exit status: 0, or 1 if a part failed. Knows nothing of the parts' contents: those are in ``gpu_parts.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUDGET_S = 330.0


@dataclass(frozen=True)
class Part:
    """One part and the most time it gets; what it leaves over goes to the next ones."""

    name: str
    limit_s: float


PARTS = (Part("facts", 40), Part("bandwidth", 40), Part("matmul", 50), Part("int8", 110), Part("tests", 180))


def run_part(part: Part, *, smoke: bool, limit_s: float) -> dict[str, Any]:
    """Run one part in its own process.

    Returns:
        ``status`` (``ok``, ``failed``, ``skipped`` or ``timed_out``), ``reason``, ``seconds`` and ``values``: what the
        part had found by its end.
    """
    with tempfile.TemporaryDirectory(prefix="effkit-gpu-") as folder:
        report = Path(folder) / "part.json"
        command = [sys.executable, str(ROOT / "tools" / "gpu_parts.py"), part.name, str(report)]
        started = time.monotonic()
        status, tail = _run(command + (["--smoke"] if smoke else []), limit_s)
        found = _read(report)
    result: dict[str, Any] = {"status": found.get("status") or "failed", "reason": found.get("reason", "")}
    if status is None:
        result.update(status="timed_out", reason=f"cut off after {limit_s:.0f} s")
    elif status != 0 and not found.get("status"):
        result["reason"] = f"ended with exit status {status}"
    if result["status"] not in {"ok", "skipped"} and tail:
        result["output_tail"] = tail
    return {**result, "seconds": round(time.monotonic() - started, 1), "values": found.get("values", {})}


def _run(command: list[str], limit_s: float) -> tuple[int | None, str]:
    """Return the exit status (None when cut off) and the end of the output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=environment, start_new_session=True
        )
        try:
            status: int | None = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return status, output.read()[-4000:].decode(errors="replace")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def cuda_reason() -> str:
    """Return why no CUDA device can be used here; empty where one can."""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported: {error}"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return "" if torch.cuda.is_available() else "torch finds no CUDA device"


def check(parts: tuple[Part, ...], *, smoke: bool, budget_s: float, out: Path) -> int:
    """Run the parts one after another within the budget, writing the file after each; return the exit status."""
    reason = "" if smoke else cuda_reason()
    report: dict[str, Any] = {
        "schema_version": 1,
        "device": "cpu" if smoke else "cuda",
        "smoke": smoke,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "budget_s": budget_s,
        "cuda_missing": reason,
        "parts": {},
    }
    deadline = time.monotonic() + budget_s
    _write(out, report)
    for part in () if reason else parts:
        left = deadline - time.monotonic()
        if left < 5:
            result: dict[str, Any] = {"status": "skipped", "reason": "no time left", "seconds": 0.0, "values": {}}
        else:
            result = run_part(part, smoke=smoke, limit_s=min(part.limit_s, left))
        report["parts"][part.name] = result
        _write(out, report)
        print(f"{part.name}: {result['status']} in {result['seconds']} s {result['reason']}".rstrip(), flush=True)
    if reason:
        print(f"nothing was checked: {reason}")
    print(f"written to {out}")
    return int(any(result["status"] in {"failed", "timed_out"} for result in report["parts"].values()))


def _write(out: Path, report: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    half = out.with_name(out.name + ".part")
    half.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    half.replace(out)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/gpu-check.json"), help="file to write")
    parser.add_argument("--budget-s", type=float, default=BUDGET_S, help="most seconds for everything")
    parser.add_argument("--cpu-smoke", action="store_true", help="run every part on the CPU with tiny sizes")
    names = [part.name for part in PARTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="parts to run")
    given = parser.parse_args(arguments)
    chosen = tuple(part for part in PARTS if part.name in given.only)
    return check(chosen, smoke=given.cpu_smoke, budget_s=given.budget_s, out=given.out)


if __name__ == "__main__":
    sys.exit(main())
