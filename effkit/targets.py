r"""The one language in which recipes name layers.

A pattern is one of

- an exact dotted name: ``lm_head``, ``model.layers.3.mlp.up_proj``; the name of a container
  (``model.layers.3``) stands for every layer inside it, and never for ``model.layers.30``;
- ``re:`` and a regular expression that must match the whole dotted name: ``re:.*\.mlp\..*_proj``;
- a class name: ``Linear``, ``Conv1D``, ``Embedding``.

A pattern that matches nothing is an error with near matches. Knows names and class names, no modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from effkit.errors import PlanError, did_you_mean


@dataclass(frozen=True)
class Selection:
    """Which layers a pattern list selects, and what is wrong with the list."""

    names: frozenset[str]
    problems: tuple[str, ...]


def select(patterns: Sequence[str], classes: Mapping[str, str], label: str = "targets") -> Selection:
    """Resolve patterns against a model.

    Args:
        patterns: see the module's docstring.
        classes: class name by dotted layer name.
        label: the setting's name in messages.
    """
    names: set[str] = set()
    problems: list[str] = []
    for pattern in patterns:
        try:
            hits = _matches(pattern, classes)
        except re.error as error:
            problems.append(f"{label}: {pattern!r} is not a regular expression: {error}")
            continue
        if not hits:
            problems.append(f"{label}: {pattern!r} matches no layer ({_suggest(pattern, classes)})")
        names |= hits
    return Selection(frozenset(names), tuple(problems))


def require(patterns: Sequence[str], classes: Mapping[str, str], label: str = "targets") -> frozenset[str]:
    """Like :func:`select`, raising PlanError with every problem."""
    selection = select(patterns, classes, label)
    if selection.problems:
        raise PlanError("\n".join(selection.problems))
    return selection.names


def _matches(pattern: str, classes: Mapping[str, str]) -> set[str]:
    if pattern.startswith("re:"):
        expression = re.compile(pattern[3:])
        return {name for name in classes if expression.fullmatch(name)}
    by_name = {name for name in classes if name == pattern or name.startswith(pattern + ".")}
    return by_name or {name for name, class_name in classes.items() if class_name == pattern}


def _suggest(pattern: str, classes: Mapping[str, str]) -> str:
    text = pattern.removeprefix("re:")
    inside = [name for name in classes if f".{text}." in f".{name}."]
    if inside and not pattern.startswith("re:"):
        return f"names are whole: did you mean 're:(.*\\.)?{re.escape(text)}(\\..*)?', which matches {inside[0]}?"
    known: Iterable[str] = {*classes, *classes.values(), *(name.rsplit(".", 1)[-1] for name in classes)}
    plain = re.sub(r"[\\^$.*+?()\[\]{}|]+", " ", text).split()
    word = plain[-1] if plain else text
    example = next(iter(classes), "none")
    return did_you_mean(word, sorted(known)) or f"layers are named like {example!r}"
