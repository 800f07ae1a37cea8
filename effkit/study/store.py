"""The run's SQLite file: one row per finished stage of a variant, committed at once; reports are rebuilt from it.

Knows records, no torch. A row is found again by variant, stage and fingerprint, so results of another model,
recipe, suite, machine or version are never mistaken for the ones asked for.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from effkit.errors import StudyError, UsageError
from effkit.records import SCHEMA_VERSION, Results, Variant

FILE = "run.sqlite"
LOCK = ".lock"
APPLICATION_ID = 0x656B6974  # "ekit"

_TABLES = """
CREATE TABLE IF NOT EXISTS stages (
    variant TEXT NOT NULL, stage TEXT NOT NULL, fingerprint TEXT NOT NULL, data TEXT NOT NULL,
    finished_at TEXT NOT NULL, PRIMARY KEY (variant, stage, fingerprint)
);
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class Store:
    """Finished stages and rows of one run's directory."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.path = folder / FILE
        mode = "ro" if read_only else "rwc"
        try:
            self._db = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode={mode}", uri=True, timeout=30)
            self._check(read_only)
        except sqlite3.Error as error:
            raise StudyError(f"{self.path} cannot be used: {error}; move it away to start afresh") from None

    def _check(self, read_only: bool) -> None:
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if application not in (0, APPLICATION_ID):
            raise StudyError(f"{self.path} is the database of another program")
        if version > SCHEMA_VERSION:
            raise StudyError(f"{self.path} was written by a newer effkit (schema {version}); update effkit")
        if not read_only:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            self._db.executescript(_TABLES)

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def put(self, variant: str, stage: str, fingerprint: str, data: dict[str, Any]) -> None:
        """Keep the result of a finished stage; on disk when this returns."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        row = (variant, stage, fingerprint, json.dumps(data), now)
        with self._db:
            self._db.execute("INSERT OR REPLACE INTO stages VALUES (?, ?, ?, ?, ?)", row)

    def forget(self, variant: str, stage: str) -> None:
        """Drop the results of a stage under every fingerprint, because what they describe is gone."""
        with self._db:
            self._db.execute("DELETE FROM stages WHERE variant = ? AND stage = ?", (variant, stage))

    def get(self, variant: str, stage: str, fingerprint: str) -> dict[str, Any] | None:
        """Return the result of a stage, or None where it was not finished under that fingerprint."""
        query = "SELECT data FROM stages WHERE variant = ? AND stage = ? AND fingerprint = ?"
        found = self._db.execute(query, (variant, stage, fingerprint)).fetchone()
        return None if found is None else json.loads(found[0])

    def finished_at(self, variant: str, stage: str, fingerprint: str) -> str | None:
        """Return when a stage was finished, ISO 8601 in UTC."""
        query = "SELECT finished_at FROM stages WHERE variant = ? AND stage = ? AND fingerprint = ?"
        found = self._db.execute(query, (variant, stage, fingerprint)).fetchone()
        return None if found is None else str(found[0])

    def put_row(self, row: Variant) -> None:
        """Keep a finished row."""
        self.put(row.name, "row", row.fingerprint, row.model_dump(mode="json"))

    def row(self, variant: str, fingerprint: str) -> Variant | None:
        """Return a finished row, or None."""
        data = self.get(variant, "row", fingerprint)
        return None if data is None else Variant.model_validate(data)

    def describe_run(self, header: dict[str, Any]) -> None:
        """Keep what a report needs beside the rows: model, environment, protocol, names and fingerprints."""
        with self._db:
            self._db.execute("INSERT OR REPLACE INTO run VALUES ('header', ?)", (json.dumps(header),))

    def results(self) -> Results:
        """Put the last run's finished rows together.

        Raises:
            StudyError: no run was ever described here, or none of its rows is finished.
        """
        try:
            found = self._db.execute("SELECT value FROM run WHERE key = 'header'").fetchone()
        except sqlite3.Error as error:
            raise StudyError(f"{self.path} holds no run: {error}") from None
        if found is None:
            raise StudyError(f"{self.path} holds no run")
        header = json.loads(found[0])
        rows = [self.row(name, fingerprint) for name, fingerprint in header.pop("variants")]
        done = [row for row in rows if row is not None]
        if not done:
            raise StudyError(f"no row of the run in {self.path.parent} is finished yet")
        return Results.model_validate({**header, "variants": [row.model_dump() for row in done]})


def load_results(folder: Path | str) -> Results:
    """Rebuild the results of a run from its store; needs no torch and no write access.

    Raises:
        UsageError: ``folder`` is no run's directory. StudyError: it holds no finished row.
    """
    path = Path(folder)
    if not (path / FILE).is_file():
        raise UsageError(f"{path} holds no {FILE}; give the --out directory of an effkit compress-eval run")
    store = Store(path, read_only=True)
    try:
        return store.results()
    finally:
        store.close()


def check_out(out: Path) -> None:
    """Refuse an output directory before any work: a file, somebody else's content, or no right to write.

    Raises:
        UsageError: names what is in the way.
    """
    try:
        out.exists()
    except OSError as error:  # a name too long for the file system, a loop of links
        raise UsageError(f"--out {out} cannot be a directory: {error.strerror or error}") from None
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file; give a directory")
    if out.is_dir() and any(out.iterdir()) and not (out / FILE).exists() and not (out / LOCK).exists():
        raise UsageError(f"--out {out} is not empty and was not written by effkit; give a new directory")
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".write-test"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"--out {out} cannot be written: {error.strerror or error}") from None


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold the directory for one run; the lock goes with the process, however it ends.

    Raises:
        UsageError: another run holds it.
    """
    with (out / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another effkit run is writing to {out}; wait for it or give another --out") from None
        yield
