r"""Functions of Hermitian matrices, by divided differences.

With $A = U\,\mathrm{diag}(\lambda)\,U^H$ and $\tilde E = U^H E\,U$ the derivatives of
$F = U\,\mathrm{diag}(f(\lambda))\,U^H$ are, in the eigenbasis,

$$(D_1)_{ik} = f[\lambda_i, \lambda_k]\,\tilde E_{ik}, \qquad
(D_2)_{ik} = \sum_j f[\lambda_i, \lambda_j, \lambda_k]
(\tilde K_{ij}\tilde H_{jk} + \tilde H_{ij}\tilde K_{jk}),$$

with the divided differences $f[a, b] = (f(a) - f(b))/(a - b)$. AD of `eigh` divides by the same
gaps where they cancel, and gives nan at equal eigenvalues. Here a difference over a small gap is an
integral of a derivative (Hermite and Genocchi), which is smooth there.

Sharp edges: third derivatives are AD through `eigh`, for distinct eigenvalues only. The second
costs $n^3$ values of $f''$, one matrix at a time. **References:** Daleckii and Krein 1965; Higham
2008, section 3.2.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Bool, PyTree

from tanjax import _compat
from tanjax._errors import ShapeError
from tanjax._typing import Arraylike, DenseArray

from ._schur import adjoint, batched, require_square
from ._shapes import Column, Index, Numbers, Square

# Of eigenvalues in any shape, and of what it closes over.
Pointwise: TypeAlias = Callable[[Numbers, PyTree], Numbers]
Entries: TypeAlias = Callable[[Column], Column]

# Gauss and Legendre on [0, 1]; and of degree 3 on every second node, to estimate the error.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2
_OUTER = 1 / (24 * (_NODES[4] - 0.5) ** 2)
_LOW_WEIGHTS = np.array([_OUTER, 0, 1 - 2 * _OUTER, 0, _OUTER])

# Radon's rule of degree 5 on a triangle, in barycentric coordinates; and one of degree 2 on the
# centre and the three outer points. The weights sum to 1; the area of the integral is 1/2.
_CORNERS = [(c, c, 1 - 2 * c) for c in ((6 - 15**0.5) / 21, (6 + 15**0.5) / 21)]
_POINTS: list[Sequence[float]] = [
    (1 / 3,) * 3,
    *(p[-k:] + p[:-k] for p in _CORNERS for k in range(3)),
]
_SHARES: list[float] = [9 / 40, *[(155 - 15**0.5) / 1200] * 3, *[(155 + 15**0.5) / 1200] * 3]
_OUTER = (1 / 6 - 1 / 9) / (float(np.mean(np.square(_CORNERS[0]))) - 1 / 9)
_LOW_SHARES: list[float] = [1 - _OUTER, *[_OUTER / 3] * 3, 0, 0, 0]


def of_hermitian(a: Arraylike, func: Entries) -> Numbers:
    """`func` of the Hermitian part of `(..., n, n)`, by its eigenvalues."""
    require_square("funm_hermitian", a)
    return _of_hermitian(a, func=func)


@batched("(n,n)->(n,n)")
def _of_hermitian(a: Square, *, func: Entries) -> Square:
    probe = jnp.real(jnp.diagonal(a))
    shape = jnp.shape(jax.eval_shape(func, probe))
    if shape != probe.shape:
        raise ShapeError(
            f"funm_hermitian: `func` made shape {list(shape)} of {len(probe)} eigenvalues.\n"
            "Hint: it works on each eigenvalue by itself, as `jnp.exp` does."
        )
    if a.size == 0:
        return a
    function, held = jax.closure_convert(func, probe)  # an argument may be differentiated by

    def pointwise(x: Numbers, held: PyTree) -> Numbers:
        rows = x.reshape(-1, len(probe))
        return jax.vmap(lambda row: function(row, *held))(rows).reshape(x.shape)

    return _value(pointwise, (a + adjoint(a)) / 2, tuple(held))[0]


def _value(f: Pointwise, a: Square, held: PyTree) -> tuple[Square, Column, Square]:
    """The function of `a`, and its eigenvalues and -vectors, which are constant to derivatives."""

    @jax.custom_jvp
    def value(a: Square, held: PyTree) -> tuple[Square, Column, Square]:
        w, u = jnp.linalg.eigh(a, symmetrize_input=False)
        values, vectors = alike(f(w, held), u)
        return (vectors * values) @ adjoint(vectors), w, u

    @value.defjvp
    def _(primals: PyTree, tangents: PyTree) -> PyTree:
        (a, held), (a_dot, held_dot) = primals, tangents
        out, w, u = _value(f, a, held)
        out_dot = _pushed(f, a, w, u, held, a_dot)
        if held:
            out_dot = out_dot + _value(_moved(f), a, (held, held_dot))[0]
        return (out, w, u), _compat.align((out_dot, jnp.zeros_like(w), jnp.zeros_like(u)))

    return value(a, held)


def _pushed(f: Pointwise, a: Square, w: Column, u: Square, held: PyTree, e: Square) -> Square:
    """`_first` as one linear map of `e`, with its transpose.

    JAX would forget the derivative of `_first` by `a` where it is linear in `e`, as it does of any
    `custom_jvp` inside a tangent map, and differentiate its body, which takes the factors as given.
    """
    parts, tree = jax.tree.flatten(held)

    def along(a: Square, w: Column, u: Square, parts: Sequence[Numbers], e: Square) -> Square:
        return _first(f, a, w, u, jax.tree.unflatten(tree, parts), e)

    forward = lambda a, w, u, *rest: [along(a, w, u, rest[:-1], rest[-1])]
    backward = lambda a, w, u, *rest: [along(a, w, u, rest[:-1], rest[-1].T).T]
    shape = jax.eval_shape(lambda *args: forward(*args)[0], a, w, u, *parts, e)
    like = jax.typeof(_compat.align(jnp.zeros(shape.shape, shape.dtype), a, e))
    name = "funm_hermitian"
    return _compat.linear_call(forward, backward, name, [a, w, u, *parts], [e], [like])[0]


def _first(f: Pointwise, a: Square, w: Column, u: Square, held: PyTree, e: Square) -> Square:
    """The derivative of the function at `a` in the direction `e`.

    `w` and `u` only save an `eigh`: that they depend on `a` is in the derivative by `a`.
    """

    @jax.custom_jvp
    def first(a: Square, w: Column, u: Square, held: PyTree, e: Square) -> Square:
        return _in_eigenbasis(f, w, u, held, e)

    @first.defjvp
    def _(primals: PyTree, tangents: PyTree) -> PyTree:
        (a, w, u, held, e), (a_dot, _, _, held_dot, e_dot) = primals, tangents
        dot = _pushed(f, a, w, u, held, e_dot) + _second(f, a, held, e, a_dot)
        if held:
            values, vectors = jnp.linalg.eigh(a, symmetrize_input=False)
            dot = dot + _in_eigenbasis(_moved(f), values, vectors, (held, held_dot), e)
        return _first(f, a, w, u, held, e), dot

    return first(a, w, u, held, e)


def _in_eigenbasis(f: Pointwise, w: Column, u: Square, held: PyTree, e: Square) -> Square:
    differences = first_differences(f, held, w[:, None], w[None, :])[0]
    differences, u, e = alike(differences, u, e)
    return u @ (differences * (adjoint(u) @ e @ u)) @ adjoint(u)


def alike(*arrays: Numbers) -> list[Numbers]:
    """Arrays of one dtype: eigenvalues are real where eigenvectors, or values, are complex."""
    dtype = functools.reduce(np.promote_types, (x.dtype for x in arrays))
    return [x.astype(dtype) for x in arrays]


def _second(f: Pointwise, a: Square, held: PyTree, h: Square, k: Square) -> Square:
    """The second derivative at `a` in the directions `h` and `k`; in terms of `eigh` itself."""
    w, u = jnp.linalg.eigh(a, symmetrize_input=False)
    h, k, u = alike(h, k, u)
    h, k = adjoint(u) @ h @ u, adjoint(u) @ k @ u
    pairs, errors = first_differences(f, held, w[:, None], w[None, :])

    def add(total: Square, j: Index) -> tuple[Square, None]:
        both = jnp.outer(k[:, j], h[j, :]) + jnp.outer(h[:, j], k[j, :])
        differences, both = alike(second_differences(f, held, w, j, pairs, errors), both)
        return total + differences * both, None

    zero = _compat.align(jnp.zeros_like(alike(h, pairs)[0]), h, k, pairs)
    inside, u = alike(lax.scan(add, zero, jnp.arange(len(w)))[0], u)
    return u @ inside @ adjoint(u)


# -- divided differences -------------------------------------------------------------------------


def first_differences(
    f: Pointwise, held: PyTree, x: Numbers, y: Numbers
) -> tuple[Numbers, Numbers]:
    """`f[x, y]` of two arrays that broadcast, and an estimate of its error."""
    x, y = jnp.broadcast_arrays(x, y)
    gap, f_x, f_y = x - y, f(x, held), f(y, held)
    slope = _derivative(f)
    values = [slope(y + float(t) * gap, held) for t in _NODES]
    integral, rough = _weighted(_WEIGHTS, values), _weighted(_LOW_WEIGHTS, values)
    together = gap == 0
    safe = jnp.where(together, 1, gap)
    quotient = (f_x - f_y) / safe
    # What `f` loses inside of itself, as `x * x - 1` near 1, is as if `x` were rounded.
    inside = (jnp.abs(x) + jnp.abs(y)) * jnp.abs(integral)
    eps = jnp.finfo(gap.dtype).eps
    by_quotient = eps * (jnp.abs(f_x) + jnp.abs(f_y) + inside) / jnp.abs(safe)
    return _better(together, integral, jnp.abs(integral - rough), quotient, by_quotient)


def second_differences(
    f: Pointwise, held: PyTree, w: Column, j: Index, pairs: Square, errors: Square
) -> Square:
    """`f[w_i, w_j, w_k]` for all `i`, `k` and one `j`, from those of the pairs."""
    x, y, z = jnp.broadcast_arrays(w[:, None], w[j], w[None, :])
    ij, jk, ik = (jnp.broadcast_to(p, x.shape) for p in (pairs[:, j][:, None], pairs[j], pairs))
    e_ij, e_jk, e_ik = errors[:, j][:, None], errors[j], errors
    curvature = _derivative(_derivative(f))
    values = [curvature(float(p[0]) * x + float(p[1]) * y + float(p[2]) * z, held) for p in _POINTS]
    integral, rough = _weighted(_SHARES, values) / 2, _weighted(_LOW_SHARES, values) / 2
    gaps = [jnp.abs(x - z), jnp.abs(x - y), jnp.abs(y - z)]
    widest = jnp.argmax(jnp.stack(gaps), axis=0)  # divide by the widest of the three gaps
    choose = lambda *three: jnp.select([widest == 0, widest == 1], three[:2], three[2])
    gap, top = choose(x - z, x - y, y - z), choose(ij - jk, ik - jk, ij - ik)
    together = gap == 0
    safe = jnp.where(together, 1, gap)
    eps = jnp.finfo(gap.dtype).eps
    rounding = choose(e_ij + e_jk, e_ik + e_jk, e_ij + e_ik) + eps * jnp.abs(choose(ij, ik, ij))
    inside = (jnp.abs(x) + jnp.abs(y) + jnp.abs(z)) * jnp.abs(integral)  # as of first differences
    rounding = rounding + 2 * eps * inside
    by_quotient = rounding / jnp.abs(safe)
    return _better(together, integral, jnp.abs(integral - rough), top / safe, by_quotient)[0]


def _better(
    together: Bool[DenseArray, ...],
    integral: Numbers,
    by_integral: Numbers,
    quotient: Numbers,
    by_quotient: Numbers,
) -> tuple[Numbers, Numbers]:
    """Where it has the smaller error, or the points coincide, the integral; else the quotient."""
    by_integral = jnp.maximum(by_integral, jnp.finfo(by_integral.dtype).eps * jnp.abs(integral))
    smooth = together | (by_integral <= by_quotient)
    value = jnp.where(smooth, integral, quotient)
    error = jnp.where(smooth, by_integral, by_quotient)
    return value, lax.stop_gradient(error)


def _weighted(weights: Iterable[float], values: list[Numbers]) -> Numbers:
    terms = [float(w) * v for w, v in zip(weights, values, strict=True)]
    return functools.reduce(operator.add, terms)


def _derivative(f: Pointwise) -> Pointwise:
    """The derivative by the eigenvalue, each by itself."""
    return lambda x, held: jax.jvp(lambda x: f(x, held), (x,), (jnp.ones_like(x),))[1]


def _moved(f: Pointwise) -> Pointwise:
    """The derivative by what the function closes over, as a function that holds the tangent too."""
    return lambda x, both: jax.jvp(lambda held: f(x, held), both[:1], both[1:])[1]
