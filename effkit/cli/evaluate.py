"""``effkit eval``: the accuracy of one model, dense or compressed, in this process."""

from __future__ import annotations

from typing import Annotated

import typer

from effkit.cli.common import MEASURING, AsJson, Model, SuiteNames, Trust, grid, out_console, print_json, say

NAME = "eval"
PANEL = MEASURING
HELP = """Measure the accuracy of one model, dense or compressed.

Example: effkit eval smollm2-int8 --baseline sample:smollm2-135m
"""


def run(
    model: Model,
    suite: SuiteNames = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", "-b", help="Dense model to compare with, token by token.", show_default=False),
    ] = None,
    trust_remote_code: Trust = False,
    as_json: AsJson = False,
) -> int:
    """Evaluate each suite and print every figure, or why it is missing."""
    import torch

    from effkit.models import resolve
    from effkit.study.inprocess import evaluate_in_process
    from effkit.suite import default_suite, load_suite

    asked = [load_suite(name) for name in suite or []]
    source = resolve(model, trust_remote_code=trust_remote_code)
    dense = resolve(baseline, trust_remote_code=trust_remote_code) if baseline else None
    suites = asked or [load_suite(default_suite(source.task))]
    loaded = source.load(dtype=None if source.kind == "effkit" else torch.float32)
    reference = dense.load(dtype=torch.float32) if dense else None
    found = [evaluate_in_process(loaded, each, source.tokenizer(), baseline=reference) for each in suites]
    if as_json:
        print_json({"model": model, "baseline": baseline, "accuracy": [each.model_dump(mode="json") for each in found]})
        return 0
    for accuracy in found:
        table = grid("figure", ">value", "")
        for name in type(accuracy).model_fields:
            value = getattr(accuracy, name)
            if name not in {"suite", "reasons"}:
                shown = "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
                table.add_row(name, shown, accuracy.reasons.get(name, ""))
        say(out_console(), f"{model} on {accuracy.suite}", "bold")
        out_console().print(table)
    return 0
