"""Operations on lists of tensors, by the entries for one tensor.

One call of an optimiser with `foreach=True` is one compiled program for all of its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import torch

from tanjax_torch._typing import Argument, Function, Operand
from tanjax_torch.table._registry import Entry, dense_entry, implements

from . import _binary, _pointwise, _ternary  # noqa: F401  # their entries are read below
from ._creation import converted
from ._reductions import amax, vector_norm
from ._tools import aten

UNARY = (
    *("abs", "acos", "asin", "atan", "ceil", "clone", "cos", "cosh", "erf", "erfc", "exp", "expm1"),
    *("floor", "frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round"),
    *("rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "zero"),
)
BINARY = ("add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum", "pow")
Arrays = Sequence[jax.Array]


def _entry(name: str) -> Function:
    packet = getattr(aten, name)
    found = (dense_entry(getattr(packet, overload)) for overload in packet.overloads())
    return next(entry.function for entry in found if isinstance(entry, Entry))


def _each(x: Argument, count: int) -> Sequence[Operand]:
    """Return an operand for each tensor: elements of a list or a vector, else the same operand."""
    if getattr(x, "ndim", 0):
        x = [x[i] for i in range(x.shape[0])]
    if not isinstance(x, (list, tuple)):
        return [x] * count
    if len(x) != count:
        raise RuntimeError(
            f"Tensor lists must have the same number of tensors, got {count} and {len(x)}"
        )
    return x


def _mapped(function: Function, operands: int) -> Callable[..., list[jax.Array]]:
    """`function` for each tensor; the first `operands` arguments may be lists."""

    def entry(self: Operand | Arrays, *args: Argument, **kwargs: Argument) -> list[jax.Array]:
        every = (self, *args[: operands - 1])
        count = next(len(x) for x in every if isinstance(x, (list, tuple)))
        rows = zip(*(_each(x, count) for x in every), strict=True)
        return [function(*row, *args[operands - 1 :], **kwargs) for row in rows]

    return entry


for _name in UNARY:
    implements(getattr(aten, f"_foreach_{_name}"))(_mapped(_entry(_name), 1))
for _name in BINARY:
    static = ("exponent",) if _name == "pow" else ()
    implements(getattr(aten, f"_foreach_{_name}"), static=static)(_mapped(_entry(_name), 2))
implements(aten._foreach_lerp)(_mapped(_entry("lerp"), 3))
implements(aten._foreach_max)(_mapped(amax, 1))
implements(aten._foreach_copy)(_mapped(_entry("copy"), 2))
implements(aten._foreach_addcmul.Scalar)(
    _mapped(lambda a, b, c, value=1: _entry("addcmul")(a, b, c, value=value), 4)
)
implements(aten._foreach_addcdiv.Scalar)(
    _mapped(lambda a, b, c, value=1: _entry("addcdiv")(a, b, c, value=value), 4)
)


def _with_factors(name: str) -> Callable[..., list[jax.Array]]:
    def entry(
        self: Arrays, tensor1: Arrays, tensor2: Arrays, scalars: Operand | Sequence[Operand]
    ) -> list[jax.Array]:
        function = _entry(name)
        rows = zip(self, tensor1, tensor2, _each(scalars, len(self)), strict=True)
        return [function(a, b, c, value=s) for a, b, c, s in rows]

    return entry


for _name in ("addcmul", "addcdiv"):
    _packet = getattr(aten, f"_foreach_{_name}")
    implements(_packet.ScalarList, _packet.Tensor)(_with_factors(_name))


@implements(aten._foreach_norm, static=("ord",))
def foreach_norm(self: Arrays, ord: float = 2, dtype: torch.dtype | None = None) -> list[jax.Array]:
    return [vector_norm(x if dtype is None else converted(x, dtype), ord) for x in self]
