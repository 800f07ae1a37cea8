"""The command line: one file per verb. Only Typer is imported before a verb is chosen, so that help comes at once."""

from __future__ import annotations

from effkit.cli.app import main

__all__ = ["main"]
