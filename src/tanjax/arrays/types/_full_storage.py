"""Full storage of a matrix that equals its mirror image, for `Symmetric` and `Hermitian`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Self, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

from tanjax._errors import RegistrationError, ShapeError, describe, wrong_ndim
from tanjax._marks import helper
from tanjax._typing import DenseArray, DType, Matrixlike, Natural, Scalar, Shape

from .. import _queries as ask
from .._abstract import AbstractArray, as_dense_field
from .._show import show

T = TypeVar("T", bound=type)


class FullStorage(AbstractArray):
    """Maps and queries by the projection `_part` on the matrices of the type.

    `full_storage` copies them: an array type derives from `AbstractArray` and from nothing else.
    """

    data: Shaped[Array, "n n"]
    definite: bool

    def _part(self, natural: Natural) -> Shaped[Array, "... n n"]:
        """Return the orthogonal projection of a matrix on those of the type."""
        raise NotImplementedError

    @property
    def shape(self) -> Shape:
        return tuple(self.data.shape)

    @property
    def dtype(self) -> DType:
        return self.data.dtype

    def __repr__(self) -> str:
        flag = ", definite=True" if self.definite else ""
        return f"{type(self).__name__}(data={show(self.data)}{flag})"

    def canonical(self) -> Self:
        return self.replace(data=self._part(self.data))

    def to_dense(self) -> Shaped[DenseArray, "... n n"]:
        return self._part(self.data)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return self.replace(data=self._part(structural.data), definite=False)

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return self.replace(data=self._part(natural))

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self.replace(data=self._part(natural))

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return self.replace(data=self._part(structural.data), definite=False)

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return self.data @ b

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return jnp.diagonal(self.data)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(self.data)

    def inner_product(self, other: Natural) -> Scalar:
        # The storage is the array, so no transpose is needed. Other types may be thin.
        return ask.inner_product(other.data if type(other) is type(self) else other, self.data)


def full_storage(cls: T) -> T:
    """Give a class with fields `data` and `definite` the members of `FullStorage`."""
    for name, member in vars(FullStorage).items():
        if name not in vars(cls) and (not name.startswith("__") or name == "__repr__"):
            setattr(cls, name, member)
    return cls


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
