#!/usr/bin/env bash
# Install what the tests need and run them; arguments go to pytest (`--run-slow` also runs the slow ones).
#
#   bash tools/test.sh [pytest arguments]

source "$(dirname -- "${BASH_SOURCE[0]}")/_setup.sh"

set_up "${EFFKIT_EXTRAS:-test}" # .ci/run also wants the linters
cd -- "$root"
exec "$python" -m pytest "$@"
