"""Hermitian matrices, in full storage with an invariant."""

from __future__ import annotations

from typing import Literal, Self

import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

from tanjax._typing import AnyArray, Factor, Matrixlike, Multiple, Natural, Samples

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, conj_of_fields, set_fields, static_field
from .._free_forms import FreeForm, definite, mirrored
from .._register import register_array_type
from ._full_storage import full_storage, mirror, square


@register_array_type(linear=True, isometric=True, injective=True)
@full_storage
class Hermitian(AbstractArray):
    r"""A Hermitian matrix: equal to its conjugate transpose, with a real diagonal.

    The storage holds each entry twice. For samplers and Newton's method,
    `tj.tangents.free_coordinates` gives the free numbers.

    **Arguments:** `data`, shape `(n, n)`; `uplo`: the triangle to mirror, or `"mean"`;
    `definite=True` promises that the matrix is positive definite (see `Symmetric`).

    **Maps:** $D(data) = (data + data^H)/2$, real-linear and an isometry on its image. In JAX's
    pairing $\mathrm{Re} \sum \bar y\,\dot y$ (without conjugation) all four maps are the
    Hermitian part.
    """

    core_ndim = 2
    units = "data: u -> u"
    conj = conj_of_fields

    data: Shaped[Array, "n n"] = array_field(ndim=2)
    definite: bool = static_field(default=False)

    def __init__(
        self, data: Matrixlike, uplo: Literal["U", "L", "mean"] = "U", definite: bool = False
    ) -> None:
        mirrored = mirror(square("Hermitian", data), uplo, conjugate=True)
        real_diagonal = hermitian_part(mirrored) if jnp.iscomplexobj(mirrored) else mirrored
        set_fields(self, data=real_diagonal, definite=bool(definite))

    @property
    def is_hermitian(self) -> bool:
        return True

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls(samples.normal(2, 2)), cls(samples.complex(2, 2), "L")]

    def _part(self, natural: Natural) -> Shaped[Array, "... n n"]:
        return hermitian_part(ask.dense(natural))

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(data=self.data.T)

    def scaled(self, factor: Factor) -> Multiple:
        if jnp.iscomplexobj(factor):
            return factor * self.to_dense()  # not Hermitian; the storage is as large as the array
        return self.replace(data=self.data * factor, definite=False)

    def free_form(self, positive: bool) -> FreeForm | None:
        form = definite(self.data) if positive or self.definite else mirrored(self.data, True)
        return form.of_field(self, "data")


def hermitian_part(dense: Shaped[Array, "... n n"]) -> Shaped[Array, "... n n"]:
    """Return `(Y + Yᴴ)/2`; integers, which have no tangents, unchanged."""
    if not jnp.issubdtype(dense.dtype, jnp.inexact):
        return dense
    return (dense + jnp.conj(jnp.swapaxes(dense, -1, -2))) / 2
