"""Results as a terminal table, Markdown, JSON and one self-contained HTML page.

| module | what it does |
|---|---|
| ``quantities`` | writes every figure; the only place that rounds |
| ``wording`` | verdicts in plain words |
| ``metrics``, ``table`` | which field stands in which column; cells with the reason of a missing value |
| ``overview``, ``sections`` | the table of all variants; the tables of details |
| ``prose`` | environment, protocol, notes and how to read it all |
| ``plots``, ``picture``, ``axes``, ``labels`` | geometry of the plots |
| ``render_*`` | one renderer each; they draw, and compute nothing |
| ``files`` | writes reports in one step, reads results back |
| ``schema`` | documents ``results.json`` |

Needs records alone: no torch, no model, so that any report can be made again from its ``results.json``.
"""

from __future__ import annotations

from effkit.report.files import load_results, to_json, write_reports
from effkit.report.render_html import html
from effkit.report.render_markdown import markdown
from effkit.report.render_terminal import terminal_table
from effkit.report.wording import verdict, with_verdicts

__all__ = [
    "html",
    "load_results",
    "markdown",
    "terminal_table",
    "to_json",
    "verdict",
    "with_verdicts",
    "write_reports",
]
