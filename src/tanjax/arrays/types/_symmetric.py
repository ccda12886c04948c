"""Symmetric matrices, in full storage with an invariant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, Self

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

from tanjax._compat import symmetric_outer
from tanjax._errors import RegistrationError, ShapeError, describe, wrong_ndim
from tanjax._marks import helper
from tanjax._typing import (
    AnyArray,
    DenseArray,
    DType,
    Matrixlike,
    Natural,
    Samples,
    Scalar,
    Shape,
)

from .. import _queries as ask
from .._abstract import (
    AbstractArray,
    array_field,
    as_dense_field,
    set_fields,
    static_field,
)
from .._free_forms import FreeForm, definite, mirrored
from .._register import register_array_type
from .._show import show
from ..cotangents._outer import Outer
from ..cotangents._sum import Sum
from ._diagonal import Diagonal


@register_array_type(linear=True, isometric=True, injective=True)
class Symmetric(AbstractArray):
    r"""A symmetric matrix, real or complex (for complex Hermitian ones see `Hermitian`).

    The storage holds each entry twice. For samplers and Newton's method, `tj.free_coordinates`
    gives the free numbers.

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
    def shape(self) -> Shape:
        return tuple(self.data.shape)

    @property
    def dtype(self) -> DType:
        return self.data.dtype

    @property
    def is_hermitian(self) -> bool:
        return ask.is_real(self)

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls(samples.normal(3, 3)), cls(samples.complex(2, 2), "L")]

    def to_dense(self) -> Shaped[DenseArray, "... n n"]:
        return symmetric_part(self.data)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return self.replace(data=symmetric_part(structural.data), definite=False)

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return self.replace(data=symmetric_part(natural))

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self.replace(data=symmetric_part(natural))

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return self.replace(data=symmetric_part(structural.data), definite=False)

    def __repr__(self) -> str:
        flag = ", definite=True" if self.definite else ""
        return f"Symmetric(data={show(self.data)}{flag})"

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return self.data @ b

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return jnp.diagonal(self.data)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(self.data)

    def inner_product(self, other: Natural) -> Scalar:
        # The storage of a `Symmetric` is the array, so no transpose is needed. Others may be thin.
        return ask.inner_product(other.data if type(other) is Symmetric else other, self.data)

    def canonical(self) -> Self:
        return self.replace(data=symmetric_part(self.data))

    def free_form(self, positive: bool) -> FreeForm | None:
        if positive and jnp.iscomplexobj(self.data):
            return None
        form = definite(self.data) if positive or self.definite else mirrored(self.data, False)
        return form.of_field(self, "data")


def square(cls: str, data: Matrixlike) -> Shaped[Array, "n n"]:
    """Return `data` as a dense square matrix. **Raises:** `ShapeError` if it is not square."""
    data = as_dense_field(cls, data)
    if data.ndim != 2:
        raise wrong_ndim(cls, "data", 2, data)
    if data.shape[0] != data.shape[1]:
        raise ShapeError(f"{cls}: `data` must be square.\n  got: {describe(data)}")
    return data


def mirror(data: Shaped[Array, "n n"], uplo: str, *, conjugate: bool) -> Shaped[Array, "n n"]:
    """Return the symmetric (or Hermitian) matrix from one triangle, or from the mean of both."""
    if uplo not in ("U", "L", "mean"):
        raise RegistrationError(f"uplo must be 'U', 'L' or 'mean', not {uplo!r}.")
    return _mirror(uplo, conjugate)(data)


@functools.cache
def _mirror(uplo: str, conjugate: bool) -> Callable[[Array], Array]:
    """Return a compiled function to mirror: 5 us instead of 80 for a small eager matrix.

    In captured programs it is one equation, `mirror[U]`.
    """

    def mirrored(data: Array) -> Array:
        other = jnp.conj(data.T) if conjugate else data.T
        if uplo == "mean":
            return (data + other) / 2
        ones = jnp.ones(data.shape, bool)
        return jnp.where(jnp.triu(ones) if uplo == "U" else jnp.tril(ones), data, other)

    name = f"mirror[{uplo}{' conj' if conjugate else ''}]"
    return helper(name, jax.jit(mirrored, inline=True), compiled=True)


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
