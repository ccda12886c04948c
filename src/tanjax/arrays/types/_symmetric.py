"""Symmetric matrices, in full storage with an invariant."""

from __future__ import annotations

from typing import Literal, Self

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

from tanjax._compat import symmetric_outer
from tanjax._errors import RegistrationError
from tanjax._typing import AnyArray, DenseArray, Matrixlike, Natural, Samples

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, set_fields, static_field
from .._free_forms import FreeForm, definite, mirrored
from .._register import register_array_type
from ..cotangents._outer import Outer
from ..cotangents._sum import Sum
from ._diagonal import Diagonal
from ._full_storage import full_storage, mirror, square


@register_array_type(linear=True, isometric=True, injective=True)
@full_storage
class Symmetric(AbstractArray):
    r"""A symmetric matrix, real or complex (for complex Hermitian ones see `Hermitian`).

    The storage holds each entry twice. For samplers and Newton's method,
    `tj.tangents.free_coordinates` gives the free numbers.

    **Arguments:** `data`, shape `(n, n)`; `uplo`: the triangle of `data` to mirror, `"U"` or
    `"L"`; `"mean"` averages both. `definite=True` promises that the matrix is positive definite:
    `solve`, `inv` and `logdet` then use Cholesky (half the work of LU), and return nan if the
    promise is broken. Tangents do not inherit the promise.

    **Maps:** $D(data) = (data + data^\top)/2$ on symmetric storage, an isometry on its image:
    both pullbacks are the symmetric part. The constructor makes the storage symmetric. So the
    hidden (antisymmetric) part of a cotangent pairs with zero, and a gradient step stays symmetric.
    """

    core_ndim = 2
    units = "data: u -> u"
    fields_are_entries = True

    data: Shaped[Array, "n n"] = array_field(ndim=2)
    definite: bool = static_field(default=False)

    def __init__(
        self, data: Matrixlike, uplo: Literal["U", "L", "mean"] = "U", definite: bool = False
    ) -> None:
        if type(data) is Symmetric:  # its storage is already symmetric
            mirrored = data.data
        else:
            mirrored = mirror(square("Symmetric", data), uplo, conjugate=False)
        if definite and jnp.iscomplexobj(mirrored):
            raise RegistrationError(
                "Symmetric: a complex symmetric matrix is not definite.\n"
                "Hint: use `tj.Hermitian(data, definite=True)`."
            )
        set_fields(self, data=mirrored, definite=bool(definite))

    @property
    def is_hermitian(self) -> bool:
        return ask.is_real(self)

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls(samples.normal(3, 3)), cls(samples.complex(2, 2), "L")]

    def _part(self, natural: Natural) -> Shaped[Array, "... n n"]:
        return symmetric_part(natural)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self

    def free_form(self, positive: bool) -> FreeForm | None:
        if positive and jnp.iscomplexobj(self.data):
            return None
        form = definite(self.data) if positive or self.definite else mirrored(self.data, False)
        return form.of_field(self, "data")


def symmetric_part(natural: Shaped[AnyArray, "... n n"]) -> Shaped[DenseArray, "... n n"]:
    """Return `(Y + Yᵀ)/2`; combine thin factors before the product."""
    if isinstance(natural, Outer) and natural.left.ndim == 2:
        return outer_and_transpose(natural.left / 2, natural.right)
    if isinstance(natural, Sum):
        first, *rest = map(symmetric_part, natural.terms)
        return sum(rest, first)
    if isinstance(natural, Symmetric):
        return natural.data
    dense = ask.dense(natural)
    if isinstance(natural, Diagonal):
        return dense
    if not jnp.issubdtype(dense.dtype, jnp.inexact):
        return dense  # integers have no tangents, and half of one may not be an integer
    return (dense + jnp.swapaxes(dense, -1, -2)) / 2


def outer_and_transpose(
    left: Shaped[Array, "n k"], right: Shaped[Array, "n k"]
) -> Shaped[Array, "n n"]:
    """Return `left @ right.T + right @ left.T` for two matrices; one pass for one column."""
    if left.shape[1] == 1:
        return _column_and_transpose(left, right)
    return symmetric_outer(left, right)


def _column_and_transpose(
    left: Shaped[Array, "n 1"], right: Shaped[Array, "n 1"]
) -> Shaped[Array, "n n"]:
    """Return `left * right.T + right * left.T`, with the same arithmetic for both mirror images.

    XLA fuses one product with the sum and rounds only the other product. In the plain formula, an
    entry and its mirror image would therefore differ.
    """
    i = jnp.arange(left.shape[0])
    above = i[:, None] <= i
    left_row, right_row = map(_as_every_row, (left, right))
    first, second = jnp.where(above, left, left_row), jnp.where(above, right, right_row)
    return first * jnp.where(above, right_row, right) + second * jnp.where(above, left_row, left)


def _as_every_row(x: Shaped[Array, "n 1"]) -> Shaped[Array, "n n"]:
    """Return the matrix with a column as every row, by a product.

    On one device XLA replaces the product by a broadcast, so the time is the same. If the column is
    sharded over devices, XLA gathers its n numbers. For a broadcast it would form the matrix column
    by column, and exchange n² numbers.
    """
    return jnp.matmul(jnp.ones_like(x), x.T, precision=jax.lax.Precision.HIGHEST)
