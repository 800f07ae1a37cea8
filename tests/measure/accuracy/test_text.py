from __future__ import annotations

import math
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from effkit.errors import MeasureError
from effkit.measure.accuracy import BaselineStore, Windows, evaluate_text, windows
from effkit.records import Accuracy
from effkit.runtimes import EagerRuntime
from effkit.suite import Suite
from tests.tiny import tiny_gpt2, tiny_llama, tiny_tokenizer

TEXT = "The quick brown fox jumps over the lazy dog, and then the dog sleeps in the sun. " * 4


def suite(**settings: Any) -> Suite:
    return Suite.from_dict({"name": "t", "window": 48, "stride": 48, "windows": "all", "kl_windows": 3} | settings)


@pytest.fixture(scope="module")
def cut() -> Windows:
    return windows(tiny_tokenizer(), TEXT, suite())


def noisy(model: Any, scale: float) -> Any:
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += scale * torch.randn_like(parameter)
    return model


def against_baseline(variant: Any, cut: Windows, folder: Path, settings: Suite) -> Accuracy:
    evaluate_text(EagerRuntime(tiny_llama()), cut, suite=settings, key="k", write_baseline=folder / "b")
    store = BaselineStore(folder / "b", key="k", digest=cut.digest())
    return evaluate_text(EagerRuntime(variant), cut, suite=settings, baseline=store)


def test_perplexity_equals_an_independent_cross_entropy(cut: Windows) -> None:
    model = tiny_llama()
    total, count = 0.0, 0
    for ids in cut.ids:
        batch = torch.from_numpy(ids)[None]
        with torch.no_grad():
            logits = model(batch).logits[0, :-1].double()
        total += torch.nn.functional.cross_entropy(logits, batch[0, 1:], reduction="sum").item()
        count += len(ids) - 1
    result = evaluate_text(EagerRuntime(model), cut, suite=suite())
    assert result.scored_tokens == count
    assert result.perplexity == pytest.approx(math.exp(total / count), rel=1e-5)


@pytest.mark.parametrize("pad_side", ["left", "right"])
@pytest.mark.parametrize("batch_size", [2, 8])
@pytest.mark.parametrize("build", [tiny_llama, tiny_gpt2])
def test_padding_is_never_scored_so_the_batch_size_does_not_matter(
    cut: Windows, build: Any, batch_size: int, pad_side: str
) -> None:
    runtime = EagerRuntime(build())
    assert len(cut.ids[-1]) < len(cut.ids[0])
    alone = evaluate_text(runtime, cut, suite=suite())
    batched = evaluate_text(runtime, cut, suite=suite(batch_size=batch_size), pad_side=pad_side)
    assert batched.scored_tokens == alone.scored_tokens
    assert batched.nll_mean == pytest.approx(alone.nll_mean, rel=1e-6)


def test_overlapping_windows_give_each_token_more_context(cut: Windows) -> None:
    settings = suite(stride=16)
    overlapping = windows(tiny_tokenizer(), TEXT, settings)
    result = evaluate_text(EagerRuntime(tiny_llama()), overlapping, suite=settings)
    assert result.scored_tokens == len(overlapping.content_ids) - 1


def test_the_run_that_writes_the_baseline_is_its_own(cut: Windows, tmp_path: Path) -> None:
    result = evaluate_text(EagerRuntime(tiny_llama()), cut, suite=suite(), key="k", write_baseline=tmp_path / "b")
    assert (result.perplexity_ratio, result.kl_max, result.top1_agreement) == (1.0, 0.0, 1.0)


def test_an_equal_variant_differs_by_nothing(cut: Windows, tmp_path: Path) -> None:
    result = against_baseline(tiny_llama(), cut, tmp_path, suite())
    assert result.perplexity_ratio == 1.0
    assert result.within_noise
    assert result.kl_max == 0.0
    assert result.top1_agreement == 1.0


def test_divergence_equals_an_independent_computation_over_the_compared_windows(cut: Windows, tmp_path: Path) -> None:
    variant = noisy(tiny_llama(), 0.02)
    result = against_baseline(variant, cut, tmp_path, suite(batch_size=2))
    divergences, agreements = [], []
    for ids in cut.ids[:3]:
        batch = torch.from_numpy(ids)[None]
        with torch.no_grad():
            p = tiny_llama()(batch).logits[0, :-1].double().log_softmax(-1)
            q = variant(batch).logits[0, :-1].double().log_softmax(-1)
        divergences.append((p.exp() * (p - q)).sum(-1))
        agreements.append((p.argmax(-1) == q.argmax(-1)).double())
    expected = torch.cat(divergences)
    assert result.kl_mean == pytest.approx(expected.mean().item(), rel=1e-3)
    assert result.kl_median == pytest.approx(expected.quantile(0.5).item(), rel=1e-3)
    assert result.kl_p99 == pytest.approx(expected.quantile(0.99).item(), rel=1e-3)
    assert result.kl_max == pytest.approx(expected.max().item(), rel=1e-3)
    assert result.top1_agreement == pytest.approx(torch.cat(agreements).mean().item())


def test_a_zeroed_model_scores_otherwise_than_the_baseline_it_shares_a_folder_with(
    cut: Windows, tmp_path: Path
) -> None:
    variant = tiny_llama()
    with torch.no_grad():
        for parameter in variant.parameters():
            parameter.zero_()
    result = against_baseline(variant, cut, tmp_path, suite())
    assert result.perplexity == pytest.approx(variant.config.vocab_size, rel=1e-5)
    assert result.perplexity_ratio != pytest.approx(1.0, abs=0.01)
    assert result.kl_mean is not None and result.kl_mean > 0.01


def test_a_plainly_worse_variant_is_not_within_noise(cut: Windows, tmp_path: Path) -> None:
    baseline = tiny_llama()
    ids = torch.from_numpy(cut.content_ids[:48])[None]
    optimizer = torch.optim.Adam(baseline.parameters(), lr=1e-2)
    for _ in range(15):
        optimizer.zero_grad()
        baseline(ids, labels=ids).loss.backward()
        optimizer.step()
    settings = suite(windows=1)
    one = windows(tiny_tokenizer(), TEXT, settings)
    evaluate_text(EagerRuntime(baseline), one, suite=settings, key="k", write_baseline=tmp_path / "b")
    store = BaselineStore(tmp_path / "b", key="k", digest=one.digest())
    result = evaluate_text(EagerRuntime(tiny_llama()), one, suite=settings, baseline=store)
    assert not result.within_noise
    assert result.perplexity_ratio_low is not None and result.perplexity_ratio_low > 1.0


def test_without_a_baseline_every_comparison_is_none_with_a_reason(cut: Windows) -> None:
    result = evaluate_text(EagerRuntime(tiny_llama()), cut, suite=suite())
    assert result.perplexity_ratio is None and result.kl_mean is None
    assert result.reasons["kl_mean"] == "no baseline was given"


def test_a_suite_may_compare_no_whole_distribution(cut: Windows, tmp_path: Path) -> None:
    result = against_baseline(tiny_llama(), cut, tmp_path, suite(kl_windows=0))
    assert result.perplexity_ratio == 1.0
    assert "kl_windows: 0" in result.reasons["kl_mean"]
    assert not (tmp_path / "b" / "logits.npy").exists()


def test_likelihoods_that_are_not_finite_are_an_error_that_names_the_window(cut: Windows) -> None:
    model = tiny_llama()
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    with pytest.raises(MeasureError, match="window 0: the likelihood of 47 of 47 tokens is NaN"):
        evaluate_text(EagerRuntime(model), cut, suite=suite())


def test_another_vocabulary_is_refused(cut: Windows, tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="keeps the vocabulary"):
        against_baseline(tiny_llama(vocab_size=336), cut, tmp_path, suite())


def test_progress_counts_the_windows_done(cut: Windows) -> None:
    seen: list[tuple[int, int]] = []
    settings = suite(batch_size=4)
    evaluate_text(EagerRuntime(tiny_llama()), cut, suite=settings, progress=lambda *counts: seen.append(counts))
    assert seen == [(done, len(cut)) for done in [*range(4, len(cut), 4), len(cut)]]


def test_the_logits_of_a_batch_are_gone_before_the_next_is_computed(cut: Windows) -> None:
    class Watching(EagerRuntime):
        last: weakref.ref[torch.Tensor] | None = None

        def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
            assert self.last is None or self.last() is None
            result = super().logits(input_ids, attention_mask)
            self.last = weakref.ref(result)
            return result

    evaluate_text(Watching(tiny_llama()), cut, suite=suite(batch_size=2))


def test_a_failed_run_leaves_no_baseline(cut: Windows, tmp_path: Path) -> None:
    class Dying(EagerRuntime):
        calls = 0

        def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
            self.calls += 1
            if self.calls == 2:
                raise RuntimeError("out of memory")
            return super().logits(input_ids, attention_mask)

    with pytest.raises(RuntimeError, match="out of memory"):
        evaluate_text(Dying(tiny_llama()), cut, suite=suite(), key="k", write_baseline=tmp_path / "b")
    assert list(tmp_path.iterdir()) == []
