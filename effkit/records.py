"""Frozen results with units in their names; the documented schema of ``results.json``.

Knows no torch and no model: a report can be rebuilt from these records alone. A field that was not measured
is None and says why in its section's ``reasons``; a section refuses to be built otherwise, so that a missing
number can never pass for a zero.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION: Literal[1] = 1

Status = Literal["ok", "failed", "out_of_memory"]


class Record(BaseModel):
    """A frozen value; unknown keys, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Statistic(Record):
    """Raw samples of one measured quantity and what is derived from them.

    ``low`` and ``high`` bound the median with confidence ``level`` (percentile bootstrap).
    """

    unit: str
    median: float
    low: float
    high: float
    level: float = 0.95
    count: int
    samples: tuple[float, ...]


class Section(Record):
    """A group of measurements in which every None carries its reason."""

    reasons: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _every_none_has_a_reason(self) -> Self:
        names = [name for name in type(self).model_fields if name != "reasons"]
        missing = {name for name in names if getattr(self, name) is None}
        silent = sorted(missing - set(self.reasons))
        if silent:
            raise ValueError(f"{type(self).__name__}: no value and no reason for {', '.join(silent)}")
        false = sorted(set(self.reasons) - missing)
        if false:
            raise ValueError(f"{type(self).__name__}: a reason is given for {', '.join(false)}, which have values")
        return self

    @classmethod
    def missing(cls, reason: str, **known: Any) -> Self:
        """Build a section of which only ``known`` was measured; all other optional fields take ``reason``."""
        given = known.pop("reasons", {})
        optional = [n for n, f in cls.model_fields.items() if n != "reasons" and f.default is None]
        blank = [name for name in optional if known.get(name) is None]
        return cls(**known, reasons={**dict.fromkeys(blank, reason), **given})


class SkippedLayer(Record):
    """A layer that a recipe left dense, and why."""

    name: str
    bytes: int
    reason: str


class Coverage(Record):
    """What share of the model's weight bytes a recipe changed.

    Attributes:
        share: compressed dense bytes / all dense weight bytes, each storage counted once (0..1).
        compressed_bytes_before: dense bytes of the compressed storages, as in the dense FP32 baseline.
        compressed_bytes_after: bytes of the same storages after compression, scales included.
        total_bytes: bytes of all distinct dense storages in FP32.
    """

    share: float
    compressed_layers: int
    skipped_layers: int
    compressed_bytes_before: int
    compressed_bytes_after: int
    total_bytes: int
    skipped: tuple[SkippedLayer, ...] = ()


class Accuracy(Section):
    """Quality of a variant; ratios, divergences and agreements are paired with the dense FP32 baseline.

    Attributes:
        perplexity: exp of the token-weighted mean negative log-likelihood.
        perplexity_ratio: perplexity / FP32 perplexity on the same tokens, with a bootstrap interval.
        within_noise: True when that interval contains 1.
        kl_mean, kl_median, kl_p99, kl_max: KL(baseline || variant) per token, nats.
        top1_agreement: share of positions whose most likely token equals the baseline's.
        output_cosine_mean, output_relative_error_mean: encoders and plain modules: output vectors against the
            baseline's (cosine; ||y - y0|| / ||y0||).
    """

    suite: str
    scored_tokens: int | None = None
    nll_mean: float | None = None
    perplexity: float | None = None
    perplexity_ratio: float | None = None
    perplexity_ratio_low: float | None = None
    perplexity_ratio_high: float | None = None
    within_noise: bool | None = None
    kl_mean: float | None = None
    kl_median: float | None = None
    kl_p99: float | None = None
    kl_max: float | None = None
    top1_agreement: float | None = None
    output_cosine_mean: float | None = None
    output_relative_error_mean: float | None = None


class Ledger(Section):
    """The measured peak taken apart; ``unexplained_bytes`` is the measured peak minus all other entries."""

    weights_bytes: int | None = None
    kv_cache_bytes: int | None = None
    activations_bytes: int | None = None
    optimizer_bytes: int | None = None
    pinned_host_bytes: int | None = None
    runtime_bytes: int | None = None
    unexplained_bytes: int | None = None
    disk_bytes: int | None = None


class Memory(Section):
    """Bytes of a variant.

    Attributes:
        weight_bytes: every distinct storage of parameters and buffers once.
        weight_bytes_ratio: weight_bytes / those of the dense FP32 variant.
        peak_rss_bytes: peak resident memory while evaluating and generating, in a fresh process that only
            loaded the finished variant.
        peak_compress_rss_bytes: peak resident memory while loading the dense model and compressing it.
        peak_device_bytes: peak accelerator memory allocated while evaluating and generating.
        checkpoint_bytes: bytes of the weight files on disk.
    """

    weight_bytes: int | None = None
    weight_bytes_ratio: float | None = None
    peak_rss_bytes: int | None = None
    peak_compress_rss_bytes: int | None = None
    peak_device_bytes: int | None = None
    checkpoint_bytes: int | None = None
    ledger: Ledger | None = None


class Speed(Section):
    """Speed of a variant; medians, with raw samples and intervals under ``statistics`` by field name.

    Attributes:
        ttft_s: time from the prompt to the first token, batch 1, seconds.
        prefill_tokens_per_s: prompt tokens / time of the prompt's forward pass, batch 1.
        decode_tokens_per_s, decode_tokens_per_s_batch_8: new tokens of the whole batch per second.
        *_speedup: ratio to the dense FP32 baseline, from samples taken alternately with it.
        prefill_flop_share: achieved FLOP/s / this machine's measured dense FLOP/s ceiling.
        decode_bandwidth_share*: achieved bytes/s / this machine's measured read bandwidth.
        forward_s, forward_speedup: one forward pass of the given inputs, for modules that are not text models.
        load_s, compress_s, compile_s: one-off times, seconds; never part of the figures above.
    """

    ttft_s: float | None = None
    prefill_tokens_per_s: float | None = None
    decode_tokens_per_s: float | None = None
    decode_tokens_per_s_batch_8: float | None = None
    prefill_speedup: float | None = None
    decode_speedup: float | None = None
    decode_speedup_batch_8: float | None = None
    prefill_flop_share: float | None = None
    decode_bandwidth_share: float | None = None
    decode_bandwidth_share_batch_8: float | None = None
    forward_s: float | None = None
    forward_speedup: float | None = None
    load_s: float | None = None
    compress_s: float | None = None
    compile_s: float | None = None
    statistics: dict[str, Statistic] = Field(default_factory=dict)


class Energy(Section):
    """Energy of a variant.

    Attributes:
        source: the counter that was read, or ``estimated``.
        formula: how an estimate was made, with its inputs; empty for a counter.
    """

    prefill_j_per_token: float | None = None
    decode_j_per_token: float | None = None
    power_w: float | None = None
    source: Literal["nvml", "rapl", "estimated", "none"] = "none"
    formula: str = ""


class Ceilings(Section):
    """What this machine was measured to reach at best; the denominators of every share."""

    device: str
    memory_read_bytes_per_s: float | None = None
    fp32_flop_per_s: float | None = None
    bf16_flop_per_s: float | None = None
    threads: int | None = None
    method: str = ""


class Environment(Record):
    """The machine and the software of a run."""

    effkit_version: str
    os: str
    python: str
    cpu_model: str
    cpu_count: int
    threads: int
    cpu_features: tuple[str, ...] = ()
    memory_total_bytes: int
    device: str
    device_name: str
    device_memory_bytes: int | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    ceilings: Ceilings
    started_at: str


class ModelInfo(Record):
    """Which model was studied.

    Attributes:
        fingerprint: SHA-256 over the weight files' content and the configuration.
        stored_dtype: dtype the checkpoint holds, such as ``bfloat16`` or ``Q4_1``.
        notes: what a reader must know, such as ``dequantized from Q4_1``.
    """

    source: str
    kind: Literal["causal-lm", "encoder", "other"]
    architecture: str
    parameters: int
    stored_dtype: str
    fingerprint: str
    notes: tuple[str, ...] = ()


class Protocol(Record):
    """How everything was measured; the same for every variant of a run."""

    suite: str
    text: str
    window_tokens: int
    stride_tokens: int
    windows: int
    bos_policy: str
    aggregation: str
    batch_size: int
    prompt_tokens: int
    decode_tokens: int
    decode_batches: tuple[int, ...]
    warmup: int
    repeats: int
    interleaved: bool
    isolation: str
    statistic: str
    seed: int
    tf32: bool = False
    notes: tuple[str, ...] = ()


class Variant(Record):
    """Model + recipe + runtime + device: one measured row. Dense rows are named ``fp32`` and ``bf16``."""

    name: str
    recipe: str | None
    runtime: str
    device: str
    status: Status
    reason: str = ""
    fingerprint: str
    coverage: Coverage | None = None
    accuracy: Accuracy
    accuracy_by_suite: dict[str, Accuracy] = Field(default_factory=dict)
    memory: Memory
    speed: Speed
    energy: Energy
    notes: tuple[str, ...] = ()
    verdict: str = ""
    finished_at: str = ""


class Results(Record):
    """All of one run: what ``results.json`` holds."""

    schema_version: Literal[1] = SCHEMA_VERSION
    model: ModelInfo
    environment: Environment
    protocol: Protocol
    variants: tuple[Variant, ...]

    def variant(self, name: str) -> Variant | None:
        """Return the row of that name, or None."""
        return next((row for row in self.variants if row.name == name), None)

    @property
    def baseline(self) -> Variant | None:
        """The dense FP32 row, if it was measured."""
        return self.variant("fp32")
