"""Time to first token, prefill and decode, one sample at a time, and the record they add up to.

A study takes samples of two processes alternately, so the bench hands out single samples and keeps no statistics.
Knows runtimes and suites; no pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from effkit.errors import MeasureError
from effkit.measure.precision import full_fp32
from effkit.measure.statistics import paired_ratios, summarise
from effkit.measure.timing import Timer, timer_for
from effkit.records import Ceilings, Speed, Statistic
from effkit.runtimes.base import EncoderRuntime, TextRuntime
from effkit.suite import Suite

PREFILL = "prefill"
FORWARD = "forward"
DECODE_FIELDS = {1: "", 8: "_batch_8"}


def decode_kind(batch: int) -> str:
    """Name of the decode samples at a batch size: ``decode_8``."""
    return f"decode_{batch}"


class SpeedBench:
    """Takes speed samples of one model.

    Args:
        runtime: text model or encoder.
        suite: prompt and decode lengths, batch sizes.
        tokens: real token ids of the suite's text (``Windows.content_ids``); repeated where too short.
        timer: for tests; the device's own by default.

    Attributes:
        kinds: what ``sample`` takes: ``prefill`` and, for text models, ``decode_1``, ``decode_8``, ...
        kv_cache_bytes: size of the cache at the end of a decode sample, by kind; filled as samples are taken.

    Example:
        >>> bench = SpeedBench(runtime, suite, windows.content_ids)        # doctest: +SKIP
        >>> for kind in bench.kinds:                                       # doctest: +SKIP
        ...     bench.warm_up(kind)
        ...     samples[kind] = [bench.sample(kind) for _ in range(suite.repeats)]
    """

    def __init__(
        self,
        runtime: TextRuntime | EncoderRuntime,
        suite: Suite,
        tokens: Sequence[int],
        *,
        timer: Timer | None = None,
    ) -> None:
        if not len(tokens):
            raise MeasureError("speed needs at least one token of real text")
        self.runtime = runtime
        self.suite = suite
        self.kv_cache_bytes: dict[str, int] = {}
        self._timer = timer or timer_for(runtime.device)
        self._prompt = self._rows(tokens, 1, suite.prompt_tokens)
        self._batches: dict[str, int] = {}
        if isinstance(runtime, TextRuntime):
            self._batches = {decode_kind(batch): batch for batch in suite.decode_batches}
        self._contexts = {k: self._rows(tokens, batch, suite.decode_context) for k, batch in self._batches.items()}
        self.kinds: tuple[str, ...] = (PREFILL, *self._batches)

    def warm_up(self, kind: str) -> None:
        """Run the work of ``kind`` as often as the suite says, unseen; the same for every variant."""
        for _ in range(self.suite.warmup):
            self.sample(kind)

    def sample(self, kind: str, *, timer: Timer | None = None) -> float:
        """Take one sample.

        Args:
            kind: one of ``kinds``.
            timer: runs the timed part instead of the bench's own, for instance to read an energy counter around it.

        Returns:
            Seconds: for ``prefill``, from the prompt to the first token (batch 1, last position only); for
            ``decode_N``, all ``suite.decode_tokens`` steps of N sequences (the context is read beforehand, untimed).

        Raises:
            MeasureError: another kind.
        """
        if kind not in self.kinds:
            raise MeasureError(f"no speed samples of kind {kind!r}; allowed: {', '.join(self.kinds)}")
        with full_fp32(), torch.inference_mode():
            timer = timer or self._timer
            return self._prefill(timer) if kind == PREFILL else self._decode(kind, timer)

    def tokens_of(self, kind: str) -> int:
        """Tokens that one sample of ``kind`` processes or makes."""
        return self.suite.prompt_tokens if kind == PREFILL else self._batches[kind] * self.suite.decode_tokens

    def _prefill(self, timer: Timer) -> float:
        runtime, prompt = self.runtime, self._prompt
        if isinstance(runtime, TextRuntime):
            text = runtime
            return timer.seconds(lambda: text.prefill(prompt)[0].argmax(dim=-1).cpu())
        encoder, mask = runtime, torch.ones_like(prompt)
        return timer.seconds(lambda: encoder.outputs(prompt, mask))

    def _decode(self, kind: str, timer: Timer) -> float:
        runtime = self.runtime
        assert isinstance(runtime, TextRuntime)
        logits, state = runtime.prefill(self._contexts[kind])

        def steps() -> None:
            nonlocal logits, state
            for _ in range(self.suite.decode_tokens):
                logits, state = runtime.decode(logits.argmax(dim=-1, keepdim=True), state)

        seconds = timer.seconds(steps)
        self.kv_cache_bytes[kind] = state.cache_bytes()
        return seconds

    def _rows(self, tokens: Sequence[int], batch: int, length: int) -> torch.Tensor:
        """Cut [batch, length] consecutive real tokens, going round where the text is too short."""
        source = torch.as_tensor(tokens, dtype=torch.int64)
        needed = torch.arange(batch * length) % len(source)
        return source[needed].reshape(batch, length).to(self.runtime.device)


class ForwardBench:
    """Takes samples of one forward pass of any module; its only kind is ``forward``.

    Args:
        forward: runs the pass.
        device: of the module.
        warmup: untimed calls.
    """

    kinds: tuple[str, ...] = (FORWARD,)

    def __init__(
        self, forward: Callable[[], object], device: str | torch.device, *, warmup: int, timer: Timer | None = None
    ) -> None:
        self._forward = forward
        self._warmup = warmup
        self._timer = timer or timer_for(device)

    def warm_up(self, kind: str = FORWARD) -> None:
        """Run the pass ``warmup`` times, unseen."""
        for _ in range(self._warmup):
            self.sample(kind)

    def sample(self, kind: str = FORWARD) -> float:
        """Return the seconds of one pass."""
        with full_fp32(), torch.inference_mode():
            return self._timer.seconds(self._forward)


@dataclass(frozen=True)
class WorkPerSample:
    """What one sample must at least do; the numerators of every share.

    Attributes:
        prefill_flop: useful floating-point operations of the prompt's pass, as of the dense model.
        decode_weight_bytes: weight bytes that one decode step reads.
        kv_cache_bytes: by kind, the cache at the end of a decode sample (``SpeedBench.kv_cache_bytes``).
        compute_dtype: in which the matrix products run: ``float32`` or ``bfloat16``.
    """

    prefill_flop: float | None = None
    decode_weight_bytes: int | None = None
    kv_cache_bytes: Mapping[str, int] = field(default_factory=dict)
    compute_dtype: str = "float32"


def speed_record(
    samples: Mapping[str, Sequence[float]],
    baseline_samples: Mapping[str, Sequence[float]] | None,
    *,
    suite: Suite,
    ceilings: Ceilings | None = None,
    work: WorkPerSample | None = None,
    is_baseline: bool = False,
    load_s: float | None = None,
    compress_s: float | None = None,
    compile_s: float | None = None,
    reasons: Mapping[str, str] | None = None,
) -> Speed:
    """Turn samples into medians, intervals, paired speedups and shares of the machine's ceilings.

    Args:
        samples: seconds by kind, from :class:`SpeedBench` or :class:`ForwardBench`.
        baseline_samples: the dense FP32 baseline's, taken alternately with these; None where it did not run beside.
        suite: as used for the samples.
        ceilings, work: for the shares; None leaves them out.
        is_baseline: this is the dense FP32 row: its speedups are 1 by definition.
        load_s, compress_s, compile_s: one-off times, seconds.
        reasons: of fields that the caller leaves out, such as ``compile_s``.

    Raises:
        MeasureError: samples that cannot be paired, or none of a kind that is named.
    """
    builder = _SpeedBuilder(samples, baseline_samples, suite, is_baseline)
    builder.add("ttft_s", PREFILL, lambda seconds: seconds, "s")
    builder.add("prefill_tokens_per_s", PREFILL, lambda seconds: suite.prompt_tokens / seconds, "tokens/s")
    builder.add("forward_s", FORWARD, lambda seconds: seconds, "s")
    builder.add_speedup("prefill_speedup", PREFILL)
    builder.add_speedup("forward_speedup", FORWARD)
    for batch in sorted({*suite.decode_batches, *DECODE_FIELDS}):
        suffix, tokens = DECODE_FIELDS.get(batch, f"_batch_{batch}"), batch * suite.decode_tokens
        builder.add(f"decode_tokens_per_s{suffix}", decode_kind(batch), _rate(tokens), "tokens/s")
        builder.add_speedup(f"decode_speedup{suffix}", decode_kind(batch))
    if decode_kind(1) not in samples:
        builder.drop("ttft_s", "no tokens are generated")
    _add_shares(builder, ceilings, work or WorkPerSample(), suite)
    for name, value in (("load_s", load_s), ("compress_s", compress_s), ("compile_s", compile_s)):
        builder.set(name, value, "not applicable to this variant")
    return builder.record(reasons or {})


class _SpeedBuilder:
    """Collects fields, statistics and reasons of one Speed record."""

    def __init__(
        self,
        samples: Mapping[str, Sequence[float]],
        baseline: Mapping[str, Sequence[float]] | None,
        suite: Suite,
        is_baseline: bool,
    ) -> None:
        self.samples, self.baseline, self.suite, self.is_baseline = samples, baseline, suite, is_baseline
        self.fields: dict[str, Any] = {}
        self.statistics: dict[str, Statistic] = {}
        self.reasons: dict[str, str] = {}

    def add(self, name: str, kind: str, convert: Callable[[float], float], unit: str) -> None:
        if kind not in self.samples:
            self.set(name, None, _absent(kind))
            return
        if min(self.samples[kind], default=0.0) <= 0.0:
            raise MeasureError(f"{kind}: no samples, or a time that is not above zero")
        statistic = summarise([convert(seconds) for seconds in self.samples[kind]], unit, self.suite.seed)
        self.statistics[name] = statistic
        self.set(name, statistic.median, "")

    def add_speedup(self, name: str, kind: str) -> None:
        if kind not in self.samples:
            self.set(name, None, _absent(kind))
        elif self.is_baseline:
            self.set(name, 1.0, "")
        elif self.baseline is None or kind not in self.baseline:
            self.set(name, None, "the dense FP32 baseline did not run beside this variant")
        else:
            ratios = paired_ratios(self.baseline[kind], self.samples[kind])
            self.statistics[name] = summarise(ratios, "ratio", self.suite.seed)
            self.set(name, self.statistics[name].median, "")

    def set(self, name: str, value: float | None, reason: str) -> None:
        """Set a field, or its reason where the value is None; batch sizes without a field keep statistics only."""
        if name not in Speed.model_fields:
            return
        if value is None:
            self.reasons[name] = reason
        else:
            self.fields[name] = value

    def drop(self, name: str, reason: str) -> None:
        self.fields.pop(name, None)
        self.statistics.pop(name, None)
        self.reasons[name] = reason

    def record(self, reasons: Mapping[str, str]) -> Speed:
        given = {name: text for name, text in reasons.items() if name in self.reasons}
        return Speed(**self.fields, statistics=self.statistics, reasons=self.reasons | given)


def _add_shares(builder: _SpeedBuilder, ceilings: Ceilings | None, work: WorkPerSample, suite: Suite) -> None:
    prefill = builder.statistics.get("prefill_tokens_per_s")
    ceiling = None
    if ceilings is not None:
        ceiling = ceilings.bf16_flop_per_s if work.compute_dtype == "bfloat16" else ceilings.fp32_flop_per_s
    if prefill is None:
        builder.set("prefill_flop_share", None, _absent(PREFILL))
    elif ceiling and work.prefill_flop:
        flop_per_s = work.prefill_flop * prefill.median / suite.prompt_tokens
        builder.set("prefill_flop_share", flop_per_s / ceiling, "")
    else:
        builder.set("prefill_flop_share", None, "the operations of the pass or the machine's ceiling are unknown")
    bandwidth = ceilings.memory_read_bytes_per_s if ceilings is not None else None
    for batch, suffix in DECODE_FIELDS.items():
        name, kind = f"decode_bandwidth_share{suffix}", decode_kind(batch)
        decode = builder.statistics.get(f"decode_tokens_per_s{suffix}")
        if decode is None:
            builder.set(name, None, _absent(kind))
        elif bandwidth and work.decode_weight_bytes and kind in work.kv_cache_bytes:
            cache = _mean_cache_bytes(work.kv_cache_bytes[kind], suite)
            per_step = work.decode_weight_bytes + cache
            builder.set(name, per_step * decode.median / batch / bandwidth, "")
        else:
            builder.set(name, None, "the bytes read per step or the machine's bandwidth are unknown")


def _mean_cache_bytes(at_end: int, suite: Suite) -> float:
    """Mean size of the cache over the steps of a sample, from its size at the end."""
    last = suite.decode_context + suite.decode_tokens
    return at_end * (suite.decode_context + (suite.decode_tokens + 1) / 2) / last


def _rate(tokens: int) -> Callable[[float], float]:
    return lambda seconds: tokens / seconds


def _absent(kind: str) -> str:
    if kind == FORWARD:
        return "a model of tokens: see prefill and decode"
    return f"no samples of kind {kind} were taken: this model or suite has none"
