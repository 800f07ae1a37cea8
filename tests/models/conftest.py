"""A cache of its own for every test, and the environment for child processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """effkit's user cache, empty."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("EFFKIT_CACHE", str(folder))
    return folder


@pytest.fixture
def child_environment(cache: Path) -> dict[str, str]:
    """Environment in which a child process finds effkit and the tests' helpers."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "EFFKIT_CACHE": str(cache)}
