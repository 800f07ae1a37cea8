from __future__ import annotations

from pathlib import Path

import pytest
import torch

from effkit.measure.accuracy import evaluate_text, windows
from effkit.models import resolve
from effkit.runtimes import EagerRuntime
from effkit.suite import load_suite


@pytest.mark.slow
@pytest.mark.sample
def test_smollm2_has_the_known_perplexity_on_the_topics(smollm2_path: Path) -> None:
    """13.100 on CPython 3.11's topics; the text differs a little between Python versions."""
    source = resolve(smollm2_path)
    suite = load_suite("text-quick").model_copy(update={"kl_windows": 0})
    cut = windows(source.tokenizer(), suite.read_text(), suite)
    result = evaluate_text(EagerRuntime(source.load(torch.float32)), cut, suite=suite)
    assert result.scored_tokens == 4 * 1023
    assert result.perplexity == pytest.approx(13.1, rel=0.05)
