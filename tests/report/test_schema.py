"""docs/results-schema.md is made from the records, up to date and complete."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from pydantic import BaseModel

from effkit import records
from effkit.report.schema import MEANINGS, ORDER, meaning, schema_markdown

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "results-schema.md"


def record_types() -> list[type[BaseModel]]:
    kinds = (each for _, each in inspect.getmembers(records, inspect.isclass) if each.__module__ == records.__name__)
    return [each for each in kinds if issubclass(each, BaseModel) and each not in (records.Record, records.Section)]


def test_the_document_is_what_the_records_make() -> None:
    made = schema_markdown()
    assert DOCUMENT.read_text(encoding="utf-8") == made, "run: python -m effkit.report.schema > docs/results-schema.md"


def test_every_record_is_documented() -> None:
    assert set(ORDER) == set(record_types())


@pytest.mark.parametrize("record", ORDER, ids=lambda record: record.__name__)
def test_every_field_is_named_with_a_meaning(record: type[BaseModel]) -> None:
    chapter = schema_markdown().split(f"## {record.__name__}\n")[1].split("\n## ")[0]
    for field in record.model_fields:
        assert f"| `{field}` |" in chapter
        assert meaning(record, field), f"{record.__name__}.{field}: say what it means in effkit/report/schema.py"


def test_no_meaning_is_left_over_from_a_field_that_is_gone() -> None:
    known = {record.__name__: set(record.model_fields) for record in ORDER}
    assert [f"{name}.{field}" for name, fields in MEANINGS.items() for field in set(fields) - known[name]] == []


def test_units_follow_from_the_names() -> None:
    text = schema_markdown()
    for line in (
        "| `weight_bytes` | integer or null | bytes |",
        "| `decode_tokens_per_s_batch_8` | number or null | tokens/s |",
        "| `decode_j_per_token` | number or null | J/token |",
        "| `kl_p99` | number or null | nats |",
        "| `memory_read_bytes_per_s` | number or null | bytes/s |",
        "| `perplexity_ratio_low` | number or null | ratio |",
    ):
        assert line in text
