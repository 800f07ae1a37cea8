from __future__ import annotations

from pathlib import Path

import pytest

import effkit
from effkit.measure import environment
from effkit.measure.environment import (
    cache_dir,
    cpu_features,
    cpu_model,
    describe,
    last_level_cache_bytes,
    package_versions,
    usable_cpus,
)
from effkit.records import Ceilings

X86 = """processor : 0
cpu family : 6
model : 143
model name : Intel(R) Xeon(R) Platinum 8480+
flags : fpu sse4_2 avx2 fma avx512f avx512_vnni amx_int8 hypervisor

processor : 1
model name : another
"""
ARM = "processor : 0\nFeatures : fp asimd asimddp i8mm bf16\nCPU implementer : 0x41\n"


def test_the_processor_is_named_with_family_and_model_and_matrix_features(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(X86)
    assert cpu_model(path) == "Intel(R) Xeon(R) Platinum 8480+ (family 6, model 143)"
    assert cpu_features(path) == ("sse4_2", "avx2", "fma", "avx512f", "avx512_vnni", "amx_int8")


def test_arm_features_are_found_under_their_own_heading(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(ARM)
    assert cpu_features(path) == ("asimd", "asimddp", "i8mm", "bf16")


def test_a_system_without_cpuinfo_still_has_a_name(tmp_path: Path) -> None:
    assert isinstance(cpu_model(tmp_path / "none"), str)
    assert cpu_features(tmp_path / "none") == ()


def test_the_largest_cache_counts(tmp_path: Path) -> None:
    for index, size in enumerate(("32K", "1024K", "32M")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert last_level_cache_bytes(tmp_path) == 32 << 20
    assert last_level_cache_bytes(tmp_path / "none") is None


def test_the_environment_is_complete_and_carries_the_ceilings() -> None:
    ceilings = Ceilings.missing("not measured here", device="cpu")
    found = describe("cpu", ceilings)
    assert found.effkit_version == effkit.__version__
    assert found.ceilings == ceilings
    assert found.cpu_count == usable_cpus() >= 1
    assert found.memory_total_bytes > 1 << 28
    assert found.device_memory_bytes is None
    assert found.started_at.endswith("+00:00")


def test_only_installed_packages_have_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PACKAGES", ("torch", "no-such-package-here"))
    assert list(package_versions()) == ["torch"]


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "effkit"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "effkit"
