"""Helpers of several families of entries: dims, bounds, and pullbacks as torch has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import PyTree

from tanjax._typing import DType
from tanjax_torch._typing import Function, Number, Numbers
from tanjax_torch.arguments._dtypes import jax_dtype
from tanjax_torch.arguments._promotion import category

Array = jax.Array


def one_axis(dim: int, ndim: int) -> int:
    """`dim` counted from the front; an array without axes has one here, as in torch.

    **Raises:** `IndexError` where there is no such dimension.
    """
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
        )
    return dim % n


def some_axes(dims: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """`dims` counted from the front, all of them for `None` and for an empty list.

    **Raises:** `IndexError` for one out of range, `RuntimeError` for one that is named twice.
    """
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return tuple(range(ndim))
    found = tuple(one_axis(d, ndim) for d in ([dims] if isinstance(dims, int) else dims))
    if len(set(found)) < len(found):
        raise RuntimeError(f"dim {found} names a dimension more than once")
    return found


def repeated(x: int | Sequence[int], n: int) -> tuple[int, ...]:
    """Return `n` integers from one, from a list of one, or from a list of `n`."""
    xs = (x,) if isinstance(x, int) else tuple(x)
    return xs * n if len(xs) == 1 else xs


def require(condition: bool, text: str) -> None:
    """**Raises:** `RuntimeError`, torch's error for arguments that do not fit."""
    if not condition:
        raise RuntimeError(text)


def same_dtype(what: str, *arrays: Array | None) -> None:
    """**Raises:** `RuntimeError` for arrays of several dtypes: torch converts none here."""
    found = [str(x.dtype) for x in arrays if x is not None]
    require(len(set(found)) <= 1, f"{what}: expected tensors of one dtype, got {found}")


def integers(x: ArrayLike) -> Array:
    """Indices and counts, in the dtype that torch declares for them, int64."""
    return jnp.asarray(x).astype(jax_dtype(torch.int64))


def is_traced(*arrays: object) -> bool:
    """True if a value is not known yet."""
    return any(isinstance(x, jax.core.Tracer) for x in arrays)


def values_of(what: str, *arrays: Array) -> tuple[Numbers, ...]:
    """The numbers of arrays, where the shape of a result depends on them.

    **Raises:** `ConcretizationTypeError` for an array whose numbers are not known yet.
    """
    for x in arrays:
        if isinstance(x, jax.core.Tracer):
            raise jax.errors.ConcretizationTypeError(x, f"the shape of {what} depends on values.")
    return tuple(np.asarray(x) for x in arrays)


def in_bounds(
    index: Array | Numbers,
    size: int,
    *,
    negative: bool = False,
    error: type[Exception] = IndexError,
    text: str = "index {} is out of bounds for dimension with size {}",
) -> bool:
    """True if indices are known to be inside of `[0, size)`, and from `-size` if `negative`.

    **Returns:** `False` for traced indices, which are unknown.

    **Raises:** `error` for one outside.
    """
    if is_traced(index):
        return False
    known = np.asarray(index)
    if known.size:
        low, high = known.min(), known.max()
        if high >= size or low < (-size if negative else 0):
            raise error(text.format(high if high >= size else low, size))
    return True


def number(x: Number, dtype: DTypeLike) -> Array:
    """A Python number, or a traced one, in a dtype."""
    return jnp.asarray(x).astype(dtype)


def fits(x: Number, dtype: DType) -> None:
    """**Raises:** `RuntimeError` for a number that a dtype cannot hold, as far as it is known."""
    if isinstance(x, jax.Array) and not is_traced(x):
        x = x.item()
    if isinstance(x, complex) and dtype.kind != "c":
        require(False, f"value cannot be converted to type {dtype} without overflow")
    if dtype.kind in "iu" and isinstance(x, (int, float)):
        limits = jnp.iinfo(dtype)
        inside = limits.min <= x <= limits.max
        require(inside, f"value cannot be converted to type {dtype} without overflow")


def shaped(x: Array, shape: tuple[int, ...]) -> Array:
    """`x` in a shape, without a call of JAX (ten microseconds) if it has the shape."""
    return x if x.shape == shape else x.reshape(shape)


def times(x: Array, factor: Number) -> Array:
    """`factor * x` in the dtype of `x`; `x` itself for the number one."""
    if isinstance(factor, (int, float)) and factor == 1:
        return x
    return x * number(factor, x.dtype)


def pullback(function: Function, primals: Sequence[Array], cotangent: PyTree) -> tuple[Array, ...]:
    """The backward of `function` at `primals`, as torch defines it.

    Torch's cotangent of a complex number is the conjugate of JAX's.
    """
    primals = tuple(primals)
    value, pull = jax.vjp(function, *primals)
    ct = jax.tree.map(lambda c, v: _conjugate(c.astype(v.dtype)), cotangent, value)
    return jax.tree.map(_conjugate, pull(ct))


def transposed(function: Callable[[Array], Array], shape: Sequence[int], ct: Array) -> Array:
    """The transpose of a function that moves numbers of an array of `shape`, applied to `ct`."""
    like = jax.ShapeDtypeStruct(tuple(shape), ct.dtype)
    moved: Array = jax.linear_transpose(function, like)(ct)[0]
    return moved


def _conjugate(x: Array) -> Array:
    return jnp.conj(x) if jnp.iscomplexobj(x) else x


def wide(x: Array) -> Array:
    """`x` in the dtype that torch sums in: half precision as float32."""
    return x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x


def real_dtype(dtype: DType) -> DType:
    """The dtype of the real part."""
    return jnp.finfo(dtype).dtype if category(dtype) == 3 else dtype


def product(xs: Sequence[int]) -> int:
    """The number of entries of a shape."""
    return math.prod(xs)


def none_like(x: Array) -> Array:
    """The empty array that torch returns for a result that was not requested."""
    return jnp.zeros(0, x.dtype)
