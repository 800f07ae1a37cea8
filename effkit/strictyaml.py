"""YAML files whose every fault is reported at once, with its line; shared by recipes and suites.

Knows YAML and pydantic, not what a recipe means. Stricter than YAML itself: duplicate keys, values of the wrong
type (``bits: '8'``, ``'true'``) and unknown keys are faults; only plain scalars, lists and mappings are built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from effkit.errors import Problem, RecipeError, did_you_mean

MAX_NODES = 100_000
PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")

Where = tuple[str | int, ...]
T = TypeVar("T", bound=BaseModel)


class StrictModel(BaseModel):
    """A frozen setting object: no unknown keys, no conversions between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Located:
    """Plain data together with the line each part of it stands on.

    Attributes:
        data: nested dicts, lists and scalars.
        lines: 1-based line by path, such as ``("passes", 0, "weights")``; empty for data that came from Python.
        source: what to call the file in messages.
        problems: faults of the YAML itself that leave the rest readable; :func:`validate` raises them with its own.
    """

    data: Any
    lines: dict[Where, int] = field(default_factory=dict)
    source: str = "recipe"
    problems: tuple[Problem, ...] = ()

    def line(self, where: Where) -> int | None:
        """Return the line of ``where`` or, where it has none of its own, of its nearest parent."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where)

    def problem(self, where: Where, message: str, mend: str = "") -> Problem:
        """Build a problem that knows its line."""
        return Problem(dotted(where), message, mend, self.line(where))


def dotted(where: Where) -> str:
    """Write a path as ``passes[0].weights``; the empty path is ``(top level)``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    return text.lstrip(".") or "(top level)"


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads ``1e-3`` as a number, which YAML 1.1 takes for a string."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(source: Path | str, *, name: str | None = None) -> Located:
    """Read one YAML document.

    Args:
        source: a path, or the YAML text itself.
        name: what to call it in messages; the path by default.

    Raises:
        RecipeError: not readable, not YAML, duplicate keys, or tags that would build objects.
    """
    label = name or (str(source) if isinstance(source, Path) else "recipe")
    text = _read_text(source, label) if isinstance(source, Path) else source
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise RecipeError([Problem("(top level)", "the file is empty")], label)
        builder = _Builder(loader)
        data = builder.build(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise RecipeError([Problem("(top level)", f"not valid YAML: {error.problem}", line=line)], label) from None
    except yaml.YAMLError as error:
        raise RecipeError([Problem("(top level)", f"not valid YAML: {error}")], label) from None
    except RecursionError:
        raise RecipeError([Problem("(top level)", "is nested too deeply")], label) from None
    finally:
        loader.dispose()
    return Located(data, builder.lines, label, tuple(builder.problems))


def _read_text(path: Path, label: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        detail = getattr(error, "strerror", None) or str(error)
        raise RecipeError([Problem("(file)", f"cannot be read: {detail}")], label) from None


class _Builder:
    """Turns YAML nodes into plain data, noting lines and faults on the way."""

    def __init__(self, loader: _Loader) -> None:
        self.loader = loader
        self.lines: dict[Where, int] = {}
        self.problems: list[Problem] = []
        self.count = 0
        self.open: set[int] = set()

    def build(self, node: yaml.Node, where: Where) -> Any:
        self.count += 1
        if self.count > MAX_NODES or id(node) in self.open:
            self._fault(node, where, "too deep or too large: an alias refers to itself, or there are too many entries")
            return None
        self.lines.setdefault(where, node.start_mark.line + 1)
        self.open.add(id(node))
        try:
            if not isinstance(node, yaml.ScalarNode) and node.tag not in PLAIN_TAGS:
                self._fault(node, where, f"the tag {node.tag} is not plain data", "write plain lists and mappings")
                return None
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, where)
            if isinstance(node, yaml.SequenceNode):
                return [self.build(child, (*where, index)) for index, child in enumerate(node.value)]
            return self._scalar(node, where)
        finally:
            self.open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, where: Where) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                self._fault(key_node, where, "a key must be a plain word")
                continue
            path = (*where, key)
            if key in result:
                self._fault(key_node, path, "the key stands twice", "keep one of them")
                continue
            self.lines[path] = key_node.start_mark.line + 1
            result[key] = self.build(value_node, path)
        return result

    def _scalar(self, node: yaml.Node, where: Where) -> Any:
        value = None
        try:
            value = self.loader.construct_object(node)
        except (yaml.YAMLError, ValueError):
            self._fault(node, where, f"{node.value!r} with the tag {node.tag} is not plain data")
        if value is None or isinstance(value, (str, bool, int, float)):
            return value
        return str(node.value)  # dates and the like: kept as the text that was written

    def _fault(self, node: yaml.Node, where: Where, message: str, mend: str = "") -> None:
        self.problems.append(Problem(dotted(where), message, mend, node.start_mark.line + 1))


def validate(model: type[T], located: Located, where: Where = ()) -> T:
    """Build ``model`` from ``located.data``; ``where`` is the path of that data in its file.

    Raises:
        RecipeError: with every problem, its line, the value found, the allowed values and a suggestion.
    """
    if not isinstance(located.data, dict):
        kind = type(located.data).__name__
        problem = located.problem(where, f"must be a mapping of settings, not {kind}")
        raise RecipeError([*located.problems, problem], located.source)
    try:
        value = model.model_validate_json(json.dumps(located.data))
    except ValidationError as error:
        problems = [*located.problems, *_problems(model, error, located, where)]
        raise RecipeError(problems, located.source) from None
    if located.problems:
        raise RecipeError(located.problems, located.source)
    return value


def _problems(model: type[BaseModel], error: ValidationError, located: Located, where: Where) -> Iterator[Problem]:
    seen: set[Where] = set()
    for fault in error.errors(include_url=False):
        path = _shorten(located.data, tuple(fault["loc"]))
        if path in seen:  # one setting, several members of a union: the first message stands for all
            continue
        seen.add(path)
        full = (*where, *path)
        kind, value = fault["type"], fault.get("input")
        if kind == "extra_forbidden":
            known = _fields_at(model, path[:-1])
            mend = did_you_mean(str(path[-1]), known) or f"known settings: {', '.join(known)}"
            yield located.problem(full, "unknown setting", mend)
        elif kind == "missing":
            yield located.problem(full, "is required")
        elif kind == "literal_error":
            allowed = [str(a) for a in _allowed(fault["ctx"]["expected"])]
            mend = did_you_mean(str(value), allowed)
            yield located.problem(full, f"{value!r} is not allowed; allowed: {', '.join(allowed)}", mend)
        else:
            message = fault["msg"].removeprefix("Value error, ").replace("valid array", "valid list")
            message = message.replace("valid object", "valid mapping")
            yield located.problem(full, f"{value!r}: {message[:1].lower()}{message[1:]}")


def _allowed(expected: str) -> list[str]:
    return re.findall(r"'([^']*)'", expected) or [expected]


def _shorten(data: Any, path: Where) -> Where:
    """Cut a pydantic location where it leaves the data (union member names are not part of the file)."""
    kept: list[str | int] = []
    for part in path:
        if isinstance(data, dict) and isinstance(part, str):
            kept.append(part)
            if part not in data:
                break
            data = data[part]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            kept.append(part)
            data = data[part]
        else:
            break
    return tuple(kept)


def _fields_at(model: type[BaseModel], path: Where) -> list[str]:
    """Names of the settings that are known at ``path`` below ``model``."""
    for part in path:
        if not isinstance(part, str) or part not in model.model_fields:
            continue
        annotation = model.model_fields[part].annotation
        nested = next((t for t in (annotation, *get_args(annotation)) if _is_model(t)), None)
        if nested is None:
            break
        model = nested
    return list(model.model_fields)


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)
