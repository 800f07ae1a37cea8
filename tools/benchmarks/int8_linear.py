"""Measure every INT8 kernel against dense FP32 by number of rows: ratios within one run, interleaved, medians.

    python tools/benchmarks/int8_linear.py [--json FILE]

For each shape enough copies of the weights are visited in turn that none of them stays in the last-level cache,
as in a model's decode; a single small matrix timed alone would measure the cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from effkit.kernels import Call, available_kernels
from effkit.numerics.affine import quantize_symmetric, symmetric_scale

SHAPES = [(576, 576), (1536, 576), (576, 1536), (4096, 4096)]
ROWS = [1, 4, 8, 16, 32, 512]
CACHE_BYTES = 256 << 20


def median_seconds(calls: dict[str, Callable[[int], object]], copies: int, repeats: int) -> dict[str, float]:
    """Time all calls in turn, each repeat over every copy of the weights; seconds per call."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            start = time.perf_counter_ns()
            for copy in range(copies):
                call(copy)
            elapsed = (time.perf_counter_ns() - start) / 1e9 / copies
            if repeat:  # the first round warms up
                samples[name].append(elapsed)
    return {name: statistics.median(values) for name, values in samples.items()}


def measure(out_features: int, in_features: int, rows: int, repeats: int) -> dict[str, object]:
    """One table row: microseconds of dense FP32 and, for each kernel, its speed relative to that."""
    size = out_features * in_features * 4
    copies = max(1, min(64, CACHE_BYTES // size)) if rows <= 32 else 1
    dense = [torch.randn(out_features, in_features) for _ in range(copies)]
    scales = [symmetric_scale(weight, dim=1) for weight in dense]
    integers = [quantize_symmetric(w, s) for w, s in zip(dense, scales, strict=True)]
    x = torch.randn(rows, in_features)
    calls: dict[str, Callable[[int], object]] = {"dense": lambda i: torch.nn.functional.linear(x, dense[i])}
    for kernel in available_kernels("cpu"):
        call = Call(kernel.scheme, "cpu", rows, in_features, out_features, torch.float32)
        if not kernel.refuses(call):
            calls[kernel.name] = lambda i, run=kernel.run: run(x, integers[i], scales[i])  # type: ignore[misc]
    seconds = median_seconds(calls, copies, repeats)
    gains = {name: round(seconds["dense"] / value, 3) for name, value in seconds.items() if name != "dense"}
    return {"shape": [out_features, in_features], "rows": rows, "dense_us": round(seconds["dense"] * 1e6, 1), **gains}


def main() -> None:
    """Print one line per shape and number of rows; gains above 1 are faster than dense FP32."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write all rows to this file")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    table = []
    with torch.inference_mode():
        for out_features, in_features in SHAPES:
            for rows in ROWS:
                row = measure(out_features, in_features, rows, options.repeats)
                table.append(row)
                print(row, flush=True)
    if options.json:
        options.json.write_text(json.dumps({"threads": torch.get_num_threads(), "rows": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
