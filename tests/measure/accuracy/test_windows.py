from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from effkit.errors import MeasureError, UsageError
from effkit.measure.accuracy import Windows, encoder_windows, windows
from effkit.suite import Suite
from tests.tiny import tiny_tokenizer

TEXT = "0123456789" * 3  # one token per character with the tiny tokenizer


def suite(**settings: Any) -> Suite:
    return Suite.from_dict({"name": "t", "window": 10, "stride": 10, "windows": "all"} | settings)


def scored_indices(cut: Windows, *, bos: int) -> list[int]:
    """Positions in the text of all scored tokens, found by an independent walk over ids."""
    found = []
    start = 0
    content = cut.content_ids.tolist()
    for ids, mask in zip(cut.ids, cut.scored, strict=True):
        body = ids[bos:].tolist()
        while content[start : start + len(body)] != body:
            start += 1
        found += [start + i for i in np.flatnonzero(mask[bos:])]
        start += 1
    return found


def test_without_bos_windows_hold_exactly_the_texts_tokens() -> None:
    tokenizer = tiny_tokenizer()
    cut = windows(tokenizer, TEXT, suite())
    assert np.concatenate(cut.ids).tolist() == tokenizer(TEXT).input_ids
    assert [mask.sum() for mask in cut.scored] == [9, 9, 9]
    assert "does not add it by default" in cut.bos_policy


def test_a_tokenizer_that_adds_bos_gives_exactly_one_per_window_never_scored() -> None:
    cut = windows(tiny_tokenizer(adds_bos=True), TEXT, suite())
    assert [len(ids) for ids in cut.ids] == [10, 10, 10, 4]
    for ids, mask in zip(cut.ids, cut.scored, strict=True):
        assert ids[0] == 1
        assert (ids == 1).sum() == 1
        assert not mask[0]
        assert mask[1:].all()
    assert "exactly one BOS (<s>, id 1)" in cut.bos_policy


def test_always_and_never_override_the_tokenizer() -> None:
    plain, adding = tiny_tokenizer(), tiny_tokenizer(adds_bos=True)
    assert all(ids[0] == 1 for ids in windows(plain, TEXT, suite(bos="always")).ids)
    assert not any((ids == 1).any() for ids in windows(adding, TEXT, suite(bos="never")).ids)


def test_bos_always_without_a_bos_token_is_an_error() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.bos_token = None
    with pytest.raises(UsageError, match="no BOS token"):
        windows(tokenizer, TEXT, suite(bos="always"))
    assert windows(tokenizer, TEXT, suite()).bos_policy == "no BOS (the tokenizer has none)"


@pytest.mark.parametrize("stride", [1, 3, 7, 9, 10])
@pytest.mark.parametrize("adds_bos", [False, True])
def test_overlapping_windows_score_every_token_with_context_once(stride: int, adds_bos: bool) -> None:
    text = "".join(chr(ord("A") + i) for i in range(26))
    cut = windows(tiny_tokenizer(adds_bos=adds_bos), text, suite(stride=stride))
    found = scored_indices(cut, bos=int(adds_bos))
    assert len(found) == len(set(found)) == cut.scored_tokens
    content = 10 - adds_bos
    unscored = set() if adds_bos else set(range(0, 26, content)) if stride >= content else {0}
    assert set(range(26)) - set(found) == unscored


def test_only_the_windows_asked_for_are_cut() -> None:
    cut = windows(tiny_tokenizer(), TEXT, suite(windows=2))
    assert len(cut) == 2
    assert cut.notes == ()


def test_a_short_text_gives_fewer_windows_and_says_so() -> None:
    cut = windows(tiny_tokenizer(), TEXT, suite(windows=8))
    assert len(cut) == 3
    assert cut.notes == ("the text gives 3 of the 8 windows asked for",)


def test_a_short_last_window_is_noted() -> None:
    cut = windows(tiny_tokenizer(), TEXT[:25], suite())
    assert len(cut.ids[-1]) == 5
    assert cut.notes == ("the last window has 5 of 10 tokens: the text ends there",)


@pytest.mark.parametrize("text", ["", "a"])
def test_a_text_without_a_token_to_score_is_an_error(text: str) -> None:
    with pytest.raises(MeasureError, match="nothing can be scored"):
        windows(tiny_tokenizer(), text, suite())


def test_one_token_is_enough_where_a_bos_precedes_it() -> None:
    assert windows(tiny_tokenizer(adds_bos=True), "a", suite()).scored_tokens == 1


def test_the_digest_follows_ids_window_borders_and_scored_marks() -> None:
    tokenizer = tiny_tokenizer()
    base = windows(tokenizer, TEXT, suite())
    assert windows(tokenizer, TEXT, suite()).digest() == base.digest()
    others = [
        windows(tokenizer, TEXT[:-1] + "x", suite()),
        windows(tokenizer, TEXT, suite(window=15, stride=15)),
        windows(tokenizer, TEXT, suite(bos="always")),
        Windows(base.ids, tuple(~mask for mask in base.scored), base.content_ids, base.bos_policy),
    ]
    assert len({base.digest(), *(other.digest() for other in others)}) == 5


def test_encoder_passages_keep_the_tokenizers_own_frame() -> None:
    cut = encoder_windows(tiny_tokenizer(adds_bos=True), TEXT, suite(windows=2))
    assert [ids[0] for ids in cut.ids] == [1, 1]
    assert [len(ids) for ids in cut.ids] == [10, 10]
    assert cut.scored_tokens == 0


def test_an_encoder_window_without_room_for_a_token_is_an_error() -> None:
    with pytest.raises(MeasureError, match="holds none"):
        encoder_windows(tiny_tokenizer(adds_bos=True), "", suite())
