"""Values that can be written into a Ref: one type, one shape, one unit, one kind of numbers.

A Ref has a fixed shape and dtype, and JAX rejects everything else in its own words, without
broadcasting or converting. Here a value is converted to the form of the old contents, or rejected
with a reason, before anything is written.

    fitted(like, value)    # a value as an array whose leaves can be written, `ref[...] = value`

`like` has the form of the Ref's contents, with `jax.ShapeDtypeStruct` for leaves.

Sharp edges. A static promise (`definite`) is part of the type: a value without it cannot replace
one that has it. The literal 0 is zero in every unit and every linear type; no other number is.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax import units
from tanjax._errors import MutationError, ShapeError, UnitError, describe, message
from tanjax._typing import Natural, Shape
from tanjax.arrays import (
    AbstractArray,
    Unitful,
    Zero,
    is_inexact,
    is_quantity,
    is_structured,
    number_in,
    unitful,
)
from tanjax.units import Unit


def target_of(x: PyTree) -> tuple[Unit | None, PyTree]:
    """Return the label of a quantity, or `None` without a unit, and the array inside of it."""
    return (x.label, x.stored) if is_quantity(x) else (None, x)


def as_array(x: PyTree) -> Array:
    """Return a dense array or number as a `jax.Array` with a dtype that no longer promotes."""
    if not (hasattr(x, "dtype") or isinstance(x, bool | int | float | complex | list)):
        raise TypeError(f"{type(x).__name__} is no array.")
    if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.extended):
        return x
    return jnp.asarray(x, dtype=jnp.result_type(jnp.asarray(x)))


# -- whole arrays ----------------------------------------------------------------------------------


def fitted(like: PyTree, value: PyTree) -> PyTree:
    """Return a value as an array with the type, the shapes, the dtypes and the unit of `like`.

    **Raises:** `MutationError`, `ShapeError`, `UnitError`, `ScaleError`.
    """
    label, target = target_of(like)
    value = number_for(label, value)
    if type(value) is Zero:
        value = 0 if _broadcasts(value.shape, tuple(target.shape)) else value
    if not is_structured(target):
        return fit_dense(target, value, target.shape)
    if is_zero(value) and _has_zero(target):
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), target)
    if getattr(value, "definite", False) is True and getattr(target, "definite", None) is False:
        value = value.replace(definite=False)
    if type(value) is not type(target) or jax.tree.structure(value) != jax.tree.structure(target):
        raise _other_type(target, value)
    _check_batch(target, value, len(getattr(target, "batch_shape", ())))
    return jax.tree.map(
        lambda leaf, new: jnp.broadcast_to(cast(new, leaf.dtype), leaf.shape), target, value
    )


def is_zero(value: PyTree) -> bool:
    """True if a value is zero in every unit and type: the literal `0`, or a `Zero`."""
    return type(value) is Zero or (type(value) in (int, float) and value == 0)


def _has_zero(x: Natural) -> bool:
    """True if fields of zeros are the zero of a type and break no promise."""
    numbers = all(map(is_inexact, jax.tree.leaves(x))) or x.fields_are_entries
    return bool(getattr(x, "is_linear", False) and numbers and not getattr(x, "definite", False))


def number_for(label: Unit | None, value: PyTree) -> PyTree:
    """Return the number of a value in the unit of its target."""
    if label is None:
        return number_in(_pure(value), units.one) if is_quantity(value) else value
    if not is_quantity(value):
        if is_zero(value) and label.is_linear:
            return value
        if not (label.is_dimensionless and label.is_linear):
            raise UnitError(
                message(
                    f"StructuredRef: a number without a unit cannot be written in {label}.",
                    f"got: {describe(value)}",
                    hint=f"say which unit is meant, as in `ref[...] = x * tj.unit({str(label)!r})`"
                    "; `ref.stored[...] = x` writes bare numbers.",
                )
            )
        value = unitful(value, units.one)
    if value.label.dimension is not label.dimension:
        raise UnitError(
            message(
                f"StructuredRef: a quantity in {value.label} cannot be written in {label}.",
                f"expected: {label} ({label.dimension})",
                f"got: {value.label} ({value.label.dimension})",
                hint="write a quantity of the same dimension.",
            )
        )
    if value.label is label:
        return value.stored
    # A number stored under a label with a power of two belongs to a smaller quantity.
    return number_in(unitful(value.stored, value.label.scaled(-label.scale)), label.plain)


def _pure(value: Unitful) -> Unitful:
    if value.label.is_dimensionless and value.label.is_linear:
        return value
    raise UnitError(
        message(
            f"StructuredRef: a quantity in {value.label} cannot be written where no unit is kept.",
            hint="make the Ref of a quantity, or write the number, `q.to_value(...)`.",
        )
    )


def _other_type(target: PyTree, value: PyTree) -> MutationError:
    name = type(target).__name__
    details = [f"before: {described(target)}", f"after: {described(value)}"]
    if getattr(target, "definite", False) is True and type(value) is type(target):
        hint = "repeat the promise if it holds: `x.replace(definite=True)`."
    elif type(value) is type(target):
        hint = f"make the Ref of an array with the {_unlike(target, value)} of the value."
    elif is_structured(value):
        hint = f"make a {name} of it first, or the Ref of an array of that type."
    else:
        hint = f"write a {name}: `tj.restructure(ref[...], x)` projects a dense array."
    return MutationError(
        message("StructuredRef: a write cannot change the type of the array.", *details, hint=hint)
    )


def _unlike(target: PyTree, value: PyTree) -> str:
    """Return the fields of two arrays of one type that differ in more than numbers."""

    def differs(a: PyTree, b: PyTree) -> bool:
        is_static = not any(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(a))
        return jax.tree.structure(a) != jax.tree.structure(b) or (is_static and a != b)

    names = [f.name for f in dataclasses.fields(target) if f.init]
    found = [n for n in names if differs(getattr(target, n), getattr(value, n))]
    return " and ".join(f"`{n}`" for n in found)


def described(x: PyTree) -> str:
    """Return a type with its static data."""
    if not isinstance(x, AbstractArray):
        return describe(x) if hasattr(x, "dtype") else repr(x)
    leaves, tree = jax.tree.flatten(x)
    return repr(jax.tree.unflatten(tree, [shown_type(leaf) for leaf in leaves]))


class Text(str):
    """A text that a repr shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def shown_type(x: PyTree) -> Text:
    """Return dtype and shape, as a repr shows them."""
    return Text(f"{x.dtype}[{','.join(map(str, np.shape(x)))}]")


def _check_batch(target: PyTree, value: PyTree, count: int) -> None:
    """Raise unless one array of a batch has the shape of one array; only a batch broadcasts."""
    expected, got = tuple(target.shape), tuple(value.shape)
    core = len(expected) - count
    fits = got[len(got) - core :] == expected[count:] and _broadcasts(got, expected)
    if not fits:
        raise _wrong_shape(got, expected)
    # Broadcast fields change the array: two equal columns instead of one.
    cores = [
        np.shape(leaf)[len(getattr(x, "batch_shape", ())) :]
        for x in (target, value)
        for leaf in jax.tree.leaves(x)
    ]
    if cores[: len(cores) // 2] != cores[len(cores) // 2 :]:
        raise ShapeError(
            message(
                "StructuredRef: the fields of the value have other shapes than those they replace.",
                f"before: {described(target)}",
                f"after: {described(value)}",
                "why: memory keeps its size, and the type has one number in each place.",
                hint="write an array whose fields are as large, or keep its dense numbers in "
                "memory: `tj.new_ref(x.to_dense())`.",
            )
        )


def _broadcasts(got: Shape, expected: Shape) -> bool:
    try:
        return np.broadcast_shapes(got, expected) == expected
    except ValueError:
        return False


def _wrong_shape(got: Shape, expected: Shape) -> ShapeError:
    return ShapeError(
        message(
            "StructuredRef: the value does not have the shape of what it replaces.",
            f"expected: {expected}",
            f"got: {got}",
            hint="a write broadcasts to the shape of the Ref, and never changes it.",
        )
    )


def fit_dense(like: PyTree, value: PyTree, shape: Shape) -> Array:
    if is_structured(value):
        raise _other_type(like, value)
    got = np.shape(value)
    if not _broadcasts(got, tuple(shape)):
        raise _wrong_shape(got, tuple(shape))
    return jnp.broadcast_to(cast(value, like.dtype), shape)


_KINDS = (jnp.bool_, jnp.unsignedinteger, jnp.signedinteger, jnp.floating, jnp.complexfloating)


def _kind(dtype: DTypeLike) -> int:
    return next((i for i, kind in enumerate(_KINDS) if jnp.issubdtype(dtype, kind)), -1)


def cast(value: PyTree, dtype: DTypeLike) -> Array:
    """Return a dense value in another dtype of its kind, or of a wider kind."""
    got = value.dtype if hasattr(value, "dtype") else jnp.result_type(jnp.asarray(value))
    if got == dtype:
        return jnp.asarray(value) if not isinstance(value, jax.Array) else value
    weak = type(value) is int and _kind(dtype) >= 1  # a literal number is of any kind
    if not weak and (_kind(dtype) == -1 or not 0 <= _kind(got) <= _kind(dtype)):
        raise MutationError(
            message(
                "StructuredRef: a write cannot change the kind of the numbers.",
                f"before: {dtype}",
                f"after: {got}",
                "why: a fraction, a sign or an imaginary part would be lost.",
                hint="cast first: `jnp.real(x)`, `jnp.round(x).astype(...)`.",
            )
        )
    return jnp.asarray(value, dtype=dtype)
