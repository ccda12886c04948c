"""Determinants of tridiagonal matrices, by pivots without row exchanges if they are real."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax import kernels
from tanjax.typing import Scalar

from ..dtypes import floating
from .banded import slogdet_banded

if TYPE_CHECKING:
    from tanjax.testing import Case

Matrix: TypeAlias = Shaped[tj.Tridiagonal | tj.SymTridiagonal, "n n"]


@tj.logdet.implementation(tj.Tridiagonal, differentiate=True)
@tj.logdet.implementation(tj.SymTridiagonal, differentiate=True)
def logdet_tridiagonal(a: Matrix) -> Scalar:
    return slogdet_tridiagonal(a).logabsdet


@tj.linalg.slogdet.implementation(tj.Tridiagonal, differentiate=True)
@tj.linalg.slogdet.implementation(tj.SymTridiagonal, differentiate=True)
def slogdet_tridiagonal(a: Matrix) -> tj.linalg.SlogdetResult:
    """Eliminate without exchanges, complex matrices with exchanges.

    A complex number divided by zero is not infinite.
    """
    a = floating(a)
    if jnp.iscomplexobj(a.diag):
        return slogdet_banded(a)
    return tj.linalg.SlogdetResult(*kernels.slogdet_tridiagonal(*map(a.off_diagonal, (-1, 0, 1))))


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """With leading minors that are zero or nearly so, in both types."""
    from tanjax.testing import Case, Samples

    s = Samples(51)
    general = tj.Tridiagonal(2 + s.normal(2), 0.1 * s.normal(3), s.normal(2))
    yield Case(tj.logdet, general)
    yield Case(tj.linalg.slogdet, general)
    yield Case(tj.linalg.slogdet, tj.SymTridiagonal(jnp.array([0.0, 0.7, 1e-9, 0.0]), s.normal(3)))
    yield Case(tj.logdet, tj.SymTridiagonal(s.complex(3), s.complex(2)))
