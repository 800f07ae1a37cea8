"""Recipes: an ordered list of passes with their settings, read from one strict YAML file and never changed.

Knows the passes only through :mod:`effkit.registry`. All faults of a recipe are raised together.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, SerializeAsAny

from effkit import registry
from effkit.errors import Problem, RecipeError, UsageError, did_you_mean
from effkit.registry import PassConfig
from effkit.strictyaml import Located, StrictModel, Where, read_yaml, validate

PACKAGE_DIR = Path(__file__).parent


RESERVED = ("fp32", "bf16")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")


def _usable_name(name: str) -> str:
    """A recipe's name is that of its row, its folder and its log, so it must be one plain word."""
    if not NAME.fullmatch(name):
        raise ValueError("must be 1 to 64 letters, digits and '_', '.', '+' or '-', the first a letter or digit")
    if name in RESERVED:
        raise ValueError("is the name of a dense row; choose another")
    return name


Name = Annotated[str, AfterValidator(_usable_name)]


class _Head(StrictModel):
    """A recipe as it stands in the file; the passes are checked one by one by their own types."""

    name: Name
    description: str = ""
    passes: list[Any]


class Recipe(StrictModel):
    """An ordered list of passes.

    Attributes:
        name: short name; the variant's name in every report.
        description: one sentence for people.
        passes: settings of each pass, all defaults filled in.

    Example:
        >>> from effkit import Recipe
        >>> Recipe.from_dict({"name": "mine", "passes": [{"use": "int8", "skip": ["lm_head"]}]}).passes[0].weights
        'channel'
    """

    name: Name
    description: str = ""
    passes: tuple[SerializeAsAny[PassConfig], ...]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Recipe:
        """Build a recipe from plain data.

        Raises:
            RecipeError: with every problem at once.
        """
        return _resolve(Located(data))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data with every default filled in; ``from_dict`` takes it back."""
        data: dict[str, Any] = self.model_dump(mode="json")
        return data

    def fingerprint(self) -> str:
        """SHA-256 (hex) over the resolved settings; the description does not count."""
        data = self.to_dict()
        data.pop("description")
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def load_recipe(name_or_path: str | Path) -> Recipe:
    """Read a ready recipe by name (``int8``) or a file (``mine.yaml``).

    Raises:
        UsageError: neither a ready recipe nor a file.
        RecipeError: the file is wrong; lists every problem with its line.
    """
    text = str(name_or_path)
    ready = ready_recipes()
    if text in ready:
        return _resolve(read_yaml(ready[text]))
    path = Path(name_or_path)
    if path.is_file():
        return _resolve(read_yaml(path))
    looks_like_file = path.suffix in {".yaml", ".yml"} or "/" in text
    if path.is_dir():
        raise UsageError(f"{text} is a directory; give a recipe file (.yaml) or a ready recipe: {_names(ready)}")
    if looks_like_file:
        raise UsageError(f"no recipe file at {text}; ready recipes: {_names(ready)}")
    hint = did_you_mean(text, ready)
    raise UsageError(f"no recipe is called {text!r} ({hint + ' ' if hint else ''}ready recipes: {_names(ready)})")


def ready_recipes() -> dict[str, Path]:
    """Return the recipes that ship with effkit, by name."""
    installed = PACKAGE_DIR / "recipes"
    folder = installed if installed.is_dir() else PACKAGE_DIR.parent / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def _names(ready: dict[str, Path]) -> str:
    return ", ".join(ready) or "none"


def _resolve(located: Located) -> Recipe:
    problems: list[Problem] = []
    head: _Head | None = None
    try:
        head = validate(_Head, located)
    except RecipeError as error:
        problems += error.problems
    raw = located.data.get("passes") if isinstance(located.data, dict) else None
    passes = [] if not isinstance(raw, list) else raw
    if isinstance(raw, list) and not raw:
        problems.append(located.problem(("passes",), "is empty", "name at least one pass"))
    configs = [_resolve_pass(located, index, data, problems) for index, data in enumerate(passes)]
    if problems or head is None:
        raise RecipeError(sorted(problems, key=lambda p: p.line or 0), located.source)
    kept = tuple(config for config in configs if config is not None)
    return Recipe(name=head.name, description=head.description, passes=kept)


def _resolve_pass(located: Located, index: int, data: Any, problems: list[Problem]) -> PassConfig | None:
    where: Where = ("passes", index)
    known = registry.pass_types()
    if not isinstance(data, dict):
        problems.append(located.problem(where, f"must be a mapping that starts with `use:`, not {data!r}"))
        return None
    name = data.get("use")
    if not isinstance(name, str) or name not in known:
        allowed = f"allowed: {', '.join(sorted(known))}"
        if name is None:
            problems.append(located.problem(where, "has no `use:`", allowed))
        else:
            mend = did_you_mean(str(name), known)
            problems.append(located.problem((*where, "use"), f"no pass is called {name!r}; {allowed}", mend))
        return None
    try:
        return validate(known[name], Located(data, _below(located, where), located.source))
    except RecipeError as error:
        problems += [Problem(f"passes[{index}].{p.where}", p.message, p.mend, p.line) for p in error.problems]
        return None


def _below(located: Located, where: Where) -> dict[Where, int]:
    depth = len(where)
    return {path[depth:]: line for path, line in located.lines.items() if path[:depth] == where}
