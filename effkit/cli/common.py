"""What the verbs share: options, consoles, JSON on standard output, sizes such as 2GiB."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from effkit.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MEASURING = "Compress and measure"
LOOKING = "Look things up"

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Hub id, directory, .gguf file, sample:smollm2-135m, sample:minilm-l6.",
        show_default=False,
    ),
]
Recipes = Annotated[
    list[str],
    typer.Option("--recipe", "-r", help="Ready recipe or .yaml file; may be given several times.", show_default=False),
]
SuiteNames = Annotated[
    list[str] | None,
    typer.Option(
        "--suite",
        "-s",
        help="Ready suite, suite .yaml or text file; may be given several times. By default the quick suite of the "
        "model's kind.",
        show_default=False,
    ),
]
DeviceName = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Trust = Annotated[bool, typer.Option("--trust-remote-code", help="Run Python code that the model's repository brings.")]

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def out_console() -> Console:
    """Console on standard output, for results."""
    from rich.console import Console

    return Console(highlight=False)


def err_console() -> Console:
    """Console on standard error, for progress and notices."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def grid(*headings: str) -> Table:
    """An empty table in the look of the reports; headings that begin with ``>`` stand over numbers."""
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        pad_edge=False,
        header_style="bold",
    )
    for heading in headings:
        number = heading.startswith(">")
        table.add_column(heading.removeprefix(">"), justify="right" if number else "left", no_wrap=number)
    return table


def say(console: Console, text: str, style: str = "") -> None:
    """Print prose: broken between words on a terminal, one line per paragraph where a program reads it."""
    from rich.text import Text

    console.print(Text(text, style), soft_wrap=not console.is_terminal)


def print_json(data: Any) -> None:
    """Write one JSON document to standard output."""
    sys.stdout.write((data if isinstance(data, str) else json.dumps(data, indent=2, ensure_ascii=False)).strip() + "\n")


def parse_size(text: str, option: str) -> int:
    """Read ``4GiB``, ``500MB`` or a number of bytes.

    Raises:
        UsageError: anything else, or nothing above zero.
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", text)
    if found is None or found[2].lower() not in UNITS:
        raise UsageError(f"{option} {text!r} is not a size; write it like 4GiB, 500MB or 1000000")
    size = int(float(found[1]) * UNITS[found[2].lower()])
    if size <= 0:
        raise UsageError(f"{option} {text!r} must be above zero")
    return size


def size_unit(largest: float) -> tuple[str, float]:
    """The decimal unit in which a column of sizes reads best, and its bytes."""
    for unit, factor in (("B", 1.0), ("kB", 1e3), ("MB", 1e6)):
        if largest < 1000 * factor:
            return unit, factor
    return "GB", 1e9


def size_text(count: float) -> str:
    """Bytes in decimal units, as disks and bandwidths are sold: 538.1 MB."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def slug(source: str) -> str:
    """A file name for a model source: ``sample:smollm2-135m`` -> ``sample-smollm2-135m``."""
    name = Path(source).name if Path(source).exists() else source
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"


def collect(problems: list[str], action: Any, *arguments: Any) -> Any:
    """Call ``action``; note its usage error in ``problems`` instead of raising, so that all can be told at once."""
    try:
        return action(*arguments)
    except UsageError as error:
        problems.append(str(error))
        return None


def refuse(problems: list[str]) -> None:
    """Raise one error for all problems, if there are any."""
    if problems:
        raise UsageError("\n".join(problems))
