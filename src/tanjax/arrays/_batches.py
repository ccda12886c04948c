"""Batches: what is written for one array, mapped over leading axes.

An array type says what one matrix is, and a rule what to do with it. A batch of matrices is the
same pytree with leading axes on every leaf, and JAX already knows how to run a function of one on
all of them. So nothing else here knows of batches: constructors, the four maps, queries and
operations come through `over_batches` where they meet one, and see single arrays only.

    over_batches("solve", solve, (a, b), ((5, 1), (3,)))  # 15 systems, 5 matrices factorised

Sharp edges. What has no leaves cannot carry axes: an `Identity` is one matrix for a whole batch,
and where it would be the result for each of a batch it becomes a type that counts (`COUNTED`).
Under the map values are traced: what looks at values, a check of indices, does so before.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._errors import ShapeError, message
from tanjax._marks import helper
from tanjax._typing import Function, Natural, Primal, Shape

from ._densify import densify_mode
from ._table import is_own, is_structured

# A batch of what has no leaves, as a type that has some; filled by the types.
COUNTED: dict[type, Callable[[Natural, Shape], Natural]] = {}


def batch_of(x: object) -> Shape:
    """The batch axes of any value: `()` for a dense array, which does not say how many it has."""
    return x.batch_shape if is_own(x) else ()  # type: ignore[attr-defined]


def leading(x: PyTree, core_ndim: int) -> Shape:
    """The axes of a dense array before its last `core_ndim`; none of what is no array."""
    try:
        shape = tuple(np.shape(x) if isinstance(x, list | tuple) else getattr(x, "shape", ()))
    except ValueError:  # a list of lists of several lengths
        return ()
    return shape[: max(0, len(shape) - core_ndim)]


def over_batches(
    where: str, function: Function, args: Sequence[PyTree], batches: Sequence[Shape]
) -> PyTree:
    """`function(*args)`, mapped over the leading axes of its arguments, which broadcast.

    **Arguments:** `batches`: the leading axes of all leaves of every argument. An argument without
    an axis, or with one of size 1, is the same for all: what only depends on it is computed once.
    **Raises:** `ShapeError` if the batches do not broadcast.
    """
    full = broadcast(where, batches)
    args = [_without_ones(a, b, full) for a, b in zip(args, batches, strict=True)]
    for k in reversed(range(len(full))):
        axes = tuple(0 if _moves(b, full, k) else None for b in batches)
        function = jax.vmap(function, in_axes=axes, axis_size=full[k])
    return function(*args)


def broadcast(where: str, batches: Sequence[Shape]) -> Shape:
    """The batch of a result. **Raises:** `ShapeError` if the batches do not broadcast."""
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
    """Whether an argument has axis `k` of the whole batch, rather than one value for all."""
    own = k - len(full) + len(batch)
    return own >= 0 and batch[own] == full[k]


def _without_ones(x: PyTree, batch: Shape, full: Shape) -> PyTree:
    """An argument without those leading axes along which it is the same for all."""
    first = len(full) - len(batch)
    keep = tuple(slice(None) if _moves(batch, full, first + i) else 0 for i in range(len(batch)))
    return x if 0 not in keep else jax.tree.map(lambda leaf: leaf[keep], x)


def counted(out: PyTree, batch: Shape) -> PyTree:
    """A result of `over_batches` in which arrays without leaves are a batch too."""

    def spread(x: PyTree) -> PyTree:
        if not is_own(x) or x._dynamic or type(x) not in COUNTED:
            return x
        return COUNTED[type(x)](x, batch)

    return jax.tree.map(spread, out, is_leaf=is_structured)


# -- methods of array types ------------------------------------------------------------------------

# What a type says of one array, and how many dimensions the (co)tangent, column or factor that it
# takes has: those of the array itself (None), or a number.
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
    """Let the methods that a class defines for one array serve a batch."""
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
        fixed = {i: a for i, a in enumerate(args) if not _is_mapped(a)}
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


def _is_mapped(x: PyTree) -> bool:
    return hasattr(x, "dtype") or is_structured(x)
