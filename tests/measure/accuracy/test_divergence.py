from __future__ import annotations

import pytest
import torch

from effkit.measure.accuracy import divergence
from effkit.measure.accuracy.divergence import chunks, kl_divergence, same_top1, token_nll


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergence, "CHUNK_ELEMENTS", 64)


def test_chunks_cover_every_position_once_within_the_limit() -> None:
    parts = list(chunks(torch.empty(23, 10)))
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(23))
    assert max(part.stop - part.start for part in parts) == 6
    assert len(list(chunks(torch.empty(3, 1000)))) == 3


def test_likelihood_equals_float64_within_float32_rounding() -> None:
    torch.manual_seed(0)
    logits, targets = 10 * torch.randn(50, 17), torch.randint(17, (50,))
    expected = torch.nn.functional.cross_entropy(logits.double(), targets, reduction="none")
    result = token_nll(logits, targets)
    assert result.dtype == torch.float64
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def test_divergence_of_known_distributions() -> None:
    p, q = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[0.25, 0.25, 0.5]])
    expected = 0.5 * torch.log(torch.tensor(2.0)) - 0.25 * torch.log(torch.tensor(2.0))
    assert kl_divergence(p.log(), q.log()).item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_shift_of_all_logits_is_no_divergence() -> None:
    torch.manual_seed(0)
    logits = torch.randn(9, 30)
    assert kl_divergence(logits, logits + 3.0).max() < 1e-6
    assert kl_divergence(logits, logits + 3.0).min() >= 0.0


def test_words_the_baseline_excludes_contribute_nothing() -> None:
    p = torch.tensor([[0.0, 0.0, -torch.inf]])
    q = torch.tensor([[0.0, 0.0, 0.0]])
    assert kl_divergence(p, q).item() == pytest.approx(torch.log(torch.tensor(1.5)).item(), rel=1e-6)


def test_a_word_only_the_variant_excludes_is_an_infinite_divergence() -> None:
    assert kl_divergence(torch.zeros(1, 2), torch.tensor([[0.0, -torch.inf]])).isinf().all()


def test_top1_agreement_is_per_position() -> None:
    assert same_top1(torch.eye(3), torch.eye(3)[[0, 2, 1]]).tolist() == [True, False, False]


def test_no_positions_give_no_values() -> None:
    assert token_nll(torch.empty(0, 5), torch.empty(0, dtype=torch.int64)).shape == (0,)
    assert kl_divergence(torch.empty(0, 5), torch.empty(0, 5)).shape == (0,)
