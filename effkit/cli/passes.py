"""``effkit passes``: the passes and their settings."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from effkit.cli.common import LOOKING, AsJson, grid, out_console, print_json, say

NAME = "passes"
KINDS = {"array": "list of targets", "boolean": "true | false"}
PANEL = LOOKING
HELP = """List the passes that a recipe can use, or the settings of one.

Example: effkit passes int8
"""


def run(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this pass.", show_default=False)] = None,
    as_json: AsJson = False,
) -> int:
    """List or show."""
    from effkit.registry import pass_type, pass_types

    known = {name: pass_type(name)} if name is not None else pass_types()
    described: list[dict[str, Any]] = [
        {"name": each, "summary": config.summary, "settings": _settings(config)} for each, config in known.items()
    ]
    if as_json:
        print_json(described)
        return 0
    console = out_console()
    for each in described:
        table = grid("setting", "default", "allowed", "meaning")
        for setting in each["settings"]:
            table.add_row(setting["name"], str(setting["default"]), setting["allowed"], setting["meaning"])
        say(console, f"{each['name']}: {each['summary']}", "bold")
        console.print(table)
    return 0


def _settings(config: Any) -> list[dict[str, Any]]:
    """Name, default, allowed values and meaning of each setting, from the pass's own schema."""
    schema = config.model_json_schema()
    found = []
    for name, field in schema["properties"].items():
        if name == "use":
            continue
        allowed = field.get("enum") or ([field["const"]] if "const" in field else None)
        kinds = [option.get("type", "") for option in field.get("anyOf", [field])]
        values = allowed or [KINDS.get(kind, kind) for kind in kinds if kind != "null"]
        found.append(
            {
                "name": name,
                "default": "all" if name == "targets" else field.get("default"),
                "allowed": " | ".join(map(str, values)),
                "meaning": field.get("description", ""),
            }
        )
    return found
