"""One natural cotangent of every kind that a rule may hand to an array type."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax import arrays

from ._coordinates import moves, random


def members(x: PyTree, formed: PyTree) -> dict[str, PyTree]:
    """One natural cotangent of every kind that a rule may hand over, in the shape of `x`."""
    like = lambda shape, seed: _values(shape, formed.dtype, seed)
    whole = like(formed.shape, 10)
    found = {
        "dense": whole,
        "Sum": arrays.Sum(whole, like(formed.shape, 11)),
        "itself": x,
        "itself, other values": jax.tree.map(lambda v: v * 0.75 if moves(v) else v, x),
        "Fill": arrays.Fill(like((), 18), formed.shape),
        "Zero": arrays.Zero(formed.shape, formed.dtype),
        "Scaled dense": arrays.Scaled(whole, like((), 19)),
        "Scaled itself": arrays.Scaled(x, like((), 20)),
    }
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
        "Kronecker": arrays.Kronecker(like((m, 1), 21), like((1, n), 22)),
        "LowRank": arrays.LowRank(like((m, 1), 23), like((n, 1), 24)),
    }
    corners = np.array([[0, 0], [m - 1, n - 1]] if min(m, n) > 1 else np.zeros((0, 2), int))
    found["Sparse"] = arrays.Sparse(like((len(corners),), 27), corners, (m, n))
    if m == n:
        found["Diagonal"] = arrays.Diagonal(like((n,), 17))
        found["Sum with Diagonal"] = arrays.Sum(found["Diagonal"], outer)
        found["Symmetric"] = arrays.Symmetric(like((n, n), 25))
        found["Triangular"] = arrays.Triangular(like((n, n), 26), lower=False)
        found["Identity"] = arrays.Identity(n, formed.dtype)
    return found


def _values(shape: tuple[int, ...], dtype: DTypeLike, seed: int) -> PyTree:
    values = random(int(np.prod(shape)), seed).reshape(shape)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        values = values + 1j * random(values.size, seed + 50).reshape(shape)
    return jax.device_put(values.astype(dtype))
