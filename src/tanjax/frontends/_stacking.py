"""`stack` and `concatenate`: arrays of one type form a batch, whose fields are joined.

    tj.linalg.stack([tj.Diagonal(x), tj.Diagonal(y)])  # Diagonal, (2, n, n)

Matrices joined along rows or columns have no structured type, nor do matrices of different types or
patterns in a batch. These calls densify the arrays and warn.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Shaped

from tanjax._errors import ShapeError, message
from tanjax._typing import AnyArray, DenseArray, Function, Natural
from tanjax.arrays import (
    AbstractArray,
    batch_of,
    counted,
    densified,
    is_structured,
    shape as shape_of,
    without_promise,
)
from tanjax.operations import BY_NAME
from tanjax.quantities import Quantity, is_quantity

from .namespaces import numpy_namespace

HINT = "only arrays of one type and pattern, along an axis of the batch, stay structured"


def stack(arrays: Sequence[Natural], axis: int = 0) -> Shaped[AnyArray, " ..."]:
    """Stack arrays of one shape along a new axis, as `jax.numpy.stack`.

    **Arguments:** `arrays`: a list or tuple, dense or structured, quantities of one dimension (the
    result is in the unit of the first). `axis`: of the result; for structured arrays one of the
    batch, which by default comes first.
    **Returns:** a batch of their type, if all have one type and the same static fields (the same
    pattern of a `Sparse`). It keeps the promise to be definite if all arrays make it. Otherwise a
    dense array; `tj.densify` decides whether that warns. **Cost:** that of stacking the fields.
    **Raises:** `ShapeError` if the list is empty, the shapes differ or `axis` is out of range.
    **Derivative:** that of stacking the fields.
    """
    found = _checked("stack", arrays)
    if any(is_quantity(x) for x in found):
        return _in_one_unit(stack, found, axis)
    shapes = [tuple(shape_of(x)) for x in found]
    if any(s != shapes[0] for s in shapes):
        raise _unlike("stack", "all arrays need one shape", shapes)
    place = _axis("stack", axis, len(shapes[0]) + 1, shapes[0])
    alike = _alike(found)
    if alike is None or place > len(batch_of(alike[0])):
        return _dense("stack", found, axis)
    batch = batch_of(alike[0])
    out = jax.tree.map(lambda *leaves: jnp.stack(leaves, place), *alike)
    return counted(out, (*batch[:place], len(found), *batch[place:]))


def concatenate(arrays: Sequence[Natural], axis: int = 0) -> Shaped[AnyArray, " ..."]:
    """Join arrays along an existing axis, as `jax.numpy.concatenate`.

    **Arguments:** `arrays`: as for `stack`. `axis`: one of the batch, or else the result is dense.
    **Returns:** a batch of their type, if all have one type and the same static fields. Otherwise a
    dense array; `tj.densify` decides whether that warns. **Cost:** that of joining the fields.
    **Raises:** `ShapeError` if the list is empty, the shapes do not fit or `axis` is out of range.
    **Derivative:** that of joining the fields.
    """
    found = _checked("concatenate", arrays)
    if any(is_quantity(x) for x in found):
        return _in_one_unit(concatenate, found, axis)
    shapes = [tuple(shape_of(x)) for x in found]
    place = _axis("concatenate", axis, len(shapes[0]), shapes[0])
    rest = [(*s[:place], *s[place + 1 :]) if len(s) == len(shapes[0]) else None for s in shapes]
    if any(r != rest[0] for r in rest):
        raise _unlike("concatenate", f"shapes must agree except along axis {axis}", shapes)
    alike = _alike(found)
    if alike is None or place >= len(batch_of(alike[0])):
        return _dense("concatenate", found, axis)
    batch = list(batch_of(alike[0]))
    batch[place] = sum(s[place] for s in shapes)
    out = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, place), *alike)
    return counted(out, tuple(batch))


def _checked(name: str, arrays: Sequence[Natural]) -> list[Natural]:
    """Return a list of arrays. **Raises:** `ShapeError` if empty, `TypeError` if not a list."""
    if is_structured(arrays) or not isinstance(arrays, list | tuple):
        raise TypeError(f"{name}: needs a list or tuple of arrays, got {type(arrays).__name__}.")
    if not arrays:
        raise ShapeError(f"{name}: needs at least one array.")
    return list(arrays)


def _axis(name: str, axis: int, ndim: int, shape: tuple[int, ...]) -> int:
    place = operator.index(axis)
    if not -ndim <= place < ndim:
        raise ShapeError(f"{name}: axis {axis} is out of range for arrays of shape {list(shape)}.")
    return place % ndim


def _unlike(name: str, why: str, shapes: list[tuple[int, ...]]) -> ShapeError:
    got = ", ".join(str(list(s)) for s in shapes)
    return ShapeError(message(f"{name}: the shapes do not fit: {why}.", f"got: {got}"))


def _in_one_unit(function: Function, arrays: list[Natural], axis: int) -> Natural:
    """Join structured values in the unit of the first; `tanjax.numpy` handles dense ones."""
    if not all(is_quantity(x) and is_structured(x.value) for x in arrays):
        dense = [_without_structure(function.__name__, x) for x in arrays]
        return getattr(numpy_namespace(), function.__name__)(dense, axis)
    unit = arrays[0].unit
    return Quantity(function([x.to(unit).value for x in arrays], axis), unit)


def _without_structure(name: str, x: Natural) -> Natural:
    if is_quantity(x):
        value = densified(x.value, name, HINT) if is_structured(x.value) else x.value
        return x if value is x.value else Quantity(value, x.unit)
    return densified(x, name, HINT) if is_structured(x) else x


def _alike(arrays: list[Natural]) -> list[AbstractArray] | None:
    """Return the arrays if one type with the same static fields and leaves holds all of them."""
    if not all(isinstance(x, AbstractArray) for x in arrays):
        return None
    for found in (arrays, [without_promise(x) for x in arrays]):
        if all(_layout(x) == _layout(found[0]) for x in found):
            return found
    return None


def _layout(x: AbstractArray) -> tuple[object, ...]:
    """Return the common properties of a batch: the tree, and the shapes of one's fields."""
    count = len(batch_of(x))
    shapes = [jnp.shape(leaf)[count:] for leaf in jax.tree.leaves(x)]
    return jax.tree.structure(x), count, shapes


def _dense(name: str, arrays: list[Natural], axis: int) -> Shaped[DenseArray, " ..."]:
    join = getattr(jnp, name)
    return join([jnp.asarray(_without_structure(name, x)) for x in arrays], axis)


BY_NAME["numpy"] |= {"stack": stack, "concatenate": concatenate, "concat": concatenate}
