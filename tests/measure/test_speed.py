from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from effkit.errors import MeasureError
from effkit.measure.speed import ForwardBench, SpeedBench, WorkPerSample, speed_record
from effkit.measure.timing import HostTimer, Work
from effkit.records import Ceilings
from effkit.runtimes import EagerEncoder, EagerRuntime
from effkit.suite import Suite
from tests.tiny import tiny_bert, tiny_llama

SUITE = Suite(name="t", prompt_tokens=20, decode_context=4, decode_tokens=6, decode_batches=(1, 8), warmup=3, repeats=5)
CEILINGS = Ceilings(
    device="cpu", memory_read_bytes_per_s=1000.0, fp32_flop_per_s=500.0, bf16_flop_per_s=1000.0, threads=2
)
SAMPLES = {"prefill": [0.5] * 5, "decode_1": [2.0] * 5, "decode_8": [4.0] * 5}


class Recorder(EagerRuntime):
    """Counts calls and keeps their inputs."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.prefills: list[torch.Tensor] = []
        self.decodes: list[tuple[int, bool]] = []
        self.timed = False

    def prefill(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> Any:
        self.prefills.append(input_ids)
        return super().prefill(input_ids, attention_mask)

    def decode(self, token_ids: torch.Tensor, state: Any) -> Any:
        self.decodes.append((token_ids.shape[0], self.timed))
        return super().decode(token_ids, state)


class FixedTimer:
    """Runs the work and reports a fixed time."""

    def __init__(self, runtime: Recorder | None = None) -> None:
        self.runtime = runtime

    def seconds(self, work: Work) -> float:
        if self.runtime is not None:
            self.runtime.timed = True
        work()
        if self.runtime is not None:
            self.runtime.timed = False
        return 0.25


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(tiny_llama())


def test_a_text_model_has_prefill_and_one_kind_per_decode_batch(recorder: Recorder) -> None:
    assert SpeedBench(recorder, SUITE, range(300)).kinds == ("prefill", "decode_1", "decode_8")


def test_prefill_reads_the_prompt_once_from_the_start_of_the_text(recorder: Recorder) -> None:
    bench = SpeedBench(recorder, SUITE, range(100, 300), timer=FixedTimer())
    assert bench.sample("prefill") == 0.25
    assert [ids.tolist() for ids in recorder.prefills] == [[list(range(100, 120))]]


def test_decode_times_every_step_of_the_batch_and_not_its_context(recorder: Recorder) -> None:
    bench = SpeedBench(recorder, SUITE, range(300), timer=FixedTimer(recorder))
    bench.sample("decode_8")
    assert recorder.prefills[0].shape == (8, 4)
    assert recorder.prefills[0].unique().numel() == 32
    assert recorder.decodes == [(8, True)] * 6


def test_each_sample_starts_from_a_fresh_cache(recorder: Recorder) -> None:
    bench = SpeedBench(recorder, SUITE, range(300), timer=FixedTimer())
    sizes = []
    for _ in range(3):
        bench.sample("decode_1")
        sizes.append(bench.kv_cache_bytes["decode_1"])
    config = recorder.model.config
    assert sizes == [2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * (4 + 6) * 4] * 3


def test_warm_up_runs_as_often_as_the_suite_says(recorder: Recorder) -> None:
    bench = SpeedBench(recorder, SUITE, range(300), timer=FixedTimer())
    bench.warm_up("prefill")
    assert len(recorder.prefills) == 3


def test_a_text_shorter_than_the_prompt_goes_round(recorder: Recorder) -> None:
    bench = SpeedBench(recorder, SUITE, [5, 6, 7], timer=FixedTimer())
    bench.sample("prefill")
    assert recorder.prefills[0][0, :5].tolist() == [5, 6, 7, 5, 6]


def test_an_encoder_has_prefill_only() -> None:
    bench = SpeedBench(EagerEncoder(tiny_bert()), SUITE, range(300), timer=FixedTimer())
    assert bench.kinds == ("prefill",)
    assert bench.sample("prefill") == 0.25
    with pytest.raises(MeasureError, match="allowed: prefill"):
        bench.sample("decode_1")


def test_speed_needs_real_tokens(recorder: Recorder) -> None:
    with pytest.raises(MeasureError, match="at least one token"):
        SpeedBench(recorder, SUITE, [])


def test_another_timer_may_run_exactly_the_timed_part(recorder: Recorder) -> None:
    bench = SpeedBench(recorder, SUITE, range(300))
    assert bench.sample("decode_1", timer=FixedTimer()) == 0.25
    assert bench.tokens_of("decode_8") == 48
    assert bench.tokens_of("prefill") == 20


def test_any_module_can_be_timed_forward() -> None:
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    calls: list[bool] = []

    def forward() -> None:
        calls.append(torch.is_inference_mode_enabled())
        model(x)

    bench = ForwardBench(forward, "cpu", warmup=2, timer=HostTimer(clock_ns=iter(range(0, 10**9, 10**6)).__next__))
    bench.warm_up()
    assert bench.sample() == pytest.approx(1e-3)
    assert calls == [True] * 3
    record = speed_record({"forward": [0.2, 0.1, 0.3]}, {"forward": [0.4, 0.2, 0.6]}, suite=SUITE)
    assert (record.forward_s, record.forward_speedup) == (0.2, 2.0)
    assert record.decode_tokens_per_s is None


def test_rates_are_tokens_over_median_seconds() -> None:
    record = speed_record(SAMPLES, None, suite=SUITE)
    assert record.ttft_s == 0.5
    assert record.prefill_tokens_per_s == 20 / 0.5
    assert record.decode_tokens_per_s == 6 / 2.0
    assert record.decode_tokens_per_s_batch_8 == 8 * 6 / 4.0
    assert record.statistics["decode_tokens_per_s"].unit == "tokens/s"
    assert record.statistics["decode_tokens_per_s"].count == 5


def test_speedups_come_from_pairs_of_samples() -> None:
    drift = [1.0, 3.0, 2.0, 5.0, 4.0]
    record = speed_record({"decode_1": drift}, {"decode_1": [1.5 * x for x in drift]}, suite=SUITE)
    assert record.decode_speedup == pytest.approx(1.5)
    assert record.statistics["decode_speedup"].low == pytest.approx(1.5)


def test_the_baselines_own_speedups_are_one() -> None:
    record = speed_record(SAMPLES, None, suite=SUITE, is_baseline=True)
    assert (record.prefill_speedup, record.decode_speedup, record.decode_speedup_batch_8) == (1.0, 1.0, 1.0)


def test_without_a_baseline_beside_it_a_speedup_is_none_with_a_reason() -> None:
    record = speed_record(SAMPLES, None, suite=SUITE)
    assert record.decode_speedup is None
    assert "did not run beside" in record.reasons["decode_speedup"]


def test_shares_are_the_least_work_over_time_over_the_ceiling() -> None:
    work = WorkPerSample(prefill_flop=100.0, decode_weight_bytes=90, kv_cache_bytes={"decode_1": 100, "decode_8": 800})
    record = speed_record(SAMPLES, None, suite=SUITE, ceilings=CEILINGS, work=work)
    assert record.prefill_flop_share == pytest.approx(100.0 / 0.5 / 500.0)
    mean_cache = 100 * (5 + 6 + 7 + 8 + 9 + 10) / 6 / 10
    assert record.decode_bandwidth_share == pytest.approx((90 + mean_cache) * 3 / 1000.0)
    assert record.decode_bandwidth_share_batch_8 == pytest.approx((90 + 8 * mean_cache) * 1.5 / 1000.0)


def test_a_bf16_variant_is_held_against_the_bf16_ceiling() -> None:
    work = WorkPerSample(prefill_flop=100.0, compute_dtype="bfloat16")
    record = speed_record(SAMPLES, None, suite=SUITE, ceilings=CEILINGS, work=work)
    assert record.prefill_flop_share == pytest.approx(100.0 / 0.5 / 1000.0)


def test_unknown_ceilings_or_work_leave_shares_none_with_a_reason() -> None:
    record = speed_record(SAMPLES, None, suite=SUITE)
    assert record.prefill_flop_share is None and "unknown" in record.reasons["prefill_flop_share"]
    assert record.decode_bandwidth_share is None and "unknown" in record.reasons["decode_bandwidth_share"]


def test_an_encoders_record_has_no_first_token_and_no_decode() -> None:
    record = speed_record({"prefill": [0.5]}, None, suite=SUITE)
    assert record.prefill_tokens_per_s == 40.0
    assert record.ttft_s is None and record.reasons["ttft_s"] == "no tokens are generated"
    assert record.decode_tokens_per_s is None and record.decode_tokens_per_s_batch_8 is None


def test_other_batch_sizes_keep_their_statistics() -> None:
    suite = SUITE.model_copy(update={"decode_batches": (1, 4)})
    record = speed_record({"prefill": [1.0], "decode_1": [1.0], "decode_4": [1.0]}, None, suite=suite)
    assert record.statistics["decode_tokens_per_s_batch_4"].median == 24.0
    assert record.decode_tokens_per_s_batch_8 is None


@pytest.mark.parametrize("samples", [[], [0.0], [0.1, -0.1]])
def test_impossible_times_are_refused(samples: list[float]) -> None:
    with pytest.raises(MeasureError, match="prefill: no samples, or a time"):
        speed_record({"prefill": samples}, None, suite=SUITE)


def test_one_off_times_stand_apart_with_the_callers_reasons() -> None:
    record = speed_record(
        SAMPLES, None, suite=SUITE, load_s=1.5, reasons={"compile_s": "the eager runtime compiles nothing"}
    )
    assert record.load_s == 1.5
    assert record.reasons["compile_s"] == "the eager runtime compiles nothing"
    assert record.compress_s is None
