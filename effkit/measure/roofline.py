"""What this machine reaches at best: read bandwidth and dense matrix products; the denominators of every share.

Measured in one to two seconds with all of torch's threads and kept in the user's cache, by processor, thread count
and torch version. A cache that cannot be read or written costs a new measurement, never an error.

Source: Williams et al. 2009, "Roofline: an insightful visual performance model", doi 10.1145/1498765.1498785.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from effkit.inventory import Inventory
from effkit.measure.environment import cache_dir, cpu_model, device_name, last_level_cache_bytes
from effkit.measure.precision import full_fp32
from effkit.measure.timing import Timer, repeat, timer_for
from effkit.records import Ceilings

FORMAT_VERSION = 1
CACHE_FILE = "ceilings.json"
GEMM_BUDGET_S = 0.25
HOST_BUFFER_BYTES = 256 << 20
DEVICE_BUFFER_BYTES = 2 << 30
EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")
GEMM_SIZES = (512, 1024, 2048, 4096, 8192)


def measure_ceilings(device: str = "cpu", *, refresh: bool = False) -> Ceilings:
    """Return this machine's ceilings, from the cache where they were measured before.

    Args:
        device: ``cpu`` or an accelerator such as ``cuda:0``.
        refresh: measure again; the higher of the known and the new figures is kept.
    """
    key = _key(device)
    known = _cached(key)
    if known is not None and not refresh:
        return known
    ceilings = take_ceilings(device, timer_for(device))
    if known is not None:
        ceilings = higher(known, ceilings)
    _remember(key, ceilings)
    return ceilings


def higher(first: Ceilings, second: Ceilings) -> Ceilings:
    """Join two measurements of one machine: a busy moment can hide a ceiling, not raise it."""
    names = ("memory_read_bytes_per_s", "fp32_flop_per_s", "bf16_flop_per_s")
    best = {name: max(getattr(first, name) or 0.0, getattr(second, name) or 0.0) for name in names}
    measured = {name: value for name, value in best.items() if value}
    reasons = {name: reason for name, reason in second.reasons.items() if name not in measured}
    return second.model_copy(update={**measured, "reasons": reasons})


def take_ceilings(device: str, timer: Timer) -> Ceilings:
    """Measure without looking into the cache."""
    where = torch.device(device)
    reasons: dict[str, str] = {}
    with full_fp32(), torch.inference_mode():
        bandwidth, method = _read_bandwidth(where, timer)
        flops: dict[str, float] = {}
        for field, dtype in (("fp32_flop_per_s", torch.float32), ("bf16_flop_per_s", torch.bfloat16)):
            try:
                flops[field] = _gemm_flop_per_s(where, dtype, timer)
            except RuntimeError as error:  # torch raises it for dtypes that a device lacks
                reasons[field] = f"no matrix product in that dtype here: {str(error).splitlines()[0]}"
    threads = torch.get_num_threads() if where.type == "cpu" else None
    if threads is None:
        reasons["threads"] = "not a CPU"
    return Ceilings(
        device=device,
        memory_read_bytes_per_s=bandwidth,
        threads=threads,
        method=f"{method}; square matrix products, largest within {GEMM_BUDGET_S} s; best of several calls, TF32 off",
        **flops,
        reasons=reasons,
    )


def prefill_flop(inventory: Inventory, config: Any, tokens: int) -> float:
    """Useful floating-point operations of one prompt's forward pass, computing only the last position's logits.

    Two per weight of a matrix and token, of fused experts only the share a token is routed to; attention counts
    what a causal mask leaves (all of it in encoders).

    Args:
        inventory: of the dense model; may be on the meta device.
        config: the model's transformers configuration.
        tokens: prompt length, batch 1.

    Source: Kaplan et al. 2020, arXiv 2001.08361, table 1.
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary, heads = text.vocab_size, text.num_attention_heads
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
    experts = next((n for k in EXPERT_COUNTS if (n := getattr(text, k, None))), 1)
    active = (getattr(text, "num_experts_per_tok", None) or experts) / experts
    every_token, last_token = 0.0, 0.0
    for layer in inventory.layers:
        size = math.prod(layer.shape)
        if layer.kind == "experts":
            every_token += size * active
        elif layer.kind in {"linear", "conv1d"} and layer.shape[0] == vocabulary:
            last_token += size
        elif layer.kind in {"linear", "conv1d"}:
            every_token += size
    pairs = tokens * (tokens + 1) / 2 if last_token else tokens * tokens
    attention = 4.0 * pairs * heads * head_dim * text.num_hidden_layers
    return float(2.0 * (every_token * tokens + last_token) + attention)


def _read_bandwidth(device: torch.device, timer: Timer) -> tuple[float, str]:
    """Bytes per second of the faster of two ways to read a buffer far larger than the last-level cache."""
    if device.type == "cpu":
        size = max(HOST_BUFFER_BYTES, 4 * (last_level_cache_bytes() or 0))
    else:
        size = DEVICE_BUFFER_BYTES
        if device.type == "cuda":
            size = min(size, torch.cuda.mem_get_info(device)[0] // 4)
    columns = 4096
    matrix = torch.ones(max(1, size // (4 * columns)), columns, device=device)
    vector = torch.ones(columns, device=device)
    ways: tuple[Callable[[], object], ...] = (matrix.sum, lambda: torch.mv(matrix, vector))
    best = min(min(repeat(way, warmup=1, repeats=5, timer=timer)) for way in ways)
    size = matrix.numel() * matrix.element_size()
    return size / best, f"read of {size >> 20} MiB (sum and matrix-vector product)"


def _gemm_flop_per_s(device: torch.device, dtype: torch.dtype, timer: Timer) -> float:
    """Best FLOP/s of square products, growing until one call takes longer than the budget allows."""
    best = 0.0
    for size in GEMM_SIZES:
        left = torch.ones(size, size, device=device, dtype=dtype)
        right = torch.ones(size, size, device=device, dtype=dtype)
        work = _product(left, right)
        first = timer.seconds(work)
        samples = repeat(work, warmup=0, repeats=1 if first > GEMM_BUDGET_S else 4, timer=timer)
        best = max(best, 2 * size**3 / min(samples))
        if 8 * min(samples) > GEMM_BUDGET_S:  # the next size does eight times the work
            break
    return best


def _product(left: torch.Tensor, right: torch.Tensor) -> Callable[[], object]:
    return lambda: torch.mm(left, right)


def _key(device: str) -> str:
    name = device_name(device) if torch.device(device).type != "cpu" else cpu_model()
    return f"{FORMAT_VERSION}|{name}|{torch.device(device).type}|{torch.get_num_threads()}|{torch.__version__}"


def _cached(key: str) -> Ceilings | None:
    try:
        entry = json.loads((cache_dir() / CACHE_FILE).read_text(encoding="utf-8"))[key]
        return Ceilings.model_validate(entry)
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None


def _remember(key: str, ceilings: Ceilings) -> None:
    """Add an entry; written beside the file and renamed, so that no reader sees half of it."""
    path = cache_dir() / CACHE_FILE
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        entries = {}
    entries = entries if isinstance(entries, dict) else {}
    entries[key] = ceilings.model_dump(mode="json")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{CACHE_FILE}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(entries, file, indent=2)
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
