"""``effkit bench``: speed, memory and energy without accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from effkit.cli.common import (
    MEASURING,
    AsJson,
    DeviceName,
    Model,
    SuiteNames,
    Trust,
    collect,
    refuse,
    slug,
)

NAME = "bench"
PANEL = MEASURING
HELP = """Measure speed, memory and energy of dense FP32, dense BF16 and each recipe; no accuracy.

Example: effkit bench sample:smollm2-135m --recipe int8
"""


def run(
    model: Model,
    recipe: Annotated[
        list[str] | None, typer.Option("--recipe", "-r", help="Ready recipe or .yaml file; may be given several times.")
    ] = None,
    suite: SuiteNames = None,
    device: DeviceName = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Directory of the run.", show_default="out/MODEL-bench")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")] = False,
    trust_remote_code: Trust = False,
    as_json: AsJson = False,
) -> int:
    """Run a study without its accuracy stage."""
    from effkit.cli.compress_eval import study_and_report
    from effkit.recipe import load_recipe
    from effkit.study import StudyConfig
    from effkit.suite import load_suite

    problems: list[str] = []
    chosen = [collect(problems, load_recipe, name) for name in recipe or []]
    suites = [collect(problems, load_suite, name) for name in suite or []]
    refuse(problems)
    config = StudyConfig(
        source=model,
        recipes=tuple(chosen),
        suites=tuple(suites),
        out=out or Path("out") / f"{slug(model)}-bench",
        device=device,
        measure_accuracy=False,
        trust_remote_code=trust_remote_code,
    )
    return study_and_report(config, quiet=quiet, as_json=as_json)
