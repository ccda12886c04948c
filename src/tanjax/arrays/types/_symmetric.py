"""Symmetric matrices, in full storage with an invariant."""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from tanjax._compat import symmetric_outer
from tanjax._errors import RegistrationError, ShapeError, describe, wrong_ndim

from .. import _queries as ask
from .._abstract import (
    AbstractArray,
    as_dense_field,
    set_fields,
    show,
    static_field,
)
from .._register import register_array_type
from ..cotangents._outer import Outer
from ..cotangents._sum import Sum


@register_array_type(linear=True, isometric=True, injective=True)
class Symmetric(AbstractArray):
    r"""A symmetric matrix, real or complex (for complex Hermitian ones see `Hermitian`).

    **Arguments:** `data`, shape `(n, n)`; `uplo`: which triangle of `data` is mirrored, `"U"`
    or `"L"`; `"mean"` averages both. `definite=True` promises that the matrix is positive
    definite: `solve`, `inv` and `logdet` then use Cholesky (half the work of LU), and give nan
    where the promise is broken. Tangents do not inherit the promise.

    **Maps:** $D(data) = (data + data^\top)/2$ on symmetric storage, an isometry on its image:
    both pullbacks are the symmetric part. The constructor makes the storage symmetric, so the
    hidden (antisymmetric) part of a cotangent pairs with zero, and a gradient step stays symmetric.
    """

    core_ndim = 2
    units = "data: u -> u"
    fields_are_entries = True

    data: Array
    definite: bool = static_field(default=False)

    def __init__(
        self, data: Any, uplo: Literal["U", "L", "mean"] = "U", definite: bool = False
    ) -> None:
        if type(data) is Symmetric:  # mirrored already
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
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    @classmethod
    def examples(cls, samples: Any) -> list[Any]:
        return [cls(samples.normal(3, 3)), cls(samples.complex(2, 2), "L")]

    def to_dense(self) -> Array:
        return symmetric_part(self.data)

    def pushforward_of_destructure(self, structural: Any) -> Any:
        return self.replace(data=symmetric_part(structural.data), definite=False)

    def pullback_of_destructure(self, natural: Any) -> Any:
        return self.replace(data=symmetric_part(natural))

    def pushforward_of_restructure(self, natural: Any) -> Any:
        return self.replace(data=symmetric_part(natural))

    def pullback_of_restructure(self, structural: Any) -> Any:
        return self.replace(data=symmetric_part(structural.data), definite=False)

    def __repr__(self) -> str:
        flag = ", definite=True" if self.definite else ""
        return f"Symmetric(data={show(self.data)}{flag})"

    def apply(self, b: Any) -> Any:
        return self.data @ b

    def transposed(self) -> Any:
        return self

    def diagonal(self) -> Any:
        return jnp.diagonal(self.data)

    def total(self) -> Any:
        return jnp.sum(self.data)

    def canonical(self) -> Any:
        return self.replace(data=symmetric_part(self.data))


def square(cls: str, data: Any) -> Any:
    """`data` as a square matrix, or `ShapeError`."""
    data = as_dense_field(cls, data)
    if data.ndim != 2:
        raise wrong_ndim(cls, "data", 2, data)
    if data.shape[0] != data.shape[1]:
        raise ShapeError(f"{cls}: `data` must be square.\n  got: {describe(data)}")
    return data


def mirror(data: Any, uplo: str, *, conjugate: bool) -> Any:
    """The symmetric (or Hermitian) matrix that one triangle, or the mean of both, determines."""
    if uplo not in ("U", "L", "mean"):
        raise RegistrationError(f"uplo must be 'U', 'L' or 'mean', not {uplo!r}.")
    return _compiled_mirror(uplo, conjugate)(data)


@functools.cache
def _compiled_mirror(uplo: str, conjugate: bool) -> Any:
    """One compiled call per way to mirror: 5 us instead of 80 for a small eager matrix."""

    def mirrored(data: Any) -> Any:
        other = jnp.conj(data.T) if conjugate else data.T
        if uplo == "mean":
            return (data + other) / 2
        ones = jnp.ones(data.shape, bool)
        return jnp.where(jnp.triu(ones) if uplo == "U" else jnp.tril(ones), data, other)

    return jax.jit(mirrored, inline=True)


def symmetric_part(natural: Any) -> Any:
    """`(Y + Yᵀ)/2`, symmetrising thin factors before they are multiplied."""
    if isinstance(natural, Outer) and natural.left.ndim == 2:
        return outer_and_transpose(natural.left / 2, natural.right)
    if isinstance(natural, Sum):
        return sum(symmetric_part(t) for t in natural.terms)
    if isinstance(natural, Symmetric):
        return natural.data
    dense = ask.dense(natural)
    if not jnp.issubdtype(dense.dtype, jnp.inexact):
        return dense  # integers have no tangents, and their halves would be no integers
    return (dense + jnp.swapaxes(dense, -1, -2)) / 2


def outer_and_transpose(left: Any, right: Any) -> Any:
    """`left @ right.T + right @ left.T` for two thin matrices.

    One column is written in one pass. Of more, one product of twice the width takes the place of
    an n-by-n transpose and sum: five times faster at n = 2048, k = 64.
    """
    if left.shape[1] == 1:
        return _column_and_transpose(left, right)
    return symmetric_outer(left, right)


def _column_and_transpose(left: Any, right: Any) -> Any:
    """`left * right.T + right * left.T`, an entry and its mirror image by the same arithmetic.

    XLA fuses a product with the sum, which rounds the other one alone: as written, they differ.
    """
    i = jnp.arange(left.shape[0])
    above = i[:, None] <= i
    first, second = (jnp.where(above, x, x.T) for x in (left, right))
    return first * jnp.where(above, right.T, right) + second * jnp.where(above, left.T, left)
