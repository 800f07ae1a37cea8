"""Everything a study checks before it works: model, recipes, texts, device and disk, without reading a weight."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from effkit.errors import UsageError
from effkit.records import Ceilings, Protocol
from effkit.study.config import Context, StudyConfig, source_digest
from effkit.study.events import Listener, Planned
from effkit.suite import Suite, default_suite, load_suite

if TYPE_CHECKING:
    from effkit.measure.accuracy import Windows

ISOLATION = "one fresh process per variant; recipes are applied in another process, which saves what is measured"
DISK_RESERVE_BYTES = 256 << 20
BUSY_PERCENT = 25.0
"""Processor use by others from which on speeds are not to be trusted."""


@dataclass
class Prepared:
    """What is known of the model before anything runs."""

    task: str
    suites: tuple[Suite, ...]
    windows: Windows
    notes: tuple[str, ...]
    expanded_bytes: int
    header: dict[str, Any]
    context: Context
    ceilings: Ceilings
    device: str
    busy: str

    def refresh_ceilings(self) -> None:
        """Measure this machine's ceilings again and keep the higher figures: a busy moment can hide a ceiling."""
        from effkit.measure.roofline import measure_ceilings

        self.ceilings = measure_ceilings(self.device, refresh=True)
        self.header["environment"]["ceilings"] = self.ceilings.model_dump(mode="json")


def look_ahead(config: StudyConfig, tell: Listener) -> Prepared:
    """Check everything that can be checked without weights: model, recipes, texts, device, disk.

    Raises:
        SourceError, CheckpointError: the model. PlanError: a recipe does not fit it. UsageError: text, device, disk.
    """
    import torch

    from effkit.inventory import take_inventory
    from effkit.measure.accuracy import encoder_windows, windows
    from effkit.measure.environment import describe
    from effkit.measure.roofline import measure_ceilings
    from effkit.models import resolve
    from effkit.planning import make_plan
    from effkit.runtimes.eager import max_positions

    source = resolve(config.source, trust_remote_code=config.trust_remote_code)
    if source.kind == "effkit" and source.manifest is not None and source.manifest.modules:
        raise UsageError(
            f"{config.source} is already compressed; give the dense model, or look at it with `effkit eval` and its "
            "--baseline"
        )
    if source.task == "other":
        raise UsageError(
            f"{config.source} is neither a causal language model nor an encoder; "
            "effkit.compare(model, recipes, inputs=...) studies any module on inputs of your own"
        )
    skeleton = source.meta_model()
    inventory = take_inventory(skeleton)
    plans = tuple(make_plan(inventory, recipe) for recipe in config.recipes)
    asked = config.suites or (load_suite(default_suite(source.task)),)
    if len({suite.name for suite in asked}) < len(asked):
        raise UsageError(f"suites need names of their own: {', '.join(suite.name for suite in asked)}")
    fitted = [suite.fitted(max_positions(skeleton)) for suite in asked]
    suites = tuple(suite for suite, _ in fitted)
    tokenizer = source.tokenizer()
    cut_for = windows if source.task == "causal-lm" else encoder_windows
    cuts = [cut_for(tokenizer, suite.read_text(), suite) for suite in suites]
    tell(Planned(source.source, source.size_note(), source.notes, plans))
    device = _device(config.device)
    ceilings = measure_ceilings(device)
    environment = describe(device, ceilings)
    info = source.info()
    expanded = source.expanded_bytes(torch.float32)
    known = Prepared(
        task=source.task,
        suites=suites,
        windows=cuts[0],
        notes=tuple(note for _, notes in fitted for note in notes),
        expanded_bytes=expanded,
        header={"model": info.model_dump(mode="json"), "environment": environment.model_dump(mode="json")},
        context=Context(
            model=info.fingerprint,
            suites=tuple(suite.fingerprint() for suite in suites),
            settings={"accuracy": config.measure_accuracy, "memory_limit": config.memory_limit_bytes},
            machine={
                "cpu": environment.cpu_model,
                "threads": environment.threads,
                "device": environment.device_name,
                "packages": environment.packages,
                "effkit": source_digest(),
                "python": environment.python,
            },
        ),
        ceilings=ceilings,
        device=device,
        busy=_busy_note(),
    )
    _check_disk(config, known, skeleton)
    return known


def _busy_note() -> str:
    """A warning where others keep the processors busy, while this process idles; else nothing."""
    percent = psutil.cpu_percent(interval=0.5)
    if percent <= BUSY_PERCENT:
        return ""
    return f"the machine was busy with other work ({percent:.0f} % of its processors): speeds are too low"


def _check_disk(config: StudyConfig, known: Prepared, skeleton: Any) -> None:
    """Dense checkpoints (FP32 and half of it), one of at most FP32's size per recipe, and the baseline's logits."""
    vocabulary = getattr(getattr(skeleton, "config", None), "vocab_size", 0) or 0
    logits = sum(4 * vocabulary * suite.window * suite.kl_windows for suite in known.suites)
    if known.task != "causal-lm" or not config.measure_accuracy:
        logits = 0
    needed = int(known.expanded_bytes * (1.5 + len(config.recipes))) + logits + DISK_RESERVE_BYTES
    free = shutil.disk_usage(config.out).free
    kept = sum(file.stat().st_size for file in config.out.rglob("*") if file.is_file())  # of the run that goes on here
    if free + kept < needed:
        raise UsageError(
            f"--out {config.out} has {free / 1e9:.1f} GB free, the run needs up to {needed / 1e9:.1f} GB "
            "(dense and compressed checkpoints, baseline logits); give a directory on a larger disk"
        )


def protocol_of(known: Prepared, interleaved: bool, busy: str, config: StudyConfig) -> Protocol:
    """Describe how the run measures, in words and numbers."""
    from effkit.measure.accuracy import text_protocol

    notes = list(known.notes)
    if config.memory_limit_bytes:
        notes.append(f"private memory of each process limited to {config.memory_limit_bytes} bytes")
    if busy:
        notes.append(busy)
    if not interleaved:
        notes.append("fp32 did not run beside the variants: speedups compare nothing and are left out")
    return text_protocol(
        known.suites[0], known.windows, interleaved=interleaved, isolation=ISOLATION, notes=tuple(notes)
    )


def _device(asked: str) -> str:
    import torch

    if asked == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(asked)
    except RuntimeError:
        raise UsageError(f"--device {asked!r} is not known; allowed: auto, cpu, cuda, cuda:N") from None
    if device.type not in {"cpu", "cuda"}:
        raise UsageError(f"--device {asked!r} is not supported; allowed: auto, cpu, cuda, cuda:N")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise UsageError(f"--device {asked}: this machine has {count} CUDA devices")
        return f"cuda:{device.index or 0}"
    return "cpu"
