r"""Functions of Hermitian matrices, and their products with columns.

With $A = U\,\mathrm{diag}(\lambda)\,U^H$ a function is $F = U\,\mathrm{diag}(f(\lambda))\,U^H$.
Its product $F b = U (f(\lambda) \odot U^H b)$ costs $O(n^2)$ per column beside the eigenvectors.
The product's cotangent of $F$, $\bar y b^\top$, stays thin until it is weighted. Five maps share
one `eigh`:

| map | | transposed, at $A$ or $A^\top$ | its derivative by $A$ |
|---|---|---|---|
| `WHOLE` | $F$, without an operand | | `ALONG` |
| `ALONG` | $L(E) = U (D \odot U^H E\,U)\,U^H$ | `ALONG` | the second |
| `TIMES` | $F b$ | `TIMES` | `ALONG_TIMES` |
| `ALONG_TIMES` | $L(E)\,b$ | `ALONG_OUTER`, `ALONG_TIMES` | the second, times $b$ |
| `ALONG_OUTER` | $L(p q^\top)$ | `ALONG_TIMES` twice | the second, of $p q^\top$ |

with the divided differences $D_{ij} = f[\lambda_i, \lambda_j]$. Each map takes `eigh` as given, so
AD must not see its body (`_custom_jvp.py`). A tangent binds the map together with its transpose
(`_linear`). Mixed second derivatives, by the matrix and by arrays that the function closes over,
are AD through `eigh`, for distinct eigenvalues only. So are third derivatives.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import PyTree, Shaped

from tanjax import _compat
from tanjax._typing import AnyArray, Arraylike, DenseArray

from . import _divided_differences as divided
from ._custom_jvp import custom_jvp
from ._schur import adjoint, batched, require_square
from ._shapes import Column, Numbers, Square

Columns: TypeAlias = Shaped[DenseArray, "n k"]
# A function of a `Spectral` and operands.
Map: TypeAlias = Callable[..., Numbers]
Tangent: TypeAlias = AnyArray  # or JAX's symbolic zero


class Spectral(NamedTuple):
    """A function, a matrix, its `eigh`, and the arrays that the function closes over.

    `w` and `u` only save a factorisation. The derivative by `a` contains their dependence on `a`.
    """

    f: divided.Pointwise
    a: Square
    w: Column
    u: Square
    held: PyTree

    @property
    def T(self) -> Spectral:
        """The `Spectral` of the transposed matrix."""
        return self._replace(a=self.a.T, u=jnp.conj(self.u))

    def second(self, h: Square, k: Square) -> Square:
        """Return the second derivative of the function's matrix along `h` and `k`."""
        return divided.second(self.f, self.a, self.held, h, k)


def of_hermitian(a: Arraylike, func: divided.Entries, symmetrize: bool = True) -> Numbers:
    """Return `func` of the Hermitian part of `(..., n, n)`, by its eigenvalues.

    Without `symmetrize`, `a` must be Hermitian.
    """
    require_square("funm_hermitian", a)
    return _of_hermitian(a, func=func, symmetrize=symmetrize)


@batched("(n,n)->(n,n)")
def _of_hermitian(a: Square, *, func: divided.Entries, symmetrize: bool) -> Square:
    f, held, dtype = divided.entries("funm_hermitian", func, jnp.real(jnp.diagonal(a)))
    if a.size == 0:
        return a
    if jnp.issubdtype(dtype, jnp.complexfloating):
        a = divided.hermitian(a)  # real functions do this in the eigenbasis, without extra memory
    return _apply(WHOLE, _factored(f, a, held, symmetrize))


def multiply_hermitian(a: Arraylike, b: Arraylike, func: divided.Entries) -> Numbers:
    """Return `func` of the Hermitian part of `(..., n, n)`, times `(n,)` or `(..., n, k)`."""
    require_square("funm_multiply", a)
    if jnp.ndim(b) == 1:
        return _product(a, jnp.asarray(b)[:, None], func=func)[..., 0]
    return _product(a, b, func=func)


@batched("(n,n),(n,k)->(n,k)")
def _product(a: Square, b: Columns, *, func: divided.Entries) -> Columns:
    f, held, dtype = divided.entries("funm_multiply", func, jnp.real(jnp.diagonal(a)))
    if a.size == 0:
        return b
    b = b.astype(np.promote_types(dtype, b.dtype))
    return _apply(TIMES, _factored(f, divided.hermitian(a), held), b)


def _factored(f: divided.Pointwise, a: Square, held: PyTree, symmetrize: bool = False) -> Spectral:
    w, u = jnp.linalg.eigh(lax.stop_gradient(a), symmetrize_input=symmetrize)
    return Spectral(f, a, w, u, held)


# -- linear maps at a matrix -----------------------------------------------------------------------


class SpectralMap(NamedTuple):
    """A map that is linear in each operand, and its derivatives.

    `weights(f, held, w)` returns values or divided differences for `body(weights, u, *operands)`.
    `moved(f, held, held_dot, w)` is the tangent of the weights. `transposes[i](s, *others, y)` is
    the cotangent of operand `i`. `by_matrix(s, a_dot, *operands)` is the derivative by the matrix.
    """

    body: Map
    weights: Map
    moved: Map
    transposes: tuple[Map, ...]
    by_matrix: Map


def _apply(rule: SpectralMap, s: Spectral, *operands: Numbers) -> Numbers:
    f = s.f

    @custom_jvp
    def value(a: Square, w: Column, u: Square, held: PyTree, operands: PyTree) -> Numbers:
        return rule.body(rule.weights(f, held, w), u, *operands)

    def pushforward(primals: PyTree, tangents: PyTree) -> tuple[Numbers, Numbers]:
        *parts, operands = primals
        a_dot, _, _, held_dot, dots = tangents
        s = Spectral(f, *parts)
        out = _apply(rule, s, *operands)
        terms = [_linear(rule, s, operands, place, x) for place, x in enumerate(dots) if moves(x)]
        if moves(a_dot):  # cast to the result's dtype: the transpose of a cast takes the real part
            terms.append(rule.by_matrix(s, a_dot.astype(out.dtype), *operands))
        if any(map(moves, jax.tree.leaves(held_dot))):
            w, u = jnp.linalg.eigh(s.a)
            weights = rule.moved(f, s.held, jax.tree.map(instantiated, held_dot), w)
            terms.append(rule.body(weights, u, *operands))
        dot = functools.reduce(operator.add, terms) if terms else jnp.zeros_like(out)
        return out, _compat.align(dot)

    value.defjvp(pushforward, symbolic_zeros=True)
    return value(s.a, s.w, s.u, s.held, operands)


def moves(dot: Tangent) -> bool:
    """True if the tangent is not a symbolic zero."""
    return not isinstance(dot, SymbolicZero)


def instantiated(dot: Tangent) -> Numbers:
    """Return a tangent as an array."""
    return dot if moves(dot) else jnp.zeros(dot.aval.shape, dot.aval.dtype)


def _linear(rule: SpectralMap, s: Spectral, operands: PyTree, place: int, dot: Numbers) -> Numbers:
    """Apply the map with `dot` as one operand, as a linear map with its transpose."""
    f, others = s.f, [*operands[:place], *operands[place + 1 :]]
    parts, tree = jax.tree.flatten((s[1:], others))

    def given(parts: Iterable[Numbers]) -> tuple[Spectral, list[Numbers]]:
        fields, others = jax.tree.unflatten(tree, parts)
        return Spectral(f, *fields), others

    def forward(*args: Numbers) -> list[Numbers]:
        s, others = given(args[:-1])
        return [_apply(rule, s, *others[:place], args[-1], *others[place:])]

    def backward(*args: Numbers) -> list[Numbers]:
        s, others = given(args[:-1])
        return [rule.transposes[place](s, *others, args[-1])]

    shape = jax.eval_shape(lambda *args: forward(*args)[0], *parts, dot)
    like = jax.typeof(_compat.align(jnp.zeros(shape.shape, shape.dtype), *parts, dot))
    linear = _compat.LinearMap(forward, backward, "funm_hermitian")
    return _compat.linear_call(linear, parts, [dot], [like])[0]


# -- the five --------------------------------------------------------------------------------------


def _values(f: divided.Pointwise, held: PyTree, w: Column) -> Column:
    return f(w, held)


def _moved_values(f: divided.Pointwise, held: PyTree, held_dot: PyTree, w: Column) -> Column:
    return divided.moved(f)(w, (held, held_dot))


def _pairs(f: divided.Pointwise, held: PyTree, w: Column) -> Square:
    return divided.first_differences(f, held, w[:, None], w[None, :])[0]


def _whole(values: Column, u: Square) -> Square:
    values, u = divided.alike(values, u)
    return (u * values[..., None, :]) @ adjoint(u)


def _along(pairs: Square, u: Square, e: Square) -> Square:
    real = not jnp.iscomplexobj(pairs)
    pairs, u, e = divided.alike(pairs, u, e)
    inner = adjoint(u) @ e @ u
    return u @ (pairs * (divided.hermitian(inner) if real else inner)) @ adjoint(u)


def _times(values: Column, u: Square, b: Columns) -> Columns:
    values, u, b = divided.alike(values, u, b)
    return u @ (values[:, None] * (adjoint(u) @ b))


def _along_times(pairs: Square, u: Square, e: Square, b: Columns) -> Columns:
    pairs, u, e, b = divided.alike(pairs, u, e, b)
    return u @ ((pairs * (adjoint(u) @ e @ u)) @ (adjoint(u) @ b))


def _along_outer(pairs: Square, u: Square, p: Columns, q: Columns) -> Square:
    pairs, u, p, q = divided.alike(pairs, u, p, q)
    return u @ (pairs * ((adjoint(u) @ p) @ (u.T @ q).T)) @ adjoint(u)


WHOLE: SpectralMap = SpectralMap(
    _whole,
    _values,
    _moved_values,
    (),
    lambda s, a_dot: _linear(ALONG, s, (a_dot,), 0, a_dot),
)
ALONG: SpectralMap = SpectralMap(
    _along,
    _pairs,
    divided.moved_differences,
    (lambda s, y: _apply(ALONG, s.T, y),),
    lambda s, a_dot, e: s.second(e, a_dot),
)
TIMES: SpectralMap = SpectralMap(
    _times,
    _values,
    _moved_values,
    (lambda s, y: _apply(TIMES, s.T, y),),
    lambda s, a_dot, b: _linear(ALONG_TIMES, s, (a_dot, b), 0, a_dot),
)
ALONG_TIMES: SpectralMap = SpectralMap(
    _along_times,
    _pairs,
    divided.moved_differences,
    (
        lambda s, b, y: _apply(ALONG_OUTER, s.T, y, b),
        lambda s, e, y: _apply(ALONG_TIMES, s.T, e.T, y),
    ),
    lambda s, a_dot, e, b: s.second(e, a_dot) @ b,
)
ALONG_OUTER: SpectralMap = SpectralMap(
    _along_outer,
    _pairs,
    divided.moved_differences,
    (
        lambda s, q, y: _apply(ALONG_TIMES, s.T, y, q),
        lambda s, p, y: _apply(ALONG_TIMES, s, y.T, p),
    ),
    lambda s, a_dot, p, q: s.second(p @ q.T, a_dot),
)
