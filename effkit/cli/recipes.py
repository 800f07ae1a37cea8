"""``effkit recipes``: the ready recipes."""

from __future__ import annotations

from typing import Annotated

import typer

from effkit.cli.common import LOOKING, AsJson, grid, out_console, print_json

NAME = "recipes"
PANEL = LOOKING
HELP = """List the ready recipes, or show one as a file to start your own from.

Example: effkit recipes int8 > mine.yaml
"""


def run(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this recipe.", show_default=False)] = None,
    as_json: AsJson = False,
) -> int:
    """List or show."""
    from effkit.recipe import load_recipe, ready_recipes

    ready = ready_recipes()
    if name is not None:
        recipe = load_recipe(name)
        if as_json:
            print_json(recipe.to_dict())
        else:
            typer.echo(ready[name].read_text(encoding="utf-8") if name in ready else recipe.to_dict(), nl=False)
        return 0
    found = {each: load_recipe(each) for each in ready}
    if as_json:
        print_json([recipe.to_dict() for recipe in found.values()])
        return 0
    table = grid("recipe", "passes", "what it does")
    for each, recipe in found.items():
        table.add_row(each, ", ".join(config.use for config in recipe.passes), recipe.description)
    out_console().print(table)
    return 0
