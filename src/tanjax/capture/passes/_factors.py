"""Factorizations in captured programs: matrices that have one, and the equations that use it."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import _jaxprs, _marks
from tanjax._errors import NoRuleError
from tanjax._typing import Natural
from tanjax.arrays import densify
from tanjax.operations import Factorization, SlogdetResult, factorize
from tanjax.quantities import stored_of

_FACTORS = ("lu", "cholesky", "eigh", "svd", "qr", "geqrf", "schur", "tridiagonal")


class ByFactor:
    """A result computed from a factorization, as one equation of a captured program."""

    def __init__(self, name: str, run: Callable[..., PyTree]) -> None:
        self.__name__ = name
        self.names = ("factorization", "b")
        self._run = run
        self._marks: _marks.Cache = {}

    def __call__(self, *args: PyTree) -> PyTree:
        if _marks.ACTIVE[0] and _marks.capturing():
            name, run = self.__name__, self._run
            return _marks.marked("operation", name, self, run, args, {}, self._marks)
        return self._run(*args)


def _det(f: Factorization) -> Natural:
    sign, logarithm = f.slogdet()
    return sign * jnp.exp(logarithm)


def _inv(f: Factorization) -> Natural:
    dtype = jax.tree.leaves((f.matrix, f.parts))[0].dtype
    return f.solve(jnp.eye(f.n, dtype=dtype))


solve = ByFactor("solve", lambda f, b: f.solve(b))
logdet = ByFactor("logdet", lambda f: f.logdet())
slogdet = ByFactor("slogdet", lambda f: SlogdetResult(*f.slogdet()))
det = ByFactor("det", _det)
inv = ByFactor("inv", _inv)
inv_quad_logdet = ByFactor("inv_quad_logdet", lambda f, b: (f.inv_quad(b), f.logdet()))
cholesky = ByFactor("cholesky", lambda f: f.plan.cholesky(f.matrix, f.parts))

_known: dict[Hashable, PyTree] = {}  # the factorizations of matrices by type and shape, as avals
_MOST = 1024


def factors_of(skeleton: PyTree) -> Factorization | None:
    """Return `tj.factorize` of this matrix as avals; `None` where it saves nothing.

    A matrix that needs no factors, that would densify, or that is a batch gives `None`.
    """
    leaves, tree = jax.tree.flatten(skeleton)
    if not all(hasattr(x, "aval") or isinstance(x, _marks.Static) for x in leaves):
        return None
    shown = [
        x.value
        if isinstance(x, _marks.Static)
        else jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype)
        for x in leaves
    ]
    matrix = jax.tree.unflatten(tree, shown)
    shape = jnp.shape(stored_of(matrix))
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        return None
    key: Hashable = tree, tuple((x.shape, x.dtype) if hasattr(x, "dtype") else x for x in shown)
    try:
        found = _known.get(key, _known)
    except TypeError:
        found, key = _known, None
    if found is _known:
        found = _factored(matrix)
        if len(_known) >= _MOST:
            _known.clear()
        if key is not None:
            _known[key] = found
    return found


def _factored(matrix: PyTree) -> Factorization | None:
    try:
        with _marks.scope(on=False), densify("error"):
            closed, out = jax.make_jaxpr(factorize, return_shape=True)(matrix)
    except (NoRuleError, TypeError, ValueError):  # also: not square, dtype not supported
        return None
    return out if any(e.primitive.name in _FACTORS for e in _jaxprs.all_equations(closed)) else None
