r"""Divided differences of functions of Hermitian matrices.

With $A = U\,\mathrm{diag}(\lambda)\,U^H$ and $\tilde E = U^H E\,U$ the derivatives of
$F = U\,\mathrm{diag}(f(\lambda))\,U^H$ are, in the eigenbasis,

$$(D_1)_{ik} = f[\lambda_i, \lambda_k]\,\tilde E_{ik}, \qquad
(D_2)_{ik} = \sum_j f[\lambda_i, \lambda_j, \lambda_k]
(\tilde K_{ij}\tilde H_{jk} + \tilde H_{ij}\tilde K_{jk}),$$

with the divided differences $f[a, b] = (f(a) - f(b))/(a - b)$. AD of `eigh` divides by the same
gaps although they cancel, and gives nan at equal eigenvalues. Here a difference over a small gap is
an integral of a derivative (Hermite and Genocchi), which is smooth at gap zero.

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
from tanjax._typing import DenseArray, DType

from ._schur import adjoint
from ._shapes import Column, Index, Numbers, Square

# A function of eigenvalues in any shape, and of the arrays that it closes over.
Pointwise: TypeAlias = Callable[[Numbers, PyTree], Numbers]
Entries: TypeAlias = Callable[[Column], Column]

# Gauss and Legendre on [0, 1]; a rule of degree 3 on every second node estimates the error.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2
_OUTER = 1 / (24 * (_NODES[4] - 0.5) ** 2)
_LOW_WEIGHTS = np.array([_OUTER, 0, 1 - 2 * _OUTER, 0, _OUTER])

# Radon's rule of degree 5 on a triangle, in barycentric coordinates; a rule of degree 2 on the
# centre and the three outer points estimates the error. The weights sum to 1; the area is 1/2.
_CORNERS = [(c, c, 1 - 2 * c) for c in ((6 - 15**0.5) / 21, (6 + 15**0.5) / 21)]
_POINTS: list[Sequence[float]] = [
    (1 / 3,) * 3,
    *(p[-k:] + p[:-k] for p in _CORNERS for k in range(3)),
]
_SHARES: list[float] = [9 / 40, *[(155 - 15**0.5) / 1200] * 3, *[(155 + 15**0.5) / 1200] * 3]
_OUTER = (1 / 6 - 1 / 9) / (float(np.mean(np.square(_CORNERS[0]))) - 1 / 9)
_LOW_SHARES: list[float] = [1 - _OUTER, *[_OUTER / 3] * 3, 0, 0, 0]


class WithDifferences:
    r"""A function of eigenvalues with divided differences in closed form.

        root = tj.rules.WithDifferences(jnp.sqrt, lambda x, y: 1 / (jnp.sqrt(x) + jnp.sqrt(y)))
        tj.linalg.funm_hermitian(A, root)

    `differences(x, y)` of a column and a row is $(f(x) - f(y))/(x - y)$, and $f'(x)$ where both are
    equal. The closed form is accurate at small gaps. It is cheaper than the default, a choice
    between a quotient and an integral of $7 n^2$ values of `f` and $f'$. Both functions may close
    over arrays, and JAX differentiates by these.

    **Raises:** `ShapeError` at the first use if `differences` does not return one value per pair.
    """

    def __init__(self, func: Entries, differences: Callable[[Numbers, Numbers], Numbers]) -> None:
        self.func, self.differences = func, differences

    def __call__(self, x: Numbers) -> Numbers:
        return self.func(x)


def entries(name: str, func: Entries, probe: Column) -> tuple[Pointwise, PyTree, DType]:
    """Return `func` for eigenvalues in any shape, its closed-over arrays, and its result dtype.

    **Raises:** `ShapeError` unless it returns one value per eigenvalue of `probe`.
    """
    called = lambda x: func(x)  # JAX hashes functions; a module that holds tracers has no hash
    (n,), values = probe.shape, jax.eval_shape(called, probe)
    if jnp.shape(values) != probe.shape:
        raise ShapeError(
            f"{name}: `func` made shape {list(jnp.shape(values))} of {n} eigenvalues.\n"
            "Hint: it works on each eigenvalue by itself, as `jnp.exp` does."
        )
    function, held = jax.closure_convert(called, probe)  # JAX differentiates by arguments only

    def pointwise(x: Numbers, held: PyTree) -> Numbers:
        rows = x.reshape(-1, n)
        return jax.vmap(lambda row: function(row, *held))(rows).reshape(x.shape)

    if not isinstance(func, WithDifferences):
        return pointwise, tuple(held), jnp.result_type(values)
    pairs, quotients = (probe[:, None], probe[None, :]), lambda x, y: func.differences(x, y)
    shape = jnp.shape(jax.eval_shape(quotients, *pairs))
    if shape != (n, n):
        raise ShapeError(
            f"{name}: `differences` made shape {list(shape)} of the pairs of {n} values.\n"
            "Hint: it takes a column and a row, and broadcasts."
        )
    closed, held_too = jax.closure_convert(quotients, *pairs)
    closed_form = _ClosedForm(pointwise, closed)
    return closed_form, (tuple(held), tuple(held_too)), jnp.result_type(values)


class _ClosedForm:
    """A function of eigenvalues and its divided differences; `held`: the closed-over arrays."""

    def __init__(self, func: Pointwise, differences: Callable[..., Numbers]) -> None:
        self._func, self._differences = func, differences

    def __call__(self, x: Numbers, held: PyTree) -> Numbers:
        return self._func(x, held[0])

    def differences(self, x: Numbers, y: Numbers, held: PyTree) -> Numbers:
        return self._differences(x, y, *held[1])


def hermitian(a: Square) -> Square:
    """Return the Hermitian part."""
    return (a + adjoint(a)) / 2


def alike(*arrays: Numbers) -> list[Numbers]:
    """Cast to one dtype: eigenvalues are real, but eigenvectors or values may be complex."""
    dtype = functools.reduce(np.promote_types, (x.dtype for x in arrays))
    return [x.astype(dtype) for x in arrays]


def second(f: Pointwise, a: Square, held: PyTree, h: Square, k: Square) -> Square:
    """Return the second derivative at `a` in the directions `h` and `k`, through `eigh`.

    A real function uses the Hermitian parts of all three, as in the first derivative.
    """
    w, u = jnp.linalg.eigh(a)
    h, k, u = alike(h, k, u)
    h, k = adjoint(u) @ h @ u, adjoint(u) @ k @ u
    pairs, errors = first_differences(f, held, w[:, None], w[None, :])
    if not jnp.iscomplexobj(pairs):
        h, k = hermitian(h), hermitian(k)

    def add(total: Square, j: Index) -> tuple[Square, None]:
        both = jnp.outer(k[:, j], h[j, :]) + jnp.outer(h[:, j], k[j, :])
        differences, both = alike(second_differences(f, held, w, j, pairs, errors), both)
        return total + differences * both, None

    zero = _compat.align(jnp.zeros_like(alike(h, pairs)[0]), h, k, pairs)
    inside, u = alike(lax.scan(add, zero, jnp.arange(w.shape[0]))[0], u)
    return u @ inside @ adjoint(u)


# -- divided differences -------------------------------------------------------------------------


def first_differences(
    f: Pointwise, held: PyTree, x: Numbers, y: Numbers
) -> tuple[Numbers, Numbers]:
    """Return `f[x, y]` of two arrays that broadcast, and an estimate of its error."""
    if isinstance(f, _ClosedForm):
        value = f.differences(x, y, held)
        return value, lax.stop_gradient(4 * jnp.finfo(x.dtype).eps * jnp.abs(value))
    x, y = jnp.broadcast_arrays(x, y)
    gap, f_x, f_y = x - y, f(x, held), f(y, held)
    slope = _derivative(f)
    values = [slope(y + float(t) * gap, held) for t in _NODES]
    integral, rough = _weighted(_WEIGHTS, values), _weighted(_LOW_WEIGHTS, values)
    together = gap == 0
    safe = jnp.where(together, 1, gap)
    quotient = operator.truediv(*alike(f_x - f_y, safe))
    # Cancellation inside of `f`, as in `x * x - 1` near 1, acts like a rounding error of `x`.
    inside = (jnp.abs(x) + jnp.abs(y)) * jnp.abs(integral)
    eps = jnp.finfo(gap.dtype).eps
    by_quotient = eps * (jnp.abs(f_x) + jnp.abs(f_y) + inside) / jnp.abs(safe)
    return _better(together, integral, jnp.abs(integral - rough), quotient, by_quotient)


def moved_differences(f: Pointwise, held: PyTree, held_dot: PyTree, w: Column) -> Square:
    """Return the derivative of `f[w_i, w_j]` by the arrays that `f` closes over.

    The result must be linear in `held_dot`. Therefore each number of `held` has differences of its
    own, chosen by their own errors. A choice by the errors of the tangent would not be linear.
    """
    leaves, tree = jax.tree.flatten(jax.tree.map(jnp.asarray, held))
    directions = [d for leaf in leaves for d in ((1, 1j) if jnp.iscomplexobj(leaf) else (1,))]
    owners = [i for i, leaf in enumerate(leaves) for _ in range(1 + jnp.iscomplexobj(leaf))]
    dots = jax.tree.leaves(held_dot)
    total: Square | None = None
    for i, unit in zip(owners, directions, strict=True):
        dot = (jnp.imag(dots[i]) if unit == 1j else jnp.real(dots[i])).ravel()

        def along(k: Index, i: int = i, unit: complex = unit) -> Square:
            basis = jnp.zeros(leaves[i].size, leaves[i].dtype).at[k].set(unit)
            tangents = [jnp.zeros_like(leaf) for leaf in leaves]
            tangents[i] = basis.reshape(leaves[i].shape)
            both = (held, jax.tree.unflatten(tree, tangents))
            return first_differences(moved(f), both, w[:, None], w[None, :])[0]

        like = jax.eval_shape(along, 0)
        zero = _compat.align(jnp.zeros(like.shape, like.dtype), w, held, held_dot)
        step = lambda sums, k_dot, along=along: (sums + k_dot[1] * along(k_dot[0]), None)
        part = lax.scan(step, zero, (jnp.arange(dot.size), dot.astype(like.dtype)))[0]
        total = part if total is None else total + part
    assert total is not None
    return total


def second_differences(
    f: Pointwise, held: PyTree, w: Column, j: Index, pairs: Square, errors: Square
) -> Square:
    """Return `f[w_i, w_j, w_k]` for all `i`, `k` and one `j`, from the differences of pairs."""
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
    inside = (jnp.abs(x) + jnp.abs(y) + jnp.abs(z)) * jnp.abs(integral)  # as for first differences
    rounding = rounding + 2 * eps * inside
    by_quotient, quotient = rounding / jnp.abs(safe), operator.truediv(*alike(top, safe))
    return _better(together, integral, jnp.abs(integral - rough), quotient, by_quotient)[0]


def _better(
    together: Bool[DenseArray, ...],
    integral: Numbers,
    by_integral: Numbers,
    quotient: Numbers,
    by_quotient: Numbers,
) -> tuple[Numbers, Numbers]:
    """Choose the integral where its error is smaller or the points coincide, else the quotient."""
    by_integral = jnp.maximum(by_integral, jnp.finfo(by_integral.dtype).eps * jnp.abs(integral))
    smooth = together | (by_integral <= by_quotient)
    value = jnp.where(smooth, integral, quotient)
    error = jnp.where(smooth, by_integral, by_quotient)
    return value, lax.stop_gradient(error)


def _weighted(weights: Iterable[float], values: list[Numbers]) -> Numbers:
    terms = [float(w) * v for w, v in zip(weights, values, strict=True)]
    return functools.reduce(operator.add, terms)


def _derivative(f: Pointwise) -> Pointwise:
    """Return the elementwise derivative by the eigenvalues."""
    return lambda x, held: jax.jvp(lambda x: f(x, held), (x,), (jnp.ones_like(x),))[1]


def moved(f: Pointwise) -> Pointwise:
    """Return the derivative by the closed-over arrays; its second argument includes the tangent."""
    return lambda x, both: jax.jvp(lambda held: f(x, held), both[:1], both[1:])[1]
