"""Realistic results for tests of reports: a small language model, dense and compressed, with failures.

``sample_results()`` has fp32, bf16, a good int8, an int4 that is slower and worse, a failed and an out-of-memory row.
``encoder_results()`` and ``module_results()`` are the other two kinds of model. Needs no torch. Figures are made up but
close to those of a 135 M parameter model on two cores.
"""

from __future__ import annotations

import math
from typing import Any

from effkit.records import (
    Accuracy,
    Ceilings,
    Coverage,
    Energy,
    Environment,
    Ledger,
    Memory,
    ModelInfo,
    Protocol,
    Results,
    SkippedLayer,
    Speed,
    Statistic,
    Variant,
)

MODEL = "sample:smollm2-135m-übersetzt-模型"
NOT_TEXT = "only for models that give vectors"
NOT_RUN = "the variant did not run"
FP32_BYTES = 538_060_032
FORMULA = (
    "seconds x 2 busy cores x 5 W per core (assumed; no energy counter can be read; memory, fans and idle left out)"
)


def statistic(median: float, unit: str, spread: float = 0.03, count: int = 9) -> Statistic:
    """Samples around a median, the same every time."""
    steps = [median * (1 + spread * (index - count // 2) / count) for index in range(count)]
    return Statistic(unit=unit, median=median, low=steps[1], high=steps[-2], count=count, samples=tuple(steps))


def text_accuracy(perplexity: float, ratio: float, low: float, high: float, kl: float, top1: float) -> Accuracy:
    return Accuracy(
        suite="text-quick",
        scored_tokens=4092,
        nll_mean=math.log(perplexity),
        perplexity=perplexity,
        perplexity_ratio=ratio,
        perplexity_ratio_low=low,
        perplexity_ratio_high=high,
        within_noise=low <= 1 <= high,
        kl_mean=kl,
        kl_median=kl * 0.4,
        kl_p99=kl * 9,
        kl_max=kl * 55,
        top1_agreement=top1,
        reasons=dict.fromkeys(("output_cosine_mean", "output_relative_error_mean"), NOT_TEXT),
    )


def memory(weights: int, peak: int, compress: int | None, *, kv_cache: int = 11_796_480) -> Memory:
    runtime, activations = 312_000_000, 201_326_592
    ledger = Ledger(
        weights_bytes=weights,
        kv_cache_bytes=kv_cache,
        activations_bytes=activations,
        runtime_bytes=runtime,
        unexplained_bytes=peak - weights - kv_cache - activations - runtime,
        disk_bytes=weights + 40_000,
        reasons={"optimizer_bytes": "nothing is trained here", "pinned_host_bytes": "nothing is pinned here"},
    )
    reasons = {"peak_device_bytes": "the device is the CPU"}
    if compress is None:
        reasons["peak_compress_rss_bytes"] = "nothing is compressed in a dense row"
    return Memory(
        weight_bytes=weights,
        weight_bytes_ratio=weights / FP32_BYTES,
        peak_rss_bytes=peak,
        peak_compress_rss_bytes=compress,
        checkpoint_bytes=weights + 40_000,
        ledger=ledger,
        reasons=reasons,
    )


def speed(
    prefill: float,
    decode: float,
    batch_8: float,
    speedups: tuple[float, float, float] | None,
    *,
    dense: bool = False,
) -> Speed:
    statistics = {
        "ttft_s": statistic(256 / prefill, "s"),
        "prefill_tokens_per_s": statistic(prefill, "tokens/s"),
        "decode_tokens_per_s": statistic(decode, "tokens/s", 0.06),
        "decode_tokens_per_s_batch_8": statistic(batch_8, "tokens/s"),
    }
    names = ("prefill_speedup", "decode_speedup", "decode_speedup_batch_8")
    if speedups is not None:
        statistics |= {name: statistic(value, "ratio") for name, value in zip(names, speedups, strict=True)}
    given: dict[str, Any] = {} if dense else {"compress_s": 1.84}
    return Speed(
        ttft_s=256 / prefill,
        prefill_tokens_per_s=prefill,
        decode_tokens_per_s=decode,
        decode_tokens_per_s_batch_8=batch_8,
        **dict(zip(names, speedups or (1.0, 1.0, 1.0), strict=True)),
        prefill_flop_share=prefill / 612,
        decode_bandwidth_share=decode / 42,
        decode_bandwidth_share_batch_8=batch_8 / 330,
        load_s=0.913,
        **given,
        statistics=statistics,
        reasons={
            "forward_s": "a model of tokens: see prefill and decode",
            "forward_speedup": "a model of tokens: see prefill and decode",
            "compile_s": "nothing is compiled in eager mode",
            **({"compress_s": "nothing is compressed in a dense row"} if dense else {}),
        },
    )


def energy(prefill: float, decode: float) -> Energy:
    return Energy(
        prefill_j_per_token=prefill, decode_j_per_token=decode, power_w=10.0, source="estimated", formula=FORMULA
    )


def coverage(share: float, after: float, skipped: tuple[SkippedLayer, ...]) -> Coverage:
    before = round(FP32_BYTES * share)
    return Coverage(
        share=share,
        compressed_layers=211,
        skipped_layers=len(skipped),
        compressed_bytes_before=before,
        compressed_bytes_after=round(before * after),
        total_bytes=FP32_BYTES,
        skipped=skipped,
    )


def norms(count: int = 61) -> tuple[SkippedLayer, ...]:
    return tuple(
        SkippedLayer(name=f"model.layers.{index}.input_layernorm", bytes=2304, reason="RMSNorm: no matrix to compress")
        for index in range(count)
    )


def ok(name: str, recipe: str | None, **sections: Any) -> Variant:
    return Variant(
        name=name,
        recipe=recipe,
        runtime="eager",
        device="cpu",
        status="ok",
        fingerprint=f"{name}-9f2c",
        finished_at="2026-12-01T04:12:09+00:00",
        **sections,
    )


def not_ok(name: str, status: str, reason: str, why: str = NOT_RUN, suite: str = "text-quick") -> Variant:
    return Variant(
        name=name,
        recipe=name,
        runtime="eager",
        device="cpu",
        status=status,
        reason=reason,
        fingerprint=f"{name}-9f2c",
        accuracy=Accuracy.missing(why, suite=suite),
        memory=Memory.missing(why),
        speed=Speed.missing(why),
        energy=Energy.missing(why),
    )


def fp32() -> Variant:
    return ok(
        "fp32",
        None,
        accuracy=text_accuracy(13.118, 1.0, 1.0, 1.0, 0.0, 1.0),
        memory=memory(FP32_BYTES, 1_162_412_032, None),
        speed=speed(341.2, 17.64, 79.2, None, dense=True),
        energy=energy(0.02931, 0.5669),
    )


def bf16() -> Variant:
    return ok(
        "bf16",
        None,
        accuracy=text_accuracy(13.121, 1.00021, 0.99962, 1.00081, 0.000213, 0.9927),
        memory=memory(FP32_BYTES // 2, 873_046_016, None),
        speed=speed(208.4, 26.05, 118.9, (0.611, 1.477, 1.501), dense=True),
        energy=energy(0.04799, 0.3839),
    )


def int8() -> Variant:
    return ok(
        "int8",
        "int8",
        coverage=coverage(0.99962, 0.2511, norms()),
        accuracy=text_accuracy(13.173, 1.00421, 1.00262, 1.00577, 0.00187, 0.9731),
        memory=memory(141_210_624, 742_350_848, 1_488_973_824),
        speed=speed(329.7, 41.3, 121.4, (0.9663, 2.341, 1.533)),
        energy=energy(0.03033, 0.2421),
    )


def int4() -> Variant:
    head = SkippedLayer(
        name="lm_head|tied", bytes=113_246_208, reason="skipped by the recipe: tied to model.embed_tokens"
    )
    return ok(
        "int4-rtn",
        "int4-rtn",
        coverage=coverage(0.7893, 0.1406, (head, *norms())),
        accuracy=text_accuracy(15.842, 1.20765, 1.1921, 1.2243, 0.2193, 0.8124),
        memory=memory(173_014_528, 801_112_064, 1_502_000_128),
        speed=speed(96.1, 9.87, 44.9, (0.2817, 0.5595, 0.5669)),
        energy=energy(0.10406, 1.0132),
        notes=("4-bit weights are expanded before each product: no 4-bit kernel for this CPU",),
    )


def environment(device: str = "cpu") -> Environment:
    return Environment(
        effkit_version="0.1.0",
        os="Debian GNU/Linux 12 (bookworm), kernel 6.1.0",
        python="3.11.2",
        cpu_model="Intel(R) Xeon(R) Processor @ 2.60GHz (family 6, model 143)",
        cpu_count=2,
        threads=2,
        cpu_features=("avx2", "fma", "avx512f", "avx512_vnni", "amx_int8"),
        memory_total_bytes=25_269_624_832,
        device=device,
        device_name="Intel(R) Xeon(R) Processor @ 2.60GHz",
        packages={"torch": "2.13.0+cpu", "transformers": "5.24.0", "safetensors": "0.6.2"},
        ceilings=Ceilings(
            device=device,
            memory_read_bytes_per_s=22_840_000_000.0,
            fp32_flop_per_s=164_300_000_000.0,
            threads=2,
            method="best of 5: reading 512 MiB; 2048 x 2048 matrix products",
            reasons={"bf16_flop_per_s": "not measured: no fast bfloat16 products on this CPU"},
        ),
        started_at="2026-12-01T04:05:31+00:00",
    )


def protocol(suite: str = "text-quick") -> Protocol:
    return Protocol(
        suite=suite,
        text="reference topics that ship with CPython 3.11 (pydoc_data.topics)",
        window_tokens=1024,
        stride_tokens=1024,
        windows=4,
        bos_policy="no BOS: the tokenizer adds none",
        aggregation="token-weighted mean of the negative log-likelihood (float32 log-softmax, summed in float64)",
        batch_size=1,
        prompt_tokens=256,
        decode_tokens=32,
        decode_batches=(1, 8),
        warmup=2,
        repeats=9,
        interleaved=True,
        isolation="one fresh process per variant",
        statistic="median with a 95 % percentile bootstrap interval; ratios of paired samples",
        seed=0,
        notes=("decode: 32 greedy steps after 128 tokens of context",),
    )


def model(**changes: Any) -> ModelInfo:
    given: dict[str, Any] = {
        "source": MODEL,
        "kind": "causal-lm",
        "architecture": "LlamaForCausalLM",
        "parameters": 134_515_008,
        "stored_dtype": "Q4_1",
        "fingerprint": "6b1f0c5de2a94f7788c4d1e0a5b3c2f19d8e7a6b5c4d3e2f1a0b9c8d7e6f5a4b",
        "notes": ("dequantized from Q4_1: the weights lie on a 4-bit grid in groups of 32",),
    }
    return ModelInfo(**(given | changes))


def sample_results(**changes: Any) -> Results:
    """Six rows: two dense, two measured recipes, one failed, one out of memory.

    Args:
        changes: fields of Results to replace, such as ``variants``.
    """
    failed = not_ok("int8-smooth", "failed", "MeasureError: window 2: the likelihood of 17 of 1023 tokens is NaN")
    killed = not_ok("int8|group:64", "out_of_memory", "killed at 23.1 GB resident while compressing layer 12 of 30")
    given: dict[str, Any] = {
        "model": model(),
        "environment": environment(),
        "protocol": protocol(),
        "variants": (fp32(), bf16(), int8(), int4(), failed, killed),
    }
    return Results(**(given | changes))


def encoder_results() -> Results:
    """A sentence encoder: output errors instead of perplexity, no decoding."""
    no_tokens = "only for causal language models: this model gives vectors, not a distribution over tokens"
    figures = {
        "fp32": (90_852_864, 1.0, 0.0, 2210.0, None, 1_140_000_000),
        "bf16": (45_426_432, 0.99998, 0.0061, 1480.0, 0.67, 1_050_000_000),
        "int8": (23_013_376, 0.99969, 0.0248, 2950.0, 1.335, 990_000_000),
    }
    rows = []
    for name, (weights, cosine, error, rate, faster, peak) in figures.items():
        samples = {"prefill_tokens_per_s": statistic(rate, "tokens/s")}
        if faster is not None:
            samples["prefill_speedup"] = statistic(faster, "ratio")
        recipe = None if name in ("fp32", "bf16") else name
        rows.append(
            ok(
                name,
                recipe,
                coverage=coverage(0.974, 0.252, norms(13)) if recipe else None,
                accuracy=Accuracy.missing(
                    no_tokens, suite="encoder-quick", output_cosine_mean=cosine, output_relative_error_mean=error
                ),
                memory=Memory.missing(
                    "not measured",
                    weight_bytes=weights,
                    weight_bytes_ratio=weights / 90_852_864,
                    peak_rss_bytes=peak,
                    checkpoint_bytes=weights,
                ),
                speed=Speed.missing(
                    "no tokens are generated",
                    prefill_tokens_per_s=rate,
                    prefill_speedup=faster or 1.0,
                    load_s=0.2,
                    statistics=samples,
                ),
                energy=Energy.missing("no energy counter can be read"),
            )
        )
    info = model(
        source="sample:minilm-l6",
        kind="encoder",
        architecture="BertModel",
        parameters=22_713_216,
        stored_dtype="float32",
        notes=(),
    )
    return Results(model=info, environment=environment(), protocol=protocol("encoder-quick"), variants=tuple(rows))


def module_results() -> Results:
    """Any module on the caller's inputs: one forward pass, no peak memory."""
    why = "measured inside the caller's process; peak memory needs one process per variant"
    rows = []
    for name, weights, error, forward, faster in (
        ("fp32", 40_000, 0.0, 0.00214, 1.0),
        ("bf16", 20_000, 0.004, 0.00301, 0.711),
        ("int8", 44_000, 0.021, 0.0042, 0.51),
    ):
        rows.append(
            ok(
                name,
                None if name != "int8" else "int8",
                accuracy=Accuracy.missing(
                    why, suite="inputs", output_cosine_mean=1 - error**2, output_relative_error_mean=error
                ),
                memory=Memory.missing(why, weight_bytes=weights, weight_bytes_ratio=weights / 40_000),
                speed=Speed.missing(
                    "not a text model",
                    forward_s=forward,
                    forward_speedup=faster,
                    statistics={"forward_s": statistic(forward, "s")},
                ),
                energy=Energy.missing("not measured inside the caller's process"),
            )
        )
    info = model(
        source="my_project.nets.Tagger",
        kind="other",
        architecture="Tagger",
        parameters=10_000,
        stored_dtype="float32",
        notes=(),
    )
    return Results(model=info, environment=environment(), protocol=protocol("inputs"), variants=tuple(rows))
