"""The parts of a report that are text: model, environment, protocol, skipped layers and how to read it all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from effkit.records import Results, SkippedLayer, Variant
from effkit.report import quantities as q

Items = tuple[tuple[str, str], ...]

READING: Items = (
    (
        "What is compared",
        (
            "Every row is one variant of the same model: dense FP32 (the baseline), the plain cast to BF16, and "
            "each recipe. All ran under the one protocol printed below. Half of most savings against FP32 are the "
            "cast to BF16 alone, so compare a recipe with the bf16 row as well."
        ),
    ),
    (
        "Size and memory",
        (
            "Weights are counted once per storage, so tied layers are not counted twice. The peak is that of a "
            "fresh process that only loaded the finished variant; the peak while compressing stands apart."
        ),
    ),
    (
        "Accuracy",
        (
            "Perplexity: lower is better. The change is paired, token by token, with FP32 on the same text. "
            "Within noise means that the 95 % interval of the change contains zero: no difference could be shown "
            "with this much text. KL divergence and same top-1 say how far the predictions moved even where "
            "perplexity did not."
        ),
    ),
    (
        "Speed",
        (
            "Prefill reads the prompt and is limited by arithmetic; decoding makes one token after another and is "
            "limited by memory bandwidth. Speedups are ratios of samples taken alternately with FP32; below 1.00x "
            "is slower. No clear difference means that the interval contains 1."
        ),
    ),
    (
        "Energy",
        (
            "Only nvml and rapl are counters. Estimated figures, marked ~, follow the printed formula and rank "
            "variants no better than their run time does."
        ),
    ),
    (
        "Missing figures",
        (
            "A dash is a figure that was not measured; its note says why. It is never a zero. Failed and out-of- "
            "memory rows stay in the table."
        ),
    ),
)


@dataclass(frozen=True)
class SkippedGroup:
    """Layers that were left dense for the same reason."""

    reason: str
    layers: tuple[SkippedLayer, ...]

    @property
    def bytes(self) -> int:
        """Dense bytes of all of them."""
        return sum(layer.bytes for layer in self.layers)


def title(results: Results) -> str:
    """Heading of a report."""
    return f"effkit report: {results.model.source}"


def moment(text: str) -> str:
    """Write an ISO 8601 time for reading, in UTC; anything else as it stands."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC") if when.tzinfo else text


def model_line(results: Results) -> str:
    """Say in one line which model this is."""
    model = results.model
    return f"{model.architecture}, {q.millions(model.parameters)} parameters, stored as {model.stored_dtype}"


def machine_line(results: Results) -> str:
    """Say in one line where and when it was measured."""
    here = results.environment
    threads = f"{here.threads} thread{'s' if here.threads != 1 else ''}"
    return f"Measured on {here.device_name} ({here.device}, {threads}), {moment(here.started_at)}"


def environment_items(results: Results) -> Items:
    """Machine, ceilings and software."""
    here = results.environment
    ceilings = here.ceilings

    def ceiling(field: str, unit: str) -> str:
        value: float | None = getattr(ceilings, field)
        return q.rate(value, unit) if value is not None else f"{q.MISSING} ({ceilings.reasons[field]})"

    items = [
        ("device", f"{here.device}: {here.device_name}"),
        ("processor", here.cpu_model),
        ("logical processors, threads", f"{here.cpu_count}, {here.threads}"),
        ("instruction sets", ", ".join(here.cpu_features) or q.MISSING),
        ("memory", q.byte_text(here.memory_total_bytes)),
    ]
    if here.device_memory_bytes is not None:
        items.append(("device memory", q.byte_text(here.device_memory_bytes)))
    items += [
        ("measured ceiling: memory read", ceiling("memory_read_bytes_per_s", "B/s")),
        ("measured ceiling: FP32", ceiling("fp32_flop_per_s", "FLOP/s")),
        ("measured ceiling: BF16", ceiling("bf16_flop_per_s", "FLOP/s")),
        ("how ceilings were measured", _ceiling_method(results)),
        ("operating system", here.os),
        ("python", here.python),
        ("effkit", here.effkit_version),
        ("packages", ", ".join(f"{name} {version}" for name, version in sorted(here.packages.items())) or q.MISSING),
        ("begun", moment(here.started_at)),
    ]
    return tuple(items)


def protocol_items(results: Results) -> Items:
    """How everything was measured."""
    how = results.protocol
    items = [
        ("suite", how.suite),
        ("text", how.text),
        ("windows", f"{q.count(how.windows)} of {q.count(how.window_tokens)} tokens, stride {how.stride_tokens:,}"),
        ("beginning of sequence", how.bos_policy),
        ("aggregation", how.aggregation),
        ("batch size of the evaluation", q.count(how.batch_size)),
        ("prompt, new tokens", f"{q.count(how.prompt_tokens)}, {q.count(how.decode_tokens)}"),
        ("decode batches", ", ".join(map(str, how.decode_batches)) or "none"),
        ("warm-up, repeats", f"{q.count(how.warmup)}, {q.count(how.repeats)}"),
        ("interleaved with the baseline", "yes" if how.interleaved else "no"),
        ("isolation", how.isolation),
        ("statistic", how.statistic),
        ("seed", str(how.seed)),
        ("TF32", "on" if how.tf32 else "off"),
    ]
    return (*items, *(("note", note) for note in how.notes))


def model_items(results: Results) -> Items:
    """Identity of the model."""
    model = results.model
    return (
        ("source", model.source),
        ("kind", model.kind),
        ("architecture", model.architecture),
        ("parameters", q.count(model.parameters)),
        ("stored as", model.stored_dtype),
        ("fingerprint (SHA-256)", model.fingerprint),
    )


def variant_items(variant: Variant) -> Items:
    """How one row came about."""
    return (
        ("recipe", variant.recipe or "none (dense)"),
        ("runtime", variant.runtime),
        ("device", variant.device),
        ("finished", moment(variant.finished_at) or q.MISSING),
        ("fingerprint", variant.fingerprint),
    )


def energy_sources(variants: Sequence[Variant]) -> tuple[str, ...]:
    """Say where energy figures come from, once for each distinct source and formula."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in variants:
        found.setdefault((row.energy.source, row.energy.formula), []).append(row.name)
    words = {
        "estimated": "estimated, not counted",
        "nvml": "counted by NVML (whole GPU)",
        "rapl": "counted by RAPL (whole processor)",
        "none": "not measured",
    }
    lines = []
    for (source, formula), names in found.items():
        who = "all rows" if len(found) == 1 else ", ".join(names)
        lines.append(f"{who}: {words[source]}" + (f": {formula}" if formula else ""))
    return tuple(lines)


def skipped_groups(variant: Variant) -> tuple[SkippedGroup, ...]:
    """Layers left dense, by reason, the heaviest first."""
    found: dict[str, list[SkippedLayer]] = {}
    for layer in variant.coverage.skipped if variant.coverage else ():
        found.setdefault(layer.reason, []).append(layer)
    groups = [SkippedGroup(reason, tuple(layers)) for reason, layers in found.items()]
    return tuple(sorted(groups, key=lambda group: -group.bytes))


def omitted_lines(omitted: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Columns that were left out, joined where the reason is the same: (columns, reason)."""
    found: dict[str, list[str]] = {}
    for heading, reason in omitted:
        found.setdefault(reason, []).append(heading)
    return tuple((", ".join(dict.fromkeys(headings)), reason) for reason, headings in found.items())


def _ceiling_method(results: Results) -> str:
    ceilings = results.environment.ceilings
    threads = "" if ceilings.threads is None else f", {ceilings.threads} threads"
    return f"{ceilings.method or 'not recorded'} ({ceilings.device}{threads})"
