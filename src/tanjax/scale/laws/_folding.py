"""Numbers that a trace computes from numbers, such as `sub 1.5 1.0` in gradients of powers.

A power that is known at planning time has a law of its own. So the builder of the graph folds
equations whose operands are all numbers, as XLA would: in the dtype, rounded once. A number that
overflows or underflows in its dtype is kept as written; so is a result computed from it.

    folded_number(equation, [np.float32(1.5), np.float32(1.0)])  # [float32(0.5)]
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from tanjax._jaxpr_types import JaxEquation
from tanjax._typing import AnyArray

from ._law import LAWS, UNKNOWN


def folded_number(equation: JaxEquation, numbers: Sequence[AnyArray]) -> np.ndarray | None:
    """Return the result of an equation of single numbers, or None if it cannot be folded.

    **Arguments:** `numbers`: of the operands, each a number of any dtype or None.
    """
    function = LAWS.get(equation.primitive.name, UNKNOWN).fold
    if function is None or any(n is None or np.ndim(n) for n in numbers):
        return None
    dtype = equation.outvars[0].aval.dtype
    if not isinstance(dtype, np.dtype) or dtype.kind == "b":
        return None
    kept = any(n.dtype != v.aval.dtype for n, v in zip(numbers, equation.invars, strict=True))
    is_float = jnp.issubdtype(dtype, jnp.inexact)
    if is_float:  # in a wide dtype, so that a second rounding changes nothing
        wide = np.complex128 if dtype.kind == "c" else np.float64
        numbers = [np.asarray(n).astype(wide) for n in numbers]
    with np.errstate(all="ignore"):
        result = np.asarray(function(*numbers))
        narrow = result.astype(dtype)
        # A number that overflows or underflows in the cast is kept as written (`_literals.py`).
        size = np.abs(result)
        fits = not is_float or jnp.finfo(dtype).tiny <= size <= jnp.finfo(dtype).max
    return result if kept or not (fits or size == 0 or size == np.inf) else narrow
