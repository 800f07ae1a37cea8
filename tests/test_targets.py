"""Targets match on whole dotted names, full regular expressions and class names, and never on nothing."""

from __future__ import annotations

import pytest

from effkit.errors import PlanError
from effkit.targets import require, select

CLASSES = {
    "model.embed_tokens": "Embedding",
    "model.layers.1.mlp.gate": "Router",
    "model.layers.1.mlp.gate_proj": "Linear",
    "model.layers.10.mlp.gate_proj": "Linear",
    "lm_head": "Linear",
}


def test_an_exact_name_matches_only_itself() -> None:
    assert require(["lm_head"], CLASSES) == {"lm_head"}


def test_a_container_stands_for_all_inside_it_and_not_for_a_longer_number() -> None:
    inside = require(["model.layers.1"], CLASSES)
    assert inside == {"model.layers.1.mlp.gate", "model.layers.1.mlp.gate_proj"}


def test_a_name_never_matches_a_longer_sibling() -> None:
    assert require(["model.layers.1.mlp.gate"], CLASSES) == {"model.layers.1.mlp.gate"}


def test_a_regular_expression_must_match_the_whole_name() -> None:
    assert require([r"re:.*\.mlp\.gate"], CLASSES) == {"model.layers.1.mlp.gate"}


def test_a_class_name_matches_every_layer_of_that_class() -> None:
    assert require(["Linear"], CLASSES) == {"model.layers.1.mlp.gate_proj", "model.layers.10.mlp.gate_proj", "lm_head"}


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("lm_heads", "did you mean 'lm_head'?"),
        ("re:.*gateproj", "did you mean 'gate_proj'"),
        ("mlp.gate", "names are whole"),
        ("Linaer", "did you mean 'Linear'?"),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error_with_near_matches(pattern: str, hint: str) -> None:
    with pytest.raises(PlanError) as caught:
        require([pattern], CLASSES, "skip")
    assert repr(pattern) in str(caught.value)
    assert hint in str(caught.value)


def test_the_suggestion_for_a_part_of_a_name_works_when_taken() -> None:
    message = select(["mlp.gate"], CLASSES).problems[0]
    suggested = message.split("did you mean '")[1].split("'")[0]
    assert require([suggested], CLASSES) == {"model.layers.1.mlp.gate"}


def test_every_faulty_pattern_is_reported_at_once() -> None:
    problems = select(["nope", "re:(", "lm_head"], CLASSES).problems
    assert len(problems) == 2
    assert "not a regular expression" in problems[1]
