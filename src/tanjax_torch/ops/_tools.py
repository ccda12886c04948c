"""Helpers of the tables of entries: names to operations, kinds of dtypes, dims."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import torch
from jax.typing import DTypeLike

from tanjax._errors import NoRuleError, message
from tanjax._typing import DType, Function
from tanjax_torch._typing import Argument, Op, Operand
from tanjax_torch.arguments._promotion import category, is_number
from tanjax_torch.table._registry import implements

aten = torch.ops.aten
prims = torch.ops.prims
KINDS = ("bool", "integer", "float", "complex")
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


def no_meaning(op: str, dtype: DTypeLike, hint: str = "") -> NoRuleError:
    """The error for an operation that torch does not define for a dtype."""
    return NoRuleError(message(f"{op} is not defined for {dtype}.", hint=hint))


def needs(op: str, kinds: Sequence[int], *operands: Operand) -> None:
    """Refuse operands of other kinds (0 bool, 1 integer, 2 float, 3 complex)."""
    for x in operands:
        if not is_number(x) and category(x.dtype) not in kinds:
            hint = f"convert to {' or '.join(KINDS[k] for k in kinds)} first."
            raise no_meaning(op, x.dtype, hint)


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


def gradient_of(
    forward: Callable[..., jax.Array], pointwise: bool = True
) -> Callable[..., jax.Array]:
    """The entry of `f_backward(grad_output, self, ...)`: the pullback of `forward`."""

    def backward(
        grad_output: jax.Array, self: jax.Array, *args: Argument, **kwargs: Argument
    ) -> jax.Array:
        if pointwise:  # under torch's vmap their sizes may differ
            grad_output, self = jnp.broadcast_arrays(grad_output, self)
        _, pullback = jax.vjp(lambda x: forward(x, *args, **kwargs), self)
        (gradient,) = pullback(grad_output.astype(self.dtype))
        return gradient

    return backward
