r"""Exponential, logarithm, square root and fractional powers, on types that keep their structure.

A function of a matrix keeps more structure than the inverse does: what commutes with `A` commutes
with `f(A)`, and the field in which it acts on eigenvalues is all that distinguishes one function
from another. So each type is treated once, for all functions:

| type | `f(A)` |
|---|---|
| `Diagonal`, `Identity` | `f` of the entries |
| `Symmetric`, `Hermitian` | by eigenvalues, and of the same type |
| `Triangular` | triangular, without a Schur factorisation |
| `BlockDiagonal` | block by block |
| `Scaled` | that of the matrix with the factor in it |

A complex `Symmetric` matrix is not Hermitian: its function is that of a general matrix, symmetric.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

import tanjax as tj

ELEMENTARY = (tj.expm, tj.logm, tj.sqrtm, tj.fractional_matrix_power)

# -- the exponential of a dense matrix -------------------------------------------------------------


@tj.expm.natural_rule(tj.Dense)
def expm_rule(a):
    r"""$L(A^\top, \cdot)$ by a forward pass, which keeps no squares (reverse AD keeps them all)."""
    x = tj.expm.primal(a)
    return x, lambda x_bar: frechet(jnp.matrix_transpose(a), x_bar)


@tj.expm.natural_pushforward(tj.Dense)
def expm_pushforward(a):
    return tj.expm.primal(a), lambda a_dot: frechet(a, a_dot)


def frechet(a, e):
    """The derivative of the exponential at `a` in the direction `e`."""
    return jax.jvp(tj.expm.primal, (a,), (e.astype(a.dtype),))[1]


# -- by entries, by eigenvalues --------------------------------------------------------------------


def of_eigenvalues(op, t=None):
    """The function of numbers that an operation is on matrices."""
    if op is tj.fractional_matrix_power:
        return power(t)
    return {tj.expm: jnp.exp, tj.logm: jnp.log, tj.sqrtm: jnp.sqrt}[op]


def power(t):
    """`x` to the power `t`; a whole power of a negative number is real."""
    if float(t).is_integer():
        return lambda x: lax.integer_pow(x, int(t))
    if float(t) == 0.5:
        return jnp.sqrt
    return lambda x: x ** jnp.asarray(float(t), x.dtype)


def register_elementary(op):
    """Register the implementations of one function for all types that keep their structure."""

    @op.implementation(tj.Diagonal, differentiate=True)
    def diagonal(a, *, t=None, upper_triangular=False):
        return tj.Diagonal(of_eigenvalues(op, t)(a.diag))

    @op.implementation(tj.Identity)
    def identity(a, *, t=None, upper_triangular=False):
        if op is tj.expm:
            return tj.Diagonal(jnp.full(a.n, jnp.e, a.dtype))
        return tj.Zero(a.shape, a.dtype) if op is tj.logm else a

    @op.implementation(tj.Symmetric, differentiate=True)
    @op.implementation(tj.Hermitian, differentiate=True)
    def hermitian(a, *, t=None, upper_triangular=False):
        if isinstance(a, tj.Symmetric) and jnp.iscomplexobj(a.data):
            return tj.Symmetric(op(a.data, **statics(op, t)), "mean")
        f = of_eigenvalues(op, t)
        if f is jnp.sqrt:
            f = sqrt_above(noise(a.data))
        definite = a.definite and op is not tj.logm
        return type(a)(tj.funm_hermitian(a.data, f), "mean", definite)

    @op.implementation(tj.Triangular, differentiate=True)
    def triangular(a, *, t=None, upper_triangular=False):
        dense = a.to_dense()
        how = statics(op, t, upper_triangular=True)
        upper = op(dense.T if a.lower else dense, **how)
        unit = a.unit_diagonal and op in (tj.sqrtm, tj.fractional_matrix_power)
        return tj.Triangular(upper.T if a.lower else upper, a.lower, unit)

    @op.implementation(tj.BlockDiagonal, differentiate=True)
    def blocks(a, *, t=None, upper_triangular=False):
        check_square_blocks(op.name, a)
        return tj.BlockDiagonal(*(op(b, **statics(op, t)) for b in a.blocks))

    @op.implementation(tj.Scaled, differentiate=True)
    def scaled(a, *, t=None, upper_triangular=False):
        whole = tj.multiply(a.matrix, a.factor)
        if isinstance(whole, tj.Scaled):
            whole = tj.densified(whole, op.name, "give the factor to a field of the matrix")
        return op(whole, **statics(op, t))


def statics(op, t, *, upper_triangular=False):
    """The keywords with which an operation is called for the parts of a matrix."""
    if op is tj.expm:
        return {}
    keywords = {"upper_triangular": upper_triangular}
    return keywords if t is None else {"t": t, **keywords}


def check_square_blocks(name, a):
    """Raise `ShapeError` unless every block is square: only then each has its own function."""
    if any(b.shape[0] != b.shape[1] for b in a.blocks):
        raise tj.ShapeError(f"{name}: a BlockDiagonal needs square blocks, got {a}.")


def noise(data):
    """How far below zero rounding errors move the eigenvalue zero of a semidefinite matrix."""
    eps = jnp.finfo(data.dtype).eps
    return 4 * eps * data.shape[-1] * jnp.linalg.norm(lax.stop_gradient(data))


def sqrt_above(noise):
    """The square root that takes an eigenvalue for zero if it is negative by rounding errors."""
    return lambda x: jnp.sqrt(jnp.where((x < 0) & (x >= -noise), 0, x))


for _operation in ELEMENTARY:
    register_elementary(_operation)

# -- cases ---------------------------------------------------------------------------------------


def by_eigenvectors(function):
    """A function of a matrix as it is defined for one with distinct eigenvalues."""

    def definition(a):
        w, v = jnp.linalg.eig(a)
        f = (v * function(w)) @ jnp.linalg.inv(v)
        return f if jnp.iscomplexobj(a) else jnp.real(f)

    return definition


def cases():
    """Every type with every function, general matrices against their eigenvectors, complex."""
    from tanjax.testing import Case, Samples

    s = Samples(21)
    general, complex_ = s.regular(3), s.regular(2, complex=True)
    lower = tj.Triangular(s.regular(3))
    symmetric = tj.Symmetric(s.definite(3))
    hermitian = tj.Hermitian(s.definite(2, complex=True))
    blocks = tj.BlockDiagonal(tj.Symmetric(s.definite(2)), tj.Diagonal(s.positive(1)))
    for op in ELEMENTARY:
        keywords = {"t": 0.3} if op is tj.fractional_matrix_power else {}
        function = of_eigenvalues(op, **keywords)
        for a in (general, complex_):
            yield Case(op, a, **keywords).declare(reference=by_eigenvectors(function))
        for a in (
            tj.Diagonal(s.positive(2)),
            tj.Identity(2),
            symmetric,
            hermitian,
            lower,
            blocks,
            tj.Scaled(symmetric, s.positive()),
        ):
            yield Case(op, a, **keywords)
    yield Case(tj.sqrtm, tj.Triangular(s.complex(3, 3) / 3, False, unit_diagonal=True))
    yield Case(tj.logm, tj.Symmetric(s.regular(2, complex=True)))
    yield Case(tj.expm, tj.Triangular(s.normal(2, 2), lower=False))
    yield Case(tj.funm_hermitian, s.normal(3, 3), jnp.cos)
