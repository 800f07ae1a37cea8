from __future__ import annotations

import pytest
import torch
from torch import nn

from effkit.errors import MeasureError
from effkit.runtimes import EagerEncoder, EagerRuntime, TextRuntime, eager_runtime, greedy
from effkit.runtimes.eager import max_positions
from effkit.runtimes.generate import pad
from tests.tiny import tiny_bert, tiny_gpt2, tiny_llama, tiny_moe

PROMPTS = [[5, 9, 17, 33], [8], [40, 41], [100, 3, 7, 90, 200, 250, 12]]
MODELS = {"llama": tiny_llama, "gpt2": tiny_gpt2, "moe": tiny_moe}


@pytest.fixture(params=MODELS)
def runtime(request: pytest.FixtureRequest) -> EagerRuntime:
    return EagerRuntime(MODELS[request.param]())


def test_the_eager_runtime_fits_the_protocol() -> None:
    assert isinstance(EagerRuntime(tiny_llama()), TextRuntime)
    assert not isinstance(EagerEncoder(tiny_bert()), TextRuntime)


def test_the_model_is_put_into_evaluation_mode() -> None:
    model = tiny_gpt2().train()
    EagerRuntime(model)
    assert not model.training


def test_prefill_gives_the_last_position_of_logits(runtime: EagerRuntime) -> None:
    ids = torch.tensor([PROMPTS[3], PROMPTS[3][::-1]])
    torch.testing.assert_close(runtime.prefill(ids)[0], runtime.logits(ids)[:, -1], rtol=1e-4, atol=1e-5)


def test_decoding_with_the_cache_equals_scoring_the_whole_sequence(runtime: EagerRuntime) -> None:
    ids = torch.tensor([PROMPTS[3]])
    whole = runtime.logits(ids)
    logits, state = runtime.prefill(ids[:, :3])
    for position in range(3, ids.shape[1]):
        torch.testing.assert_close(logits, whole[:, position - 1], rtol=1e-4, atol=1e-5)
        logits, state = runtime.decode(ids[:, position : position + 1], state)
    torch.testing.assert_close(logits, whole[:, -1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_logit_of_a_real_token(runtime: EagerRuntime, side: str) -> None:
    ids, mask = pad(PROMPTS, side=side)
    logits = runtime.logits(ids, mask)
    for row, prompt in enumerate(PROMPTS):
        alone = runtime.logits(torch.tensor([prompt]))[0]
        torch.testing.assert_close(logits[row][mask[row].bool()], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_size", [2, 4])
def test_greedy_tokens_do_not_depend_on_the_batch_size(runtime: EagerRuntime, batch_size: int) -> None:
    alone = greedy(runtime, PROMPTS, 6, batch_size=1)
    assert greedy(runtime, PROMPTS, 6, batch_size=batch_size) == alone
    assert [len(row) for row in alone] == [6] * 4


def test_greedy_equals_the_models_own_generate() -> None:
    model = tiny_llama()
    prompt = PROMPTS[3]
    theirs = model.generate(torch.tensor([prompt]), max_new_tokens=5, do_sample=False, eos_token_id=None)
    assert greedy(EagerRuntime(model), [prompt], 5) == [theirs[0, len(prompt) :].tolist()]


def test_greedy_stops_before_the_stop_token() -> None:
    runtime = EagerRuntime(tiny_llama())
    row = greedy(runtime, PROMPTS[:1], 6)[0]
    assert greedy(runtime, PROMPTS[:1], 6, stop_id=row[3])[0] == row[: row.index(row[3])]


def test_no_steps_give_no_tokens_and_empty_prompts_are_refused() -> None:
    runtime = EagerRuntime(tiny_llama())
    assert greedy(runtime, PROMPTS, 0) == [[]] * 4
    with pytest.raises(MeasureError, match="prompt 1 is empty"):
        greedy(runtime, [[1], []], 1)


def test_right_padded_prompts_are_refused_because_a_next_token_cannot_follow_padding() -> None:
    ids, mask = pad(PROMPTS, side="right")
    with pytest.raises(MeasureError, match="padded on the left"):
        EagerRuntime(tiny_llama()).prefill(ids, mask)


def test_the_cache_size_is_keys_and_values_of_all_layers() -> None:
    model = tiny_llama()
    _, state = EagerRuntime(model).prefill(torch.tensor([PROMPTS[3]] * 2))
    config = model.config
    elements = config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 7 * 2
    assert state.cache_bytes() == 2 * elements * 4


def test_an_encoder_ignores_padding() -> None:
    runtime = EagerEncoder(tiny_bert())
    ids, mask = pad(PROMPTS, side="right")
    outputs = runtime.outputs(ids, mask)
    for row, prompt in enumerate(PROMPTS):
        alone = runtime.outputs(torch.tensor([prompt]), torch.ones(1, len(prompt), dtype=torch.int64))
        torch.testing.assert_close(outputs[row, : len(prompt)], alone[0], rtol=1e-4, atol=1e-5)


def test_results_carry_no_gradient() -> None:
    assert not EagerRuntime(tiny_llama()).logits(torch.tensor([[3]])).requires_grad


def test_the_task_picks_the_runtime() -> None:
    assert isinstance(eager_runtime(tiny_llama(), "cpu", "causal-lm"), EagerRuntime)
    assert isinstance(eager_runtime(tiny_bert(), "cpu", "encoder"), EagerEncoder)
    with pytest.raises(MeasureError, match=r"Linear is neither .*effkit\.compare"):
        eager_runtime(nn.Linear(2, 2), "cpu", "other")


def test_the_position_limit_comes_from_the_configuration() -> None:
    assert max_positions(tiny_llama()) == 256
    assert max_positions(tiny_gpt2()) == 256
    assert max_positions(nn.Linear(2, 2)) is None


def test_a_module_that_returns_no_logits_is_a_clear_error() -> None:
    class Broken(nn.Module):
        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return input_ids

    with pytest.raises(MeasureError, match="expected logits"):
        EagerRuntime(Broken()).logits(torch.tensor([[1]]))
