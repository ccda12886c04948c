"""Values in a repr."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def show(x: object) -> str:
    """Return the text of a value in a repr: small concrete arrays in full, else dtype and shape."""
    if isinstance(x, jax.core.Tracer) or (isinstance(x, jax.Array | np.ndarray) and x.size > 16):
        return f"{x.dtype}[{','.join(map(str, x.shape))}]"
    if isinstance(x, jax.Array | np.ndarray):
        x = np.asarray(x)
        # Print rounding errors beside ordinary numbers as 0, but an array of small numbers in full.
        ordinary = jnp.issubdtype(x.dtype, jnp.number) and bool(np.any(np.abs(x) >= 1e-3))
        text = np.array2string(x, separator=", ", precision=4, suppress_small=ordinary)
        return " ".join(text.split())
    if isinstance(x, tuple):
        return f"({', '.join(map(show, x))}{',' if len(x) == 1 else ''})"
    return repr(x)
