"""``effkit report``: write the reports of a run again from its store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from effkit.cli.common import MEASURING, AsJson, print_json

NAME = "report"
PANEL = MEASURING
HELP = """Write the reports of a run again, from its store or its results.json; loads no model.

Example: effkit report out/demo
"""


def run(
    run_dir: Annotated[
        Path, typer.Argument(metavar="RUN", help="Directory of a run, or a results.json.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write.", show_default="the run's directory")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Rebuild and print."""
    from effkit.cli.compress_eval import show
    from effkit.report import load_results as read_json
    from effkit.report import to_json, write_reports
    from effkit.study import load_results as read_store

    results = read_json(run_dir) if run_dir.is_file() else read_store(run_dir)
    written = write_reports(results, out or (run_dir.parent if run_dir.is_file() else run_dir))
    if as_json:
        print_json(to_json(results))
    else:
        show(results, written)
    return 0
