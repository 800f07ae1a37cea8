"""The application: its verbs, its exit codes (0 done, 1 failed, 2 wrong request) and its last line of defence."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from effkit import __version__
from effkit.cli import bench, compress, compress_eval, doctor, evaluate, hardware, passes, plan, recipes, report, suites
from effkit.errors import EffkitError

INTERRUPTED = 130

NOISY = ("torchao", "torch.utils._pytree")
"""Libraries that warn at import of what is no concern of a user here: optional CUDA parts, a deprecated call."""

WrongUsage: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Click's own errors; newer versions of Typer bring a Click of their own, so the class is taken from there."""

app = typer.Typer(
    name="effkit",
    help="Make a PyTorch model smaller, faster and cheaper to run, and measure what it cost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (compress_eval, plan, compress, evaluate, bench, report, recipes, passes, suites, hardware, doctor):
    app.command(verb.NAME, help=verb.HELP, rich_help_panel=verb.PANEL)(verb.run)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"effkit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    if debug:
        os.environ["EFFKIT_DEBUG"] = "1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code, and ends the process with it when called as a script."""
    code = _run(list(sys.argv[1:] if arguments is None else arguments))
    if arguments is None:
        sys.stdout.flush()
        sys.exit(code)
    return code


def _run(arguments: list[str]) -> int:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for library in NOISY:
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        with _terminated_like_interrupted():
            result = app(arguments, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except typer.Exit as leave:
        return int(leave.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", INTERRUPTED)
    except WrongUsage as error:
        error.show()  # type: ignore[attr-defined]
        return 2
    except EffkitError as error:
        return _say(f"error: {error}", error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone, as in `effkit ... | head`
        return 1
    except Exception as error:  # noqa: BLE001 - nobody's mistake but ours: a short message, and the rest in a file
        return _unexpected(error)


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: workers are ended, and the user hears what was kept."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(message: str, code: int) -> int:
    if os.environ.get("EFFKIT_DEBUG"):
        traceback.print_exc()
    typer.echo(message, err=True)
    return code


def _unexpected(error: Exception) -> int:
    if os.environ.get("EFFKIT_DEBUG"):
        traceback.print_exc()
    with tempfile.NamedTemporaryFile("w", prefix="effkit-", suffix=".log", delete=False) as log:
        traceback.print_exc(file=log)
    text = str(error).strip().splitlines()
    typer.echo(f"error: {type(error).__name__}: {text[0] if text else ''}", err=True)
    typer.echo(f"this is a fault of effkit; the details are in {Path(log.name)}", err=True)
    return 1
