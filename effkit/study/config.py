"""What a study is asked to do, and the variants that follow from it. Knows no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from effkit.recipe import Recipe
from effkit.suite import Suite

FP32 = "fp32"
BF16 = "bf16"


@dataclass(frozen=True)
class StudyConfig:
    """One invocation of ``effkit compress-eval``.

    Attributes:
        source: model source, see :func:`effkit.models.resolve`.
        recipes: one variant each, beside the dense rows.
        suites: evaluation sets; the first also gives prompt and decode lengths for speed. None: the quick suite of
            the model's kind.
        out: directory of the run.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        include_bf16: measure the dense BF16 row as well.
        measure_accuracy: run the suites.
        memory_limit_bytes: limit on the private memory of each worker process, or None.
        keep_dense: leave the dense checkpoints in ``out`` when the run is complete.
        trust_remote_code: run Python code that the model repository brings.
    """

    source: str
    recipes: tuple[Recipe, ...]
    suites: tuple[Suite, ...]
    out: Path
    device: str = "auto"
    include_bf16: bool = True
    measure_accuracy: bool = True
    memory_limit_bytes: int | None = None
    keep_dense: bool = False
    trust_remote_code: bool = False


@dataclass(frozen=True)
class VariantSpec:
    """One row to be measured.

    Attributes:
        name: unique within the run.
        dtype: dtype in which the dense model is loaded.
        recipe: None for dense rows.
        fingerprint: SHA-256 of all that can change its numbers.
    """

    name: str
    dtype: str
    recipe: Recipe | None
    fingerprint: str

    @property
    def is_baseline(self) -> bool:
        """True for dense FP32."""
        return self.name == FP32


@dataclass(frozen=True)
class Context:
    """What all variants of a run share and what each fingerprint must include.

    Attributes:
        model: fingerprint of the model's files.
        suites: fingerprints of the suites, fitted to the model.
        settings: measuring settings that change numbers.
        machine: processor, threads, device, versions of packages and of effkit's own source.
    """

    model: str
    suites: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    def fingerprint(self, **variant: Any) -> str:
        """SHA-256 (hex) over the context and the given facts of one variant."""
        data = {**self.__dict__, "suites": list(self.suites), "variant": variant}
        return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


def variants(config: StudyConfig, context: Context) -> tuple[VariantSpec, ...]:
    """List the rows of a run: fp32, bf16, then the recipes; names are made unique by a number."""
    found = [VariantSpec(FP32, "float32", None, context.fingerprint(dtype="float32"))]
    if config.include_bf16:
        found.append(VariantSpec(BF16, "bfloat16", None, context.fingerprint(dtype="bfloat16")))
    for name, recipe in unique_names(config.recipes):
        fingerprint = context.fingerprint(dtype="float32", recipe=recipe.fingerprint())
        found.append(VariantSpec(name, "float32", recipe, fingerprint))
    return tuple(found)


def unique_names(recipes: tuple[Recipe, ...]) -> Iterator[tuple[str, Recipe]]:
    """Yield each recipe under a name of its own: a second ``int8`` becomes ``int8-2``."""
    used = {FP32, BF16}
    for recipe in recipes:
        name, number = recipe.name, 2
        while name in used:
            name, number = f"{recipe.name}-{number}", number + 1
        used.add(name)
        yield name, recipe


def source_digest() -> str:
    """SHA-256 (hex) over effkit's own Python and C++ source: changed code invalidates stored rows."""
    package = Path(__file__).parent.parent
    state = hashlib.sha256()
    measuring = ("measure", "runtimes", "kernels", "modules", "numerics", "passes", "models", "study")
    for part in measuring:
        for path in sorted((package / part).rglob("*")):
            if path.suffix in {".py", ".cpp", ".h"}:
                state.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return state.hexdigest()
