"""The documentation of ``results.json``, made from the records; ``python -m effkit.report.schema`` prints it.

Meanings come from the records' docstrings; the table below says what those leave to the name of a field.
"""

from __future__ import annotations

import re
import types
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from effkit import records
from effkit.records import SCHEMA_VERSION, Section

ORDER: tuple[type[BaseModel], ...] = (
    records.Results,
    records.ModelInfo,
    records.Environment,
    records.Ceilings,
    records.Protocol,
    records.Variant,
    records.Coverage,
    records.SkippedLayer,
    records.Accuracy,
    records.Memory,
    records.Ledger,
    records.Speed,
    records.Energy,
    records.Statistic,
)

INTRODUCTION = f"""# results.json

Made from `effkit/records.py` by `python -m effkit.report.schema > docs/results-schema.md`; a test compares the two.

`effkit compress-eval` writes one `results.json` for each run, and every report can be made again from it:

```python
from effkit.report import load_results, write_reports

results = load_results("out/demo/results.json")
write_reports(results, "out/again", formats=["html", "md"])
```

- This is schema version {SCHEMA_VERSION}. A file with a newer version is refused, not guessed at.
- Units are in the names: `_bytes`, `_s` (seconds), `_j` (joules), `_w` (watts), `_per_s`, `_ratio`, `_share`.
  A ratio of 1 means equal, a share of 1 means all. Bytes are whole numbers, so nothing is rounded.
- What was not measured is `null`, and the `reasons` of the same object say why, by field name. Never a zero.
- NaN and infinity do not occur. Unknown keys are refused.
- Times of day are ISO 8601 in UTC.
"""

MEANINGS: dict[str, dict[str, str]] = {
    "Results": {
        "schema_version": "version of this schema",
        "model": "which model was studied",
        "environment": "machine and software",
        "protocol": "how everything was measured",
        "variants": "one object for each measured row, the dense ones first",
    },
    "ModelInfo": {
        "source": "as given: hub id, directory, file or sample",
        "kind": "what the model gives: a distribution over tokens, vectors, or something else",
        "architecture": "class of the model",
        "parameters": "number of parameters, shared ones once",
    },
    "Environment": {
        "effkit_version": "version of effkit",
        "os": "operating system and kernel",
        "python": "version of Python",
        "cpu_model": "name of the processor",
        "cpu_count": "logical processors that the run could use",
        "threads": "threads that computed",
        "cpu_features": "instruction sets that matter to matrix kernels",
        "memory_total_bytes": "memory that the run could use",
        "device": "where the variants ran, such as `cpu` or `cuda`",
        "device_name": "name of that device",
        "device_memory_bytes": "memory of the accelerator; null on the CPU",
        "packages": "installed versions of the packages that can change a result",
        "ceilings": "what the machine reaches at best",
        "started_at": "when the run began",
    },
    "Ceilings": {
        "device": "what was measured",
        "memory_read_bytes_per_s": "read bandwidth",
        "fp32_flop_per_s": "dense matrix products in FP32, TF32 off",
        "bf16_flop_per_s": "dense matrix products in BF16",
        "threads": "threads that computed",
        "method": "how the ceilings were measured",
    },
    "Protocol": {
        "suite": "name of the evaluation suite",
        "text": "what was read",
        "window_tokens": "tokens in one window",
        "stride_tokens": "tokens from the start of one window to the next",
        "windows": "number of windows",
        "bos_policy": "rule for the token that begins a sequence",
        "aggregation": "how one figure is made of all tokens",
        "batch_size": "windows in one forward pass",
        "prompt_tokens": "tokens of the prompt whose prefill is timed",
        "decode_tokens": "new tokens in one decode sample",
        "decode_batches": "batch sizes at which decoding is timed",
        "warmup": "untimed repeats before each series of samples",
        "repeats": "timed samples",
        "interleaved": "samples alternate with those of the dense FP32 baseline",
        "isolation": "how variants are kept apart",
        "statistic": "how samples become a figure and an interval",
        "seed": "of everything random",
        "tf32": "TensorFloat-32 was allowed in FP32 rows",
        "notes": "further remarks",
    },
    "Variant": {
        "name": "unique in the run; dense rows are `fp32` and `bf16`",
        "recipe": "name of the recipe; null for a dense row",
        "runtime": "what ran the model, such as `eager`",
        "device": "where it ran",
        "status": "`ok`, or why there are no measurements",
        "reason": "of a failure, in words; empty where `status` is `ok`",
        "fingerprint": "over model, recipe, suite, versions and device; equal fingerprints are the same measurement",
        "coverage": "what the recipe changed; null for a dense row",
        "accuracy": "on the main suite",
        "accuracy_by_suite": "on each further suite, by its name",
        "memory": "bytes",
        "speed": "times and rates",
        "energy": "joules",
        "notes": "what a reader of this row must know",
        "verdict": "gains and costs in one sentence",
        "finished_at": "when the row was complete; empty where unknown",
    },
    "Coverage": {
        "compressed_layers": "number of layers that the recipe changed",
        "skipped_layers": "number of layers left dense",
        "skipped": "those layers, each with its reason",
    },
    "SkippedLayer": {
        "name": "dotted path of the layer",
        "bytes": "its dense bytes",
        "reason": "why it was left dense",
    },
    "Accuracy": {
        "suite": "name of the evaluation suite",
        "scored_tokens": "number of tokens whose likelihood counts",
        "nll_mean": "token-weighted mean negative log-likelihood",
        "perplexity_ratio_low": "lower end of the 95 % interval of the ratio",
        "perplexity_ratio_high": "upper end of the 95 % interval of the ratio",
    },
    "Memory": {"ledger": "the measured peak taken apart"},
    "Ledger": {
        "weights_bytes": "parameters and buffers",
        "kv_cache_bytes": "largest key-value cache",
        "activations_bytes": "known intermediate results",
        "optimizer_bytes": "state of an optimizer",
        "pinned_host_bytes": "page-locked host memory",
        "runtime_bytes": "interpreter and libraries before the model was loaded",
        "unexplained_bytes": "measured peak minus all entries above; negative where they overlap",
        "disk_bytes": "weight files; beside the peak, not part of it",
    },
    "Speed": {
        "decode_tokens_per_s": "new tokens per second at batch 1",
        "decode_tokens_per_s_batch_8": "new tokens of the whole batch per second",
        "decode_speedup_batch_8": "ratio to the dense FP32 baseline, from samples taken alternately with it",
        "load_s": "reading the finished variant, once; part of no other figure",
        "compress_s": "compressing the dense model, once; part of no other figure",
        "compile_s": "compiling, once; part of no other figure",
        "statistics": "raw samples behind the fields, by field name",
    },
    "Energy": {
        "prefill_j_per_token": "joules for each token of the prompt",
        "decode_j_per_token": "joules for each new token at batch 1",
        "power_w": "mean power while decoding",
    },
    "Statistic": {
        "unit": "of all figures here",
        "median": "of the samples",
        "low": "lower end of the interval of the median",
        "high": "upper end of the interval of the median",
        "level": "confidence of the interval",
        "count": "number of samples",
        "samples": "as they were taken",
    },
}

_UNITS = (
    (r"_bytes_per_s$", "bytes/s"),
    (r"_flop_per_s$", "FLOP/s"),
    (r"tokens_per_s", "tokens/s"),
    (r"_j_per_token$", "J/token"),
    (r"(^|_)bytes(_before|_after)?$", "bytes"),
    (r"_w$", "W"),
    (r"_s$", "s"),
    (r"^(kl_|nll_)", "nats"),
    (r"_tokens$", "tokens"),
    (r"(_ratio(_low|_high)?|_speedup(_batch_8)?)$", "ratio"),
    (r"(^|_)share(_batch_8)?$|agreement$|^level$", "share"),
)


def schema_markdown() -> str:
    """Write the whole document."""
    return "\n".join([INTRODUCTION, *(_record(record) for record in ORDER)])


def meaning(record: type[BaseModel], field: str) -> str:
    """What a field means; empty where nobody has said it."""
    if field == "reasons" and issubclass(record, Section):
        return "why a field is null, by field name"
    return MEANINGS.get(record.__name__, {}).get(field) or _documented(record).get(field, "")


def _record(record: type[BaseModel]) -> str:
    summary = (record.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ").replace("``", "`")
    lines = [f"## {record.__name__}", "", " ".join(summary.split()), ""]
    lines += ["| field | type | unit | meaning |", "| :--- | :--- | :--- | :--- |"]
    for name, field in record.model_fields.items():
        words = meaning(record, name).replace("|", "\\|")
        lines.append(f"| `{name}` | {_type(field.annotation)} | {_unit(name)} | {words} |")
    return "\n".join([*lines, ""])


def _unit(name: str) -> str:
    return next((unit for pattern, unit in _UNITS if re.search(pattern, name)), "")


def _type(annotation: Any) -> str:
    """Name a type as JSON knows it."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(each) for each in inner)
    if origin is Literal:
        return " or ".join(f"`{each!r}`".replace("'", '"') for each in inner)
    if origin is tuple:
        return f"array of {_type(inner[0])}"
    if origin is dict:
        return f"object of {_type(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}[annotation]


def _documented(record: type[BaseModel]) -> dict[str, str]:
    """Meanings from the section ``Attributes`` of a docstring; a name may stand for several, ``*`` for any letters."""
    _, _, section = (record.__doc__ or "").partition("Attributes:")
    entries = re.findall(r"^ {8}(\S.*?): (.*?)(?=^ {8}\S|\Z)", section, flags=re.MULTILINE | re.DOTALL)
    found: dict[str, str] = {}
    for names, text in entries:
        words = " ".join(text.split()).replace("``", "`").rstrip(".")
        for name in names.split(", "):
            pattern = re.escape(name.strip()).replace(r"\*", ".*")
            matching = (field for field in record.model_fields if re.fullmatch(pattern, field))
            found |= {field: words for field in matching if field not in found}
    return found


if __name__ == "__main__":
    print(schema_markdown(), end="")  # noqa: T201 - printing is what this command is for
