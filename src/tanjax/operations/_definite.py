"""A check of the promise that a matrix is positive definite."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Shaped

from tanjax._errors import NotDefiniteError, message
from tanjax._typing import AnyArray, Natural
from tanjax.arrays import (
    BlockDiagonal,
    Identity,
    Kronecker,
    Scaled,
    Zero,
    is_hermitian,
    is_quantity,
    unitful,
)

from ._checks import described, square
from ._factorization_checks import not_hermitian
from ._operations import cholesky, diagonal


def assert_definite(a: Shaped[AnyArray, "*batch n n"]) -> Shaped[AnyArray, "*batch n n"]:
    r"""Return `a` with the promise `definite=True` if it is positive definite; otherwise raise.

    `tj.Symmetric(data, definite=True)` is not checked, and operations give nan if it is wrong. This
    function checks. It computes a Cholesky factor of a `Symmetric`, `Hermitian` or `SymTridiagonal`
    matrix and discards it.
    For `Kronecker`, `BlockDiagonal` and positive multiples it checks and promises each part. Any
    other type is returned unchanged.

    **Arguments:** `a`, of a type that is Hermitian, `(n, n)`; a quantity keeps its unit.

    **Cost:** that of `tj.cholesky`: $n^3/3$ for `Symmetric`, $O(n)$ for `Diagonal`.
    **Derivative:** that of the identity.
    **Raises:** `NotDefiniteError` for a matrix with an eigenvalue of 0 or below, up to rounding. A
    compiled program raises when it runs, with the same message, as `equinox.error_if` does.
    `ShapeError` for a dense array, and for types that may hold matrices that are not Hermitian.
    """
    if isinstance(a, Identity):
        return a
    if is_quantity(a):
        return unitful(assert_definite(a.stored), a.label)
    if isinstance(a, BlockDiagonal):
        if not isinstance(a.blocks, tuple):
            return a.from_stack(assert_definite(a.blocks.array))
        return a.replace(blocks=tuple(map(assert_definite, a.blocks)))
    if isinstance(a, Kronecker):
        return a.replace(factors=tuple(map(assert_definite, a.factors)))
    if not is_hermitian(a):
        square("assert_definite", a)
        raise not_hermitian("assert_definite", a, "only a Hermitian matrix can be definite.")
    if isinstance(a, Scaled):
        matrix = assert_definite(a.matrix)
        return a.replace(matrix=matrix, factor=_checked(a.factor, jnp.all(a.factor > 0), a))
    if isinstance(a, Zero):
        return _checked(a, False, a)
    pivots = jnp.real(diagonal(cholesky(jax.lax.stop_gradient(a))))
    checked = _checked(a, jnp.all(pivots > 0), a)
    return checked.replace(definite=True) if hasattr(a, "definite") else checked


def _checked(x: Natural, holds: bool | Bool[AnyArray, ""], a: Natural) -> Natural:
    """Return `x` if the condition holds, checked now if it is known, otherwise in the program."""
    text = message(
        f"assert_definite: {described(a)} is not positive definite.",
        "why: an eigenvalue is 0 or below, up to rounding, or an entry is not finite.",
        hint="add a multiple of `tj.Identity`, or use the matrix without the promise.",
    )
    if isinstance(holds, jax.core.Tracer):
        import equinox as eqx  # takes a tenth of the time of `import tanjax`

        return eqx.error_if(x, ~holds, text)
    if not holds:
        raise NotDefiniteError(text)
    return x
