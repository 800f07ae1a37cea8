"""What every compressed layer promises: a plain nn.Module with plain buffers, rebuildable from a small spec.

Because nothing here is a tensor subclass, deepcopy, pickle, state_dict and safetensors simply work.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

Kind = Literal["linear", "conv1d", "embedding", "conv2d", "experts", "norm", "other"]
Spec = dict[str, Any]


class CompressedModule(nn.Module):
    """Base of all layers over compressed weights.

    Attributes:
        format: key under which a checkpoint names this kind of module.
        kind: what the dense layer was.
        float32_buffers: buffers that stay float32 when the model is cast, because half precision would undo
            what the scales were chosen for.
    """

    format: ClassVar[str]
    kind: ClassVar[Kind]
    float32_buffers: ClassVar[tuple[str, ...]] = ("weight_scale",)

    @abstractmethod
    def spec(self) -> Spec:
        """Return the JSON settings from which :meth:`from_spec` builds the same module, empty."""

    @classmethod
    @abstractmethod
    def from_spec(cls, spec: Spec, device: torch.device | str = "meta") -> Self:
        """Build an empty module: buffers of the right shape and dtype, without values."""

    @abstractmethod
    def dense_weight(self) -> Tensor:
        """Return the weight that this layer effectively applies, float32, in the dense layer's layout."""

    def install(self, parent: nn.Module, attribute: str) -> None:
        """Take the place of ``parent.attribute``, a module or a parameter."""
        parent._parameters.pop(attribute, None)
        setattr(parent, attribute, self)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        kept = {name: self._buffers[name] for name in self.float32_buffers if name in self._buffers}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, before in kept.items():
            after = self._buffers[name]
            if before is not None and after is not None and after.dtype != torch.float32:
                self._buffers[name] = before.to(device=after.device)
        return self
