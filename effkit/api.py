"""The Python API: what the command line does, for use inside other programs.

A model is given as a source (hub id, directory, ``.gguf`` file, ``sample:`` name, effkit checkpoint) or as any
``nn.Module``. A recipe is given as a :class:`~effkit.recipe.Recipe`, a ready recipe's name, or a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from effkit.apply import apply_plan
from effkit.errors import UsageError
from effkit.inventory import take_inventory
from effkit.models import load_checkpoint, resolve, save_checkpoint
from effkit.planning import Plan, make_plan
from effkit.recipe import Recipe, load_recipe
from effkit.records import Accuracy, Results
from effkit.registry import Progress
from effkit.suite import Suite, load_suite

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ModelLike = nn.Module | str | Path
RecipeLike = Recipe | str | Path
SuiteLike = Suite | str | Path


def load(
    source: str | Path,
    *,
    dtype: torch.dtype | None = None,
    device: str = "cpu",
    trust_remote_code: bool = False,
    skeleton: nn.Module | None = None,
) -> nn.Module:
    """Load a dense model or an effkit checkpoint, in eval mode.

    Args:
        source: hub id, directory, ``.gguf`` file, ``sample:smollm2-135m``, or a directory that ``save`` wrote.
        dtype: dtype of what is dense; None keeps what is stored. ``torch.float32`` gives the baseline.
        device: torch device string.
        trust_remote_code: run Python code that the model repository brings; off unless you say so here.
        skeleton: for a checkpoint of a plain nn.Module: a dense module of the same architecture to fill.

    Returns:
        The model; an effkit checkpoint gives bit-identical outputs to the model that was saved.

    Raises:
        SourceError: no such model. CheckpointError: damaged, incomplete or unsafe files.

    Example:
        >>> model = effkit.load("sample:smollm2-135m", dtype=torch.float32)  # doctest: +SKIP
    """
    if skeleton is not None:
        return load_checkpoint(Path(source), device=device, model=skeleton)
    return resolve(source, trust_remote_code=trust_remote_code).load(dtype=dtype, device=device)


def load_tokenizer(source: str | Path, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Load the tokenizer that belongs to ``source``."""
    return resolve(source, trust_remote_code=trust_remote_code).tokenizer()


def plan(model: ModelLike, recipe: RecipeLike, *, trust_remote_code: bool = False) -> Plan:
    """Say what ``recipe`` would do to every layer, without doing it.

    Args:
        model: a source, of which no weights are read, or a module, which is not changed.
        recipe: the recipe.
        trust_remote_code: see :func:`load`.

    Returns:
        For each layer the action or the reason for skipping it, bytes before and after, and the coverage.

    Raises:
        RecipeError: the recipe is wrong; lists every problem. PlanError: it does not fit the model.

    Example:
        >>> import effkit, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64))
        >>> effkit.plan(model, "int8").coverage.compressed_layers
        1
    """
    if not isinstance(model, nn.Module):
        model = resolve(model, trust_remote_code=trust_remote_code).meta_model()
    return make_plan(take_inventory(model), _recipe(recipe))


def compress(
    model: ModelLike,
    recipe: RecipeLike,
    *,
    out: str | Path | None = None,
    dtype: torch.dtype | None = None,
    device: str = "cpu",
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> nn.Module:
    """Compress a model; **a module that is passed in is edited in place** and returned.

    Args:
        model: a module, or a source that is loaded first.
        recipe: the recipe.
        out: also save an effkit checkpoint there (for sources: with tokenizer and generation settings).
        dtype: dtype to load a source in; None keeps what is stored.
        device: device to load a source on.
        trust_remote_code: see :func:`load`.
        progress: called as ``progress(done, total, layer)``.

    Returns:
        The compressed model.

    Raises:
        RecipeError, PlanError: before anything is changed. UsageError: ``out`` is the source itself.

    Example:
        >>> import effkit, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64))
        >>> effkit.compress(model, "int8")[0].weight.dtype
        torch.int8
    """
    chosen = _recipe(recipe)
    source = None if isinstance(model, nn.Module) else resolve(model, trust_remote_code=trust_remote_code)
    if source is not None and out is not None and Path(out).expanduser().resolve() == source.path.resolve():
        raise UsageError(f"{out} is the model to be compressed; give another directory, so that the original stays")
    if source is not None:
        make_plan(take_inventory(source.meta_model()), chosen)  # refuse what cannot work before loading anything
        model = source.load(dtype=dtype, device=device)
    assert isinstance(model, nn.Module)
    resolved = make_plan(take_inventory(model), chosen)
    apply_plan(model, resolved, progress=progress)
    if out is not None:
        save_checkpoint(
            model,
            Path(out),
            tokenizer=source.tokenizer() if source else None,
            recipe=chosen.to_dict(),
            plan=resolved.to_dict(),
            source=source.info() if source else None,
            notes=source.notes if source else (),
        )
    return model


def save(model: nn.Module, out: str | Path, *, tokenizer: PreTrainedTokenizerBase | None = None) -> Path:
    """Write ``model`` as an effkit checkpoint; an interrupted save leaves the old one or the new one.

    Args:
        model: dense or compressed, not modified.
        out: the checkpoint's directory; an effkit checkpoint that is there is replaced.
        tokenizer: saved beside the weights.

    Raises:
        CheckpointError: not writable, or a scale is not finite. UsageError: ``out`` holds something else.
    """
    save_checkpoint(model, Path(out), tokenizer=tokenizer)
    return Path(out)


def evaluate(
    model: ModelLike,
    suite: SuiteLike = "text-quick",
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    baseline: ModelLike | None = None,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Accuracy:
    """Measure the quality of one model in this process.

    Args:
        model: a language model or encoder of transformers, or a source.
        suite: a ready suite's name, a file, or a Suite.
        tokenizer: needed with a module; a source brings its own.
        baseline: the dense model to compare with; gives perplexity_ratio, KL divergence and agreement.
        device: where to compute.
        progress: called as ``progress(done, total)`` windows.

    Returns:
        Perplexity (token-weighted), and with ``baseline`` ratio with interval, KL in nats and top-1 agreement; what
        was not measured is None and says why in ``reasons``.

    Raises:
        MeasureError: the text is too short, or the model gives no token probabilities.
    """
    from effkit.study.inprocess import evaluate_in_process

    return evaluate_in_process(
        _loaded(model, device),
        _suite(suite),
        tokenizer or _tokenizer_of(model),
        baseline=None if baseline is None else _loaded(baseline, device),
        device=device,
        progress=progress,
    )


def compare(
    model: ModelLike,
    recipes: Sequence[RecipeLike],
    *,
    suite: SuiteLike = "text-quick",
    inputs: Any = None,
    out: str | Path | None = None,
    device: str = "auto",
    trust_remote_code: bool = False,
) -> Results:
    """Compress a model by each recipe and measure every variant against dense FP32 (and BF16).

    A source is studied like ``effkit compress-eval`` does: each variant in a fresh process, resumable in ``out``.
    A module is studied in this process on deep copies, by running ``inputs`` through each: output error, bytes
    and time of a forward pass; peak memory needs a process of its own and is None there.

    Args:
        model: a source or a module (not modified).
        recipes: the recipes.
        suite: for sources: the evaluation set.
        inputs: for modules: one forward's arguments: a tensor, a tuple of positional or a dict of keyword arguments.
        out: for sources: the run's directory; ``out/<model>`` by default.
        device: ``auto``, ``cpu`` or ``cuda``.
        trust_remote_code: see :func:`load`.

    Returns:
        The same record that ``results.json`` holds.

    Example:
        >>> import effkit, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64))
        >>> results = effkit.compare(model, ["int8"], inputs=torch.randn(4, 64))
        >>> [row.name for row in results.variants]
        ['fp32', 'bf16', 'int8']
    """
    chosen = [_recipe(recipe) for recipe in recipes]
    if isinstance(model, nn.Module):
        if inputs is None:
            raise UsageError("compare(module, ...) needs inputs=: the tensors of one forward pass")
        from effkit.study.inprocess import compare_modules

        return compare_modules(model, chosen, inputs, device=device)
    from effkit.study import StudyConfig, run_study

    return run_study(
        StudyConfig(
            source=str(model),
            recipes=tuple(chosen),
            suites=(_suite(suite),),
            out=Path(out) if out is not None else Path("out") / Path(str(model)).name.replace(":", "-"),
            device=device,
            trust_remote_code=trust_remote_code,
        )
    )


def _recipe(recipe: RecipeLike) -> Recipe:
    return recipe if isinstance(recipe, Recipe) else load_recipe(recipe)


def _suite(suite: SuiteLike) -> Suite:
    return suite if isinstance(suite, Suite) else load_suite(suite)


def _loaded(model: ModelLike, device: str) -> nn.Module:
    return model if isinstance(model, nn.Module) else load(model, device=device)


def _tokenizer_of(model: ModelLike) -> PreTrainedTokenizerBase:
    if isinstance(model, nn.Module):
        raise UsageError("evaluate(module, ...) needs tokenizer=: only a source brings its own")
    return load_tokenizer(model)
