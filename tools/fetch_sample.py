"""Fetch a sample model into the user's cache and print where it lies; a model that is there is left alone.

Called as ``python tools/fetch_sample.py smollm2-135m``.
"""

from __future__ import annotations

import argparse
import sys

from effkit.errors import EffkitError
from effkit.models.samples import SAMPLES, fetch_sample


def main(arguments: list[str] | None = None) -> int:
    """Return 0 with the path on standard output, or the error's exit code with its message on standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help=f"one of: {', '.join(SAMPLES)}")
    name = parser.parse_args(arguments).name
    try:
        path = fetch_sample(name, progress=lambda line: print(line, file=sys.stderr))
    except EffkitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
