"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import torch

from tanjax_torch._typing import Number
from tanjax_torch.arguments._dtypes import jax_dtype
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, number, require, same_dtype, times


def _product(what: str, a: Array, b: Array, ranks: tuple[int, int]) -> Array:
    require(
        (a.ndim, b.ndim) == ranks,
        f"{what}: expected tensors of {ranks[0]} and {ranks[1]} dimensions, "
        f"got {a.ndim} and {b.ndim}",
    )
    inner = b.shape[-2 if ranks[1] > 1 else -1]
    require(
        a.shape[-1] == inner and (ranks != (3, 3) or a.shape[0] == b.shape[0]),
        f"{what}: shapes cannot be multiplied ({list(a.shape)} and {list(b.shape)})",
    )
    same_dtype(what, a, b)
    if a.dtype == jnp.bool_:
        require(False, f"\"{what}\" not implemented for 'Bool'")
    return jnp.matmul(a, b)


def _plus(what: str, bias: Array, product: Array, beta: Number, alpha: Number) -> Array:
    """`beta * bias + alpha * product`; `beta = 0` ignores the bias, even NaN."""
    same_dtype(what, bias, product)
    product = times(product, alpha)
    if isinstance(beta, (int, float)) and beta == 1:
        scaled = bias
    else:
        beta = number(beta, bias.dtype)
        scaled = jnp.where(beta == 0, jnp.zeros_like(bias), beta * bias)
    try:
        out = scaled + product
    except ValueError as error:
        raise RuntimeError(f"{what}: {bias.shape} does not fit {product.shape}") from error
    require(
        out.shape == product.shape,
        f"{what}: the expanded size {list(product.shape)} does not match {list(bias.shape)}",
    )
    return out


@implements(aten.mm.default)
def mm(self: Array, mat2: Array) -> Array:
    return _product("mm", self, mat2, (2, 2))


@implements(aten.bmm.default)
def bmm(self: Array, mat2: Array) -> Array:
    return _product("bmm", self, mat2, (3, 3))


@implements(aten.mv)
def mv(self: Array, vec: Array) -> Array:
    return _product("mv", self, vec, (2, 1))


@implements(aten.dot)
def dot(self: Array, tensor: Array) -> Array:
    return _product("dot", self, tensor, (1, 1))


@implements(aten.vdot)
def vdot(self: Array, other: Array) -> Array:
    return _product("vdot", jnp.conj(self), other, (1, 1))


@implements(aten.mm.dtype, aten.bmm.dtype)
def mm_dtype(self: Array, mat2: Array, out_dtype: torch.dtype) -> Array:
    same_dtype("mm", self, mat2)
    return jnp.matmul(self, mat2, preferred_element_type=jax_dtype(out_dtype))


@implements(aten.addmm.default)
def addmm(self: Array, mat1: Array, mat2: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    return _plus("addmm", self, _product("addmm", mat1, mat2, (2, 2)), beta, alpha)


@implements(aten.addbmm)
def addbmm(
    self: Array, batch1: Array, batch2: Array, *, beta: Number = 1, alpha: Number = 1
) -> Array:
    product = _product("addbmm", batch1, batch2, (3, 3)).sum(0, dtype=batch1.dtype)
    return _plus("addbmm", self, product, beta, alpha)


@implements(aten.addmv)
def addmv(self: Array, mat: Array, vec: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    return _plus("addmv", self, _product("addmv", mat, vec, (2, 1)), beta, alpha)


@implements(aten.linear)
def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    same_dtype("linear", input, weight, bias)
    require(
        input.shape[-1] == weight.shape[-1],
        f"linear: {list(input.shape)} does not fit a weight of {list(weight.shape)}",
    )
    out = jnp.matmul(input, weight.T)
    return out if bias is None else out + jnp.expand_dims(bias, tuple(range(out.ndim - 1)))


@implements(aten._trilinear)
def trilinear(
    i1: Array,
    i2: Array,
    i3: Array,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Array:
    n = i1.ndim + len(expand1)
    letters = [
        [k for k in range(n) if k not in expanded] for expanded in (expand1, expand2, expand3)
    ]
    kept = [k for k in range(n) if k not in sumdim]
    return jnp.einsum(i1, letters[0], i2, letters[1], i3, letters[2], kept)
