"""Studies inside the caller's own process: one model's accuracy, or copies of any module on the caller's inputs.

No isolation, so no peak memory: those fields are None and say so. Everything else follows the same protocol as the
isolated study: equal warm-up, samples taken alternately with the baseline, FP32 that is FP32.
"""

from __future__ import annotations

import copy
import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from effkit.apply import apply_plan
from effkit.errors import MeasureError, PlanError
from effkit.inventory import take_inventory
from effkit.measure.accuracy import (
    BaselineStore,
    compare_outputs,
    encoder_windows,
    evaluate_outputs,
    evaluate_text,
    windows,
)
from effkit.measure.environment import describe
from effkit.measure.memory import weight_bytes
from effkit.measure.precision import full_fp32
from effkit.measure.speed import FORWARD, ForwardBench, speed_record
from effkit.planning import make_plan
from effkit.recipe import Recipe
from effkit.records import Accuracy, Coverage, Energy, Memory, ModelInfo, Protocol, Results, Speed, Variant
from effkit.runtimes.eager import EagerEncoder, EagerRuntime, max_positions
from effkit.study.config import unique_names
from effkit.suite import Suite

INPUTS = Suite(name="inputs", description="the inputs given to effkit.compare")
OWN_PROCESS = "measured inside the caller's process; peak memory needs one process per variant"


def evaluate_in_process(
    model: nn.Module,
    suite: Suite,
    tokenizer: Any,
    *,
    baseline: nn.Module | None = None,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Accuracy:
    """Score ``model`` on a suite, against ``baseline`` where one is given; see :func:`effkit.evaluate`.

    Raises:
        MeasureError: the text is too short, or the model is neither a language model nor an encoder.
    """
    suite, _ = suite.fitted(max_positions(model))
    text = suite.read_text()
    can_generate: Any = getattr(model, "can_generate", None)
    causal = callable(can_generate) and bool(can_generate())
    cut = windows(tokenizer, text, suite) if causal else encoder_windows(tokenizer, text, suite)

    def score(each: nn.Module, **options: Any) -> Accuracy:
        if causal:
            return evaluate_text(EagerRuntime(each, device), cut, suite=suite, **options)
        return evaluate_outputs(EagerEncoder(each, device), cut, suite=suite, **options)

    if baseline is None:
        return score(model, progress=progress)
    with tempfile.TemporaryDirectory(prefix="effkit-baseline-") as folder:
        path = Path(folder) / "baseline"
        score(baseline, write_baseline=path, key="in-process")
        store = BaselineStore(path, key="in-process", digest=cut.digest())
        return score(model, baseline=store, progress=progress)


@dataclass(frozen=True)
class _Candidate:
    """One variant before it is measured."""

    name: str
    recipe: Recipe | None
    dtype: torch.dtype
    fingerprint: str

    def build(self, model: nn.Module) -> tuple[nn.Module, Coverage | None]:
        """Make the variant from a copy of ``model``, which stays as it is."""
        built = copy.deepcopy(model).eval().to(self.dtype)
        if self.recipe is None:
            return built, None
        plan = make_plan(take_inventory(built), self.recipe)
        return apply_plan(built, plan), plan.coverage


def compare_modules(model: nn.Module, recipes: Sequence[Recipe], inputs: Any, *, device: str = "auto") -> Results:
    """Run ``inputs`` through dense FP32, dense BF16 and each recipe's copy of ``model``; see :func:`effkit.compare`.

    Raises:
        PlanError: a recipe does not fit. MeasureError: the dense module cannot run the inputs.
    """
    place = _place(model, device)
    content = _content(model)
    candidates = [_Candidate("fp32", None, torch.float32, content), _Candidate("bf16", None, torch.bfloat16, content)]
    for name, recipe in unique_names(tuple(recipes)):
        candidates.append(_Candidate(name, recipe, torch.float32, f"{content}-{recipe.fingerprint()}"))
    with full_fp32():
        baseline = candidates[0].build(model)[0].to(place)
        try:
            expected = _run(baseline, _cast(inputs, torch.float32, place))
        except Exception as error:
            raise MeasureError(f"the dense module cannot run the inputs: {error}") from error
        rows = [_measure(each, model, inputs, place, baseline, expected) for each in candidates]
    return Results(
        model=ModelInfo(
            source=f"{type(model).__module__}.{type(model).__qualname__}",
            kind="other",
            architecture=type(model).__name__,
            parameters=take_inventory(model).parameters,
            stored_dtype=", ".join(sorted({s.dtype for s in take_inventory(model).storages})),
            fingerprint=content,
        ),
        environment=describe(place.type),
        protocol=_protocol(),
        variants=tuple(rows),
    )


def _measure(
    each: _Candidate, model: nn.Module, inputs: Any, place: torch.device, baseline: nn.Module, expected: Any
) -> Variant:
    variant, coverage = each.build(model)
    variant.to(place)
    given, dense_inputs = _cast(inputs, each.dtype, place), _cast(inputs, torch.float32, place)
    row = _Row(each, place.type, coverage)
    try:
        outputs = _run(variant, given)
    except Exception as error:  # noqa: BLE001 - a module's forward may raise anything
        return row.failed(f"{type(error).__name__}: {error}")
    is_baseline = each.name == "fp32"
    bench = ForwardBench(lambda: _run(variant, given), place, warmup=INPUTS.warmup)
    dense = ForwardBench(lambda: _run(baseline, dense_inputs), place, warmup=INPUTS.warmup)
    samples, dense_samples = _alternate(bench, dense)
    dense_bytes = weight_bytes(baseline)
    speed = speed_record(
        {FORWARD: samples},
        None if is_baseline else {FORWARD: dense_samples},
        suite=INPUTS,
        is_baseline=is_baseline,
    )
    size = weight_bytes(variant)
    memory = Memory.missing(OWN_PROCESS, weight_bytes=size, weight_bytes_ratio=size / dense_bytes if dense_bytes else 1)
    accuracy = compare_outputs(outputs, expected, INPUTS.name)
    return row.ok(accuracy, memory, speed)


@dataclass(frozen=True)
class _Row:
    """Fills in what all outcomes of a variant share."""

    candidate: _Candidate
    device: str
    coverage: Coverage | None

    def ok(self, accuracy: Accuracy, memory: Memory, speed: Speed) -> Variant:
        """A measured row."""
        return self._variant("ok", "", accuracy, memory, speed)

    def failed(self, reason: str) -> Variant:
        """A row whose variant could not run."""
        why = "the variant did not run"
        return self._variant(
            "failed", reason, Accuracy.missing(why, suite=INPUTS.name), Memory.missing(why), Speed.missing(why)
        )

    def _variant(self, status: Any, reason: str, accuracy: Accuracy, memory: Memory, speed: Speed) -> Variant:
        return Variant(
            name=self.candidate.name,
            recipe=self.candidate.recipe.name if self.candidate.recipe else None,
            runtime="eager",
            device=self.device,
            status=status,
            reason=reason,
            fingerprint=self.candidate.fingerprint,
            coverage=self.coverage,
            accuracy=accuracy,
            memory=memory,
            speed=speed,
            energy=Energy.missing("not measured inside the caller's process"),
        )


def _alternate(bench: ForwardBench, dense: ForwardBench) -> tuple[list[float], list[float]]:
    """Take samples of both in turn; which goes first changes from pair to pair."""
    bench.warm_up()
    dense.warm_up()
    samples: list[float] = []
    dense_samples: list[float] = []
    turns = [(bench, samples), (dense, dense_samples)]
    for index in range(INPUTS.repeats):
        for side, taken in turns if index % 2 else reversed(turns):
            taken.append(side.sample())
    return samples, dense_samples


@torch.inference_mode()
def _run(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def _cast(inputs: Any, dtype: torch.dtype, place: torch.device) -> Any:
    """Move every tensor and cast the floating-point ones."""
    if isinstance(inputs, torch.Tensor):
        return inputs.to(place, dtype if inputs.is_floating_point() else inputs.dtype)
    if isinstance(inputs, dict):
        return {name: _cast(value, dtype, place) for name, value in inputs.items()}
    if isinstance(inputs, (tuple, list)):
        return type(inputs)(_cast(value, dtype, place) for value in inputs)
    return inputs


def _place(model: nn.Module, device: str) -> torch.device:
    if device != "auto":
        return torch.device(device)
    first = next(iter(model.parameters()), None)
    if first is not None and first.is_meta:
        raise PlanError("the module is on the meta device and holds no weights; load it before comparing")
    return torch.device("cpu") if first is None else first.device


def _content(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _protocol() -> Protocol:
    suite = INPUTS
    return Protocol(
        suite=suite.name,
        text="the caller's inputs",
        window_tokens=0,
        stride_tokens=0,
        windows=1,
        bos_policy="no tokens",
        aggregation="mean over output vectors of cosine and relative error against dense FP32",
        batch_size=1,
        prompt_tokens=0,
        decode_tokens=0,
        decode_batches=(),
        warmup=suite.warmup,
        repeats=suite.repeats,
        interleaved=True,
        isolation="one process, deep copies of the module",
        statistic="median with a 95 % percentile bootstrap interval; ratios of paired samples",
        seed=suite.seed,
    )
