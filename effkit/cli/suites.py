"""``effkit suites``: the ready evaluation suites."""

from __future__ import annotations

from typing import Annotated

import typer

from effkit.cli.common import LOOKING, AsJson, grid, out_console, print_json

NAME = "suites"
PANEL = LOOKING
HELP = """List the ready evaluation suites, or show one as a file to start your own from.

Example: effkit suites text-quick
"""


def run(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this suite.", show_default=False)] = None,
    as_json: AsJson = False,
) -> int:
    """List or show."""
    from effkit.suite import load_suite, ready_suites

    ready = ready_suites()
    if name is not None:
        suite = load_suite(name)
        if as_json or name not in ready:
            print_json(suite.to_dict())
        else:
            typer.echo(ready[name].read_text(encoding="utf-8"), nl=False)
        return 0
    found = [load_suite(each) for each in ready]
    if as_json:
        print_json([suite.to_dict() for suite in found])
        return 0
    table = grid("suite", ">windows", ">tokens each", "what it is")
    for suite in found:
        table.add_row(suite.name, str(suite.windows), str(suite.window), suite.description)
    out_console().print(table)
    return 0
