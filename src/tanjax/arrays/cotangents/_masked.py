"""A matrix with zeros outside of one triangle."""

from __future__ import annotations

from typing import Literal, Self

import jax.numpy as jnp
from jaxtyping import Shaped

from tanjax._errors import RegistrationError
from tanjax._typing import AnyArray, DenseArray, DType, Natural, Places, Samples, Scalar, Shape

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, conj_of_fields, set_fields, static_field
from .._register import register_array_type
from .._table import fact

Pattern = Literal["lower", "upper", "strictly_lower", "strictly_upper"]


@register_array_type()
class Masked(AbstractArray):
    """`matrix` with zeros outside of a triangle; queries apply the mask.

    **Arguments:** `matrix`, dense or structured; `pattern`: `"lower"`, `"upper"`,
    `"strictly_lower"` or `"strictly_upper"`.
    """

    core_ndim = 2
    units = "matrix: u -> u"
    conj = conj_of_fields

    matrix: Shaped[AnyArray, "m n"] = array_field(ndim=2)
    pattern: Pattern = static_field(default="lower")

    def __post_init__(self) -> None:
        set_fields(self, matrix=ask.array(self.matrix))
        if self.pattern not in ("lower", "upper", "strictly_lower", "strictly_upper"):
            raise RegistrationError(f"Masked: unknown pattern {self.pattern!r}.")

    @property
    def is_linear(self) -> bool:
        return fact(self.matrix, "is_linear")

    @property
    def shape(self) -> Shape:
        return tuple(self.matrix.shape)

    @property
    def dtype(self) -> DType:
        return self.matrix.dtype

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls(samples.normal(3, 3), "lower"), cls(samples.normal(2, 3), "strictly_upper")]

    def to_dense(self) -> Shaped[DenseArray, "... m n"]:
        strict = int(self.pattern.startswith("strictly"))
        dense = ask.dense(self.matrix)
        return (
            jnp.tril(dense, -strict) if self.pattern.endswith("lower") else jnp.triu(dense, strict)
        )

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return self.to_dense() @ b

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        return self.to_dense()[rows, columns]

    def inner_product(self, other: Natural) -> Scalar:
        return jnp.sum(self.to_dense() * ask.dense(other))

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        below = rows - columns if self.pattern.endswith("lower") else columns - rows
        kept = below >= int(self.pattern.startswith("strictly"))
        entries = ask.entries_at(self.matrix, rows, columns)
        return jnp.where(kept, entries, jnp.zeros((), entries.dtype))

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(self.to_dense())

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        swap = {"lower": "upper", "upper": "lower"}
        strict, _, side = self.pattern.rpartition("_")
        pattern = f"{strict}_{swap[side]}" if strict else swap[side]
        return self.replace(matrix=ask.transposed(self.matrix), pattern=pattern)

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        diag = ask.diagonal(self.matrix)
        return jnp.zeros_like(diag) if self.pattern.startswith("strictly") else diag
