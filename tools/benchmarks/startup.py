"""Time ``import effkit`` and ``effkit --help`` in fresh interpreters: medians of several, beside a bare interpreter.

Called as ``python tools/benchmarks/startup.py [--repeats N] [--json FILE]``. The aims: under 0.3 s and under 0.5 s.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

AIMS_S = {"import effkit": 0.3, "effkit --help": 0.5}
COMMANDS = {
    "python": [sys.executable, "-c", ""],
    "import effkit": [sys.executable, "-c", "import effkit"],
    "effkit --help": [sys.executable, "-m", "effkit", "--help"],
}


def sample_s(command: list[str]) -> float:
    """Return the seconds one run takes from start to exit.

    Raises:
        subprocess.CalledProcessError: the command fails.
    """
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main(arguments: list[str] | None = None) -> int:
    """Print a line per command; return 1 if an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="timed runs of each command, after one untimed")
    parser.add_argument("--json", type=Path, help="also write the samples there")
    given = parser.parse_args(arguments)
    samples: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(given.repeats + 1):  # alternately, so that a busy moment meets all of them
        for name, command in COMMANDS.items():
            seconds = sample_s(command)
            if turn:
                samples[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in samples.items()}
    for name, median in medians.items():
        aim = f"  (aim {AIMS_S[name]} s)" if name in AIMS_S else ""
        print(f"{name:15} {median:.3f} s  [{min(samples[name]):.3f} .. {max(samples[name]):.3f}]{aim}")
    if given.json:
        report = {"python": platform.python_version(), "machine": platform.platform(), "samples_s": samples}
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return int(any(medians[name] > aim for name, aim in AIMS_S.items()))


if __name__ == "__main__":
    sys.exit(main())
