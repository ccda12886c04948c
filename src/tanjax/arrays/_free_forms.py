"""One array as real numbers that are free to vary, and back.

Some types store a number twice, or zeros that must stay zeros. Their form selects the free ones of
the stored numbers. The entries of a definite matrix satisfy inequalities, so its form is the
Cholesky factor. A positive number has its logarithm as form. All these forms allow every real
number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Shaped

from tanjax._typing import AnyArray, DType, Places, Primal, Shape


class FreeForm(NamedTuple):
    """The map from one array to its free numbers, as real arrays, and back.

    If the first of the real arrays, `l`, holds logarithms, `weights` is not `None`. The change from
    free numbers to entries of the array then has the log-determinant `Σ weights·l + constant`.
    """

    read: Callable[[Primal], list[Array]]
    write: Callable[[Sequence[Array]], Primal]
    weights: np.ndarray | None = None
    constant: float = 0.0

    def of_field(self, x: Primal, name: str) -> FreeForm:
        """Return the form of an array with this form for one field, and its other fields fixed."""
        return self._replace(
            read=lambda x: self.read(getattr(x, name)),
            write=lambda parts: x.replace(**{name: self.write(parts)}),
        )


def real_parts(x: Shaped[AnyArray, " ..."]) -> list[Array]:
    """Return the real array, or the real and the imaginary part."""
    x = jnp.asarray(x)
    return [x.real, x.imag] if jnp.iscomplexobj(x) else [x]


def of_real_parts(parts: Sequence[Array]) -> Array:
    return lax.complex(*parts) if len(parts) == 2 else parts[0]


def entries(positive: bool) -> FreeForm:
    """The form of a dense array: its entries, or the logarithms of positive entries."""
    if not positive:
        return FreeForm(real_parts, of_real_parts)
    return FreeForm(lambda x: [jnp.log(x)], lambda parts: jnp.exp(parts[0]), np.ones(()))


def at(places: tuple[Places, ...], shape: Shape, dtype: DType) -> FreeForm:
    """The form of an array with entries at places of the last axes, and zeros elsewhere."""

    def write(parts: Sequence[Array]) -> Array:
        return jnp.zeros(shape, dtype).at[(..., *places)].set(of_real_parts(parts))

    return FreeForm(lambda data: real_parts(data[(..., *places)]), write)


def triangle(
    data: Shaped[AnyArray, "... n n"], lower: bool, offset: int, positive: bool
) -> FreeForm:
    """The form of a triangle from a diagonal on (`offset` 0 or 1), with a positive diagonal or not.

    A positive diagonal is stored as logarithms.
    """
    indices = np.tril_indices if lower else np.triu_indices
    n, sign = data.shape[-1], -1 if lower else 1
    if not positive or offset:
        return at(indices(n, sign * offset), data.shape, data.dtype)
    strict, i = at(indices(n, sign), data.shape, data.dtype), np.arange(n)

    def read(data: Array) -> list[Array]:
        return [jnp.log(data[..., i, i].real), *strict.read(data)]

    def write(parts: Sequence[Array]) -> Array:
        return strict.write(parts[1:]).at[..., i, i].set(jnp.exp(parts[0]).astype(data.dtype))

    return FreeForm(read, write, np.ones(n))


def mirrored(data: Shaped[AnyArray, "... n n"], conjugate: bool) -> FreeForm:
    """The form of a symmetric or Hermitian matrix: its upper triangle.

    The diagonal of a Hermitian matrix is real.
    """
    real = jnp.zeros((), data.dtype).real.dtype
    part = lambda offset: at(np.triu_indices(data.shape[-1], offset), data.shape, real)
    forms = [part(0), part(int(conjugate))][: 2 if jnp.iscomplexobj(data) else 1]

    def read(data: Array) -> list[Array]:
        return [f.read(part)[0] for f, part in zip(forms, real_parts(data), strict=True)]

    def write(parts: Sequence[Array]) -> Array:
        upper = of_real_parts([f.write([p]) for f, p in zip(forms, parts, strict=True)])
        other = jnp.swapaxes(jnp.triu(upper, 1), -1, -2)
        return upper + (jnp.conj(other) if conjugate else other)

    return FreeForm(read, write)


def definite(data: Shaped[AnyArray, "... n n"]) -> FreeForm:
    r"""The form of a positive definite matrix: its Cholesky factor $L$, diagonal by logarithms.

    $\partial (L L^H) / \partial L$ has the determinant $2^n \prod_i L_{ii}^{n+1-i}$, if complex
    $2^n \prod_i L_{ii}^{2(n-i)+1}$, $i = 1 \dots n$ (Muirhead 1982, theorem 2.1.9; Mathai 1997,
    theorem 3.7). Each logarithm adds one to the exponent.
    """
    n, (*batch, _, _) = data.shape[-1], data.shape
    factor, i = triangle(data, lower=True, offset=0, positive=True), np.arange(1, n + 1)

    def write(parts: Sequence[Array]) -> Array:
        root = factor.write(parts)
        product = jnp.matmul(root, jnp.conj(jnp.swapaxes(root, -1, -2)), precision="highest")
        return (product + jnp.conj(jnp.swapaxes(product, -1, -2))) / 2

    return FreeForm(
        lambda data: factor.read(jnp.linalg.cholesky(data)),
        write,
        (2.0 * (n - i) + 2) if jnp.iscomplexobj(data) else (n + 2.0 - i),
        n * math.log(2) * math.prod(batch),
    )
