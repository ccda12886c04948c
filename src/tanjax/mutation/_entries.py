"""Entries of a structured array that is written in place, `ref[index] = value`.

An index of a dense array selects some of its numbers. The stored numbers of a structured array
differ from its entries. A symmetric matrix stores two numbers for one entry. A triangular one has
entries that are zero by its type. In a Kronecker product no entry can be written alone.

    write_entries(refs, like, index, value)    # all invariants kept, or refused

Sharp edges. Types that store entries twice (`Symmetric`, `Hermitian`) are written by entry, row or
column, so that no entry is set twice. A block that overlaps its mirror image is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, PyTree

from tanjax._errors import MutationError, message
from tanjax._typing import Shape
from tanjax.arrays import (
    AbstractArray,
    Hermitian,
    Symmetric,
    Triangular,
    Zero,
    is_inexact,
    is_structured,
)

from ._writes import cast, described, fit_dense, fitted, number_for, target_of

Index: TypeAlias = PyTree  # the expression in the brackets of `ref[...]`


def is_whole(index: Index) -> bool:
    """True if an index is `...`, or `:` in all places, and selects the whole array."""
    parts = index if type(index) is tuple else (index,)
    return all(i is Ellipsis or (type(i) is slice and i == slice(None)) for i in parts)


def kept_by_constructor(x: object, field: str) -> str:
    """Return why a field must not be written alone; empty if it may.

    If storage is projected, hidden cotangents are harmless because every value obeys the
    projection. If a field holds indices, the constructor checked them.
    """
    projects = isinstance(x, AbstractArray) and type(x).canonical is not AbstractArray.canonical
    counts = isinstance(x, AbstractArray) and not x.fields_are_entries
    index = counts and not all(map(is_inexact, jax.tree.leaves(getattr(x, field))))
    if not (projects or index):
        return ""
    by_entry = type(x) in _ENTRIES
    return message(
        f"StructuredRef: `{field}` of a {type(x).__name__} cannot be written by itself.",
        "why: the constructor "
        + ("makes its entries consistent" if projects else "checks these indices")
        + ", and a write would pass it by.",
        hint=("write entries, `ref[i, j] = v`, or" if by_entry else "write")
        + (" an array of the batch, `ref[k] = a`, or" if getattr(x, "batch_shape", ()) else "")
        + " a whole array, `ref[...] = a`.",
    )


def holds_entries(x: PyTree) -> bool:
    """True if the stored numbers of an array are all of its entries."""
    full = type(x) in _ENTRIES and not getattr(x, "unit_diagonal", False)
    return full or not is_structured(x)


def read_entries(ref: PyTree, index: Index) -> Array:
    """Return `ref[index]` for any index of an array; `jax.Ref` has no masks and no new axes."""
    return ref[index] if _is_native(index) else ref[...][index]


def _is_native(index: Index) -> bool:
    parts = index if type(index) is tuple else (index,)
    return all(
        i is Ellipsis
        or (type(i) is slice and (i.step is None or i.step > 0))
        or (i is not None and type(i) is not slice and _is_integer(i))
        for i in parts
    )


def _is_integer(i: PyTree) -> bool:
    return jnp.issubdtype(getattr(i, "dtype", type(i)), jnp.integer) or type(i) is int


def of_batch(like: PyTree, index: Index) -> Index | None:
    """Return the index into a batch, without the whole axes of one array; `None` for entries."""
    target = target_of(like)[1]
    batch = getattr(target, "batch_shape", ()) if is_structured(target) else ()
    parts = _parts(index, len(target.shape)) if batch else []
    while parts and type(parts[-1]) is slice and parts[-1] == slice(None):
        parts.pop()
    counts = [max(1, np.ndim(i)) if getattr(i, "dtype", int) == np.bool_ else 1 for i in parts]
    if not batch or sum(counts) > len(batch) or any(i is None for i in parts):
        return None
    return tuple(parts)


def write_entries(refs: Sequence[PyTree], like: PyTree, index: Index, value: PyTree) -> None:
    """Run `ref[index] = value` on the fields of `like` in `refs`: arrays of a batch, or entries.

    **Raises:** `MutationError` for entries of a type whose fields must be written instead.
    """
    label, target = target_of(like)
    number = number_for(label, value)
    if (members := of_batch(like, index)) is not None:
        one = jax.tree.map(lambda leaf: _selected(leaf, members), target)
        fields = jax.tree.leaves(fitted(one, number))
        for ref, leaf, new in zip(refs, jax.tree.leaves(target), fields, strict=True):
            _write_dense(ref, leaf, members, new)
    elif not is_structured(target):
        _write_dense(refs[0], target, index, 0 if type(number) is Zero else number)
    elif type(target) not in _ENTRIES:
        name = type(target).__name__
        raise MutationError(
            message(
                f"StructuredRef: the entries of a {name} cannot be written by index.",
                f"index: {index!r}",
                hint="write a field, as in `ref.diag[i] = v`, or a whole array, `ref[...] = a`.",
            )
        )
    else:
        number = 0 if type(number) is Zero else number
        # An index with one part, an integer or a slice, for every axis.
        parts = _parts(index, target.ndim)
        parts += [slice(None)] * (target.ndim - len(parts))
        simple = [type(i) is slice or (_is_integer(i) and np.shape(i) == ()) for i in parts]
        if len(parts) != target.ndim or not all(simple):
            raise MutationError(
                message(
                    f"StructuredRef: entries of a {type(target).__name__} are written by integers "
                    "and slices, one for each axis.",
                    f"index: {index!r}",
                    hint="write one entry at a time, or a whole array, `ref[...] = a`.",
                )
            )
        index = tuple(parts)
        _ENTRIES[type(target)](refs[0], target, index, number, _in_range(index, refs[0].shape))


def _selected(x: PyTree, index: Index) -> jax.ShapeDtypeStruct:
    """Return the shape that an index selects; with a traced mask, the shape at each place."""
    if _is_traced_mask(index):
        return jax.ShapeDtypeStruct(x.shape[_only(index).ndim :], x.dtype)
    return jax.eval_shape(lambda x: x[index], x)


def _write_dense(ref: PyTree, target: PyTree, index: Index, number: PyTree) -> None:
    """Run `ref[index] = number` on a dense array, for any index of an array."""
    if _is_native(index):
        new = fit_dense(target, number, _selected(target, index).shape)
        _put(ref, index, new, _in_range(index, ref.shape))
    elif _is_traced_mask(index):
        new = fit_dense(target, number, _selected(target, index).shape)
        mask = _only(index)
        mask = jnp.expand_dims(mask, tuple(range(mask.ndim, len(target.shape))))
        ref[...] = jnp.where(mask, new, ref[...])
    else:
        ref[...] = ref[...].at[index].set(cast(number, target.dtype))


def _only(index: Index) -> PyTree:
    return index[0] if type(index) is tuple and len(index) == 1 else index


def _is_traced_mask(index: Index) -> bool:
    mask = _only(index)
    return isinstance(mask, jax.core.Tracer) and mask.dtype == bool


def _in_range(index: Index, shape: Shape) -> Bool[Array, ""] | bool:
    """True if all integers of an index are in range; known ones out of range raise `IndexError`."""
    inside: PyTree = True
    for axis, (i, n) in enumerate(zip(_parts(index, len(shape)), shape, strict=False)):
        if type(i) is slice or np.shape(i):
            continue
        if isinstance(i, jax.core.Tracer):
            wide = i.astype(int)  # a uint8 cannot be compared with -300
            inside = inside & (wide >= -n) & (wide < n)
        elif not -n <= int(i) < n:
            raise IndexError(f"StructuredRef: {i} is out of range in axis {axis}, of size {n}.")
    return inside


def _put(ref: PyTree, index: Index, new: Array, inside: PyTree) -> None:
    """Run `ref[index] = new` if a traced condition holds; JAX would clamp the index."""
    ref[index] = new if inside is True else jnp.where(inside, new, ref[index])


def _parts(index: Index, ndim: int) -> list[PyTree]:
    """Return the parts of an index, with slices instead of an ellipsis."""
    parts = list(index) if type(index) is tuple else [index]
    if any(i is Ellipsis for i in parts):
        at = next(k for k, i in enumerate(parts) if i is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (ndim - len(parts) + 1)
    return parts


def _places(part: PyTree, n: int) -> PyTree:
    """Return the row numbers that an integer or a slice selects; an integer may be traced."""
    if type(part) is slice:
        return np.arange(n)[part]
    if isinstance(part, jax.core.Tracer):
        return jnp.where(part < 0, part + n, part)
    return int(part) + n if part < 0 else int(part)


def _grid(x: AbstractArray, rows: PyTree, columns: PyTree) -> tuple[PyTree, PyTree]:
    """Return row and column of every written entry, in arrays that broadcast."""
    return (rows[:, None] if np.ndim(rows) and np.ndim(columns) else rows), columns


def _write_mirrored(
    ref: PyTree, x: AbstractArray, index: tuple[PyTree, ...], value: PyTree, inside: PyTree
) -> None:
    """Write entries of a symmetric or Hermitian matrix, and their mirror images."""
    (*batch, i, j), n = index, x.shape[-1]
    rows, columns = _places(i, n), _places(j, n)
    both = np.ndim(rows) and np.ndim(columns)
    if both and len(np.intersect1d(rows, columns)) > 1:
        raise MutationError(
            message(
                f"StructuredRef: this block of a {type(x).__name__} contains mirror images.",
                f"index: {index!r}",
                "why: it would say twice what an entry and its mirror image are.",
                hint="write rows, columns, entries, or a whole array, `ref[...] = a`.",
            )
        )
    new = fit_dense(x, value, jax.eval_shape(lambda d: d[index], _as_dense(x)).shape)
    other = new
    if type(x) is Hermitian and jnp.iscomplexobj(new):
        row, column = _grid(x, rows, columns)
        new = jnp.where(row == column, jnp.real(new).astype(new.dtype), new)
        other = jnp.conj(new)
    _put(ref, index, new, inside)
    _put(ref, (*batch, j, i), jnp.swapaxes(other, -1, -2) if both else other, inside)


def _write_triangle(
    ref: PyTree, x: Triangular, index: tuple[PyTree, ...], value: PyTree, inside: PyTree
) -> None:
    """Write entries of one triangle."""
    rows, columns = (_places(part, x.shape[-1]) for part in index[-2:])
    row, column = _grid(x, rows, columns)
    offset = int(x.unit_diagonal)
    stored = row - offset >= column if x.lower else row + offset <= column
    new = fit_dense(x, value, jax.eval_shape(lambda d: d[index], _as_dense(x)).shape)
    if isinstance(stored, jax.core.Tracer):
        inside = stored & inside
    elif not np.all(stored):
        raise MutationError(
            message(
                "StructuredRef: an entry outside of the triangle cannot be written.",
                f"index: {index!r}",
                f"array: {described(x)}",
                hint="the other triangle is zero, and a unit diagonal one, by the type.",
            )
        )
    _put(ref, index, new, inside)


def _as_dense(x: AbstractArray) -> PyTree:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


_ENTRIES: dict[type, Callable[..., None]] = {
    Symmetric: _write_mirrored,
    Hermitian: _write_mirrored,
    Triangular: _write_triangle,
}
