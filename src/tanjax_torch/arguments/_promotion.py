"""Torch's dtypes of results, which differ from JAX's.

Torch ranks operands by kind first: a tensor with axes before one without, that before a Python
number. An operand of a lower rank counts only where it is of a higher category (bool, integer,
float, complex). Inside of a kernel a Python number is an array with a weak type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.typing import DTypeLike

from tanjax._errors import NoRuleError, message
from tanjax._typing import DType
from tanjax_torch._typing import Number, Operand

from ._dtypes import default_float, exact_dtype, jax_dtype, torch_dtype

KINDS = ("bool", "integer", "float", "complex")
_CATEGORIES = (np.bool_, np.integer, np.floating, np.complexfloating)


def is_number(x: object) -> bool:
    """True for a Python number, also a traced one."""
    return isinstance(x, (bool, int, float, complex)) or bool(getattr(x, "weak_type", False))


def category(dtype: DTypeLike) -> int:
    """0 for bool, 1 for integers, 2 for floats, 3 for complex."""
    found = [n for n, kind in enumerate(_CATEGORIES) if jnp.issubdtype(dtype, kind)]
    return found[0]


def result_dtype(*operands: Operand | None) -> DType:
    """The dtype that `torch.result_type` gives for arrays and Python numbers (`None`: no operand).

    **Returns:** a dtype that JAX holds as it is set up.
    """
    ranks: list[list[DType]] = [[], [], []]
    for x in operands:
        if x is None:
            continue
        if is_number(x):
            ranks[2].append(_of_number(x))
        else:
            ranks[0 if jnp.ndim(x) else 1].append(np.dtype(x.dtype))
    best: DType | None = None
    for rank in ranks:
        for dtype in rank[:1]:
            here = _joined(rank) if len(rank) > 1 else dtype
            if best is None or category(here) > category(best):
                best = _complex_of(best, here) if best is not None else here
    assert best is not None
    return jax.dtypes.canonicalize_dtype(best)


@overload
def promoted(*operands: Number, floating: bool = ...) -> tuple[jax.Array, ...]: ...
@overload
def promoted(*operands: Number | None, floating: bool = ...) -> tuple[Any, ...]: ...
def promoted(*operands: Number | None, floating: bool = False) -> tuple[jax.Array | None, ...]:
    """Operands as arrays of one dtype, that of torch's result; `floating`: integers become floats.

    `None` stays `None`.
    """
    dtype = result_dtype(*operands)
    if floating and category(dtype) < 2:
        dtype = default_float()
    return tuple(x if x is None else jnp.asarray(x, dtype) for x in operands)


def floating(x: jax.Array) -> jax.Array:
    """`x`, integers and bools as torch's default float."""
    return x if category(x.dtype) >= 2 else x.astype(default_float())


def _of_number(x: Operand) -> DType:
    if isinstance(x, bool):
        return np.dtype(np.bool_)
    if isinstance(x, int):
        return np.dtype(np.int64)
    if isinstance(x, float):
        return default_float()
    if isinstance(x, complex):
        return _complex(default_float())
    kind = category(x.dtype)
    return (np.dtype(np.bool_), np.dtype(np.int64), default_float(), _complex(default_float()))[
        kind
    ]


def _joined(dtypes: list[DType]) -> DType:
    joined = torch_dtype(dtypes[0])
    for dtype in dtypes[1:]:
        joined = torch.promote_types(joined, torch_dtype(dtype))
    return exact_dtype(joined)


def _complex_of(before: DType, now: DType) -> DType:
    """The dtype for an operand of lower rank; a complex number keeps the precision of floats."""
    if category(now) == 3 and category(before) == 2:
        return _complex(before)
    return now


def _complex(dtype: DType) -> DType:
    return np.dtype(np.complex128 if dtype == np.float64 else np.complex64)


__all__ = ["category", "floating", "is_number", "jax_dtype", "promoted", "result_dtype"]


def no_meaning(op: str, dtype: DTypeLike, hint: str = "") -> NoRuleError:
    """The error for an operation that torch does not define for a dtype."""
    return NoRuleError(message(f"{op} is not defined for {dtype}.", hint=hint))


def needs(op: str, kinds: Sequence[int], *operands: Operand) -> None:
    """Refuse operands of other kinds (0 bool, 1 integer, 2 float, 3 complex)."""
    for x in operands:
        if not is_number(x) and category(x.dtype) not in kinds:
            hint = f"convert to {' or '.join(KINDS[k] for k in kinds)} first."
            raise no_meaning(op, x.dtype, hint)
