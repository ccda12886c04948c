"""`y += alpha x`, the shortest in-place function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import DenseArray, Function, Scalar

if TYPE_CHECKING:
    from tanjax.testing import Case


@tj.inplace(mutates="y")
def axpy(y: Shaped[jax.Ref, " n"], alpha: Scalar, x: Shaped[DenseArray, " n"]) -> None:
    """Add `alpha * x` to `y`, both of shape `(n,)`.

    **Raises:** `ShapeError` if their shapes differ. **Cost:** n multiplications, no memory.

    >>> y = tj.new_ref(jnp.ones(3))
    >>> axpy(y, 2.0, jnp.arange(3.0))
    >>> y[...].tolist()
    [1.0, 3.0, 5.0]
    """
    if y.shape != x.shape:
        raise tj.ShapeError(f"axpy: `y` has the shape {y.shape}, `x` {x.shape}.")
    y[...] = y[...] + alpha * x


@axpy.inplace_rule
def axpy_rule(
    y: Shaped[DenseArray, " n"], alpha: Scalar, x: Shaped[DenseArray, " n"]
) -> tuple[tj.refs.Transition, Function]:
    """Pass the cotangent of `y` on unchanged, without a write to its Ref."""

    def axpy_pullback(
        y_bar: Shaped[jax.Ref, " n"], out_bar: None
    ) -> tuple[Scalar, Shaped[DenseArray, " n"]]:
        return jnp.sum(x * y_bar[...]), alpha * y_bar[...]

    return axpy.primal(y, alpha, x), axpy_pullback


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Real and complex."""
    from tanjax.testing import Case, Samples

    s = Samples(30)
    yield Case(axpy.transition, s.normal(3), s.normal(), s.normal(3))
    yield Case(axpy.transition, s.complex(2), s.complex(), s.complex(2))
