"""A matrix of which only one triangle counts."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
from jax import Array

from tanjax._errors import RegistrationError

from .. import _queries as ask
from .._abstract import AbstractArray, conj_of_fields, set_fields, static_field
from .._register import register_array_type
from .._table import fact

Pattern = Literal["lower", "upper", "strictly_lower", "strictly_upper"]


@register_array_type()
class Masked(AbstractArray):
    """`matrix` with everything outside a triangle replaced by zero, when it is asked for.

    **Arguments:** `matrix`, dense or structured; `pattern`: `"lower"`, `"upper"`,
    `"strictly_lower"` or `"strictly_upper"`.
    """

    core_ndim = 2
    units = "matrix: u -> u"
    conj = conj_of_fields

    matrix: Any
    pattern: Pattern = static_field(default="lower")

    def __post_init__(self) -> None:
        set_fields(self, matrix=ask.array(self.matrix))
        if self.pattern not in ("lower", "upper", "strictly_lower", "strictly_upper"):
            raise RegistrationError(f"Masked: unknown pattern {self.pattern!r}.")

    @property
    def is_linear(self) -> bool:
        return fact(self.matrix, "is_linear")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.matrix.shape)

    @property
    def dtype(self) -> Any:
        return self.matrix.dtype

    def to_dense(self) -> Array:
        strict = int(self.pattern.startswith("strictly"))
        dense = ask.dense(self.matrix)
        return (
            jnp.tril(dense, -strict) if self.pattern.endswith("lower") else jnp.triu(dense, strict)
        )

    def apply(self, b: Any) -> Any:
        return self.to_dense() @ b

    def block(self, rows: slice, columns: slice) -> Any:
        return self.to_dense()[rows, columns]

    def pair(self, other: Any) -> Any:
        return jnp.sum(self.to_dense() * ask.dense(other))

    def total(self) -> Any:
        return jnp.sum(self.to_dense())

    def transposed(self) -> Any:
        swap = {"lower": "upper", "upper": "lower"}
        strict, _, side = self.pattern.rpartition("_")
        pattern = f"{strict}_{swap[side]}" if strict else swap[side]
        return self.replace(matrix=ask.transposed(self.matrix), pattern=pattern)

    def diagonal(self) -> Any:
        diag = ask.diagonal(self.matrix)
        return jnp.zeros_like(diag) if self.pattern.startswith("strictly") else diag
