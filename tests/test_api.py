"""The public API on real directories: plan without weights, compress in place or from a source, load again."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import effkit
from effkit import api
from effkit.errors import PlanError, RecipeError, UsageError
from effkit.modules import compressed_modules
from effkit.numerics.fidelity import relative_error
from tests.tiny import save_tiny, tiny_gpt2, tiny_ids, tiny_llama, tiny_moe, tiny_tokenizer


def logits(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(tiny_ids()).logits  # type: ignore[no-any-return]


def test_every_public_name_can_be_imported() -> None:
    for name in effkit.__all__:
        assert getattr(effkit, name) is not None
    assert set(effkit.__all__) <= set(dir(effkit))


def test_no_public_function_is_hidden_by_a_submodule_of_its_name() -> None:
    package = Path(effkit.__file__).parent
    for name in effkit.__all__:
        assert not (package / f"{name}.py").exists() and not (package / name).exists()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="quantise"):
        effkit.quantise  # noqa: B018


@pytest.mark.parametrize("name", ["load", "plan", "compress", "evaluate", "compare", "save"])
def test_public_functions_document_arguments_results_and_errors(name: str) -> None:
    text = getattr(effkit, name).__doc__
    assert "Raises:" in text or "Example:" in text
    assert all(argument in text for argument in getattr(effkit, name).__annotations__ if argument != "return")


def test_the_examples_in_the_docstrings_run() -> None:
    result = doctest.testmod(api, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted >= 6 and result.failed == 0


@pytest.mark.parametrize("build", [tiny_llama, tiny_gpt2, tiny_moe])
def test_a_compressed_source_loads_bit_identically_in_a_new_process(tmp_path: Path, build: object) -> None:
    source = save_tiny(tmp_path / "dense", build())  # type: ignore[operator]
    model = effkit.compress(source, "int8", out=tmp_path / "int8")
    torch.save(logits(model), tmp_path / "expected.pt")
    script = (
        "import sys, torch, effkit\n"
        "from tests.tiny import tiny_ids\n"
        "model = effkit.load(sys.argv[1])\n"
        "with torch.no_grad(): found = model(tiny_ids()).logits\n"
        "assert torch.equal(found, torch.load(sys.argv[2]))\n"
        "assert effkit.load_tokenizer(sys.argv[1])('the end').input_ids\n"
    )
    arguments = [sys.executable, "-c", script, str(tmp_path / "int8"), str(tmp_path / "expected.pt")]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    assert done.returncode == 0, done.stderr


def test_planning_a_source_reads_no_weights(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "dense")
    expected = effkit.plan(source, "int8")
    weights = source / "model.safetensors"
    header = 8 + int.from_bytes(weights.read_bytes()[:8], "little")
    with weights.open("r+b") as file:  # destroy every value, keep the sizes
        file.seek(header)
        file.write(b"\xff" * (weights.stat().st_size - header))
    assert effkit.plan(source, "int8").to_dict() == expected.to_dict()


def test_a_module_is_compressed_in_place_and_returned() -> None:
    model = tiny_llama()
    dense = logits(model)
    assert effkit.compress(model, "int8") is model
    assert compressed_modules(model)
    assert 0 < relative_error(logits(model), dense) < 0.05


def test_a_plain_module_is_saved_and_loaded_into_a_skeleton(tmp_path: Path) -> None:
    model = effkit.compress(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), "int8", out=tmp_path / "out")
    loaded = effkit.load(tmp_path / "out", skeleton=nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
    x = torch.randn(3, 8)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))
    assert torch.equal(loaded(x), model(x)), "with gradients on, both sides choose the same kernels too"


def test_a_model_is_never_replaced_by_its_own_compression(tmp_path: Path) -> None:
    effkit.save(tiny_llama(), tmp_path / "dense", tokenizer=tiny_tokenizer())
    with pytest.raises(UsageError, match="is the model to be compressed"):
        effkit.compress(tmp_path / "dense", "int8", out=tmp_path / "there" / ".." / "dense")
    assert not compressed_modules(effkit.load(tmp_path / "dense"))


def test_a_recipe_that_does_not_fit_is_refused_before_a_source_is_loaded(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "dense")
    (source / "model.safetensors").write_bytes(b"")
    recipe = tmp_path / "wrong.yaml"
    recipe.write_text("name: wrong\npasses:\n  - use: int8\n    skip: [lm_heads]\n")
    with pytest.raises((PlanError, effkit.CheckpointError)):
        effkit.compress(source, recipe)


def test_bf16_checkpoints_stay_bf16_where_they_stay_dense(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "dense", tiny_llama().to(torch.bfloat16))
    model = effkit.compress(source, "int8", out=tmp_path / "int8")
    assert model.model.norm.weight.dtype == torch.bfloat16
    loaded = effkit.load(tmp_path / "int8")
    assert loaded.model.norm.weight.dtype == torch.bfloat16
    assert torch.equal(logits(loaded), logits(model))
    assert effkit.load(source, dtype=torch.float32).model.norm.weight.dtype == torch.float32


def test_wrong_recipes_and_names_are_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'int8'"):
        effkit.plan(tiny_llama(), "int88")
    with pytest.raises(RecipeError, match="no pass is called"):
        effkit.Recipe.from_dict({"name": "a", "passes": [{"use": "x"}]})


def test_evaluating_a_module_needs_a_tokenizer_and_comparing_one_needs_inputs() -> None:
    with pytest.raises(UsageError, match="tokenizer="):
        effkit.evaluate(tiny_llama())
    with pytest.raises(UsageError, match="inputs="):
        effkit.compare(tiny_llama(), ["int8"])


def test_evaluate_takes_a_text_file_and_a_baseline(tmp_path: Path) -> None:
    text = tmp_path / "words.txt"
    text.write_text("the cat and the dog in the end. " * 200)
    source = save_tiny(tmp_path / "dense")
    found = effkit.evaluate(effkit.compress(tiny_llama(), "int8"), text, tokenizer=tiny_tokenizer(), baseline=source)
    assert found.perplexity_ratio is not None and abs(found.perplexity_ratio - 1) < 0.05
    assert found.kl_mean is not None and found.kl_mean > 0
