"""The best order of a product of several matrices, by the costs of products of their types."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import _marks, operations as tj
from tanjax._typing import AnyArray, DType, Function
from tanjax.arrays import is_structured

from ._flops import cost_of_function

_INFINITE = float("inf")
MOST = 8  # factors of a chain; every part of it is traced
_known: dict[Hashable, tuple[float, PyTree] | None] = {}


Value: TypeAlias = AnyArray  # or a `Later`


class Factor(NamedTuple):
    """A factor of a chain: its value and, for an inverse, the inverted matrix."""

    value: Value
    inverted: Value | None = None


class Later:
    """A product or an inverse that is computed on demand: a chain may not need it."""

    __slots__ = ("_build", "like")

    def __init__(self, like: PyTree, build: Callable[[], AnyArray]) -> None:
        self.like, self._build = like, build

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.like.shape)

    @property
    def dtype(self) -> DType:
        return jnp.dtype(self.like.dtype)

    def value(self) -> AnyArray:
        """Compute it here."""
        return self._build()


def force(x: Value) -> AnyArray:
    """Return a value, computed now if it was deferred."""
    return x.value() if type(x) is Later else x


class Part(NamedTuple):
    """A product of neighbours in its best order: its cost, its avals, its value."""

    cost: float
    like: PyTree
    value: Callable[[], AnyArray]
    inverted: Value | None = None


def best_order(factors: Sequence[Factor]) -> Part | None:
    """Find the cheapest order by dynamic programming over neighbours; `None` if there is none."""
    n = len(factors)
    best: dict[tuple[int, int], Part] = {(i, i): leaf(f) for i, f in enumerate(factors)}
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            found = [
                part
                for k in range(i, j)
                if (i, k) in best and (k + 1, j) in best
                for part in _joined(best[i, k], best[k + 1, j])
            ]
            if found:
                best[i, j] = min(found, key=lambda part: part.cost)
    return best.get((0, n - 1))


def leaf(factor: Factor) -> Part:
    """A factor alone; an inverse has the cost of the inversion."""
    like, inverted = like_of(factor.value), factor.inverted
    if inverted is None:
        return Part(0.0, like, lambda: force(factor.value))
    known = _cost("inv", tj.inv, like_of(inverted))
    return Part(known[0] if known else _INFINITE, like, lambda: force(factor.value), inverted)


def _joined(a: Part, b: Part) -> list[Part]:
    """Return all ways to multiply two parts."""
    found = []
    known = product_cost(a.like, b.like)
    if known is not None:
        times = lambda: tj.matmul(a.value(), b.value())
        found.append(Part(a.cost + b.cost + known[0], known[1], times))
    if a.inverted is not None and not is_structured(b.like):
        known = _cost("solve", tj.solve, like_of(a.inverted), b.like)
        if known is not None:
            solved = lambda: tj.solve(a.inverted, b.value())
            found.append(Part(b.cost + known[0], known[1], solved))
    if b.inverted is not None and not is_structured(a.like):
        known = _cost("solve_right", _solve_right, like_of(b.inverted), a.like)
        if known is not None:
            solved = lambda: _solve_right(b.inverted, a.value())
            found.append(Part(a.cost + known[0], known[1], solved))
    return found


def _solve_right(a: AnyArray, b: AnyArray) -> AnyArray:
    """Return `b @ inv(a)`."""
    solved = tj.solve(tj.transpose(a), b if b.ndim == 1 else tj.transpose(b))
    return solved if b.ndim == 1 else tj.transpose(solved)


def product_cost(a: PyTree, b: PyTree) -> tuple[float, PyTree] | None:
    """Return the cost and the avals of a product; `None` if it would lose structure."""
    if is_structured(a) or is_structured(b):
        return _cost("matmul", tj.matmul, a, b)
    m = 1 if len(a.shape) == 1 else a.shape[0]
    n = 1 if len(b.shape) == 1 else b.shape[1]
    shape = (*a.shape[:-1], *b.shape[1:])
    return 2.0 * m * n * a.shape[-1], jax.ShapeDtypeStruct(shape, a.dtype)


def like_of(value: Value) -> PyTree:
    """Return a value as avals."""
    if type(value) is Later:
        return value.like
    struct = lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x))
    return jax.tree.map(lambda x: struct(x) if _marks.is_number(x) else x, value, is_leaf=_is_aval)


def _is_aval(x: object) -> bool:
    return isinstance(x, jax.ShapeDtypeStruct)


def _cost(name: str, function: Function, *likes: PyTree) -> tuple[float, PyTree] | None:
    leaves, tree = jax.tree.flatten(likes)
    key = name, tree, tuple((x.shape, x.dtype) if _is_aval(x) else x for x in leaves)
    if key not in _known:
        if len(_known) >= 1024:
            _known.clear()
        found = cost_of_function(function, *likes)
        _known[key] = None if found is None else (found[0].flops, found[1])
    return _known[key]
