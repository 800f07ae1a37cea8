"""The GPU check, as far as a machine without one can show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools import gpu_check, gpu_parts
from tools.gpu_check import Part


def read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def test_without_cuda_the_file_says_so_and_the_check_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "cuda_reason", lambda: "torch finds no CUDA device")
    out = tmp_path / "folder" / "gpu.json"
    assert gpu_check.main(["--out", str(out)]) == 0
    assert read(out)["cuda_missing"] == "torch finds no CUDA device"
    assert read(out)["parts"] == {}
    assert "nothing was checked" in capsys.readouterr().out


def test_a_smoke_run_notes_facts_on_the_cpu(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    assert gpu_check.main(["--cpu-smoke", "--only", "facts", "--out", str(out)]) == 0
    facts = read(out)["parts"]["facts"]
    assert facts["status"] == "ok"
    assert facts["values"]["packages"]["torch"] != "missing"
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]


@pytest.mark.slow
def test_a_smoke_run_goes_through_every_part(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    assert gpu_check.main(["--cpu-smoke", "--out", str(out)]) == 0
    parts = read(out)["parts"]
    assert list(parts) == [part.name for part in gpu_check.PARTS]
    assert {name for name, part in parts.items() if part["status"] == "ok"} >= {"facts", "bandwidth", "matmul", "int8"}
    figures = parts["int8"]["values"]
    assert figures["int8_on_bf16"]["weight_bytes"] < 0.6 * figures["bf16"]["weight_bytes"]
    assert figures["int8_on_bf16"]["logits_cosine_to_first"] > 0.999
    assert parts["matmul"]["values"]["bf16_op_per_s"] > 0


def test_a_part_that_takes_too_long_is_cut_off() -> None:
    result = gpu_check.run_part(Part("facts", 60), smoke=True, limit_s=0.01)
    assert result["status"] == "timed_out"
    assert result["reason"] == "cut off after 0 s"


def test_parts_beyond_the_budget_are_skipped_and_say_so(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    assert gpu_check.check(gpu_check.PARTS, smoke=True, budget_s=0, out=out) == 0
    assert {part["reason"] for part in read(out)["parts"].values()} == {"no time left"}


def test_a_failing_part_keeps_its_figures_and_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(probe: gpu_parts.Probe) -> None:
        probe.note(first=1)
        raise ValueError("no such thing")

    monkeypatch.setitem(gpu_parts.PARTS, "facts", failing)
    report = tmp_path / "part.json"
    with pytest.raises(ValueError, match="no such thing"):
        gpu_parts.main(["facts", str(report), "--smoke"])
    assert read(report) == {"values": {"first": 1}, "status": "failed", "reason": "ValueError: no such thing"}

    monkeypatch.setattr(gpu_check, "run_part", lambda part, **_: {**read(report), "seconds": 0.0})
    assert gpu_check.check((Part("facts", 1),), smoke=True, budget_s=60, out=tmp_path / "gpu.json") == 1


def test_a_part_that_lacks_a_package_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gpu_parts.PARTS, "int8", lambda _: gpu_parts._need("json", "no_such_package"))
    report = tmp_path / "part.json"
    assert gpu_parts.main(["int8", str(report), "--smoke"]) == 0
    assert read(report)["status"] == "skipped"
    assert read(report)["reason"].startswith("no_such_package cannot be imported")


def test_the_limits_of_all_parts_fit_the_six_minutes() -> None:
    assert gpu_check.BUDGET_S < 360
    assert all(part.limit_s <= gpu_check.BUDGET_S for part in gpu_check.PARTS)
    assert {part.name for part in gpu_check.PARTS} == set(gpu_parts.PARTS)
