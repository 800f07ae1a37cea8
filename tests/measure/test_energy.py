from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from effkit.measure import energy
from effkit.measure.energy import EnergyMeter, NvmlCounter, RaplCounter, energy_record
from effkit.measure.timing import HostTimer


class FakeMachine:
    """A clock and a counter that move together at a fixed power."""

    source: energy.Source = "rapl"

    def __init__(self, watts: float) -> None:
        self.now_s, self.watts = 0.0, watts

    def joules(self) -> float:
        return self.now_s * self.watts

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def timer(self) -> HostTimer:
        return HostTimer(clock_ns=lambda: round(self.now_s * 1e9))


class FakeBench:
    """Samples with untimed preparation that burns energy too."""

    def __init__(self, machine: FakeMachine, *kinds: str) -> None:
        self.kinds = kinds or ("prefill", "decode_1")
        self.seconds = {"prefill": 0.125, "decode_1": 0.5}
        self.machine = machine
        self.taken = 0

    def sample(self, kind: str, *, timer: Any = None) -> float:
        self.taken += 1
        self.machine.pass_time(5.0)
        work: Callable[[], object] = lambda: self.machine.pass_time(self.seconds[kind])  # noqa: E731
        return float((timer or self.machine.timer).seconds(work))

    def tokens_of(self, kind: str) -> int:
        return {"prefill": 100, "decode_1": 16}[kind]


def zone(root: Path, name: str, label: str, microjoules: int, limit: int = 1_000_000) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{label}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text(f"{limit}\n")
    return folder


def test_rapl_adds_packages_and_leaves_their_parts_out(tmp_path: Path) -> None:
    packages = [zone(tmp_path, f"intel-rapl:{i}", f"package-{i}", 100) for i in range(2)]
    core = zone(tmp_path, "intel-rapl:0:0", "core", 100)
    system = zone(tmp_path, "intel-rapl:2", "psys", 100)
    counter = RaplCounter.find(tmp_path)
    assert counter is not None
    for folder, value in ((packages[0], 1100), (packages[1], 2100), (core, 900), (system, 9000)):
        (folder / "energy_uj").write_text(str(value))
    assert counter.joules() == pytest.approx(3000e-6)


def test_rapl_follows_the_counter_round_its_end(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 999_900)
    counter = RaplCounter.find(tmp_path)
    assert counter is not None
    (package / "energy_uj").write_text("100")
    assert counter.joules() == pytest.approx(200e-6)
    (package / "energy_uj").write_text("150")
    assert counter.joules() == pytest.approx(250e-6)


def test_without_readable_packages_there_is_no_rapl_counter(tmp_path: Path) -> None:
    assert RaplCounter.find(tmp_path) is None
    assert RaplCounter.find(tmp_path / "none") is None
    (zone(tmp_path, "intel-rapl:0", "package-0", 1) / "energy_uj").unlink()
    assert RaplCounter.find(tmp_path) is None


def test_nvml_counts_millijoules() -> None:
    class Nvml:
        def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
            assert handle == "gpu"
            return 2500

    assert NvmlCounter(Nvml(), "gpu").joules() == 2.5


def test_a_gpu_without_the_counter_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nvml:
        def nvmlInit(self) -> None: ...
        def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
            return uuid

        def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
            raise Exception("Not Supported")

    monkeypatch.setattr(energy, "_gpu_uuid", lambda device: "GPU-0")
    assert NvmlCounter.find(torch.device("cuda"), Nvml()) is None


def test_an_estimate_says_so_and_states_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy.RaplCounter, "find", classmethod(lambda cls: None))
    meter = EnergyMeter("cpu")
    reading = meter.estimate(2.0)
    cores = min(torch.get_num_threads(), energy.physical_cores() or energy.usable_cpus())
    assert reading.source == meter.source == "estimated"
    assert reading.joules == pytest.approx(2.0 * cores * energy.WATTS_PER_CORE)
    assert f"{cores} busy cores x {energy.WATTS_PER_CORE:g} W" in reading.formula


def test_an_accelerator_without_a_counter_gets_no_number() -> None:
    meter = EnergyMeter("meta")
    assert meter.source == "none"
    assert meter.estimate(1.0).joules is None


def test_a_counter_is_read_around_the_timed_parts_alone_for_at_least_a_second() -> None:
    machine = FakeMachine(watts=20.0)
    bench = FakeBench(machine)
    record = energy_record(
        bench,
        EnergyMeter("cpu", counter=machine, timer=machine.timer),
        {"prefill": [0.125], "decode_1": [0.5]},
    )
    assert record.source == "rapl"
    assert record.formula == ""
    assert record.power_w == pytest.approx(20.0)
    assert record.prefill_j_per_token == pytest.approx(20.0 * 0.125 / 100)
    assert record.decode_j_per_token == pytest.approx(20.0 * 0.5 / 16)
    assert bench.taken == 8 + 2


def test_an_estimate_uses_the_samples_there_are_and_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy.RaplCounter, "find", classmethod(lambda cls: None))
    bench = FakeBench(FakeMachine(watts=1.0))
    meter = EnergyMeter("cpu")
    record = energy_record(bench, meter, {"prefill": [9.0, 0.1, 0.1], "decode_1": [0.4]})
    assert bench.taken == 0
    assert record.source == "estimated"
    assert record.prefill_j_per_token == pytest.approx((meter.estimate(0.1).joules or 0.0) / 100)


def test_a_model_that_decodes_nothing_has_prefill_energy_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy.RaplCounter, "find", classmethod(lambda cls: None))
    bench = FakeBench(FakeMachine(watts=1.0), "prefill")
    record = energy_record(bench, EnergyMeter("cpu"), {"prefill": [0.1]})
    assert record.prefill_j_per_token is not None
    assert "decode_1" in record.reasons["decode_j_per_token"]


def test_without_any_reading_the_source_is_none_and_every_field_has_its_reason() -> None:
    bench = FakeBench(FakeMachine(watts=1.0))
    record = energy_record(bench, EnergyMeter("meta"), {"prefill": [0.1], "decode_1": [0.4]})
    assert record.source == "none"
    assert "no energy counter" in record.reasons["power_w"]
