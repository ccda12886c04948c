r"""The principal logarithm, by inverse scaling and squaring of the Schur form.

Repeated square roots bring $T^{1/2^s} = I + M$ near the identity. Then $\log(I + M)$ is a Padé
approximant in partial fractions, $\sum_j w_j M (I + x_j M)^{-1}$ with the nodes and weights of
Gauss and Legendre on $[0, 1]$, and $\log T = 2^s \log(I + M)$. The subtraction of $I$ would cancel
digits on the diagonal. Therefore the diagonal of $M$ is `expm1(log(t) / 2^s)`, and that of the
result is `log(t)`.

The derivative is that of the exponential, inverted: $L_{\exp}(X, dX) = dA$ with $X = \log A$. The
same square roots solve this equation for $dX$, with a Sylvester equation for each root. The
transposed equation is solved by transposing. Higher derivatives are those of the exponential.

**References:** Al-Mohy and Higham 2012; Al-Mohy, Higham and Relton 2013 for the derivative.
"""

from __future__ import annotations

from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._typing import Arraylike

from ._custom_jvp import custom_jvp
from ._exponential import frechet
from ._schur import (
    adjoint,
    as_real_if,
    batched,
    eye_like,
    leaves_the_reals,
    nan_if,
    require_square,
    schur,
    sqrt_of_triangular,
    sylvester_of_triangular,
    turned,
)
from ._shapes import Column, Flag, Number, Numbers, Square

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_NODES, _WEIGHTS = ((_NODES + 1) / 2).tolist(), (_WEIGHTS / 2).tolist()
_MOST_ROOTS = 100

# The number of roots, the last root, and its derivative.
State: TypeAlias = tuple[Number, tuple[Square, Square]]


def logarithm(a: Arraylike, *, upper_triangular: bool = False) -> Numbers:
    """Return `x` with `expm(x) = a` and eigenvalues with imaginary parts within pi.

    `a` and `x`: `(..., n, n)`.
    """
    require_square("logm", a)
    return _logarithm(a, upper_triangular=upper_triangular)


@batched("(n,n)->(n,n)")
def _logarithm(a: Square, *, upper_triangular: bool) -> Square:
    return a if a.size == 0 else _with_factors(a, upper_triangular)[0]


def _with_factors(a: Square, upper_triangular: bool) -> tuple[Square, Square, Square]:
    """Return the logarithm and the Schur form of `a`; derivatives take the form as constant."""
    log = custom_jvp(lambda a: _evaluated(a, upper_triangular))

    @log.defjvp
    def _(primals: tuple[Square], tangents: tuple[Square]) -> PyTree:
        x, t, u = _with_factors(primals[0], upper_triangular)
        fixed = lax.stop_gradient((t, u))
        solve = lambda e: as_real_if(e, turned(_pushed(*fixed, e), fixed[1]))
        x_dot = lax.custom_linear_solve(
            lambda e: frechet(x, e),
            _compat.align(tangents[0], x),
            lambda _, e: solve(e),
            lambda _, g: solve(g.T).T,
        )
        return (x, t, u), _compat.align((x_dot, jnp.zeros_like(t), jnp.zeros_like(u)))

    return log(a)


def _evaluated(a: Square, upper_triangular: bool) -> tuple[Square, Square, Square]:
    t, u = schur(a, upper_triangular=upper_triangular)
    steps, (root, _) = _roots(t, t)
    eye, m = eye_like(t), _distance(t, root, steps)
    terms = [w * jnp.linalg.solve(eye + x * m, m) for x, w in zip(_NODES, _WEIGHTS, strict=True)]
    result = _with_diagonal(jnp.exp2(steps).astype(t.dtype) * sum(terms), jnp.log(jnp.diagonal(t)))
    log = turned(jnp.triu(result), u)
    bad = leaves_the_reals(a, t, log) | (steps >= _MOST_ROOTS)
    return _compat.align((nan_if(bad, as_real_if(a, log)), t, u))


def _pushed(t: Square, u: Square, e: Square) -> Square:
    """Return the derivative along `e`, in the basis `u`, at a triangular `t`.

    It computes the roots again.
    """
    inside = adjoint(u) @ e.astype(t.dtype) @ u
    steps, (root, e) = _roots(t, inside, differentiate=True)
    eye, m = eye_like(t), _distance(t, root, steps)
    total = jnp.zeros_like(e)
    for x, w in zip(_NODES, _WEIGHTS, strict=True):
        inverse = jnp.linalg.inv(eye + x * m)
        total = total + w * (inverse @ e @ inverse)
    return jnp.exp2(steps).astype(t.dtype) * total


def _roots(t: Square, e: Square, *, differentiate: bool = False) -> State:
    """Return the number of square roots to near the identity, the last one, and its derivative."""
    eye = eye_like(t)
    # The largest norm of `M` for which eight fractions are exact to rounding (Higham 2008).
    limit = 0.3 if jnp.finfo(t.dtype).bits == 64 else 0.75

    def far(state: State) -> Flag:
        steps, (root, _) = state
        distance = jnp.max(jnp.sum(jnp.abs(root - eye), axis=0))
        return (distance > limit) & (steps < _MOST_ROOTS)

    def step(state: State) -> State:
        steps, (root, e) = state
        root = sqrt_of_triangular(root)
        e = sylvester_of_triangular(root, root, e) if differentiate else e
        return steps + 1, (root, e)

    start = jnp.zeros((), jnp.finfo(t.dtype).dtype), (t, e)
    return lax.while_loop(far, step, _compat.align(start))


def _distance(t: Square, root: Square, steps: Number) -> Square:
    """Return `root - I` without cancellation on the diagonal."""
    logs = jnp.log(jnp.diagonal(t)) * jnp.exp2(-steps).astype(t.dtype)
    return _with_diagonal(root, jnp.expm1(logs))


def _with_diagonal(a: Square, diagonal: Column) -> Square:
    return jnp.where(jnp.eye(a.shape[-1], dtype=bool), diagonal[:, None], a)
