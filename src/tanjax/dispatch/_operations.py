"""The shipped operations: names, signatures, and what they mean for dense arrays.

What they mean for structured arrays, and how they are differentiated, is not said here: the rule
packs in `rules/` say it, through the same public decorators that third parties use.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from tanjax.registry import operation

# -- arithmetic ----------------------------------------------------------------------------------


@operation(dense=True)
def matmul(a: Any, b: Any) -> Any:
    r"""`a @ b` for matrices and vectors of any type.

    **Derivative:** $\bar A = \bar C B^\top$, $\bar B = A^\top \bar C$ (no conjugation).
    """
    return jnp.matmul(a, b)


@operation(dense=True)
def add(a: Any, b: Any) -> Any:
    """`a + b`, with broadcasting of scalars."""
    return jnp.add(a, b)


@operation(dense=True)
def subtract(a: Any, b: Any) -> Any:
    """`a - b`, with broadcasting of scalars."""
    return jnp.subtract(a, b)


@operation(dense=True)
def negative(a: Any) -> Any:
    """`-a`."""
    return jnp.negative(a)


@operation(dense=True)
def multiply(a: Any, b: Any) -> Any:
    r"""`a * b`, by a scalar or entry by entry.

    **Derivative:** $\bar a = \bar c \odot b$, $\bar b = \bar c \odot a$, summed where broadcast.
    """
    return jnp.multiply(a, b)


@operation(dense=True)
def divide(a: Any, b: Any) -> Any:
    """`a / b`, by a scalar or entry by entry."""
    return jnp.divide(a, b)


# -- shape and reductions ------------------------------------------------------------------------


@operation(dense=True)
def transpose(a: Any) -> Any:
    r"""The transposed matrix, without conjugation. **Derivative:** $\bar A = \bar C^\top$."""
    return jnp.matrix_transpose(a)


@operation(dense=True)
def diagonal(a: Any) -> Any:
    """The main diagonal of a matrix. **Derivative:** the cotangent on the diagonal."""
    return jnp.diagonal(a)


@operation(dense=True)
def trace(a: Any) -> Any:
    r"""The sum of the diagonal. **Derivative:** $\bar A = \bar y I$."""
    return jnp.trace(a)


@operation(dense=True)
def sum(a: Any, *, axis: Any = None) -> Any:
    """The sum of all entries, or along axes. **Derivative:** the cotangent, broadcast."""
    return jnp.sum(a, axis=axis)


@operation(dense=True)
def dot(a: Any, b: Any) -> Any:
    r"""`sum(a * b)` over all entries of two arrays of one shape, without conjugation.

    **Derivative:** $\bar a = \bar y b$, $\bar b = \bar y a$.
    """
    return jnp.sum(jnp.multiply(a, b))


@operation(dense=True)
def norm(a: Any) -> Any:
    r"""The Frobenius (for vectors: Euclidean) norm.

    **Derivative:** $\bar A = \bar y\, \bar{A}^* / \|A\|$; zero at $A = 0$ (a subgradient).
    """
    square = jnp.sum(jnp.real(a * jnp.conj(a)))
    zero = square == 0  # where AD of the square root would give nan
    root = jnp.sqrt(jnp.where(zero, jnp.ones_like(square), square))
    return jnp.where(zero, jnp.zeros_like(root), root)


@operation(dense=True)
def quadratic_form(a: Any, x: Any) -> Any:
    r"""`x @ a @ x`, without conjugation.

    **Derivative:** $\bar A = \bar y x x^\top$, $\bar x = \bar y (A + A^\top) x$.
    """
    return x @ (a @ x)


# -- linear algebra ------------------------------------------------------------------------------


@operation(dense=True)
def solve(a: Any, b: Any) -> Any:
    r"""The `x` with `a @ x = b`, for a vector or a matrix of right-hand sides.

    **Derivative:** with $w = A^{-\top}\bar x$: $\bar A = -w x^\top$, $\bar b = w$.
    **References:** Giles 2008, section 2.3.1.
    """
    return jnp.linalg.solve(a, b)


@operation(dense=True)
def inv(a: Any) -> Any:
    r"""The inverse `c`. **Derivative:** $\bar A = -C^\top \bar C C^\top$ (Giles 2008, 2.2.3)."""
    return jnp.linalg.inv(a)


@operation(dense=True)
def logdet(a: Any) -> Any:
    r"""`log(abs(det(a)))`. **Derivative:** $\bar A = \bar y A^{-\top}$ (Giles 2008, 2.2.4)."""
    return jnp.linalg.slogdet(a).logabsdet


@operation(dense=True)
def det(a: Any) -> Any:
    r"""The determinant.

    **Derivative:** $\bar A = \bar y \det(A) A^{-\top}$, the adjugate where singular.
    """
    return jnp.linalg.det(a)


@operation(dense=True)
def cholesky(a: Any) -> Any:
    r"""The lower triangular `l` with `l @ l^H = a`, for a Hermitian positive definite `a`.

    **Derivative:** $\bar A = \tfrac12 L^{-\top}(\Phi + \Phi^\top)L^{-1}$, $\Phi$ the lower part of
    $L^\top \bar L$ with halved diagonal. **References:** Murray 2016; Giles 2008.
    """
    return jnp.linalg.cholesky(a)


@operation(dense=True)
def kron(a: Any, b: Any) -> Any:
    """The Kronecker product, dense for dense arguments, a `Kronecker` otherwise.

    **Derivative:** the cotangent, contracted with the other factor.
    """
    return jnp.kron(a, b)
