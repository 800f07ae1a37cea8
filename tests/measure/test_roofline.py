from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from effkit.inventory import take_inventory
from effkit.measure import roofline
from effkit.measure.environment import cache_dir
from effkit.measure.roofline import higher, measure_ceilings, prefill_flop, take_ceilings
from effkit.measure.timing import Work
from effkit.records import Ceilings
from tests.tiny import tiny_bert, tiny_gpt2, tiny_llama, tiny_moe


class FakeTimer:
    """Runs nothing; every call takes the same time."""

    def __init__(self, seconds: float) -> None:
        self.fixed, self.calls = seconds, 0

    def seconds(self, work: Work) -> float:
        self.calls += 1
        return self.fixed


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """An empty cache, and a measurement that only counts how often it happens."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    devices: list[str] = []

    def take(device: str, timer: object) -> Ceilings:
        devices.append(device)
        rate = 100.0 / len(devices)
        return Ceilings(
            device=device, memory_read_bytes_per_s=rate, fp32_flop_per_s=1.0, bf16_flop_per_s=1.0, threads=1
        )

    monkeypatch.setattr(roofline, "take_ceilings", take)
    return devices


def test_rates_are_work_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "HOST_BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(roofline, "last_level_cache_bytes", lambda: None)
    monkeypatch.setattr(roofline, "GEMM_SIZES", (16, 32))
    ceilings = take_ceilings("cpu", FakeTimer(0.01))
    assert ceilings.memory_read_bytes_per_s == pytest.approx((1 << 20) / 0.01)
    assert ceilings.fp32_flop_per_s == pytest.approx(2 * 32**3 / 0.01)
    assert ceilings.threads == torch.get_num_threads()


def test_the_buffer_is_far_larger_than_the_last_level_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "HOST_BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(roofline, "last_level_cache_bytes", lambda: 2 << 20)
    monkeypatch.setattr(roofline, "GEMM_SIZES", (16,))
    assert "read of 8 MiB" in take_ceilings("cpu", FakeTimer(0.01)).method


def test_products_stop_growing_once_a_call_is_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "HOST_BUFFER_BYTES", 1 << 16)
    monkeypatch.setattr(roofline, "last_level_cache_bytes", lambda: None)
    timer = FakeTimer(1.0)
    assert take_ceilings("cpu", timer).fp32_flop_per_s == pytest.approx(2 * 512**3 / 1.0)
    assert timer.calls == 2 * 6 - 2 + 2 * 2


def test_ceilings_are_measured_once_and_then_read_from_the_cache(taken: list[str]) -> None:
    first = measure_ceilings("cpu")
    assert measure_ceilings("cpu") == first
    assert taken == ["cpu"]
    assert [path.name for path in cache_dir().iterdir()] == [roofline.CACHE_FILE]


def test_a_refresh_measures_again_and_keeps_the_higher_figure(taken: list[str]) -> None:
    first = measure_ceilings("cpu")
    assert measure_ceilings("cpu", refresh=True).memory_read_bytes_per_s == first.memory_read_bytes_per_s
    assert taken == ["cpu", "cpu"]


def test_another_thread_count_is_another_machine(taken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    measure_ceilings("cpu")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    measure_ceilings("cpu")
    assert len(taken) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', "\x00"])
def test_a_damaged_cache_costs_a_new_measurement_and_is_mended(taken: list[str], content: str) -> None:
    cache_dir().mkdir(parents=True)
    (cache_dir() / roofline.CACHE_FILE).write_text(content)
    measure_ceilings("cpu")
    measure_ceilings("cpu")
    assert len(taken) == 1


def test_a_cache_that_cannot_be_written_is_no_error(taken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    measure_ceilings("cpu")
    measure_ceilings("cpu")
    assert len(taken) == 2


@pytest.mark.skipif(os.name != "posix", reason="needs a path below a plain file")
def test_a_cache_folder_that_cannot_exist_is_no_error(taken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nothing")
    assert measure_ceilings("cpu").device == "cpu"


def test_a_figure_missing_once_may_come_from_the_other_measurement() -> None:
    lacking = Ceilings.missing("no such product", device="cpu", memory_read_bytes_per_s=2.0, threads=1)
    full = Ceilings(device="cpu", memory_read_bytes_per_s=1.0, fp32_flop_per_s=3.0, bf16_flop_per_s=4.0, threads=1)
    both = higher(full, lacking)
    assert (both.memory_read_bytes_per_s, both.fp32_flop_per_s, both.bf16_flop_per_s) == (2.0, 3.0, 4.0)
    assert both.reasons == {}


def test_operations_of_a_llama_prompt_are_counted_by_hand() -> None:
    tokens, config = 10, tiny_llama().config
    hidden, inner, kv = 64, 96, config.num_key_value_heads * config.head_dim
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * inner
    attention = 4 * (tokens * (tokens + 1) / 2) * hidden
    expected = 2 * (2 * layer * tokens + hidden * config.vocab_size) + 2 * attention
    for tied in (True, False):
        assert prefill_flop(take_inventory(tiny_llama(tied=tied)), config, tokens) == expected


def test_conv1d_layers_and_embeddings_count_as_what_they_compute() -> None:
    model, tokens = tiny_gpt2(), 10
    layer = 4 * 64 * 64 + 2 * 64 * 96
    expected = 2 * (2 * layer * tokens + 64 * model.config.vocab_size) + 2 * 4 * 55 * 64
    assert prefill_flop(take_inventory(model), model.config, tokens) == expected


def test_of_fused_experts_only_the_active_share_counts() -> None:
    model = tiny_moe()
    half = prefill_flop(take_inventory(model), model.config, 10)
    model.config.num_experts_per_tok = 4
    experts = sum(p.numel() for name, p in model.named_parameters() if "experts" in name)
    assert prefill_flop(take_inventory(model), model.config, 10) - half == pytest.approx(2 * 10 * experts / 2)


def test_an_encoder_attends_to_every_pair() -> None:
    model = tiny_bert()
    small, large = (prefill_flop(take_inventory(model), model.config, tokens) for tokens in (8, 16))
    assert large - 2 * small == 2 * 4 * 64 * (16 * 16 - 2 * 8 * 8)
