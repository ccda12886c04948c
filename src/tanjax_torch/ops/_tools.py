"""The tools of entries: names, kinds of dtypes, dims, bounds, and pullbacks as torch has them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import PyTree

from tanjax._typing import DType
from tanjax_torch._typing import Argument, Function, Number, Numbers, Op, Operand
from tanjax_torch.arguments._dtypes import jax_dtype
from tanjax_torch.arguments._promotion import category
from tanjax_torch.table._registry import implements

Array = jax.Array
aten = torch.ops.aten
prims = torch.ops.prims
P = ParamSpec("P")
T = TypeVar("T")


def operations(name: str) -> tuple[Op, ...]:
    """The operations of a name: ATen's, and that of prims if it exists."""
    found = tuple(getattr(space, name) for space in (aten, prims) if hasattr(space, name))
    if not found:
        raise AttributeError(f"neither aten nor prims has an operation {name}")
    return found


def register(table: dict[str, Function], make: Callable[[str, Function], Function]) -> None:
    """Register `make(name, function)` for each name of a table, in ATen and in prims."""
    for name, function in table.items():
        implements(*operations(name))(make(name, function))


def number_kind(x: Operand) -> int:
    """The kind of a Python number or a traced one."""
    for kind, cls in enumerate((bool, int, float, complex)):
        if isinstance(x, cls):
            return kind
    return category(x.dtype)


def axis_of(dim: int, ndim: int) -> int:
    """A dim as an axis ≥ 0; an array without axes has one, 0. **Raises:** `IndexError`."""
    bound = max(ndim, 1)
    if not -bound <= dim < bound:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], "
            f"but got {dim})"
        )
    return dim % bound


def axes_of(dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Dims as axes that an array has; `None` and no dims at all mean every axis."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(ndim))
    axes = [axis_of(d, ndim) for d in ([dim] if isinstance(dim, int) else dim)]
    for axis in axes:
        if axes.count(axis) > 1:
            raise RuntimeError(f"dim {axis} appears multiple times in the list of dims")
    return tuple(axes) if ndim else ()


def wide(function: Callable[P, T]) -> Callable[P, T]:
    """Compute half precision in float32 and round once, as torch does."""

    @functools.wraps(function)
    def entry(*args: P.args, **kwargs: P.kwargs) -> T:
        dtypes = {x.dtype for x in args if isinstance(x, jax.Array) and category(x.dtype) > 1}
        if len(dtypes) != 1 or not dtypes <= {jnp.dtype("float16"), jnp.dtype("bfloat16")}:
            return function(*args, **kwargs)
        (half,) = dtypes
        widened = [_cast(x, half, jnp.float32) for x in args]
        out = function(*widened, **kwargs)
        return jax.tree.map(lambda x: _cast(x, jnp.float32, half), out)

    return entry


def _cast(x: Argument, dtype: DType, wanted: DTypeLike) -> Argument:
    return x.astype(wanted) if isinstance(x, jax.Array) and x.dtype == dtype else x


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


def real_dtype(dtype: DType) -> DType:
    """The dtype of the real part."""
    return jnp.finfo(dtype).dtype if category(dtype) == 3 else dtype


def none_like(x: Array) -> Array:
    """The empty array that torch returns for a result that was not requested."""
    return jnp.zeros(0, x.dtype)


def widened(x: Array) -> Array:
    """`x` in the dtype that torch sums in: half precision as float32."""
    return x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x


# At kinks JAX has other derivatives than torch. These have torch's, for numbers with units too.
def size(x: jax.Array) -> jax.Array:
    """`|x|`; the derivative at 0 is 0."""
    if category(x.dtype) != 2:
        return jnp.abs(x)
    return x * jax.lax.stop_gradient(jnp.sign(x))


def raised(x: jax.Array, power: float) -> jax.Array:
    """`x ** power` of numbers ≥ 0; the derivative at 0 is 0."""
    if not 0 < power < 1:
        return x**power
    known = jnp.where(x == 0, jnp.inf, x)
    return jnp.where(x == 0, 0, jnp.sqrt(known) if power == 0.5 else known**power)
