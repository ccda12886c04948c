"""Hypothesis strategies for arrays of every built-in type.

    from tanjax.testing import strategies

    @given(strategies.arrays_of(tj.Kronecker, n=4))
    def test_something(a): ...

Values are bounded away from zero, so that the arrays are well conditioned. `degenerate=True` draws
equal entries, zeros, repeated values and rank drops. Compilation dominates: draw few shapes and
many values. Hypothesis is imported when a strategy is made.
"""

from __future__ import annotations

from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax import arrays as tj
from tanjax._typing import Function

from ._coordinates import canonical
from ._samples import examples_of


def _hypothesis() -> ModuleType:
    try:
        from hypothesis import strategies
    except ImportError as error:
        raise ImportError(
            "tanjax.testing.strategies needs hypothesis, which is not installed.\n"
            "Hint: install the extra `tanjax[test]`."
        ) from error
    return strategies


def values(
    shape: tuple[int, ...], dtype: DTypeLike = "float64", *, degenerate: bool = False
) -> PyTree:
    """Return dense arrays of a shape and dtype: magnitudes from 0.25 to 2, or degenerate values."""
    st = _hypothesis()
    size = int(np.prod(shape))
    if degenerate:
        numbers = st.sampled_from([0.0, 1.0, 1.0, -1.0])
        flat = st.one_of(st.lists(numbers, min_size=size, max_size=size),
                         numbers.map(lambda v: [v] * size))  # fmt: skip
    else:
        magnitude = st.floats(0.25, 2.0, allow_nan=False, width=32)
        number = st.tuples(magnitude, st.booleans()).map(lambda p: p[0] if p[1] else -p[0])
        flat = st.lists(number, min_size=size, max_size=size)
    if not np.issubdtype(np.dtype(dtype), np.complexfloating):
        return flat.map(lambda v: jnp.asarray(np.asarray(v, dtype).reshape(shape)))

    def combine(parts: PyTree) -> PyTree:
        real, imaginary = map(np.asarray, parts)
        return jnp.asarray((real + 1j * imaginary).astype(dtype).reshape(shape))

    return st.tuples(flat, flat).map(combine)


def arrays_of(
    kind: type, *, dtype: DTypeLike = "float64", n: int = 3, degenerate: bool = False
) -> PyTree:
    """Return arrays of a built-in type with `n` rows; for Kronecker an even `n` is two factors.

    For other types: the first of its `examples` with other numbers, in its own size and dtype.
    **Raises:** `TypeError` for a type without examples.
    """
    st = _hypothesis()
    of = lambda *shape: values(shape, dtype, degenerate=degenerate)
    builders = _builders(st, of, n, dtype)
    if kind in builders:
        return builders[kind]().map(canonical)
    found = examples_of(kind) if isinstance(kind, type) else []
    if not found:
        names = ", ".join(k.__name__ for k in builders)
        raise TypeError(
            f"arrays_of: {kind!r} is not a built-in array type, and has no `examples`.\n"
            f"Hint: built in are {names}."
        )
    leaves, tree = jax.tree.flatten(found[0])
    drawn = [
        values(v.shape, v.dtype, degenerate=degenerate) if tj.is_inexact(v) else st.just(v)
        for v in leaves
    ]
    return st.tuples(*drawn).map(lambda new: canonical(jax.tree.unflatten(tree, new)))


def _builders(st: ModuleType, of: Function, n: int, dtype: DTypeLike) -> dict[type, Function]:
    a = n // 2 if n % 2 == 0 else n
    b = 2 if n % 2 == 0 else 1
    uplo = st.sampled_from(["U", "L", "mean"])
    flags = st.booleans()
    pattern = st.sampled_from(["lower", "upper", "strictly_lower", "strictly_upper"])
    fixed = jax.dtypes.canonicalize_dtype(dtype)
    return {
        tj.Dense: lambda: of(n, n),
        tj.Diagonal: lambda: st.builds(tj.Diagonal, of(n)),
        tj.Symmetric: lambda: st.builds(tj.Symmetric, of(n, n), uplo),
        tj.Hermitian: lambda: st.builds(tj.Hermitian, of(n, n), uplo),
        tj.Triangular: lambda: st.builds(tj.Triangular, of(n, n), flags, flags),
        tj.Fill: lambda: st.builds(tj.Fill, of(), st.just((n, n))),
        tj.Identity: lambda: st.just(tj.Identity(n, fixed)),
        tj.Zero: lambda: st.just(tj.Zero((n, n), fixed)),
        tj.Scaled: lambda: st.builds(tj.Scaled, of(n, n), of()),
        tj.LowRank: lambda: st.builds(tj.LowRank, of(n, b), of(n, b)),
        tj.LowRankUpdate: lambda: st.builds(
            tj.LowRankUpdate, st.builds(tj.Diagonal, of(n)), of(n, b), of(b)
        ),
        tj.Kronecker: lambda: st.builds(tj.Kronecker, of(a, a), of(b, b)),
        tj.BlockDiagonal: lambda: st.builds(
            tj.BlockDiagonal, of(1, 1), st.builds(tj.Symmetric, of(n - 1, n - 1))
        ),
        tj.Outer: lambda: st.builds(tj.Outer, of(n, b), of(n, b)),
        tj.Masked: lambda: st.builds(tj.Masked, of(n, n), pattern),
        tj.Sum: lambda: st.builds(tj.Sum, of(n, n), st.builds(tj.Diagonal, of(n))),
    }
