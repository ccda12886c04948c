"""Functions that torch itself defines with numbers that have no unit.

For a tensor of lengths, the mask of `dropout` is a number, but a tolerance and the guard of a
division are lengths. Each function here is torch's on quantities, in terms of functions that have
units: differentiable, and for quantities of any scale.

Sharp edges. The `eps` of `normalize` and `cosine_similarity` guards zero alone unless it is a
quantity, since a small number of metres is a large one of nanometres. `allclose` has no absolute
tolerance unless one is given, as `tnp.allclose`.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import torch
from torch.nn import functional as F

from tanjax._errors import UnitError, message
from tanjax._typing import AnyArray
from tanjax.quantities import is_quantity, unitful
from tanjax_torch._typing import Function, Payload, Payloads
from tanjax_torch.autograd._natural import Call, apply
from tanjax_torch.table._registry import remembered
from tanjax_torch.tensor._lift import payload_of
from tanjax_torch.tensor._tensor import Tensor, tensor

OF_QUANTITIES: dict[Function, Function] = {}
_T = torch.Tensor
_DEFAULTS = (1e-12, 1e-8)  # of `eps`, which torch passes on


def _is(*functions: Function) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        OF_QUANTITIES.update(dict.fromkeys(functions, function))
        return function

    return register


def _masked(mask_of: Function) -> Function:
    def dropped(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if inplace:
            raise UnitError(f"{mask_of.__name__}: no quantity is dropped in place.")
        return x * mask_of(torch.ones_like(x), p, training)

    return dropped


for _dropout in (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, torch.dropout):
    OF_QUANTITIES[_dropout] = _masked(_dropout)


@_is(torch.where, _T.where)
def where(condition: torch.Tensor, x: object, y: object) -> Tensor:
    """`x` where the condition holds, else `y`; the number 0 has every unit."""
    if condition.dtype is not torch.bool:
        raise RuntimeError(f"where expected condition to be a boolean tensor, got {condition}")
    operands = [t for t in (condition, x, y) if isinstance(t, torch.Tensor)]
    numbers = tuple([None if isinstance(t, torch.Tensor) else t for t in (condition, x, y)])
    return apply(_where(numbers), operands)[0]


@remembered
def _where(numbers: tuple[float | None, ...]) -> Call:
    def run(*payloads: Payload) -> Payloads:
        rest = iter(payloads)
        return (np.where(*[next(rest) if n is None else n for n in numbers]),)

    return Call(run)


@_is(torch.isclose, _T.isclose)
def isclose(
    x: Tensor,
    other: torch.Tensor,
    rtol: float = 1e-5,
    atol: AnyArray | Tensor | None = None,
    equal_nan: bool = False,
) -> Tensor:
    """True where entries differ by `atol + rtol |other|` at most; `atol` is a quantity, or 0."""
    x, other, atol = map(payload_of, (x, other, atol))
    return tensor(np.isclose(x, other, rtol=rtol, atol=atol, equal_nan=equal_nan))


@_is(torch.allclose, _T.allclose)
def allclose(x: Tensor, other: torch.Tensor, *args: object, **kwargs: object) -> bool:
    """True if all entries are close."""
    return bool(isclose(x, other, *args, **kwargs).all())


@_is(F.normalize)
def normalize(
    x: Tensor, p: float = 2.0, dim: int = 1, eps: float | Tensor = 1e-12, out: None = None
) -> Tensor:
    """Directions: `x` by its norms."""
    return x / _guarded(x.norm(p, dim, keepdim=True), eps)


@_is(F.cosine_similarity)
def cosine_similarity(
    x1: torch.Tensor, x2: torch.Tensor, dim: int = 1, eps: float | Tensor = 1e-8
) -> Tensor:
    """The cosine of the angle between two quantities of any units."""
    lengths = [_guarded(x.norm(2, dim, keepdim=True), eps) for x in (x1, x2)]
    return ((x1 / lengths[0]) * (x2 / lengths[1])).sum(dim)


def _guarded(norm: torch.Tensor, eps: float | Tensor) -> torch.Tensor:
    if isinstance(eps, torch.Tensor):
        return torch.maximum(norm, eps)
    length = norm.payload
    if not is_quantity(length):
        return norm.clamp_min(eps)
    if eps not in _DEFAULTS:
        raise UnitError(
            message(
                f"eps: a number guards no norm in {length.unit}.",
                f"got: {eps}",
                hint="give a quantity, `tjt.from_jax(1e-12 * tj.unit(...))`, or nothing.",
            )
        )
    one = unitful(jnp.ones((), length.dtype), length.label)
    return where(tensor(length.stored == 0), tensor(one), norm)
