"""Batches: methods and rules for one array, mapped over leading axes.

An array type defines one matrix, and a rule computes with one matrix. A batch of matrices is the
same pytree with leading axes on every leaf, and `jax.vmap` runs a function of one matrix on all of
them. The map is `over_batches`. Its callers say which leading axes an argument has:

- this module, for the queries and the four maps of a type (`METHODS`);
- `_constructors`, for the fields of a constructor (`array_field(ndim=)`);
- `registry/_batched`, for operations (`core_ndims`, `batched=`);
- `operations/_batched`, for sums and norms, whose meaning depends on the number of axes.

    over_batches("solve", solve, (a, b), ((5, 1), (3,)))  # 15 systems, 5 matrices factorised

Sharp edges. A type without leaves cannot carry axes: an `Identity` is one matrix for a whole batch.
As the result for each matrix of a batch it becomes a type with leaves (`_repeated`). `jax.vmap`
traces values, so code that reads values, such as a check of indices, runs before the map.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._errors import ShapeError, message
from tanjax._marks import helper
from tanjax._typing import Function, Primal, Shape

from ._densify import densify_mode
from ._table import is_own, is_structured


def batch_of(x: object) -> Shape:
    """Return the batch axes of a value; `()` for a dense array, whose batch axes are unknown."""
    return x.batch_shape if is_own(x) else ()  # type: ignore[attr-defined]


def leading(x: PyTree, core_ndim: int) -> Shape:
    """Return the axes of a dense array before its last `core_ndim`; `()` for other values."""
    try:
        shape = tuple(np.shape(x) if isinstance(x, list | tuple) else getattr(x, "shape", ()))
    except ValueError:  # a list of lists of several lengths
        return ()
    return shape[: max(0, len(shape) - core_ndim)]


def over_batches(
    where: str, function: Function, args: Sequence[PyTree], batches: Sequence[Shape]
) -> PyTree:
    """Map `function(*args)` over the leading axes of its arguments, which broadcast.

    **Arguments:** `batches`: the leading axes of all leaves of every argument. An argument without
    an axis, or with one of size 1, is the same for all. Intermediate results that depend only on
    such arguments are computed once.

    **Raises:** `ShapeError` if the batches do not broadcast.
    """
    full = broadcast(where, batches)
    args = [_without_ones(a, b, full) for a, b in zip(args, batches, strict=True)]
    for k in reversed(range(len(full))):
        axes = tuple(0 if _moves(b, full, k) else None for b in batches)
        function = jax.vmap(function, in_axes=axes, axis_size=full[k])
    return function(*args)


def broadcast(where: str, batches: Sequence[Shape]) -> Shape:
    """Return the batch of a result. **Raises:** `ShapeError` if the batches do not broadcast."""
    try:
        return jnp.broadcast_shapes(*batches)
    except ValueError:
        got = ", ".join(str(list(b)) for b in batches if b)
        raise ShapeError(
            message(
                f"{where}: the batches do not broadcast.",
                f"got: {got}",
                hint="leading axes are equal, or one of them is 1.",
            )
        ) from None


def _moves(batch: Shape, full: Shape, k: int) -> bool:
    """True if an argument has axis `k` of the whole batch, False if it has one value for all."""
    own = k - len(full) + len(batch)
    return own >= 0 and batch[own] == full[k]


def _without_ones(x: PyTree, batch: Shape, full: Shape) -> PyTree:
    """Remove the leading axes of an argument along which it broadcasts."""
    first = len(full) - len(batch)
    keep = tuple(slice(None) if _moves(batch, full, first + i) else 0 for i in range(len(batch)))
    return x if 0 not in keep else jax.tree.map(lambda leaf: leaf[keep], x)


def counted(out: PyTree, batch: Shape) -> PyTree:
    """Convert arrays without leaves in a result of `over_batches` to batches."""

    def spread(x: PyTree) -> PyTree:
        return x._repeated(batch) if is_own(x) and not x._dynamic else x

    return jax.tree.map(spread, out, is_leaf=is_structured)


# -- methods of array types ------------------------------------------------------------------------

# The methods that a type defines for one array, with the number of dimensions of their argument (a
# (co)tangent, column or factor); None stands for those of the array itself.
METHODS: dict[str, int | None] = {
    **dict.fromkeys(
        ("to_dense", "transposed", "diagonal", "off_diagonal", "total", "submatrix"), 0
    ),
    **dict.fromkeys(("conj", "canonical", "scaled", "divided"), 0),
    **dict.fromkeys(
        ("pushforward_of_destructure", "pullback_of_restructure", "inner_product"), None
    ),
    **dict.fromkeys(("pullback_of_destructure", "pushforward_of_restructure"), None),
    "apply": 2,
}


def map_methods(cls: type) -> None:
    """Map the methods that a class defines for one array over batches."""
    for name, core_ndim in METHODS.items():
        if inspect.isfunction(cls.__dict__.get(name)):
            method = _over_batch(cls.__dict__[name], core_ndim)
            setattr(cls, name, helper(name, method, densify_mode) if name == "to_dense" else method)


def _over_batch(method: Function, core_ndim: int | None) -> Function:
    @functools.wraps(method)
    def mapped(self: PyTree, *args: PyTree) -> PyTree:
        batch = self.batch_shape
        if not batch:
            return method(self, *args)
        ndim = len(self.shape) - len(batch) if core_ndim is None else core_ndim
        fixed = {i: a for i, a in enumerate(args) if not (hasattr(a, "dtype") or is_structured(a))}
        moving = [a for i, a in enumerate(args) if i not in fixed]
        own = [batch_of(a) or leading(a, ndim) for a in moving]

        refused: list[bool] = []

        def one(self: Primal, *moving: PyTree) -> PyTree:
            rest = iter(moving)
            given = (fixed[i] if i in fixed else next(rest) for i in range(len(args)))
            out = method(self, *given)
            refused.append(out is NotImplemented)
            return 0 if refused[-1] else out

        out = over_batches(method.__name__, one, (self, *moving), (batch, *own))
        return NotImplemented if refused[-1] else counted(out, batch)

    return mapped
