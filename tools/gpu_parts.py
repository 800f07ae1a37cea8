"""The parts of ``gpu_check.py``; each measures one thing and notes every figure as soon as it has it.

Called as ``python tools/gpu_parts.py PART REPORT [--smoke]``. Only torch is needed; what else a part wants and does
not find is its reason for being skipped. Units stand in the names of the figures.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

    from effkit.suite import Suite

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "torch", "transformers", "torchao", "bitsandbytes", "accelerate", "triton", "onnxruntime-gpu", "pydantic", "numpy",
    "safetensors", "pytest", "hypothesis", "typer", "rich",
)  # fmt: skip
SMOKE_LLAMA = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
BIG_LLAMA = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32}


@dataclass(frozen=True)
class Probe:
    """What a part is given.

    Attributes:
        device: ``cuda`` or, for a smoke run, ``cpu``.
        smoke: take tiny sizes.
        note: keeps figures, given by name.
    """

    device: str
    smoke: bool
    note: Callable[..., None]


class CannotRunError(Exception):
    """The part cannot run here; the message says why."""


def facts(probe: Probe) -> None:
    """Note versions, the device's properties and what NVML says of its clocks and power."""
    import torch

    probe.note(python=platform.python_version(), platform=platform.platform(), cpu_count=os.cpu_count())
    probe.note(packages=_versions())
    if probe.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        kept = ("name", "major", "minor", "total_memory", "multi_processor_count", "L2_cache_size", "warp_size")
        probe.note(cuda=torch.version.cuda, device={key: getattr(properties, key, None) for key in kept})
        probe.note(free_bytes=torch.cuda.mem_get_info()[0], device_count=torch.cuda.device_count())
        probe.note(nvml=_nvml())


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def _nvml() -> dict[str, Any] | str:
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return {
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
            "power_limit_w": pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000,
            "sm_clock_max_mhz": pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_max_mhz": pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "energy_counter_mj": pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        }
    except Exception as error:  # noqa: BLE001 - whatever NVML lacks here is the finding
        return f"not readable: {error!r}"


def bandwidth(probe: Probe) -> None:
    """Note bytes per second of reading and copying device memory, and of the link to the host."""
    import torch

    size = 16 << 20 if probe.smoke else 2 << 30
    source = torch.ones(size // 4, device=probe.device)
    target = torch.empty_like(source)
    probe.note(buffer_bytes=size)
    probe.note(read_bytes_per_s=size / _best_s(source.sum, probe))
    probe.note(copy_bytes_per_s=2 * size / _best_s(lambda: target.copy_(source), probe))
    if probe.device == "cuda":
        host = torch.empty(64 << 20, pin_memory=True)
        part = source[: host.numel()]
        moved = host.numel() * 4
        probe.note(host_to_device_bytes_per_s=moved / _best_s(lambda: part.copy_(host, non_blocking=True), probe))
        probe.note(device_to_host_bytes_per_s=moved / _best_s(lambda: host.copy_(part, non_blocking=True), probe))


def matmul(probe: Probe) -> None:
    """Note dense operations per second of square matrix products, best of several; an error text where unsupported."""
    import torch

    size = 256 if probe.smoke else 8192
    probe.note(size=size)
    precision = torch.get_float32_matmul_precision()
    for name in ("fp32", "tf32", "bf16", "fp16", "int8", "fp8"):
        try:
            torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
            seconds = _best_s(_product(name, size, probe.device), probe)
            probe.note(**{f"{name}_op_per_s": 2 * size**3 / seconds})
        except (RuntimeError, AttributeError, NotImplementedError, ValueError) as error:
            probe.note(**{f"{name}_error": str(error).splitlines()[0]})
        finally:
            torch.set_float32_matmul_precision(precision)


def _product(name: str, size: int, device: str) -> Callable[[], object]:
    """Return a call that multiplies two [size, size] matrices of the named number format."""
    import torch

    if name == "int8":
        small = torch.randint(-127, 128, (size, size), device=device, dtype=torch.int8)
        return lambda: torch._int_mm(small, small)
    values = torch.randn(size, size, device=device)
    if name == "fp8":
        eight, one = values.to(torch.float8_e4m3fn), torch.ones((), device=device)
        return lambda: torch._scaled_mm(eight, eight.t(), one, one, out_dtype=torch.bfloat16)
    dtypes = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    matrix = values.to(dtypes[name])
    return lambda: matrix @ matrix


def int8(probe: Probe) -> None:
    """Note prefill and decode speed, memory and logits' error of INT8 against dense, on a random Llama."""
    _need("transformers", "pydantic", "numpy")
    import torch

    reference: torch.Tensor | None = None
    failed = []
    variants = (
        ("fp32", torch.float32, None),
        ("bf16", torch.bfloat16, None),
        ("int8_on_bf16", torch.bfloat16, "int8"),
        ("int8_dynamic_on_bf16", torch.bfloat16, "int8-dynamic"),
    )
    for name, dtype, recipe in variants:
        try:
            figures, logits = _variant(probe, dtype, recipe)
        except Exception as error:  # noqa: BLE001 - the other variants still count
            probe.note(**{name: {"error": f"{type(error).__name__}: {error}"[:1000]}})
            failed.append(name)
            continue
        reference = logits if reference is None else reference
        cosine = torch.nn.functional.cosine_similarity(logits, reference, dim=-1).mean()
        figures["logits_cosine_to_first"] = float(cosine)
        figures["logits_relative_error_to_first"] = float((logits - reference).norm() / reference.norm())
        probe.note(**{name: figures})
    if failed:
        raise RuntimeError(f"no figures of {', '.join(failed)}")


def _variant(probe: Probe, dtype: torch.dtype, recipe: str | None) -> tuple[dict[str, Any], torch.Tensor]:
    """Build, compress and measure one variant; return its figures and the logits of a fixed prompt on the CPU."""
    import torch

    from effkit.apply import apply_plan
    from effkit.inventory import take_inventory
    from effkit.measure.speed import SpeedBench
    from effkit.planning import make_plan
    from effkit.recipe import load_recipe
    from effkit.runtimes.eager import EagerRuntime

    model = _llama(probe).to(dtype)
    figures: dict[str, Any] = {"parameters": sum(parameter.numel() for parameter in model.parameters())}
    if recipe is not None:
        started = time.monotonic()
        plan = make_plan(take_inventory(model), load_recipe(recipe))
        apply_plan(model, plan)
        figures.update(coverage=plan.coverage.share, compress_s=time.monotonic() - started)
    figures["weight_bytes"] = take_inventory(model).total_bytes
    if probe.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    runtime = EagerRuntime(model, probe.device)
    suite = _suite(probe.smoke)
    tokens = torch.randint(3, 1000, (4096,), generator=torch.Generator().manual_seed(0)).tolist()
    bench = SpeedBench(runtime, suite, tokens)
    for kind in bench.kinds:
        bench.warm_up(kind)
        samples = [bench.sample(kind) for _ in range(suite.repeats)]
        figures[f"{kind}_s"] = samples
        figures[f"{kind}_tokens_per_s"] = bench.tokens_of(kind) / sorted(samples)[len(samples) // 2]
    if probe.device == "cuda":
        figures["peak_device_bytes"] = torch.cuda.max_memory_allocated()
    return figures, runtime.logits(torch.tensor([tokens[:64]])).float().cpu()


def _llama(probe: Probe) -> nn.Module:
    """Return a seeded Llama with grouped-query attention; about 1.04 billion parameters unless ``smoke``."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = SMOKE_LLAMA if probe.smoke else BIG_LLAMA
    config = LlamaConfig(**sizes, num_key_value_heads=sizes["num_attention_heads"] // 4, tie_word_embeddings=True)
    torch.manual_seed(0)
    with torch.device(probe.device):
        model: nn.Module = LlamaForCausalLM(config)
    return model.eval()


def _suite(smoke: bool) -> Suite:
    from effkit.suite import Suite

    prompt, steps, repeats = (16, 4, 2) if smoke else (512, 32, 5)
    return Suite(
        name="gpu-check", prompt_tokens=prompt, decode_context=prompt // 2, decode_tokens=steps, repeats=repeats
    )


def tests(probe: Probe) -> None:
    """Run every test marked ``gpu`` and note the outcome of each."""
    _need("pytest", "transformers", "pydantic")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        # addopts without --strict-config: a machine without pytest-timeout does not know its setting.
        options = ["-m", "gpu", "-q", "--run-slow", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "tests", *options, f"--junitxml={report}"], cwd=ROOT, check=False
        )
        cases = ElementTree.parse(report).getroot().iter("testcase") if report.exists() else ()
        outcomes = {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}
    count = {kind: sum(o["outcome"] == kind for o in outcomes.values()) for kind in ("passed", "failed", "skipped")}
    probe.note(exit_status=done.returncode, count=count, tests=outcomes)
    if done.returncode == 5:
        raise CannotRunError("no test is marked gpu")
    if done.returncode != 0:
        raise RuntimeError(f"pytest ended with exit status {done.returncode}, {count['failed']} failed")
    if not count["passed"]:
        raise CannotRunError(f"all {count['skipped']} tests were skipped")


def _outcome(case: ElementTree.Element) -> dict[str, Any]:
    for tag, kind in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            return {"outcome": kind, "message": (found.get("message") or "")[:500]}
    return {"outcome": "passed", "seconds": float(case.get("time") or 0)}


def _need(*modules: str) -> None:
    """Raise CannotRunError unless all modules can be imported."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise CannotRunError(f"{name} cannot be imported: {error}") from error


def _best_s(work: Callable[[], object], probe: Probe, repeats: int = 5) -> float:
    """Return the shortest time of one call in seconds; device events on CUDA."""
    import torch

    for _ in range(2):
        work()
    best = float("inf")
    for _ in range(repeats):
        if probe.device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            start.record()
            work()
            end.record()
            torch.cuda.synchronize()
            best = min(best, start.elapsed_time(end) / 1000)
        else:
            started = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - started)
    return best


PARTS: dict[str, Callable[[Probe], None]] = {
    "facts": facts,
    "bandwidth": bandwidth,
    "matmul": matmul,
    "int8": int8,
    "tests": tests,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one part; its report says how it ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("report", type=Path)
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args(arguments)
    report: dict[str, Any] = {"values": {}}

    def save(**changes: Any) -> None:
        report.update(changes)
        half = given.report.with_suffix(".half")
        half.write_text(json.dumps(report), encoding="utf-8")
        half.replace(given.report)

    def note(**figures: Any) -> None:
        save(values={**report["values"], **figures})

    try:
        PARTS[given.part](Probe("cpu" if given.smoke else "cuda", given.smoke, note))
    except CannotRunError as reason:
        save(status="skipped", reason=str(reason))
    except Exception as error:
        save(status="failed", reason=f"{type(error).__name__}: {error}"[:1000])
        raise
    else:
        save(status="ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
