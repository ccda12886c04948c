"""Trees of arrays as one vector of the numbers that are free to vary, and back.

A sampler gives every stored number a momentum of its own. Newton's method takes a Jacobian by every
stored number. But a `Symmetric` stores its entries twice and a `Triangular` stores zeros: the
sampler leaves the symmetric matrices, and Newton's method gets a singular system. A vector of free
numbers has neither fault:

    to_vector, from_vector, log_determinant = tj.tangents.free_coordinates(params)
    log_density = lambda v: log_posterior(from_vector(v)) + log_determinant(v)

Sharp edge. In some types several sets of fields stand for one matrix (`LowRank`, `Kronecker`,
`Scaled`). Their free numbers are all of their fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PyTree, Shaped

from tanjax._errors import NoRuleError, ShapeError, describe, message
from tanjax._typing import Primal
from tanjax.arrays import (
    FreeForm,
    answers,
    entries,
    is_inexact,
    is_structured,
    without_promise,
)
from tanjax.quantities import convert, is_quantity, label_of, stored_of, unitful
from tanjax.units import Unit


class FreeCoordinates(NamedTuple):
    """The maps between arrays and a vector of free numbers, and their log-determinant."""

    to_vector: Callable[[PyTree], Float[Array, " n"]]
    from_vector: Callable[[Float[Array, " n"]], PyTree]
    log_determinant: Callable[[Float[Array, " n"]], Shaped[Array, ""]]


def free_coordinates(like: PyTree, positive: PyTree = False) -> FreeCoordinates:
    """Return the maps between a tree of arrays and the vector of its free numbers.

    **Arguments:** `like`: an array of any type, a batch, a quantity, or a tree of them. It fixes
    types, shapes, dtypes and units, and the values without tangents (integers, functions).
    `positive`: a Boolean, or a tree of Booleans for subtrees of `like`. It declares dense arrays
    and diagonals with positive entries, triangles with a positive diagonal, and definite matrices.
    Matrices with `definite=True` need no declaration.

    **Returns:** a `FreeCoordinates` of three functions.

    `to_vector(x)`: the real vector, shape `(n,)`, of a tree like `like`. It holds the upper
    triangle of a `Symmetric` or `Hermitian`, the triangle of a `Triangular`, the entries of a
    `Banded` inside of the matrix, and the fields of other types. Real parts come before imaginary
    parts. A definite matrix is stored as its Cholesky factor, with the logarithms of the diagonal.
    Positive numbers are stored as logarithms. Quantities are in the unit that `like` has.

    `from_vector(v)`: the tree, for every real `v`.

    `log_determinant(v)`: the logarithm of the determinant of the change from `v` to the entries, 0
    without logarithms. A sampler adds it to the log density of the arrays.

    JAX can differentiate, compile and map all three; `jax.vmap(from_vector)` of samples is a batch.

    **Raises:** `NoRuleError` if `positive` has no meaning for a type; `ShapeError` from
    `to_vector` if the tree is not like `like`.

    >>> to_vector, from_vector, log_determinant = free_coordinates(jnp.ones(2), positive=True)
    >>> from_vector(jnp.zeros(2)).tolist(), float(log_determinant(jnp.array([1.0, 2.0])))
    ([1.0, 1.0], 3.0)
    """
    cells, treedef = jax.tree.flatten(like, is_leaf=_has_form)
    forms = _forms(like, positive)
    parts = [jax.eval_shape(f.read, c) if f else [] for f, c in zip(forms, cells, strict=True)]
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*([p.dtype for some in parts for p in some] or [float]))

    def to_vector(x: PyTree) -> Float[Array, " n"]:
        read = [f.read(c) for f, c in zip(forms, _cells_like(like, x), strict=True) if f]
        flat = [p.astype(dtype).ravel() for some in read for p in some]
        return jnp.concatenate(flat) if flat else jnp.zeros(0, dtype)

    def split(v: Float[Array, " n"]) -> list[list[Array]]:
        ends = np.cumsum([math.prod(p.shape) for some in parts for p in some])
        if v.shape != (sum(ends[-1:]),):
            raise ShapeError(
                f"free_coordinates: v must have {sum(ends[-1:])} numbers; got {describe(v)}."
            )
        pieces = iter(jnp.split(v, ends[:-1]))
        return [[next(pieces).reshape(p.shape).astype(p.dtype) for p in some] for some in parts]

    def from_vector(v: Float[Array, " n"]) -> PyTree:
        written = zip(forms, split(jnp.asarray(v)), cells, strict=True)
        return jax.tree.unflatten(treedef, [f.write(some) if f else c for f, some, c in written])

    def log_determinant(v: Float[Array, " n"]) -> Shaped[Array, ""]:
        total = jnp.zeros((), dtype)
        for f, some in zip(forms, split(jnp.asarray(v)), strict=True):
            if f and f.weights is not None:
                logs = some[0].astype(dtype)
                total += jnp.sum(logs * jnp.asarray(f.weights, dtype)) + f.constant
        return total

    return FreeCoordinates(to_vector, from_vector, log_determinant)


def _has_form(x: PyTree) -> bool:
    return answers(x, "free_form")


def _forms(like: PyTree, positive: PyTree) -> list[FreeForm | None]:
    """Return the form of every dense array and of every type with a form; `None` if it is fixed."""
    forms: list[FreeForm | None] = []

    def add(node: Primal, flag: bool) -> None:
        number = stored_of(node)
        for cell in jax.tree.leaves(number, is_leaf=_has_form):
            form = None
            if is_inexact(cell) and _has_form(cell):
                form = cell.free_form(flag)
            elif is_inexact(cell) and not (flag and (cell is not number or jnp.iscomplexobj(cell))):
                form = entries(flag)
            if form is None and is_inexact(cell):
                raise NoRuleError(
                    message(
                        "free_coordinates: no positive numbers make such an array.",
                        f"got: {describe(node)}",
                        hint="`positive` is for real dense arrays, diagonals, triangles and "
                        "definite matrices; give a tree of Booleans, `False` for the others.",
                    )
                )
            forms.append(form)

    each = lambda flag, sub: jax.tree.map(lambda node: add(node, flag), sub, is_leaf=is_structured)
    jax.tree.map(each, positive, like)
    return forms


def _cells_like(like: PyTree, x: PyTree) -> list[Primal]:
    """Return the arrays of `x` in the units of `like`. **Raises:** `ShapeError`, `UnitError`."""
    nodes, treedef = jax.tree.flatten(x, is_leaf=is_quantity)
    units = map(label_of, jax.tree.leaves(like, is_leaf=is_quantity))
    if treedef == jax.tree.structure(like, is_leaf=is_quantity):
        nodes = [_in_unit(node, unit) for node, unit in zip(nodes, units, strict=True)]
        x = jax.tree.unflatten(treedef, nodes)
    (cells, got), (own, expected) = (jax.tree.flatten(t, is_leaf=_has_form) for t in (x, like))
    if got != expected or list(map(_facts, cells)) != list(map(_facts, own)):
        raise ShapeError(
            message(
                "free_coordinates: the tree is not like the one that the maps were made for.",
                f"expected: {jax.tree.map(np.shape, like)}",
                f"got: {jax.tree.map(np.shape, x)}",
            )
        )
    return cells


def _in_unit(x: Primal, unit: Unit | None) -> Primal:
    if unit is None or not is_quantity(x):
        return x
    return unitful(convert(x.stored, x.label, unit), unit)


def _facts(cell: Primal) -> tuple[PyTree, ...]:
    leaves, treedef = jax.tree.flatten(without_promise(cell))
    return (treedef, *map(np.shape, leaves))
