"""Passes are found by name; collisions and strangers are refused."""

from __future__ import annotations

import importlib.metadata
from typing import Literal

import pytest

from effkit import registry
from effkit.errors import EffkitError, UsageError
from effkit.passes.quantize.int8 import Int8
from effkit.recipe import Recipe


class Stranger(Int8):
    """A third party's pass."""

    use: Literal["stranger"] = "stranger"  # type: ignore[assignment]


class Impostor(Int8):
    """A third party's pass under a built-in name."""


class FakeEntry:
    def __init__(self, value: object) -> None:
        self.name, self.value, self._loaded = "x", "their.module:X", value

    def load(self) -> object:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


def offer(monkeypatch: pytest.MonkeyPatch, value: object) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [FakeEntry(value)])


def test_built_in_passes_are_found_by_name() -> None:
    assert registry.pass_type("int8") is Int8
    assert all(config.summary for config in registry.pass_types().values())


def test_an_unknown_pass_suggests_a_near_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'int8'"):
        registry.pass_type("int-8")


def test_a_third_party_pass_is_usable_in_a_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, Stranger)
    recipe = Recipe.from_dict({"name": "a", "passes": [{"use": "stranger"}]})
    assert isinstance(recipe.passes[0], Stranger)


@pytest.mark.parametrize("value", [Impostor, object, ImportError("no such library")])
def test_a_clashing_or_broken_third_party_pass_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    offer(monkeypatch, value)
    with pytest.raises(EffkitError, match=r"their\.module:X"):
        registry.pass_types()
