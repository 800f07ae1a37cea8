"""Layers over INT8 weights with one float32 scale per output channel.

Buffer names and layouts are those of compressed-tensors' ``int-quantized`` format: ``weight`` int8,
``weight_scale`` float32 with the reduced dimension kept as 1.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from effkit import kernels
from effkit.modules.base import CompressedModule, Kind, Spec
from effkit.numerics.affine import dequantize_symmetric, quantize_symmetric, symmetric_scale

Activations = Literal["none", "dynamic-token"]


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Int8Linear(CompressedModule):
    """y = x W^T + b with W = weight * weight_scale.

    Buffers:
        weight: int8 [out_features, in_features].
        weight_scale: float32 [out_features, 1].
    Parameters:
        bias: [out_features], kept as the dense layer had it, or None.
    """

    format: ClassVar[str] = "int8-linear"
    kind: ClassVar[Kind] = "linear"
    weight: Tensor
    weight_scale: Tensor
    bias: nn.Parameter | None

    def __init__(
        self, weight: Tensor, weight_scale: Tensor, bias: nn.Parameter | None, activations: Activations = "none"
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.activations = activations
        self.register_buffer("weight", weight)
        self.register_buffer("weight_scale", weight_scale)
        self.register_parameter("bias", bias)

    @classmethod
    def from_dense(cls, weight: Tensor, bias: nn.Parameter | None, activations: Activations = "none") -> Self:
        """Quantize a dense weight [out_features, in_features] by rounding to nearest."""
        scale = symmetric_scale(weight, dim=1)
        return cls(quantize_symmetric(weight, scale), scale, bias, activations)

    @classmethod
    def from_spec(cls, spec: Spec, device: torch.device | str = "meta") -> Self:
        weight = torch.empty(spec["out_features"], spec["in_features"], dtype=torch.int8, device=device)
        scale = torch.empty(spec["out_features"], 1, dtype=torch.float32, device=device)
        return cls(weight, scale, _empty_bias(spec, device), spec["activations"])

    def spec(self) -> Spec:
        return {
            "format": self.format,
            "in_features": self.in_features,
            "out_features": self.out_features,
            "activations": self.activations,
            "bias": None if self.bias is None else _dtype_name(self.bias.dtype),
        }

    def dense_weight(self) -> Tensor:
        return dequantize_symmetric(self.weight, self.weight_scale)

    def forward(self, input: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features], in the dtype that nn.Linear would give."""
        return kernels.int8_linear(input, self.weight, self.weight_scale, self.bias, self.activations)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, activations={self.activations}"


class Int8Embedding(CompressedModule):
    """Rows of weight * weight_scale, looked up by id.

    Buffers:
        weight: int8 [num_embeddings, embedding_dim].
        weight_scale: float32 [num_embeddings, 1].
        output_like: empty; its dtype, which follows ``.to(dtype)``, is the dtype of the rows returned.
    """

    format: ClassVar[str] = "int8-embedding"
    kind: ClassVar[Kind] = "embedding"
    weight: Tensor
    weight_scale: Tensor
    output_like: Tensor

    def __init__(self, weight: Tensor, weight_scale: Tensor, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = weight.shape
        self.register_buffer("weight", weight)
        self.register_buffer("weight_scale", weight_scale)
        self.register_buffer("output_like", torch.empty(0, dtype=dtype), persistent=False)

    @classmethod
    def from_dense(cls, weight: Tensor) -> Self:
        """Quantize a table [num_embeddings, embedding_dim] by rounding to nearest, one scale a row."""
        scale = symmetric_scale(weight, dim=1)
        return cls(quantize_symmetric(weight, scale), scale, weight.dtype)

    @classmethod
    def from_spec(cls, spec: Spec, device: torch.device | str = "meta") -> Self:
        weight = torch.empty(spec["num_embeddings"], spec["embedding_dim"], dtype=torch.int8, device=device)
        scale = torch.empty(spec["num_embeddings"], 1, dtype=torch.float32, device=device)
        return cls(weight, scale, getattr(torch, spec["dtype"]))

    def spec(self) -> Spec:
        return {
            "format": self.format,
            "num_embeddings": self.num_embeddings,
            "embedding_dim": self.embedding_dim,
            "dtype": _dtype_name(self.output_like.dtype),
        }

    def dense_weight(self) -> Tensor:
        return dequantize_symmetric(self.weight, self.weight_scale)

    def forward(self, input: Tensor) -> Tensor:
        """Ids [...] -> rows [..., embedding_dim]."""
        return dequantize_symmetric(self.weight[input], self.weight_scale[input], self.output_like.dtype)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class _Tied(CompressedModule):
    """A layer that reads the weight of another compressed layer, its ``owner``, and holds none itself.

    The owner is kept outside torch's module registry, so that it is saved, moved and counted exactly once and
    the tie survives ``.to()``, deepcopy and pickle.
    """

    def __init__(self, owner: Int8Linear | Int8Embedding) -> None:
        super().__init__()
        self._owner = (owner,)

    @property
    def owner(self) -> Int8Linear | Int8Embedding:
        """The layer that holds the weight."""
        return self._owner[0]

    @property
    def weight(self) -> Tensor:
        """The owner's int8 weight."""
        return self.owner.weight

    @property
    def weight_scale(self) -> Tensor:
        """The owner's scale."""
        return self.owner.weight_scale

    def dense_weight(self) -> Tensor:
        return self.owner.dense_weight()

    @classmethod
    def from_spec(cls, spec: Spec, device: torch.device | str = "meta") -> Self:
        raise NotImplementedError("a tied layer is built by effkit.modules.rebuild, which knows its owner")


class Int8TiedLinear(_Tied):
    """A linear layer on another layer's INT8 weight, such as the head of a model with tied embeddings."""

    format: ClassVar[str] = "int8-tied-linear"
    kind: ClassVar[Kind] = "linear"
    bias: nn.Parameter | None

    def __init__(
        self, owner: Int8Linear | Int8Embedding, bias: nn.Parameter | None, activations: Activations = "none"
    ) -> None:
        super().__init__(owner)
        self.out_features, self.in_features = owner.weight.shape
        self.activations = activations
        self.register_parameter("bias", bias)

    @classmethod
    def from_owner(cls, spec: Spec, owner: Int8Linear | Int8Embedding, device: torch.device | str = "meta") -> Self:
        """Build from a spec, on the weight of ``owner``."""
        return cls(owner, _empty_bias(spec, device), spec["activations"])

    def spec(self) -> Spec:
        bias = None if self.bias is None else _dtype_name(self.bias.dtype)
        return {"format": self.format, "out_features": self.out_features, "activations": self.activations, "bias": bias}

    def forward(self, input: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features]."""
        return kernels.int8_linear(input, self.weight, self.weight_scale, self.bias, self.activations)


class Int8TiedEmbedding(_Tied):
    """An embedding on another layer's INT8 weight."""

    format: ClassVar[str] = "int8-tied-embedding"
    kind: ClassVar[Kind] = "embedding"
    output_like: Tensor

    def __init__(self, owner: Int8Linear | Int8Embedding, dtype: torch.dtype) -> None:
        super().__init__(owner)
        self.num_embeddings, self.embedding_dim = owner.weight.shape
        self.register_buffer("output_like", torch.empty(0, dtype=dtype), persistent=False)

    @classmethod
    def from_owner(cls, spec: Spec, owner: Int8Linear | Int8Embedding, device: torch.device | str = "meta") -> Self:
        """Build from a spec, on the weight of ``owner``."""
        return cls(owner, getattr(torch, spec["dtype"]))

    def spec(self) -> Spec:
        return {"format": self.format, "dtype": _dtype_name(self.output_like.dtype)}

    def forward(self, input: Tensor) -> Tensor:
        """Ids [...] -> rows [..., embedding_dim]."""
        return dequantize_symmetric(self.weight[input], self.weight_scale[input], self.output_like.dtype)


class Int8Experts(CompressedModule):
    """Stands in for the 3-D parameter of transformers' fused experts and yields one expert at a time.

    Their eager forward reads ``parameter[expert]``; indexing this module gives that expert's dense weight, so
    only one expert is ever expanded. The other expert implementations want the whole 3-D tensor, therefore
    :meth:`install` switches the model to the eager one.

    Buffers:
        weight: int8, [experts, out, in], or [experts, in, out] where ``transposed``.
        weight_scale: float32, one per expert and output channel, the input dimension kept as 1.
    """

    format: ClassVar[str] = "int8-experts"
    kind: ClassVar[Kind] = "experts"
    weight: Tensor
    weight_scale: Tensor
    output_like: Tensor

    def __init__(self, weight: Tensor, weight_scale: Tensor, dtype: torch.dtype, transposed: bool) -> None:
        super().__init__()
        self.transposed = transposed
        self.register_buffer("weight", weight)
        self.register_buffer("weight_scale", weight_scale)
        self.register_buffer("output_like", torch.empty(0, dtype=dtype), persistent=False)

    @classmethod
    def from_dense(cls, weight: Tensor, transposed: bool) -> Self:
        """Quantize each expert by rounding to nearest; one expert at a time, so memory stays bounded."""
        dim = 0 if transposed else 1
        scales = torch.stack([symmetric_scale(expert, dim=dim) for expert in weight])
        integers = torch.empty(weight.shape, dtype=torch.int8, device=weight.device)
        for index, expert in enumerate(weight):
            integers[index] = quantize_symmetric(expert, scales[index])
        return cls(integers, scales, weight.dtype, transposed)

    @classmethod
    def from_spec(cls, spec: Spec, device: torch.device | str = "meta") -> Self:
        experts, rows, columns = spec["shape"]
        scale_shape = (experts, 1, columns) if spec["transposed"] else (experts, rows, 1)
        weight = torch.empty(experts, rows, columns, dtype=torch.int8, device=device)
        scale = torch.empty(scale_shape, dtype=torch.float32, device=device)
        return cls(weight, scale, getattr(torch, spec["dtype"]), spec["transposed"])

    def spec(self) -> Spec:
        return {
            "format": self.format,
            "shape": list(self.weight.shape),
            "transposed": self.transposed,
            "dtype": _dtype_name(self.output_like.dtype),
        }

    def install(self, parent: nn.Module, attribute: str) -> None:
        super().install(parent, attribute)
        parent.config._experts_implementation = "eager"  # type: ignore[union-attr]

    def dense_weight(self) -> Tensor:
        return dequantize_symmetric(self.weight, self.weight_scale)

    def __getitem__(self, expert: int | Tensor) -> Tensor:
        """Dense weight of one expert, in the model's dtype."""
        return dequantize_symmetric(self.weight[expert], self.weight_scale[expert], self.output_like.dtype)

    def forward(self, expert: int | Tensor) -> Tensor:
        """Same as indexing."""
        return self[expert]

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, transposed={self.transposed}"


def _empty_bias(spec: Spec, device: torch.device | str) -> nn.Parameter | None:
    if spec["bias"] is None:
        return None
    empty = torch.empty(spec["out_features"], dtype=getattr(torch, spec["bias"]), device=device)
    return nn.Parameter(empty)  # trainable, as a dense layer's: with gradients on, other kernels are chosen
