"""Modules of torch with structured weights."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from tanjax._errors import ShapeError, UnitError, describe, message
from tanjax._typing import Arraylike, Matrixlike
from tanjax_torch.tensor._conversions import from_jax, from_torch
from tanjax_torch.tensor._tensor import Tensor


class StructuredLinear(nn.Module):
    """`x @ weight.T + bias`, as `nn.Linear`, with a weight of any array type.

    **Arguments:** `weight`, `(out_features, in_features)`: an array of our types, or a tensor of
    one; training starts there. `bias`: true for one drawn as by `nn.Linear` (from
    `torch.manual_seed`), false for none, or an array with which it starts.

    **Cost:** that of `x @ weight.T` with its structure: a `Kronecker` of `k` factors never forms
    its matrix.

    **Derivative:** `weight.grad` is structural, as `jax.grad` gives it, and torch's optimisers step
    in the stored numbers, as optax does: SGD, Adam and their relatives.

    **Raises:** `ShapeError` for a weight that is no matrix; `UnitError` for one with a unit.

    >>> import jax.numpy as jnp
    >>> import tanjax as tj
    >>> layer = StructuredLinear(tj.Kronecker(jnp.eye(2), jnp.eye(3)))
    >>> layer(from_torch(torch.ones(5, 6))).shape
    torch.Size([5, 6])
    """

    def __init__(
        self, weight: Tensor | Matrixlike, bias: Tensor | Arraylike | bool | None = True
    ) -> None:
        super().__init__()
        start = weight.detach() if isinstance(weight, Tensor) else from_jax(weight)
        if start.dim() != 2:
            raise ShapeError(
                f"StructuredLinear: the weight must be a matrix, got {describe(weight)}."
            )
        if getattr(start.payload, "has_unit", False):
            raise UnitError(
                message(
                    f"StructuredLinear: a weight in {start.payload.unit}.",
                    hint="optimisers know no units: keep numbers, and put the unit on the output.",
                )
            )
        self.out_features, self.in_features = start.shape
        self.weight = nn.Parameter(start)
        if bias is None or bias is False:
            self.register_parameter("bias", None)
        elif bias is True:
            self.bias = nn.Parameter(self._drawn(start.dtype))
        else:
            self.bias = nn.Parameter(bias if isinstance(bias, Tensor) else from_jax(bias))

    def _drawn(self, dtype: torch.dtype) -> Tensor:
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        return from_torch(torch.empty(self.out_features, dtype=dtype).uniform_(-bound, bound))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs for inputs `(..., in_features)`: `(..., out_features)`."""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes, and the type of the weight."""
        kind = type(self.weight.payload).__name__
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, weight={kind}"
        )
