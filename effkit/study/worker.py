"""The worker's side: one model in one process, doing what the study orders. Run as ``python -m effkit.study.worker``.

Arguments: the number of the pipe for answers, a limit in bytes on private memory (0 for none), the parent's process.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from effkit.errors import EffkitError, MeasureError
from effkit.records import Accuracy, Ceilings, Memory
from effkit.study.process import speaks_of_memory
from effkit.suite import Suite

PR_SET_PDEATHSIG = 1


class Orders:
    """What a worker can be told to do; each public method is one order."""

    def __init__(self, report: Callable[[int, int], None]) -> None:
        self._report = report
        self._model: Any = None
        self._bench: Any = None
        self._samples: dict[str, list[float]] = {}

    def prepare(self, source: str, dtype: str, recipe: dict[str, Any] | None, out: str, trust: bool) -> dict[str, Any]:
        """Load the dense model, apply the recipe, and save the checkpoint that all measurements are taken from."""
        import torch

        from effkit.apply import apply_plan
        from effkit.inventory import take_inventory
        from effkit.measure.memory import peak_rss_bytes
        from effkit.models import resolve, save_checkpoint
        from effkit.planning import make_plan
        from effkit.recipe import Recipe

        found = resolve(source, trust_remote_code=trust)
        start = time.monotonic()
        model = found.load(dtype=getattr(torch, dtype))
        loaded = time.monotonic()
        plan = None
        if recipe is not None:
            plan = make_plan(take_inventory(model), Recipe.from_dict(recipe))
            apply_plan(model, plan, progress=lambda done, total, _: self._report(done, total))
        compressed = time.monotonic()
        peak = peak_rss_bytes()
        save_checkpoint(
            model,
            Path(out),
            tokenizer=found.tokenizer(),
            recipe=recipe,
            plan=plan.to_dict() if plan else None,
            source=found.info(),
            notes=found.notes,
        )
        return {
            "dense_load_s": loaded - start,
            "compress_s": compressed - loaded if plan else None,
            "peak_compress_rss_bytes": peak,
            "checkpoint_bytes": sum(file.stat().st_size for file in Path(out).glob("*.safetensors")),
            "coverage": plan.coverage.model_dump(mode="json") if plan else None,
        }

    def load(self, checkpoint: str, device: str, task: str, trust: bool) -> dict[str, Any]:
        """Load a prepared checkpoint; from here on the process's peak is that of running the variant."""
        from effkit.measure.memory import current_rss_bytes, reset_peak, weight_bytes
        from effkit.models import load_checkpoint, resolve
        from effkit.runtimes.eager import eager_runtime

        self._device, self._task = device, task
        self._tokenizer = resolve(checkpoint, trust_remote_code=trust).tokenizer()
        self._runtime_bytes = current_rss_bytes()
        start = time.monotonic()
        self._model = load_checkpoint(checkpoint, device=device, trust_remote_code=trust)
        self._load_s = time.monotonic() - start
        self._runtime = eager_runtime(self._model, device, task)
        self._reset = reset_peak(device)
        return {"load_s": self._load_s, "weight_bytes": weight_bytes(self._model)}

    def accuracy(
        self, suite: dict[str, Any], key: str, baseline: str | None, write_baseline: str | None
    ) -> dict[str, Any]:
        """Score a suite; leave the baseline for the variants to come, or compare with it."""
        from effkit.measure.accuracy import BaselineStore, evaluate_outputs, evaluate_text

        settings = Suite.from_dict(suite)
        cut = self._windows(settings)
        options: dict[str, Any] = {
            "suite": settings,
            "key": key,
            "baseline": BaselineStore(Path(baseline), key=key, digest=cut.digest()) if baseline else None,
            "write_baseline": Path(write_baseline) if write_baseline else None,
            "progress": self._report,
        }
        evaluate: Any = evaluate_text if self._task == "causal-lm" else evaluate_outputs
        found: Accuracy = evaluate(self._runtime, cut, **options)
        return found.model_dump(mode="json")

    def start_speed(self, suite: dict[str, Any]) -> list[str]:
        """Get ready for speed samples; returns their kinds."""
        from effkit.measure.speed import SpeedBench

        self._suite = Suite.from_dict(suite)
        self._bench = SpeedBench(self._runtime, self._suite, self._windows(self._suite).content_ids)
        return list(self._bench.kinds)

    def warm_up(self, kind: str) -> None:
        """Run the work of a kind, untimed."""
        self._bench.warm_up(kind)

    def sample(self, kind: str) -> float:
        """Take one sample: seconds."""
        seconds: float = self._bench.sample(kind)
        self._samples.setdefault(kind, []).append(seconds)
        return seconds

    def finish(
        self,
        ceilings: dict[str, Any],
        baseline_samples: dict[str, list[float]] | None,
        reasons: dict[str, str],
        is_baseline: bool,
        prepared: dict[str, Any],
        baseline_weight_bytes: int | None,
    ) -> dict[str, Any]:
        """Turn everything into the sections of a row: memory, speed, energy."""
        from effkit.measure.energy import EnergyMeter, energy_record
        from effkit.measure.speed import speed_record

        memory = self._memory(prepared, baseline_weight_bytes)  # before the energy readings, which repeat the work
        speed = speed_record(
            self._samples,
            baseline_samples,
            suite=self._suite,
            ceilings=Ceilings.model_validate(ceilings),
            work=self._work(),
            is_baseline=is_baseline,
            load_s=self._load_s,
            compress_s=prepared.get("compress_s"),
            reasons=reasons,
        )
        energy = energy_record(self._bench, EnergyMeter(self._device), self._samples)
        return {name: section.model_dump(mode="json") for name, section in
                (("memory", memory), ("speed", speed), ("energy", energy))}  # fmt: skip

    def _windows(self, suite: Suite) -> Any:
        from effkit.measure.accuracy import encoder_windows, windows

        cut = windows if self._task == "causal-lm" else encoder_windows
        return cut(self._tokenizer, suite.read_text(), suite)

    def _work(self) -> Any:
        from effkit.inventory import take_inventory
        from effkit.measure.roofline import prefill_flop
        from effkit.measure.speed import WorkPerSample
        from effkit.predict import TextShape, decode_weight_bytes

        inventory = take_inventory(self._model)
        config = self._model.config
        shape = TextShape.from_config(config)
        return WorkPerSample(
            prefill_flop=prefill_flop(inventory, config, self._suite.prompt_tokens) if shape else None,
            decode_weight_bytes=decode_weight_bytes(inventory, None, shape),
            kv_cache_bytes=self._bench.kv_cache_bytes,
            compute_dtype=str(self._model.dtype).removeprefix("torch."),
        )

    def _memory(self, prepared: dict[str, Any], baseline_weight_bytes: int | None) -> Memory:
        from effkit.measure.memory import ledger, peak_device_bytes, peak_rss_bytes, weight_bytes

        size = weight_bytes(self._model)
        rss, on_device = peak_rss_bytes(), peak_device_bytes(self._device)
        peak = on_device if on_device is not None else rss
        reasons = {} if on_device is not None else {"peak_device_bytes": "no accelerator in use"}
        if baseline_weight_bytes is None:
            reasons["weight_bytes_ratio"] = "the dense fp32 row has no value to compare with"
        if not self._reset.fresh:
            reasons["peak_rss_bytes"] = self._reset.reason
        disk = int(prepared["checkpoint_bytes"])
        parts = ledger(
            peak,
            weights_bytes=size,
            kv_cache_bytes=max(self._bench.kv_cache_bytes.values(), default=None),
            activations_bytes=self._logit_bytes(),
            runtime_bytes=self._runtime_bytes if on_device is None else 0,
            disk_bytes=disk,
        )
        return Memory(
            weight_bytes=size,
            weight_bytes_ratio=size / baseline_weight_bytes if baseline_weight_bytes else None,
            peak_rss_bytes=rss if self._reset.fresh else None,
            peak_compress_rss_bytes=int(prepared["peak_compress_rss_bytes"]),
            peak_device_bytes=on_device,
            checkpoint_bytes=disk,
            ledger=parts,
            reasons=reasons,
        )

    def _logit_bytes(self) -> int | None:
        """Logits of one batch of windows: the largest intermediate result of scoring, in the model's dtype."""
        if self._task != "causal-lm":
            return None
        vocabulary = int(self._model.config.get_text_config().vocab_size)
        return self._suite.batch_size * self._suite.window * vocabulary * int(self._model.dtype.itemsize)


def main() -> None:
    """Obey orders from standard input until it is closed."""
    answers = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8", buffering=1)
    _die_with_parent(int(sys.argv[3]))
    _limit_memory(int(sys.argv[2]))
    orders = Orders(lambda done, total: _answer(answers, kind="progress", done=done, total=total))
    for line in sys.stdin:
        order = json.loads(line)
        name = order.pop("order")
        try:
            value = getattr(orders, name)(**order)
        except Exception as error:  # noqa: BLE001 - whatever a model raises becomes a row that says so
            _answer(answers, kind="error", **_classify(error))
        else:
            _answer(answers, kind="result", value=value)


def _answer(pipe: IO[str], **message: Any) -> None:
    pipe.write(json.dumps(message) + "\n")


def _classify(error: Exception) -> dict[str, str]:
    """Tell running out of memory from other failures; the traceback goes to the log."""
    import traceback

    traceback.print_exc()
    text = str(error) or type(error).__name__
    short = text.strip().splitlines()[0][:500]
    if isinstance(error, MemoryError) or speaks_of_memory(text):
        return {"status": "out_of_memory", "reason": short}
    known = isinstance(error, (EffkitError, MeasureError))
    return {"status": "failed", "reason": short if known else f"{type(error).__name__}: {short}"}


def _die_with_parent(parent: int) -> None:
    """On Linux the kernel ends this process when its parent ends, however that came about."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above; a study may itself be process 1 of a container
        sys.exit("the study that started this worker is gone")


def _limit_memory(limit_bytes: int) -> None:
    if limit_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


if __name__ == "__main__":
    main()
