"""Verdicts in plain words: what a variant gains and what it costs, with losses as plain as gains.

Reads records alone. Every comparison is a :class:`Fact`, from which the sentence of the verdict and the tiles of the
HTML page are made, so that they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from effkit.records import Results, Variant
from effkit.report import quantities as q

BASELINE = "fp32"
CAST = "bf16"
SAME_SIZE = 0.005
FEWEST_SAMPLES = 5  # the bootstrap interval of fewer is hardly more than their range
TOO_FEW = "too few samples to tell"

PLAIN_SPEED = {"better": "faster", "worse": "slower", "same": "no clear difference"}

Judgement = Literal["better", "worse", "same", "none"]


@dataclass(frozen=True)
class Fact:
    """One comparison with the baseline.

    Attributes:
        topic: ``size``, ``decode``, ``prefill``, ``forward`` or ``accuracy``.
        value: the figure, such as ``3.8x``.
        words: what the figure is, such as ``smaller``.
        judgement: whether the variant is better, worse or (within noise) the same; ``none``: nothing is compared.
        phrase: figure and words as they stand in a sentence.
    """

    topic: str
    value: str
    words: str
    judgement: Judgement
    phrase: str

    @property
    def plain(self) -> str:
        """The judgement in a word or two; empty where the words already say it."""
        if self.judgement == "none" or self.topic == "size":
            return ""
        if self.topic == "accuracy":
            return {"better": "better", "worse": "worse", "same": "within noise"}[self.judgement]
        return PLAIN_SPEED[self.judgement]


def verdict(variant: Variant, baseline: Variant | None, bf16: Variant | None = None) -> str:
    """Say in one sentence what a variant gains and costs.

    Args:
        variant: the row to judge.
        baseline: the dense FP32 row; None where there is none.
        bf16: the dense BF16 row, to tell what is left of a gain beside the plain cast.

    Example:
        >>> verdict(int8, fp32, bf16)                                                # doctest: +SKIP
        '3.8x smaller, 0.91x as fast at decoding (slower) and 1.12x at prefill (faster), perplexity +0.42 %
        (worse; within noise: no); against bf16: 1.9x smaller, 1.05x as fast at decoding'
    """
    if variant.status != "ok":
        return f"{status_words(variant)}: {variant.reason or 'no reason was recorded'}"
    if variant.name == BASELINE:
        return "the baseline: dense FP32"
    if baseline is None or baseline.status != "ok":
        return f"{_no_comparison(baseline)}; {_absolute(variant)}"
    sentence = _join(facts(variant, baseline))
    against = _against_cast(variant, bf16)
    return f"{sentence}; against bf16: {against}" if against else sentence


def with_verdicts(results: Results) -> Results:
    """Return the same results with every row's verdict written anew from its numbers."""
    baseline, bf16 = results.baseline, results.variant(CAST)
    rows = tuple(row.model_copy(update={"verdict": verdict(row, baseline, bf16)}) for row in results.variants)
    return results.model_copy(update={"variants": rows})


def facts(variant: Variant, baseline: Variant) -> tuple[Fact, ...]:
    """Compare size, speed and accuracy of two rows that were measured; what was not measured is left out."""
    found = (
        _size(variant, baseline),
        *(speed_fact(variant, topic) for topic in ("decode", "prefill", "forward")),
        _accuracy(variant),
    )
    return tuple(fact for fact in found if fact is not None)


def status_words(variant: Variant) -> str:
    """``measured``, ``failed`` or ``out of memory``."""
    return "measured" if variant.status == "ok" else variant.status.replace("_", " ")


def size_words(before: int, after: int) -> tuple[str, str, Judgement]:
    """Compare two sizes: figure, word and judgement, such as ``3.8x``, ``smaller``, ``better``."""
    if before == after:
        return "", "the same size", "same"
    if not before or not after:
        return ("", "bigger", "worse") if after else ("", "no weights left", "same")
    factor = before / after
    if abs(factor - 1.0) <= SAME_SIZE:
        return "", "the same size", "same"
    if factor > 1:
        return q.ratio(factor), "smaller", "better"
    return q.ratio(1.0 / factor), "bigger", "worse"


def headlines(results: Results) -> tuple[str, ...]:
    """Answer "which one should I take?" as far as the numbers allow: the smallest and the fastest within noise."""
    baseline = results.baseline
    rows = [row for row in results.variants if row.status == "ok" and row.name != BASELINE]
    if baseline is None or baseline.status != "ok" or not any(row.recipe for row in rows):
        return ()
    if all(row.accuracy.within_noise is None for row in rows):
        return ()
    near = [row for row in rows if row.accuracy.within_noise]
    if not any(row.recipe for row in near):
        return (_nothing_near(rows, cast=bool(near)),)
    sized = [row for row in near if row.memory.weight_bytes]
    smallest = min(sized, key=lambda row: row.memory.weight_bytes or 0, default=None)
    timed = [row for row in near if row.speed.decode_speedup]
    fastest = max(timed, key=lambda row: row.speed.decode_speedup or 0.0, default=None)
    lines = []
    if smallest is not None and (fact := _size(smallest, baseline)) is not None:
        lines.append(f"Smallest within noise of dense FP32: {smallest.name}, {fact.phrase}.")
    if fastest is not None and (fact := speed_fact(fastest, "decode")) is not None:
        if fact.judgement == "better":
            lines.append(f"Fastest within noise: {fastest.name}, {fact.phrase}.")
        else:
            lines.append("Nothing within noise of dense FP32 decodes faster than it.")
    return tuple(lines)


def _nothing_near(rows: list[Variant], *, cast: bool) -> str:
    lead = "No recipe keeps perplexity within noise of dense FP32" + ("; the plain cast to bf16 does" if cast else "")
    known = [row for row in rows if row.recipe and row.accuracy.perplexity_ratio is not None]
    if not known:
        return f"{lead}."
    nearest = min(known, key=lambda row: row.accuracy.perplexity_ratio or 0.0)
    return (
        f"{lead}. The nearest recipe is {nearest.name}, perplexity {q.change(nearest.accuracy.perplexity_ratio or 1)}."
    )


def _size(variant: Variant, baseline: Variant) -> Fact | None:
    before, after = baseline.memory.weight_bytes, variant.memory.weight_bytes
    if before is None or after is None:
        return None
    value, words, judgement = size_words(before, after)
    return Fact("size", value, words, judgement, f"{value} {words}".strip())


def speed_fact(variant: Variant, topic: str) -> Fact | None:
    """Compare one kind of work with the baseline's paired samples; None where it was not measured."""
    speedup: float | None = getattr(variant.speed, f"{topic}_speedup")
    if speedup is None:
        return None
    samples = variant.speed.statistics.get(f"{topic}_speedup")
    enough = samples is None or samples.count >= FEWEST_SAMPLES
    clear = enough and (samples is None or not samples.low <= 1.0 <= samples.high)
    judgement: Judgement = "same" if not clear or speedup == 1.0 else "better" if speedup > 1.0 else "worse"
    at = f"at {work_name(variant, topic)}" if topic != "forward" else ""
    value = q.ratio(speedup)
    return Fact(
        topic,
        value,
        f"as fast {at}".strip(),
        judgement,
        f"{value} as fast {at} ({PLAIN_SPEED[judgement] if enough else TOO_FEW})".replace("  ", " "),
    )


def work_name(variant: Variant, topic: str) -> str:
    """Name a kind of work; what is prefill for a text model is encoding for one that gives vectors."""
    if topic == "prefill" and variant.accuracy.output_relative_error_mean is not None:
        return "encoding"
    return {"decode": "decoding", "prefill": "prefill", "forward": "a forward pass"}[topic]


def _accuracy(variant: Variant) -> Fact | None:
    accuracy = variant.accuracy
    factor = accuracy.perplexity_ratio
    if factor is not None:
        value, within = q.change(factor), accuracy.within_noise
        judgement: Judgement = "same" if within or factor == 1.0 else "worse" if factor > 1.0 else "better"
        noise = {True: "within noise: yes", False: "within noise: no", None: "noise not known"}[within]
        note = noise if judgement == "same" else f"{judgement}; {noise}"
        times = " times" if value.endswith("x") else ""
        figure = f"{value[:-1]}{times} that of fp32" if times else value
        return Fact("accuracy", value, "perplexity", judgement, f"perplexity {figure} ({note})")
    error = accuracy.output_relative_error_mean
    if error is None:
        return None
    value = q.share(error)
    beside = accuracy.output_cosine_mean
    cosine = f" (cosine {q.cosine(beside)})" if beside is not None else ""
    return Fact("accuracy", value, "output error", "same" if error == 0 else "worse", f"outputs off by {value}{cosine}")


def _join(found: tuple[Fact, ...]) -> str:
    parts = [fact.phrase for fact in found if fact.topic == "size"]
    speeds = [fact.phrase for fact in found if fact.topic in ("decode", "prefill", "forward")]
    if speeds:
        parts.append(" and ".join([speeds[0], *(phrase.replace("as fast at", "at") for phrase in speeds[1:])]))
    else:
        parts.append("speed not measured")
    accuracy = [fact.phrase for fact in found if fact.topic == "accuracy"]
    return ", ".join([*parts, *(accuracy or ["accuracy not measured"])])


def _against_cast(variant: Variant, bf16: Variant | None) -> str:
    """Compare with the dense BF16 row; half of most savings against FP32 are that cast alone."""
    if bf16 is None or bf16.status != "ok" or variant.name == bf16.name:
        return ""
    parts = []
    if (size := _size(variant, bf16)) is not None:
        parts.append(size.phrase)
    for topic in ("decode", "prefill", "forward"):
        mine: float | None = getattr(variant.speed, f"{topic}_speedup")
        other: float | None = getattr(bf16.speed, f"{topic}_speedup")
        if mine is not None and other:
            at = f" at {work_name(variant, topic)}" if topic != "forward" else ""
            parts.append(f"{q.ratio(mine / other)} as fast{at}")
            break
    return ", ".join(parts)


def _no_comparison(baseline: Variant | None) -> str:
    if baseline is None:
        return "not compared: the run has no dense fp32 row"
    return f"not compared: the dense fp32 row {'failed' if baseline.status == 'failed' else 'ran out of memory'}"


def _absolute(variant: Variant) -> str:
    parts = []
    if variant.memory.weight_bytes is not None:
        parts.append(f"{q.byte_text(variant.memory.weight_bytes)} of weights")
    if variant.accuracy.perplexity is not None:
        parts.append(f"perplexity {q.perplexity(variant.accuracy.perplexity)}")
    if variant.speed.decode_tokens_per_s is not None:
        parts.append(f"{q.significant(variant.speed.decode_tokens_per_s)} tokens/s at decoding")
    return ", ".join(parts) or "nothing else was measured"
