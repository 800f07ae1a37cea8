"""Reading the hardware tables: rows of cells, and what a cell without a value means."""

from __future__ import annotations

import csv
from pathlib import Path

DATA_DIR = Path(__file__).parent.parent / "data" / "hardware"

NO_VALUE = {
    "": "not in the table",
    "-": "the device has none, or no source states it",
    "n/f": "not found in any source",
    "n/p": "not published",
    "V": "runs on the vector engine; no peak is published",
}


def rows(table: str) -> list[dict[str, str]]:
    """Return the rows of ``table``.csv as they stand, each by column name.

    Raises:
        ValueError: a row has more or fewer cells than the head.
    """
    with (DATA_DIR / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file, strict=True))
    for number, row in enumerate(found, start=2):
        if None in row or None in row.values():
            raise ValueError(f"{table}.csv: row {number} has not as many cells as the head")
    return [{key: value.strip() for key, value in row.items()} for row in found]


def known(cell: str) -> str | None:
    """Return the cell, or None where it stands for no value."""
    return None if cell in NO_VALUE else cell


def without_memory_mark(cell: str) -> tuple[str, bool]:
    """Return the cell without its mark ``FROM MEMORY``, and whether it had one."""
    return " ".join(cell.replace("FROM MEMORY", "").split()), "FROM MEMORY" in cell
