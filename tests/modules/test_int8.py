"""INT8 modules behave like the dense layers they stand for: dtypes, autocast, gradients, copies, casts, ties."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from effkit.errors import CheckpointError, EffkitError
from effkit.modules import (
    CompressedModule,
    Int8Embedding,
    Int8Experts,
    Int8Linear,
    Int8TiedLinear,
    install,
    rebuild,
    register_format,
    specs,
)
from effkit.numerics.fidelity import relative_error

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def linear(out_features: int = 48, in_features: int = 64, **settings: str) -> tuple[nn.Linear, Int8Linear]:
    torch.manual_seed(0)
    dense = nn.Linear(in_features, out_features)
    bias = nn.Parameter(dense.bias.detach().clone())
    return dense, Int8Linear.from_dense(dense.weight.detach(), bias, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("activations", ["none", "dynamic-token"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_output_follows_the_inputs_dtype_and_stays_close(activations: str, dtype: torch.dtype, rows: int) -> None:
    dense, compressed = linear(activations=activations)
    x = torch.randn(rows, 64)
    with torch.no_grad():
        y = compressed.to(dtype)(x.to(dtype))
    assert y.dtype == dtype
    assert relative_error(y, dense(x)) < 0.03


@pytest.mark.parametrize("rows", [1, 40])
def test_large_float16_inputs_do_not_overflow(rows: int) -> None:
    torch.manual_seed(0)
    dense = nn.Linear(4096, 64, bias=False)
    compressed = Int8Linear.from_dense(dense.weight.detach(), None)
    x = 8 * torch.randn(rows, 4096)
    with torch.no_grad():
        y = compressed(x.half())
    assert bool(torch.isfinite(y).all())
    assert relative_error(y, dense(x)) < 0.02


def test_empty_inputs_give_empty_outputs() -> None:
    _, compressed = linear()
    assert compressed(torch.zeros(0, 64)).shape == (0, 48)
    assert compressed(torch.zeros(2, 0, 64)).shape == (2, 0, 48)


@pytest.mark.parametrize("activations", ["none", "dynamic-token"])
@pytest.mark.parametrize("rows", [1, 40])
def test_autocast_gives_the_dtype_that_a_dense_layer_gives(activations: str, rows: int) -> None:
    dense, compressed = linear(activations=activations)
    x = torch.randn(rows, 64, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = compressed(x)
        assert y.dtype == dense(x).dtype == torch.bfloat16
    y.float().square().sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.float32


@pytest.mark.parametrize("activations", ["none", "dynamic-token"])
@pytest.mark.parametrize("rows", [1, 40])
def test_gradients_reach_the_input_and_match_the_effective_weight(activations: str, rows: int) -> None:
    _, compressed = linear(activations=activations)
    x = torch.randn(rows, 64, requires_grad=True)
    compressed(x).sum().backward()
    expected = compressed.dense_weight().sum(0).expand(rows, 64)
    assert x.grad is not None
    assert relative_error(x.grad, expected) < 1e-5


def test_casting_a_model_leaves_scales_in_float32() -> None:
    _, compressed = linear()
    before = compressed.weight_scale.clone()
    compressed.to(torch.bfloat16)
    compressed.half()
    assert compressed.weight_scale.dtype == torch.float32
    assert torch.equal(compressed.weight_scale, before)
    assert compressed.bias is not None and compressed.bias.dtype == torch.float16


def test_embedding_rows_follow_the_models_dtype() -> None:
    table = Int8Embedding.from_dense(torch.randn(10, 8))
    assert table(torch.tensor([[1, 2]])).dtype == torch.float32
    assert table.to(torch.bfloat16)(torch.tensor([1])).dtype == torch.bfloat16


class Tied(nn.Module):
    """An embedding and a head on one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table: nn.Module = Int8Embedding.from_dense(torch.randn(10, 8))
        self.head: nn.Module = Int8TiedLinear(self.table, None)  # type: ignore[arg-type]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(ids))  # type: ignore[no-any-return]


def with_pickle(model: nn.Module) -> nn.Module:
    return pickle.loads(pickle.dumps(model))  # type: ignore[no-any-return]


def with_torch_save(model: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)  # type: ignore[no-any-return]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, with_pickle, with_torch_save])
@pytest.mark.parametrize("run_first", [False, True])
def test_copies_compute_the_same_on_storages_of_their_own(duplicate, run_first: bool) -> None:  # type: ignore[no-untyped-def]
    model = Tied().eval()
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        if run_first:
            model(ids)
        other = duplicate(model)
        assert torch.equal(other(ids), model(ids))
        other.table.weight.zero_()
        assert bool((other(ids) == 0).all()), "the copy's head must read the copy's table"
        assert not bool((model(ids) == 0).all())


def test_a_tied_head_owns_nothing_and_follows_its_table_when_moved() -> None:
    model = Tied()
    assert set(model.state_dict()) == {"table.weight", "table.weight_scale"}
    model.to("meta")
    assert model.head.weight.is_meta
    assert model.head.weight is model.table.weight


def test_state_dict_is_the_same_before_and_after_forward_and_loads_into_another_model() -> None:
    first, second = Tied(), Tied()
    keys = set(first.state_dict())
    ids = torch.tensor([[4, 5]])
    with torch.no_grad():
        expected = first(ids)
        assert set(first.state_dict()) == keys
        second.load_state_dict(first.state_dict(), strict=True)
        assert torch.equal(second(ids), expected)
        second.load_state_dict(copy.deepcopy(first.state_dict()), strict=True, assign=True)
        assert torch.equal(second(ids), expected)


@pytest.mark.parametrize("transposed", [False, True])
def test_experts_are_quantized_one_by_one_along_their_input(transposed: bool) -> None:
    torch.manual_seed(0)
    weight = torch.randn(3, 6, 10) * torch.tensor([1.0, 100.0, 0.01]).reshape(3, 1, 1)
    experts = Int8Experts.from_dense(weight, transposed)
    assert experts.weight_scale.shape == ((3, 1, 10) if transposed else (3, 6, 1))
    for index in range(3):
        assert relative_error(experts[index], weight[index]) < 0.01
        assert relative_error(experts[torch.tensor(index)], weight[index]) < 0.01


def test_rebuild_gives_the_same_modules_empty() -> None:
    model = Tied()
    skeleton = Tied()
    skeleton.table, skeleton.head = nn.Embedding(10, 8), nn.Linear(8, 10)
    rebuild(skeleton, specs(model))
    skeleton.load_state_dict(model.state_dict(), strict=True, assign=True)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(skeleton(ids), model(ids))


def test_rebuild_names_a_format_it_does_not_know() -> None:
    with pytest.raises(CheckpointError, match=r"table: the format 'int8-embeding'.*did you mean 'int8-embedding'"):
        rebuild(Tied(), {"table": {"format": "int8-embeding"}})


def test_rebuild_names_a_layer_that_the_model_lacks() -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        rebuild(Tied(), {"nowhere.table": Int8Embedding.from_dense(torch.ones(2, 2)).spec()})


def test_two_classes_cannot_share_a_format() -> None:
    class Other(CompressedModule):
        format = "int8-linear"

    with pytest.raises(EffkitError, match="int8-linear"):
        register_format(Other)


def test_a_module_used_under_two_names_is_rebuilt_as_one() -> None:
    model = nn.Module()
    model.a = model.b = linear()[1]
    skeleton = nn.Module()
    skeleton.a, skeleton.b = nn.Linear(64, 48), nn.Linear(64, 48)
    rebuild(skeleton, specs(model))
    assert skeleton.a is skeleton.b


def test_install_replaces_a_parameter_by_a_module() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Parameter(torch.randn(2, 4, 4))
            self.config = type("Config", (), {"_experts_implementation": "grouped_mm"})()

    model = nn.Module()
    model.experts = Experts()
    install(model, "experts.gate", Int8Experts.from_dense(model.experts.gate.detach(), False))
    assert isinstance(model.experts.gate, Int8Experts)
    assert model.experts.config._experts_implementation == "eager"
    assert not list(model.parameters())


@pytest.mark.parametrize("activations", ["none", "dynamic-token"])
def test_a_compressed_model_compiles_in_one_graph_and_computes_the_same(activations: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 32)).eval()
    for index in (0, 2):
        dense = model[index]
        model[index] = Int8Linear.from_dense(dense.weight.detach(), dense.bias, activations)  # type: ignore[arg-type]
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for rows in (1, 3, 40):
            x = torch.randn(rows, 64)
            assert torch.equal(compiled(x), model(x))
