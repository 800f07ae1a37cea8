"""Cuts a text into windows of tokens and marks which of them are scored.

The rule, the same for dense and compressed models and printed in every report:

1. The text is tokenized once, without special tokens.
2. Window k holds the tokens [k * step, k * step + content). If the model's tokenizer adds a BOS by default (or the
   suite says ``always``), every window begins with exactly one and ``content`` is one token shorter.
3. Each token is scored at most once: where windows overlap, by the first window that holds it with context before
   it. A token without any context (the first of a window without BOS) is never scored; nor are BOS and padding.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from effkit.errors import MeasureError, UsageError
from effkit.runtimes.generate import pad
from effkit.suite import Suite

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Windows:
    """Windows of token ids, ready to be scored.

    Attributes:
        ids: one int64 array per window; the last may be shorter.
        scored: one boolean array per window: True where the token's likelihood counts.
        content_ids: all tokens of the text that the windows came from, without special tokens.
        bos_policy: the BOS rule in words.
        notes: what a reader must know, such as a text too short for the windows asked for.
    """

    ids: tuple[IntArray, ...]
    scored: tuple[BoolArray, ...]
    content_ids: IntArray
    bos_policy: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def scored_tokens(self) -> int:
        """Number of tokens whose likelihood counts."""
        return int(sum(mask.sum() for mask in self.scored))

    def digest(self) -> str:
        """SHA-256 (hex) over token ids and scored marks: equal digests mean comparable results."""
        state = hashlib.sha256()
        for ids, mask in zip(self.ids, self.scored, strict=True):
            state.update(len(ids).to_bytes(8, "little") + ids.astype("<i8").tobytes() + np.packbits(mask).tobytes())
        return state.hexdigest()

    def batch(self, start: int, size: int, *, side: str = "right") -> tuple[torch.Tensor, torch.Tensor]:
        """Pad windows ``start`` to ``start + size`` to one length: ids [B, T] and mask [B, T], both int64."""
        return pad([ids.tolist() for ids in self.ids[start : start + size]], side=side)


def windows(tokenizer: Any, text: str, suite: Suite) -> Windows:
    """Cut ``text`` for a causal language model.

    Args:
        tokenizer: a transformers tokenizer.
        text: the suite's text.
        suite: window, stride, number of windows and BOS rule.

    Raises:
        UsageError: BOS ``always`` with a tokenizer that has none.
        MeasureError: the text is too short for a single scored token.
    """
    bos, policy = _bos(tokenizer, suite)
    content = suite.window - len(bos)
    step = min(suite.stride, content)
    tokens = _encode(tokenizer, text)
    if len(tokens) + len(bos) < 2:
        raise MeasureError(f"the text has {len(tokens)} tokens: nothing can be scored; at least 2 are needed")
    cut: list[IntArray] = []
    marks: list[BoolArray] = []
    limit = None if suite.windows == "all" else suite.windows
    for start in range(0, len(tokens), step):
        scored_before = 0 if start == 0 else start - step + content
        if len(cut) == limit or scored_before >= len(tokens):
            break
        part = tokens[start : start + content]
        mask = np.arange(start, start + len(part)) >= scored_before
        mask[0] &= bool(bos)
        if not mask.any():
            continue
        cut.append(np.concatenate([np.array(bos, dtype=np.int64), part]))
        marks.append(np.concatenate([np.zeros(len(bos), dtype=np.bool_), mask]))
    return Windows(tuple(cut), tuple(marks), tokens, policy, _shortage(cut, suite))


def encoder_windows(tokenizer: Any, text: str, suite: Suite) -> Windows:
    """Cut ``text`` into passages for an encoder: non-scored, each framed as the tokenizer frames a sentence.

    Raises:
        MeasureError: no tokens, or a window too short to hold a token within its frame.
    """
    before, after = _frame(tokenizer)
    content = suite.window - len(before) - len(after)
    tokens = _encode(tokenizer, text)
    if content < 1 or not len(tokens):
        raise MeasureError(f"a window of {suite.window} tokens holds none of the text's {len(tokens)} tokens")
    limit = None if suite.windows == "all" else suite.windows
    starts = range(0, len(tokens), min(suite.stride, content))[:limit]
    head, tail = np.array(before, dtype=np.int64), np.array(after, dtype=np.int64)
    cut = [np.concatenate([head, tokens[start : start + content], tail]) for start in starts]
    policy = f"every passage in the tokenizer's own frame of {len(before)} + {len(after)} special tokens"
    marks = tuple(np.zeros(len(ids), dtype=np.bool_) for ids in cut)
    return Windows(tuple(cut), marks, tokens, policy, _shortage(cut, suite))


def _encode(tokenizer: Any, text: str) -> IntArray:
    encoded = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return np.asarray(encoded, dtype=np.int64)


def _frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Special tokens that the tokenizer puts before and after a text by default."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    framed = tokenizer("a")["input_ids"]
    for start in range(len(framed) - len(bare) + 1):
        if framed[start : start + len(bare)] == bare:
            return list(framed[:start]), list(framed[start + len(bare) :])
    return [], []


def _bos(tokenizer: Any, suite: Suite) -> tuple[list[int], str]:
    """BOS ids to begin each window with (none or one), and the rule in words."""
    bos_id, token = tokenizer.bos_token_id, tokenizer.bos_token
    if suite.bos == "never":
        return [], "no BOS (the suite says never)"
    if bos_id is None:
        if suite.bos == "always":
            raise UsageError(f"suite {suite.name!r} says bos: always, but the tokenizer has no BOS token; write auto")
        return [], "no BOS (the tokenizer has none)"
    if suite.bos == "always":
        return [bos_id], f"exactly one BOS ({token}, id {bos_id}) at the start of every window, not scored"
    if bos_id in _frame(tokenizer)[0]:
        return [bos_id], (
            f"exactly one BOS ({token}, id {bos_id}) at the start of every window, not scored; "
            "the tokenizer adds it by default"
        )
    return [], f"no BOS (the tokenizer has {token} but does not add it by default)"


def _shortage(cut: list[IntArray], suite: Suite) -> tuple[str, ...]:
    if suite.windows != "all" and len(cut) < suite.windows:
        return (f"the text gives {len(cut)} of the {suite.windows} windows asked for",)
    if cut and len(cut[-1]) < suite.window:
        return (f"the last window has {len(cut[-1])} of {suite.window} tokens: the text ends there",)
    return ()
