"""Reports as files: written whole or not at all, and results read back from ``results.json``."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from effkit.errors import UsageError, did_you_mean
from effkit.records import SCHEMA_VERSION, Results
from effkit.report.render_html import html
from effkit.report.render_markdown import markdown
from effkit.report.wording import with_verdicts

FORMATS = ("html", "md", "json")
FILE_NAMES = {"html": "report.html", "md": "report.md", "json": "results.json"}
MAX_PROBLEMS = 10


def to_json(results: Results) -> str:
    """Write results as the JSON that :func:`load_results` reads; see docs/results-schema.md.

    Verdicts are filled in. Keys keep the order of the schema, so the same results give the same bytes.
    """
    return json.dumps(with_verdicts(results).model_dump(mode="json"), ensure_ascii=False, indent=2) + "\n"


def write_reports(results: Results, out: Path | str, formats: Iterable[str] = FORMATS) -> dict[str, Path]:
    """Write reports into a folder, which is made where it is missing.

    Everything is rendered before anything is written, and each file is replaced in one step: a reader sees the old
    report or the new one.

    Args:
        results: of one run.
        out: folder.
        formats: any of ``html``, ``md`` and ``json``.

    Returns:
        The written file by format.

    Raises:
        UsageError: an unknown format, or a folder that cannot be written.
    """
    renderers = {"html": html, "md": markdown, "json": to_json}
    wanted = list(dict.fromkeys(formats))
    for name in wanted:
        if name not in renderers:
            hint = did_you_mean(name, renderers)
            raise UsageError(
                f"no report format {name!r}; allowed: {', '.join(FORMATS)}" + (f" ({hint})" if hint else "")
            )
    texts = {name: renderers[name](results) for name in wanted}
    folder = Path(out)
    written = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            written[name] = folder / FILE_NAMES[name]
            _replace(written[name], text)
    except OSError as error:
        raise UsageError(f"cannot write the report to {folder}: {error.strerror or error}") from error
    return written


def load_results(path: Path | str) -> Results:
    """Read ``results.json``, or the one in a folder, so that every report can be made again from it.

    Raises:
        UsageError: no such file, no JSON, a newer schema, or a field that does not fit; all faults are named.
    """
    file = Path(path)
    if file.is_dir():
        file = file / FILE_NAMES["json"]
    try:
        data: Any = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if type(version) is not int:
        raise UsageError(f"{file} holds no results of effkit: it has no whole number as schema_version")
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"{file} has schema_version {version}; this effkit reads up to {SCHEMA_VERSION}: use a newer effkit"
        )
    try:
        return Results.model_validate_json(json.dumps(data))
    except ValidationError as error:
        raise UsageError(f"{file} does not fit the schema of results:\n{_problems(error)}") from error


def _problems(error: ValidationError) -> str:
    faults = error.errors(include_url=False)
    lines = [f"  - {'.'.join(str(part) for part in fault['loc']) or 'results'}: {fault['msg']}" for fault in faults]
    hidden = len(lines) - MAX_PROBLEMS
    return "\n".join([*lines[:MAX_PROBLEMS], *([f"  - and {hidden} more"] if hidden > 0 else [])])


def _replace(path: Path, text: str) -> None:
    """Write a file beside its place, then rename it there."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    """Read the process's mask; there is no way but to set it and set it back."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
