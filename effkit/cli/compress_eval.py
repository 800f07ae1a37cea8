"""``effkit compress-eval``: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from effkit.cli.common import (
    MEASURING,
    AsJson,
    DeviceName,
    Model,
    Recipes,
    SuiteNames,
    Trust,
    collect,
    err_console,
    out_console,
    parse_size,
    print_json,
    refuse,
    say,
    slug,
)

if TYPE_CHECKING:
    from effkit.records import Results
    from effkit.study import StudyConfig

NAME = "compress-eval"
PANEL = MEASURING
HELP = """Compress a model by each recipe, measure every variant against dense FP32 and BF16, write the report.

Example: effkit compress-eval sample:smollm2-135m --recipe int8

Each variant runs in a fresh process. Interrupt at will: the same command goes on where it stopped.
"""


def run(
    model: Model,
    recipe: Recipes,
    suite: SuiteNames = None,
    device: DeviceName = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Directory of the run.", show_default="out/MODEL")
    ] = None,
    bf16: Annotated[bool, typer.Option(" /--no-bf16", help="Leave out the dense BF16 row.", show_default=False)] = True,
    memory_limit: Annotated[
        str | None, typer.Option(help="Limit on each process's private memory, such as 4GiB.", show_default=False)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")] = False,
    trust_remote_code: Trust = False,
    as_json: AsJson = False,
) -> int:
    """Check everything, show the plans, run the study, report."""
    config = _config(model, recipe, suite, device, out, bf16, memory_limit, trust_remote_code)
    return study_and_report(config, quiet=quiet, as_json=as_json)


def study_and_report(config: StudyConfig, *, quiet: bool, as_json: bool) -> int:
    """Run a study, write its reports and print them; the exit code is 1 where a row failed."""
    from effkit.report import to_json, write_reports

    results = study(config, quiet=quiet)
    written = write_reports(results, config.out)
    if as_json:
        print_json(to_json(results))
    else:
        show(results, written)
    return 0 if all(row.status == "ok" for row in results.variants) else 1


def study(config: StudyConfig, *, quiet: bool) -> Results:
    """Run a study with progress on standard error; an interrupt says what was kept."""
    from effkit.cli.progress import StudyProgress
    from effkit.study import run_study

    count = 1 + config.include_bf16 + len(config.recipes)
    try:
        with StudyProgress(quiet=quiet, variants=count) as progress:
            return run_study(config, progress)
    except KeyboardInterrupt:
        say(
            err_console(),
            f"interrupted: what was finished is kept in {config.out}; the same command goes on from there",
        )
        raise typer.Exit(130) from None


def show(results: Results, written: dict[str, Path]) -> None:
    """Print the table, the verdicts and where the reports are."""
    from effkit.report import terminal_table

    console = out_console()
    console.print(terminal_table(results))
    for name, path in written.items():
        console.print(f"{name:<5} {path}", markup=False, soft_wrap=True)


def _config(
    model: str,
    recipes: list[str],
    suites: list[str] | None,
    device: str,
    out: Path | None,
    bf16: bool,
    memory_limit: str | None,
    trust: bool,
) -> StudyConfig:
    """Read all settings and tell every problem at once."""
    from effkit.recipe import load_recipe
    from effkit.study import StudyConfig
    from effkit.suite import load_suite

    problems: list[str] = []
    limit = collect(problems, parse_size, memory_limit, "--memory-limit") if memory_limit else None
    chosen = [collect(problems, load_recipe, name) for name in recipes]
    sets = [collect(problems, load_suite, name) for name in suites or []]
    refuse(problems)
    return StudyConfig(
        source=model,
        recipes=tuple(chosen),
        suites=tuple(sets),
        out=out or Path("out") / slug(model),
        device=device,
        include_bf16=bf16,
        memory_limit_bytes=limit,
        trust_remote_code=trust,
    )
