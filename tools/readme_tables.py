"""Write the tables of README.md and docs/ from the code and from kept measurements, or check that they are current.

Called as ``python tools/readme_tables.py [--check]``. A table stands between ``<!-- table: NAME -->`` and
``<!-- end table -->``; what is between them is replaced. ``results FILE`` is the table of a results.json that is kept
under docs/measurements/, ``terminal FILE`` what the command line shows of it.
"""

from __future__ import annotations

import argparse
import difflib
import io
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from effkit.records import Results, Variant

ROOT = Path(__file__).resolve().parent.parent
MEASUREMENTS = ROOT / "docs" / "measurements"
MARKED = re.compile(r"(?P<head><!-- table: (?P<name>[^>]+?) -->\n)(?P<body>.*?)(?P<tail><!-- end table -->)", re.DOTALL)


def verbs() -> str:
    """Return the command line's verbs with their one-line help."""
    import typer

    from effkit.cli.app import app

    command = typer.main.get_command(app)
    commands = getattr(command, "commands", {})
    rows = [(f"`effkit {name}`", verb.get_short_help_str(200)) for name, verb in commands.items() if not verb.hidden]
    return table(("verb", "what it does"), rows)


def recipes() -> str:
    """Return the ready recipes."""
    from effkit.recipe import load_recipe, ready_recipes

    return table(("recipe", "what it does"), [(f"`{name}`", load_recipe(name).description) for name in ready_recipes()])


def passes() -> str:
    """Return the built-in passes with their settings and defaults."""
    from effkit.registry import PassConfig, pass_types

    common = set(PassConfig.model_fields)
    rows = []
    for name, kind in pass_types().items():
        own = {key: field for key, field in kind.model_fields.items() if key not in common}
        settings = ", ".join(f"`{key}: {_yaml(field.default)}`" for key, field in own.items())
        rows.append((f"`{name}`", kind.summary, settings))
    return table(("pass", "what it does", "settings and their defaults"), rows)


def suites() -> str:
    """Return the ready evaluation suites."""
    from effkit.suite import load_suite, ready_suites

    return table(
        ("suite", "what it measures on"), [(f"`{name}`", load_suite(name).description) for name in ready_suites()]
    )


def devices() -> str:
    """Return the devices of the hardware table with the figures that decide most."""
    from effkit import hardware

    rows = []
    for found in hardware.devices().values():
        memory = "" if found.memory_bytes is None else f"{found.memory_bytes / 1e9:.0f}"
        bandwidth = "" if found.memory_bytes_per_s is None else f"{found.memory_bytes_per_s / 1e9:.0f}"
        peaks = (found.flop_per_s(dtype) for dtype in ("fp32", "bf16", "int8"))
        rows.append((found.name, memory, bandwidth, *("" if peak is None else f"{peak / 1e12:g}" for peak in peaks)))
    return table(("device", "memory, GB", "bandwidth, GB/s", "FP32, TFLOP/s", "BF16, TFLOP/s", "INT8, TOP/s"), rows)


def results(name: str) -> str:
    """Return the rows of a kept results.json, and a line with model, machine and date."""
    found = Results.model_validate_json((MEASUREMENTS / name).read_text(encoding="utf-8"))
    columns: tuple[tuple[str, Callable[[Variant], float | None], str], ...] = (
        ("weights, MB", lambda v: _scaled(v.memory.weight_bytes, 1e6), ".1f"),
        ("peak memory, MB", lambda v: _scaled(v.memory.peak_rss_bytes, 1e6), ".0f"),
        ("perplexity", lambda v: v.accuracy.perplexity, ".3f"),
        ("to FP32", lambda v: v.accuracy.perplexity_ratio, ".4f"),
        ("KL, nats", lambda v: v.accuracy.kl_mean, ".2g"),
        ("prefill, tokens/s", lambda v: v.speed.prefill_tokens_per_s, ".0f"),
        ("to FP32", lambda v: v.speed.prefill_speedup, ".2f"),
        ("decode, tokens/s", lambda v: v.speed.decode_tokens_per_s, ".1f"),
        ("to FP32", lambda v: v.speed.decode_speedup, ".2f"),
        ("decode of 8, to FP32", lambda v: v.speed.decode_speedup_batch_8, ".2f"),
    )
    rows = []
    for row in found.variants:
        if row.status == "ok":
            rows.append((f"`{row.name}`", *(_shown(value(row), form) for _, value, form in columns)))
        else:
            rows.append((f"`{row.name}`", f"{row.status}: {row.reason}", *([""] * (len(columns) - 1))))
    place, model = found.environment, found.model
    notes = f" ({'; '.join(model.notes)})" if model.notes else ""
    line = (
        f"{model.source}{notes} on {place.device_name or place.cpu_model}, {place.threads} threads, "
        f"torch {place.packages.get('torch', '?')}, {place.started_at[:10]}; {found.protocol.suite}: "
        f"{found.protocol.windows} windows of {found.protocol.window_tokens} tokens. Speeds to FP32 are medians of "
        "ratios of samples taken alternately with it."
    )
    return f"{table(('variant', *(title for title, _, _ in columns)), rows)}\n{line}\n"


def terminal(name: str) -> str:
    """Return what the command line shows for a kept results.json, 100 columns wide."""
    from rich.console import Console

    from effkit.report import load_results, terminal_table

    console = Console(file=io.StringIO(), width=100, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(terminal_table(load_results(MEASUREMENTS / name)))
    lines = [line.rstrip() for line in capture.get().strip("\n").splitlines()]
    return "```text\n" + "\n".join(lines) + "\n```\n"


TABLES: dict[str, Callable[[], str]] = {
    "verbs": verbs,
    "recipes": recipes,
    "passes": passes,
    "suites": suites,
    "devices": devices,
}
FROM_FILE: dict[str, Callable[[str], str]] = {"results": results, "terminal": terminal}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; a bar inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def rendered(text: str) -> str:
    """Return ``text`` with every marked table made anew.

    Raises:
        ValueError: a marker names no known table.
    """

    def fill(match: re.Match[str]) -> str:
        name, _, argument = match["name"].partition(" ")
        if name in FROM_FILE and argument:
            body = FROM_FILE[name](argument)
        elif name in TABLES and not argument:
            body = TABLES[name]()
        else:
            known = [*TABLES, *(f"{known} FILE" for known in FROM_FILE)]
            raise ValueError(f"no table is called {match['name']!r}; known: {', '.join(known)}")
        return match["head"] + body + match["tail"]

    return MARKED.sub(fill, text)


def _yaml(value: object) -> str:
    """Write a default as it would stand in a recipe."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _scaled(value: int | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _shown(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or with ``--check`` return 1 and show the difference where one is not current."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a table is not current")
    parser.add_argument("files", nargs="*", type=Path, default=[ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))])
    given = parser.parse_args(arguments)
    stale = 0
    for path in given.files:
        old = path.read_text(encoding="utf-8")
        new = rendered(old)
        if new == old:
            continue
        stale += 1
        if given.check:
            before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
            sys.stdout.writelines(difflib.unified_diff(before, after, str(path), f"{path}, current"))
        else:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {path}")
    if given.check and stale:
        print("run: python tools/readme_tables.py")
    return int(given.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
