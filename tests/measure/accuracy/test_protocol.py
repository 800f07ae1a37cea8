from __future__ import annotations

from effkit.measure.accuracy import encoder_windows, text_protocol, windows
from effkit.suite import Suite
from tests.tiny import tiny_tokenizer

SUITE = Suite(name="t", window=16, stride=8, windows=2, kl_windows=1)


def test_the_protocol_says_in_words_what_was_done() -> None:
    cut = windows(tiny_tokenizer(adds_bos=True), "0123456789" * 3, SUITE)
    protocol = text_protocol(SUITE, cut, interleaved=True, isolation="one fresh process per variant", notes=("seen",))
    assert protocol.window_tokens == 16 and protocol.stride_tokens == 8 and protocol.windows == 2
    assert "exactly one BOS" in protocol.bos_policy
    assert "token-weighted mean" in protocol.aggregation
    assert "over the first 1 windows" in protocol.notes[0]
    assert protocol.notes[-1] == "seen"
    assert protocol.tf32 is False


def test_an_encoders_protocol_speaks_of_vectors() -> None:
    cut = encoder_windows(tiny_tokenizer(), "0123456789" * 3, SUITE)
    protocol = text_protocol(SUITE, cut, interleaved=False, isolation="in the caller's process")
    assert "output vectors" in protocol.aggregation
