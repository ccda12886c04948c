"""The leaves of arrays: a test for tangents, and the conversion of plain values to `jax.Array`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, export
from jaxtyping import PyTree

from tanjax._compat import no_tangent
from tanjax._errors import ShapeError
from tanjax._typing import Arraylike, DType, Shape, Structural

# Concrete classes of `jax.Array`, collected at run time: an array at import would start JAX's back
# end.
ARRAY_CLASSES: set[type] = set()


def as_array(value: Arraylike, cls: str = "an array") -> Array:
    """Return `jnp.asarray(value)`, at a tenth of its cost (4 us) if the value is a `jax.Array`."""
    if type(value) in ARRAY_CLASSES:
        return value
    try:
        value = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        text = f"{cls}: its entries must be numbers, got {value!r}.\nwhy: {error}"
        raise TypeError(text) from None
    ARRAY_CLASSES.add(type(value))
    return value


def holds_array(x: PyTree) -> bool:
    """True if an object, or an item of a sequence, stands for an array, as `nnx.Param` does.

    The protocol `__jax_array__` is JAX's. JAX itself rejects structured arrays and quantities.
    """
    if type(x) in (list, tuple):
        return any(map(holds_array, x))
    return callable(getattr(type(x), "__jax_array__", None))


def held(x: PyTree) -> PyTree:
    """Return the array, structured or not, that an object stands for; else the value itself."""
    if not holds_array(x):
        return x
    return type(x)(map(held, x)) if type(x) in (list, tuple) else x.__jax_array__()


def as_shape(shape: Iterable[int], cls: str) -> Shape:
    """Return a shape of whole numbers. **Raises:** `ShapeError` for anything else."""
    if type(shape) is tuple:
        for n in shape:
            if type(n) is not int or n < 0:
                break
        else:
            return shape
    try:
        size = tuple(map(as_size, shape))
    except (TypeError, ValueError):
        text = f"{cls}: `shape` must be a tuple of whole numbers, not negative; got {shape!r}."
        raise ShapeError(text) from None
    return size


def as_size(n: int) -> int:
    """Return a whole or symbolic number (`jax.export`). **Raises:** `TypeError`, `ValueError`."""
    symbolic = bool(export.is_symbolic_dim(n))
    if symbolic:
        return n
    if (size := operator.index(n)) < 0:
        raise ValueError(f"{n} is negative")
    return size


def numpy_for(n: int) -> Any:
    """Return NumPy, whose arrays are constants of a program; for a symbolic size, `jax.numpy`."""
    return jnp if export.is_symbolic_dim(n) else np


def is_inexact(x: object) -> bool:
    """True if a leaf has a tangent space: a floating or complex dtype. False for other objects."""
    dtype = getattr(x, "dtype", None)
    if dtype is None and not isinstance(x, bool | int | float | complex):
        return False
    return jnp.issubdtype(dtype or jnp.result_type(x), jnp.inexact)


def keeps_parts(old: DType, new: DType) -> bool:
    """True if a cast only changes the precision, and drops no fraction or imaginary part."""
    inexact = jnp.issubdtype(old, jnp.inexact) and jnp.issubdtype(new, jnp.inexact)
    narrows = jnp.issubdtype(old, jnp.complexfloating) > jnp.issubdtype(new, jnp.complexfloating)
    return inexact and not narrows


def split_inexact(tree: PyTree) -> tuple[list[Array], Callable[[list[Array]], PyTree]]:
    """Return the differentiable leaves of a tree, and the function that replaces them."""
    leaves, treedef = jax.tree.flatten(tree)
    places = [i for i, leaf in enumerate(leaves) if is_inexact(leaf)]

    def join(new: list[Array]) -> PyTree:
        full = list(leaves)
        for i, value in zip(places, new, strict=True):
            full[i] = value
        return jax.tree.unflatten(treedef, full)

    return [jnp.asarray(leaves[i]) for i in places], join


def tangent_leaves(primal: PyTree, tangent: Structural) -> list[Array]:
    """Return the leaves of a structural tangent that belong to the primal's inexact leaves."""
    treedef = jax.tree.structure(primal)
    pairs = zip(jax.tree.leaves(primal), treedef.flatten_up_to(tangent), strict=True)
    return [t for p, t in pairs if is_inexact(p)]


def from_tangent_leaves(primal: PyTree, leaves: Sequence[Array]) -> Structural:
    """Make a structural tangent from its differentiable leaves; the others are `float0` zeros."""
    flat, treedef = jax.tree.flatten(primal)
    rest = iter(leaves)
    full = [next(rest) if is_inexact(p) else no_tangent(p) for p in flat]
    return jax.tree.unflatten(treedef, full)


def frozen(array: np.ndarray) -> np.ndarray:
    """Return a read-only copy: neither the array's owner nor readers of `q.value` can change it."""
    array = array.copy()
    array.flags.writeable = False
    return array
