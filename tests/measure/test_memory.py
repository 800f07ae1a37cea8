from __future__ import annotations

import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from effkit.measure import memory
from effkit.measure.memory import current_rss_bytes, ledger, peak_device_bytes, peak_rss_bytes, reset_peak, weight_bytes
from tests.tiny import tiny_llama

linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")


def test_every_storage_counts_once_whatever_its_names() -> None:
    model = nn.Module()
    model.a = nn.Linear(4, 3, bias=False)
    model.b = model.a
    model.c = nn.Linear(4, 3, bias=False)
    model.c.weight = model.a.weight
    model.register_buffer("view", model.a.weight.detach()[:1])
    model.register_buffer("own", torch.zeros(5, dtype=torch.float16))
    assert weight_bytes(model) == 4 * 3 * 4 + 5 * 2


def test_a_view_counts_the_storage_it_keeps_alive() -> None:
    model = nn.Module()
    model.register_buffer("view", torch.zeros(100)[:1])
    assert weight_bytes(model) == 400


def test_tied_models_weigh_one_table_less() -> None:
    tied, untied = tiny_llama(tied=True), tiny_llama(tied=False)
    table = tied.get_input_embeddings().weight
    assert weight_bytes(untied) - weight_bytes(tied) == table.numel() * 4


def test_bytes_are_known_on_the_meta_device() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    assert weight_bytes(model) == 2 * (64 + 8) * 4


def test_an_empty_model_weighs_nothing() -> None:
    assert weight_bytes(nn.ReLU()) == 0


def test_quantized_subclasses_weigh_their_parts() -> None:
    quantization = pytest.importorskip("torchao.quantization")
    model = nn.Sequential(nn.Linear(256, 128, bias=False))
    dense = weight_bytes(model)
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    assert 128 * 256 <= weight_bytes(model) < 0.3 * dense


@linux
def test_a_reset_peak_follows_what_is_allocated_afterwards_only() -> None:
    script = """
import torch
from effkit.measure.memory import peak_rss_bytes, reset_peak
big = torch.ones(200 << 20, dtype=torch.uint8)
del big
assert reset_peak("cpu").fresh
before = peak_rss_bytes()
held = torch.ones(64 << 20, dtype=torch.uint8)
print(peak_rss_bytes() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 60 << 20 <= int(done.stdout) < 100 << 20


def test_a_peak_that_cannot_be_reset_says_what_it_covers(tmp_path: Path) -> None:
    reset = reset_peak("cpu", proc=tmp_path / "none")
    assert not reset.fresh
    assert "whole life of the process" in reset.reason


def test_without_a_high_water_mark_the_kernels_usage_record_stands_in(tmp_path: Path) -> None:
    assert peak_rss_bytes(proc=tmp_path) > 10 << 20
    assert current_rss_bytes(proc=tmp_path) > 10 << 20


def test_the_mark_is_read_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tx\nVmHWM:\t    2192 kB\nVmRSS:\t 7 kB\n")
    assert peak_rss_bytes(proc=tmp_path) == 2192 * 1024
    assert current_rss_bytes(proc=tmp_path) == 7 * 1024


def test_the_cpu_has_no_device_peak() -> None:
    assert peak_device_bytes("cpu") is None


def test_the_ledger_adds_up_to_the_measured_peak() -> None:
    entries = ledger(1000, weights_bytes=500, kv_cache_bytes=50, activations_bytes=100, runtime_bytes=300, disk_bytes=9)
    parts = [entries.weights_bytes, entries.kv_cache_bytes, entries.activations_bytes, entries.runtime_bytes]
    assert sum(part or 0 for part in parts) + (entries.unexplained_bytes or 0) == 1000
    assert entries.disk_bytes == 9


def test_what_the_ledger_does_not_know_is_none_with_a_reason() -> None:
    entries = ledger(None, weights_bytes=500)
    assert entries.unexplained_bytes is None
    assert entries.reasons["unexplained_bytes"] == "no peak was measured"
    assert entries.reasons["optimizer_bytes"] == "nothing is trained here"
    assert entries.reasons["kv_cache_bytes"] == "not measured"


def test_freeing_works_where_the_c_library_has_no_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    cycle = nn.Module()
    cycle.itself = [cycle]  # only the garbage collector can free it
    gone = weakref.ref(cycle)
    del cycle
    memory.release_unused()
    assert gone() is None


@pytest.mark.gpu
def test_the_device_peak_follows_allocations() -> None:
    reset_peak("cuda")
    before = peak_device_bytes("cuda") or 0
    torch.ones(1 << 20, device="cuda")
    assert (peak_device_bytes("cuda") or 0) - before >= 4 << 20
