"""The study: every variant in fresh processes, every finished row kept, samples interleaved with the baseline."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from effkit.records import Accuracy, Coverage, Energy, Memory, Results, Speed, Variant
from effkit.study.ahead import look_ahead, protocol_of
from effkit.study.config import FP32, StudyConfig, VariantSpec, variants
from effkit.study.events import Listener, Notice, Progress, RowFinished, Stage, StageStarted, ignore
from effkit.study.process import Worker, WorkerError
from effkit.study.store import Store, check_out, locked
from effkit.suite import Suite

COMPANION_SHARE = 0.8
"""Share of the memory at hand that the companion and a variant together may be expected to take."""


def run_study(config: StudyConfig, on_event: Listener | None = None) -> Results:
    """Measure every variant of ``config``; rows that an earlier run of the same command finished are reused.

    Args:
        config: what to do.
        on_event: told of stages, progress and rows as they happen.

    Returns:
        All rows, as they are in the store; a variant that failed is a row that says so.

    Raises:
        UsageError, RecipeError, PlanError: before any work. StudyError: the store cannot be used.
    """
    check_out(config.out)
    with locked(config.out):
        study = _Study(config, on_event or ignore)
        try:
            return study.run()
        finally:
            study.close()


class _Study:
    def __init__(self, config: StudyConfig, on_event: Listener) -> None:
        self.config = config
        self.tell = on_event
        self.store = Store(config.out)
        self.known = look_ahead(config, on_event)
        self.specs = variants(config, self.known.context)
        self._companion: Worker | None = None

    def close(self) -> None:
        """End the companion and release the store."""
        self._end_companion()
        self.store.close()

    def run(self) -> Results:
        missing = [spec for spec in self.specs if self._finished(spec) is None]
        interleaved = self._may_interleave() and any(not spec.is_baseline for spec in missing)
        busy = self.known.busy if missing else ""
        if busy:
            self.tell(Notice(busy))
        elif missing:
            self.known.refresh_ceilings()
        context = self.known.context.fingerprint()
        earlier = self.store.get("", "conditions", context)
        if earlier is not None:  # they hold for the rows that are reused
            interleaved = interleaved if missing else bool(earlier["interleaved"])
            busy = busy or str(earlier["busy"])
        self._interleaved = interleaved
        self.store.put("", "conditions", context, {"interleaved": interleaved, "busy": busy})
        self._describe(busy)
        for spec in self.specs:
            row = self._finished(spec)
            reused = row is not None
            if row is None:
                row = self._measured(spec)
                self.store.put_row(row)
            elif spec.recipe is not None:
                self._restore_checkpoint(spec)
            self.tell(RowFinished(row, reused))
        results = self.store.results()
        if all(row.status == "ok" for row in results.variants):
            self._tidy()
        return results

    def _finished(self, spec: VariantSpec) -> Variant | None:
        """A row that succeeded before; failed ones are tried again."""
        row = self.store.row(spec.name, spec.fingerprint)
        return row if row is not None and row.status == "ok" else None

    def _restore_checkpoint(self, spec: VariantSpec) -> None:
        """A reused row's checkpoint may have been deleted, or replaced by a recipe of the same name: make it again."""
        try:
            self._prepare(spec)
        except WorkerError as error:
            self.tell(Notice(f"{spec.name} was measured before, but its checkpoint could not be made again: {error}"))

    def _describe(self, busy: str) -> None:
        protocol = protocol_of(self.known, self._interleaved, busy, self.config)
        names = [[spec.name, spec.fingerprint] for spec in self.specs]
        self.store.describe_run({**self.known.header, "protocol": protocol.model_dump(mode="json"), "variants": names})

    def _measured(self, spec: VariantSpec) -> Variant:
        """Take one variant through all stages; whatever goes wrong becomes its row."""
        row = _RowBuilder(spec, self.known.device)
        try:
            prepared = self._prepare(spec)
            if prepared["coverage"] is not None:
                row.coverage = Coverage.model_validate(prepared["coverage"])
            return self._measure(spec, prepared, row)
        except WorkerError as error:
            return row.failed(error)

    def _prepare(self, spec: VariantSpec) -> dict[str, Any]:
        checkpoint = self._checkpoint(spec)
        known = self.store.get(spec.name, "prepare", spec.fingerprint)
        if known is not None and (checkpoint / "effkit.json").is_file():
            return known
        self.tell(StageStarted(spec.name, "prepare"))
        self.store.forget(spec.name, "prepare")  # of whatever recipe or model lay there: it is about to be replaced
        with self._worker(spec, "prepare") as worker:
            prepared: dict[str, Any] = worker.ask(
                "prepare",
                on_progress=self._progress(spec, "prepare"),
                source=self.config.source,
                dtype=spec.dtype,
                recipe=spec.recipe.to_dict() if spec.recipe else None,
                out=str(checkpoint),
                trust=self.config.trust_remote_code,
            )
        self.store.put(spec.name, "prepare", spec.fingerprint, prepared)
        return prepared

    def _measure(self, spec: VariantSpec, prepared: dict[str, Any], row: _RowBuilder) -> Variant:
        baselines = self._baselines(spec)
        with self._worker(spec, "measure") as worker:
            self._load(worker, spec)
            accuracies = [self._accuracy(worker, spec, suite, baselines) for suite in self.known.suites]
            samples, reasons = self._speed(worker, spec)
            self.tell(StageStarted(spec.name, "energy"))
            sections = worker.ask(
                "finish",
                ceilings=self.known.ceilings.model_dump(mode="json"),
                baseline_samples=samples,
                reasons=reasons,
                is_baseline=spec.is_baseline,
                prepared=prepared,
                baseline_weight_bytes=self._baseline_bytes(spec),
            )
        return row.ok(accuracies, sections)

    def _load(self, worker: Worker, spec: VariantSpec) -> None:
        self.tell(StageStarted(spec.name, "load"))
        loaded = worker.ask(
            "load",
            checkpoint=str(self._checkpoint(spec)),
            device=self.known.device,
            task=self.known.task,
            trust=self.config.trust_remote_code,
        )
        self.store.put(spec.name, "load", spec.fingerprint, loaded)

    def _accuracy(self, worker: Worker, spec: VariantSpec, suite: Suite, baselines: dict[str, str]) -> Accuracy:
        if not self.config.measure_accuracy:
            return Accuracy.missing("not asked for", suite=suite.name)
        self.tell(StageStarted(spec.name, "accuracy"))
        folder = self._baseline_folder(suite)
        missing = baselines.get(suite.name)
        found = worker.ask(
            "accuracy",
            on_progress=self._progress(spec, "accuracy"),
            suite=suite.to_dict(),
            key=self.specs[0].fingerprint,
            baseline=None if spec.is_baseline or missing else str(folder),
            write_baseline=str(folder) if spec.is_baseline else None,
        )
        if missing:
            found["reasons"] = {name: missing if "baseline" in why else why for name, why in found["reasons"].items()}
        return Accuracy.model_validate(found)

    def _baselines(self, spec: VariantSpec) -> dict[str, str]:
        """Make sure the dense FP32 run's likelihoods and logits are there; why not, by suite."""
        if spec.is_baseline or not self.config.measure_accuracy:
            return {}
        if self._finished(self.specs[0]) is None:
            return {suite.name: "the dense fp32 row failed, so there is no baseline" for suite in self.known.suites}
        lacking = [suite for suite in self.known.suites if not self._has_baseline(suite)]
        if not lacking:
            return {}
        try:
            self._write_baselines(lacking)
        except WorkerError as error:
            why = f"the baseline could not be made again: {error}"
            self.tell(Notice(why))
            return {suite.name: why for suite in lacking}
        return {}

    def _has_baseline(self, suite: Suite) -> bool:
        """Whether a whole baseline of this very fp32 row lies there, not one of another model or version."""
        try:
            header = json.loads((self._baseline_folder(suite) / "baseline.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(header.get("key") == self.specs[0].fingerprint)

    def _write_baselines(self, suites: list[Suite]) -> None:
        fp32 = self.specs[0]
        self._prepare(fp32)
        with self._worker(fp32, "baseline") as worker:
            self._load(worker, fp32)
            for suite in suites:
                self._accuracy(worker, fp32, suite, {})

    def _speed(self, worker: Worker, spec: VariantSpec) -> tuple[dict[str, list[float]] | None, dict[str, str]]:
        """Take all samples; returns the companion's, pair by pair, and reasons for what is left out."""
        self.tell(StageStarted(spec.name, "speed"))
        suite = self.known.suites[0].to_dict()
        kinds = worker.ask("start_speed", suite=suite)
        reasons = {"compile_s": "nothing is compiled in eager mode"}
        if spec.recipe is None:
            reasons["compress_s"] = "a dense row"
        if not spec.is_baseline:
            self._start_companion(suite)
        report = self._progress(spec, "speed")
        repeats = self.known.suites[0].repeats
        beside: dict[str, list[float | None]] = {kind: [] for kind in kinds}
        for index, kind in enumerate(kinds):
            worker.ask("warm_up", kind=kind)
            self._ask_companion("warm_up", kind)
            for turn in range(repeats):
                if turn % 2:  # A B B A
                    beside[kind].append(self._ask_companion("sample", kind))
                worker.ask("sample", kind=kind)
                if not turn % 2:
                    beside[kind].append(self._ask_companion("sample", kind))
                report(index * repeats + turn + 1, len(kinds) * repeats)
        whole = {kind: [each for each in taken if each is not None] for kind, taken in beside.items()}
        return (whole if whole == beside else None), reasons

    def _ask_companion(self, order: str, kind: str) -> float | None:
        """One order to the companion; its death is a notice and missing speedups, never this variant's failure."""
        if self._companion is None:
            return None
        try:
            seconds: float | None = self._companion.ask(order, kind=kind)
        except WorkerError as error:
            self._give_up_companion(error)
            return None
        return seconds

    def _start_companion(self, suite: dict[str, Any]) -> None:
        """Hold dense FP32 beside the variants for alternate samples, where it is to be had."""
        if self._companion is not None or not self._interleaved or self._finished(self.specs[0]) is None:
            return
        fp32 = self.specs[0]
        try:
            self._prepare(fp32)
            self._companion = self._worker(fp32, "companion")
            self._load(self._companion, fp32)
            self._companion.ask("start_speed", suite=suite)
        except WorkerError as error:
            self._give_up_companion(error)

    def _give_up_companion(self, error: WorkerError) -> None:
        self._end_companion()
        self.tell(Notice(f"no fp32 process beside this variant: {error}; its speedups are left out"))

    def _end_companion(self) -> None:
        if self._companion is not None:
            self._companion.end()
            self._companion = None

    def _may_interleave(self) -> bool:
        """Whether dense FP32 and a variant of the same size fit beside each other."""
        if self.known.device != "cpu":
            import torch

            free: int = torch.cuda.mem_get_info(self.known.device)[0]
        else:
            free = psutil.virtual_memory().available
        return 2 * self.known.expanded_bytes < COMPANION_SHARE * free

    def _baseline_bytes(self, spec: VariantSpec) -> int | None:
        dense = self.specs[0]
        known = self.store.get(FP32, "load", dense.fingerprint) if spec.is_baseline or self._finished(dense) else None
        return int(known["weight_bytes"]) if known else None

    def _worker(self, spec: VariantSpec, job: str) -> Worker:
        log = self.config.out / "logs" / f"{spec.name}-{job}.log"
        return Worker(log, memory_limit_bytes=self.config.memory_limit_bytes)

    def _progress(self, spec: VariantSpec, stage: Stage) -> Any:
        return lambda done, total: self.tell(Progress(spec.name, stage, done, total))

    def _checkpoint(self, spec: VariantSpec) -> Path:
        return self.config.out / "variants" / spec.name

    def _baseline_folder(self, suite: Suite) -> Path:
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in suite.name)
        return self.config.out / "baseline" / safe

    def _tidy(self) -> None:
        """A complete run needs its baseline and dense checkpoints no more; they are made again if it is extended."""
        self._end_companion()
        shutil.rmtree(self.config.out / "baseline", ignore_errors=True)
        if not self.config.keep_dense:
            for spec in self.specs:
                if spec.recipe is None:
                    shutil.rmtree(self._checkpoint(spec), ignore_errors=True)


@dataclass
class _RowBuilder:
    """Turns the outcome of a variant into its row."""

    spec: VariantSpec
    device: str
    coverage: Coverage | None = None

    def ok(self, accuracies: list[Accuracy], sections: dict[str, Any]) -> Variant:
        """A measured row."""
        by_suite = {accuracy.suite: accuracy for accuracy in accuracies[1:]}
        return self._row(
            "ok",
            "",
            accuracies[0],
            Memory.model_validate(sections["memory"]),
            Speed.model_validate(sections["speed"]),
            Energy.model_validate(sections["energy"]),
            by_suite,
        )

    def failed(self, error: WorkerError) -> Variant:
        """A row that says why nothing was measured."""
        why = "the variant ran out of memory" if error.status == "out_of_memory" else "the variant failed"
        missing = (Accuracy.missing(why, suite=""), Memory.missing(why), Speed.missing(why), Energy.missing(why))
        return self._row(error.status, error.reason, *missing, {})

    def _row(
        self,
        status: Any,
        reason: str,
        accuracy: Accuracy,
        memory: Memory,
        speed: Speed,
        energy: Energy,
        by_suite: dict[str, Accuracy],
    ) -> Variant:
        return Variant(
            name=self.spec.name,
            recipe=self.spec.recipe.name if self.spec.recipe else None,
            runtime="eager",
            device=self.device,
            status=status,
            reason=reason,
            fingerprint=self.spec.fingerprint,
            coverage=self.coverage,
            accuracy=accuracy,
            accuracy_by_suite=by_suite,
            memory=memory,
            speed=speed,
            energy=energy,
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
