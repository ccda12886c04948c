"""Masks of triangles and diagonals in a traced program: comparisons of row and column numbers.

JAX traces `tril(a, k)` to `select(iota_0 + k >= iota_1, a, 0)`. Such a mask stays symbolic until an
equation needs its numbers. The select then gives a triangle of a structured array.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._jaxpr_types import JaxEquation
from tanjax._typing import DenseArray, Matrix
from tanjax.arrays import Diagonal, is_structured

from ._triangles import cut

Make: TypeAlias = Callable[[], DenseArray]


class Places(NamedTuple):
    """The row number (`axis` 0) or column number of each entry of a matrix, plus `offset`."""

    axis: int
    offset: int
    make: Make


class Mask(NamedTuple):
    """A comparison of `column - row` with `offset`: `le` is the lower triangle, `ge` the upper."""

    compared: str
    offset: int
    make: Make


class Zeros(NamedTuple):
    """A matrix of zeros."""

    make: Make


Symbol: TypeAlias = Places | Mask | Zeros
_FLIPPED = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt", "eq": "eq"}
_STRICT = {"lt": ("le", -1), "gt": ("ge", 1)}


def symbol(eqn: JaxEquation, operands: list[PyTree], make: Make) -> Symbol | None:
    """Return the symbol that an equation makes, or `None`. `make` computes its numbers."""
    name, p = eqn.primitive.name, eqn.params
    shape = eqn.outvars[0].aval.shape
    if len(shape) != 2 or any(map(is_structured, operands)):
        return None
    if name == "iota" and np.issubdtype(p["dtype"], np.integer):
        return Places(p["dimension"], 0, make)
    if name == "broadcast_in_dim" and _is_number(operands[0]) and operands[0] == 0:
        return Zeros(make)
    if name == "convert_element_type" and isinstance(operands[0], Mask):
        return operands[0]._replace(make=make) if p["new_dtype"] == np.bool_ else None
    if len(operands) != 2:
        return None
    a, b = operands
    if name in ("add", "sub") and isinstance(a, Places) and _is_number(b):
        return Places(a.axis, getattr(operator, name)(a.offset, int(b)), make)
    if name in _FLIPPED and isinstance(a, Places) and isinstance(b, Places) and a.axis != b.axis:
        # rows on the left: `row + k >= column` is `column - row <= k`
        compared = _FLIPPED[name] if a.axis == 0 else name
        rows, columns = (a, b) if a.axis == 0 else (b, a)
        compared, step = _STRICT.get(compared, (compared, 0))
        return Mask(compared, rows.offset - columns.offset + step, make)
    return None


def selected(mask: PyTree, x: PyTree, y: PyTree) -> Matrix | None:
    """Return `y` where the mask holds and `x` elsewhere, as an array of a type, or `None`."""
    if not isinstance(mask, Mask):
        return None
    inside = is_structured(y) and isinstance(x, Zeros)
    if not inside and not (is_structured(x) and isinstance(y, Zeros)):
        return None
    if mask.compared == "eq":
        return Diagonal(y.diagonal()) if inside and mask.offset == 0 else None
    if inside:
        return cut(y, mask.compared == "le", mask.offset)
    if mask.compared == "le":  # the mask covers everything above the triangle
        return cut(x, False, mask.offset + 1)
    return cut(x, True, mask.offset - 1)


def made(x: PyTree) -> PyTree:
    """Return the numbers of a symbol, and every other value as it is."""
    return x.make() if isinstance(x, Symbol) else x


def _is_number(x: PyTree) -> bool:
    """True if a value is a number that is known while the program is traced."""
    if isinstance(x, Symbol | jax.core.Tracer):
        return False
    return jnp.ndim(x) == 0
