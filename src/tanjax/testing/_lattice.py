"""One natural cotangent of every kind that a rule may hand to an array type."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import arrays

from ._coordinates import random


def members(x: Any, formed: Any) -> dict[str, Any]:
    """One natural cotangent of every kind that a rule may hand over, in the shape of `x`."""
    like = lambda shape, seed: _values(shape, formed.dtype, seed)
    whole = like(formed.shape, 10)
    found = {"dense": whole, "Sum": arrays.Sum(whole, like(formed.shape, 11)), "itself": x}
    if formed.ndim != 2:
        return found
    m, n = formed.shape
    outer = arrays.Outer(like((m, 2), 12), like((n, 2), 13))
    found |= {
        "Outer": outer,
        "Outer of vectors": arrays.Outer(like((m,), 14), like((n,), 15)),
        "Sum with Outer": arrays.Sum(whole, outer),
        "Scaled": arrays.Scaled(outer, like((), 16)),
        "Masked lower": arrays.Masked(whole, "lower"),
        "Masked strictly upper": arrays.Masked(outer, "strictly_upper"),
    }
    if m == n:
        found["Diagonal"] = arrays.Diagonal(like((n,), 17))
        found["Sum with Diagonal"] = arrays.Sum(found["Diagonal"], outer)
    return found


def _values(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    values = random(int(np.prod(shape)), seed).reshape(shape)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        values = jax.lax.complex(values, random(values.size, seed + 50).reshape(shape))
    return values.astype(dtype)
