r"""Powers of a Kronecker product, factor by factor.

$(A \otimes B)^n = A^n \otimes B^n$ always. For the principal root and fractional powers the angles
of the eigenvalues add up. Where the sum leaves $(-\pi, \pi)$, the product of roots is a root, but
not the principal one. That cannot happen for factors with real eigenvalues. For other factors the
rules check the angles, and return nan rather than another root.

Exponential and logarithm are no Kronecker products, and densify; the exponential of a
Kronecker sum is the product of those of its factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import jax.numpy as jnp
from jax import lax
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import Scalar, SquareMatrix

from ..shapes import all_square
from ..signs import oriented
from .elementary import ASKED_ONCE, statics

if TYPE_CHECKING:
    from tanjax.testing import Case

SquareProduct: TypeAlias = Shaped[tj.Kronecker, "n n"]


@tj.linalg.matrix_power.implementation(tj.Kronecker, differentiate=True)
def power_of_kronecker(a: SquareProduct, *, n: int) -> SquareMatrix:
    if not all_square(a.factors):
        return tj.linalg.matrix_power(
            tj.rules.densified(a, "matrix_power", "its factors are not square"), n
        )
    return tj.Kronecker(*(tj.linalg.matrix_power(f, n) for f in a.factors))


@tj.linalg.expm.implementation(tj.KroneckerSum, differentiate=True)
def exponential_of_kronecker_sum(a: Shaped[tj.KroneckerSum, "n n"]) -> SquareProduct:
    return tj.Kronecker(*map(tj.linalg.expm, a.factors))


@tj.linalg.sqrtm.implementation(tj.Kronecker, differentiate=True)
def sqrtm_kronecker(a: SquareProduct, *, upper_triangular: bool = False) -> SquareProduct:
    return factor_by_factor(tj.linalg.sqrtm, a)


@tj.linalg.fractional_matrix_power.implementation(tj.Kronecker, differentiate=True)
def fractional_power_of_kronecker(
    a: SquareProduct, *, t: float, upper_triangular: bool = False
) -> SquareProduct:
    return factor_by_factor(tj.linalg.fractional_matrix_power, a, t)


def factor_by_factor(
    op: tj.rules.Operation, a: SquareProduct, t: float | None = None
) -> SquareProduct:
    """Return a principal power of each factor; nan where their product is not the principal one."""
    check_square_factors(op.name, a)
    factors = list(a.factors)
    turning = [i for i, f in enumerate(factors) if not has_real_eigenvalues(f)]
    real = [i for i in range(len(factors)) if i not in turning]
    for i, f in zip(real, oriented(tuple(factors[i] for i in real)), strict=True):
        factors[i] = f
    parts = [op(f, **statics(op, t)) for f in factors]
    if len(turning) > 1 and 0 not in a.shape:
        angles = [angles_of(a.factors[i]) for i in turning]
        low, high = (sum(side) for side in zip(*angles, strict=True))
        principal = jnp.where((low > -jnp.pi) & (high <= jnp.pi), 1.0, jnp.nan)
        last = turning[-1]
        parts[last] = tj.linalg.multiply(parts[last], principal.astype(parts[last].dtype))
    return tj.Kronecker(*parts)


def has_real_eigenvalues(a: SquareMatrix) -> bool:
    """True if the type has real eigenvalues: then a power is real and principal, or nan."""
    if isinstance(a, tj.Hermitian | tj.Identity):
        return True
    real = tj.rules.is_structured(a) and not jnp.issubdtype(a.dtype, jnp.complexfloating)
    return real and isinstance(a, tj.Symmetric | tj.Diagonal | tj.Triangular)


def angles_of(a: SquareMatrix) -> tuple[Scalar, Scalar]:
    """Return the smallest and the largest angle of the eigenvalues."""
    if isinstance(a, tj.Diagonal | tj.Triangular):
        values = a.diagonal()
    else:
        values = jnp.linalg.eigvals(lax.stop_gradient(tj.destructure(a)))
    angles = jnp.angle(lax.stop_gradient(values))
    return jnp.min(angles), jnp.max(angles)


def check_square_factors(name: str, a: Shaped[tj.Kronecker, "m n"]) -> None:
    """Raise `ShapeError` unless every factor is square, and so has a power."""
    if not all_square(a.factors):
        raise tj.ShapeError(f"{name}: a Kronecker product needs square factors, got {a}.")


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Structured and general factors, real and complex."""
    from tanjax.testing import Case, Samples

    s = Samples(23)
    symmetric, diagonal = tj.Symmetric(s.definite(2)), tj.Diagonal(s.positive(2))
    complex_ = tj.Diagonal(1 + 0.2 * s.complex(2))
    negative, other = tj.Symmetric(-s.definite(2)), tj.Symmetric(-s.definite(2))
    for op, a, keywords in (
        (tj.linalg.sqrtm, tj.Kronecker(complex_, s.regular(2, complex=True)), {}),
        (tj.linalg.fractional_matrix_power, tj.Kronecker(diagonal, diagonal), {"t": -0.7}),
        (tj.linalg.matrix_power, tj.Kronecker(symmetric, s.regular(2)), {"n": -2}),
        (tj.linalg.expm, tj.KroneckerSum(symmetric, diagonal), {}),
        (tj.linalg.sqrtm, tj.Kronecker(negative, other), {}),  # signs that cancel
        (tj.linalg.sqrtm, tj.Scaled(tj.Kronecker(symmetric, other), jnp.asarray(-0.5)), {}),
        (tj.linalg.fractional_matrix_power, tj.Scaled(negative, jnp.asarray(-2.0)), {"t": -0.3}),
        (tj.linalg.fractional_matrix_power, tj.Kronecker(negative, other), {"t": -0.3}),
    ):
        yield Case(op, a, **keywords).declare(skip=ASKED_ONCE)
