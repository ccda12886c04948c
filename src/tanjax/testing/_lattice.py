"""One natural (co)tangent of every kind that a rule may hand to an array type."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax import arrays
from tanjax._typing import Function
from tanjax.arrays import AbstractArray

from ._coordinates import moves, random
from ._record import Checker
from ._units import labelled, numbers

STAGE = "lattice"
EPS = 1e-14  # rounding of a singular value decomposition at zero


def check_lattice(checker: Checker) -> None:
    """Check Jᵀ of every kind of natural cotangent, and J⁺ of every kind of tangent if written."""
    x, fields, out = checker.x, checker.fields, checker.out
    given = members(numbers(x), checker.formed)
    # The author's J⁺ receives these tangents; of sums and multiples it gets the terms.
    whole = arrays.Sum | arrays.Scaled
    own = wrote(numbers(x), "pushforward_of_restructure")
    lifted = {name for name, y in given.items() if own and not isinstance(y, whole)}

    def all_of(x: PyTree, members: dict[str, PyTree]) -> dict[str, PyTree]:
        pull = lambda y: arrays.pullback_of_destructure(x)(labelled(y, checker.bar_unit))
        lift = lambda y: arrays.pushforward_of_restructure(x)(labelled(y, checker.dot_unit))
        found = {}
        for name, y in members.items():
            dense = arrays.destructure(y)
            moved = fields.vector(lift(y)) if name in lifted else None
            found[name] = fields.dual(pull(y)), out.dual(dense), moved, out.vector(dense)
        return found

    answers = checker.run(all_of, x, given)  # compiled, so operations may run in another order
    for name, y in given.items():
        got, bar, moved, dot = answers[name]
        what = f"pullback_of_destructure of a natural cotangent `{name}`"
        what += _derived_from(numbers(x), y)
        _compare(checker, what, got, checker.jacobian.T, bar)
        if moved is not None:
            what = f"pushforward_of_restructure of a natural tangent `{name}`"
            _compare(checker, what, moved, checker.inverse, dot)
    zero = arrays.pullback_of_destructure(x)(arrays.Zero(checker.formed.shape))
    empty = not np.any(fields.dual(zero))
    checker.recorder.holds(STAGE, "`Zero` does not pull back to zero.", empty)


def _compare(checker: Checker, what: str, got: PyTree, matrix: np.ndarray, of: PyTree) -> None:
    of = np.asarray(of)
    matrix = np.where(np.abs(matrix) > EPS * np.max(np.abs(matrix)), matrix, 0)
    summed = float(np.max(np.abs(matrix) @ np.abs(of), initial=0.0))
    checker.recorder.compare(STAGE, what, got, matrix @ of, checker.tolerance, scale=summed)


def wrote(x: PyTree, method: str) -> bool:
    """True if the author of a type wrote a method, and did not inherit its default."""
    return isinstance(x, AbstractArray) and method in vars(type(x))


def _derived_from(x: PyTree, natural: PyTree) -> str:
    """Return the query that the default Jᵀ of this cotangent differentiates, for messages."""
    asked = natural.as_query() if isinstance(natural, AbstractArray) else None
    if asked is None or wrote(x, "pullback_of_destructure") or not wrote(x, asked[0]):
        return ""
    return f" (by AD of `{asked[0]}`)"


def members(x: PyTree, formed: PyTree) -> dict[str, PyTree]:
    """Return one natural cotangent of every kind that a rule may give, in the shape of `x`."""
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
    if min(m, n) > 0:
        found["Toeplitz"] = arrays.Toeplitz(like((m + n - 1,), 28), (m, n))
    return found | _square(like, n, outer) if m == n else found


def _square(like: Function, n: int, outer: PyTree) -> dict[str, PyTree]:
    """Return the square cotangents."""
    diagonal = arrays.Diagonal(like((n,), 17))
    found = {
        "Diagonal": diagonal,
        "Sum with Diagonal": arrays.Sum(diagonal, outer),
        "Symmetric": arrays.Symmetric(like((n, n), 25)),
        "Triangular": arrays.Triangular(like((n, n), 26), lower=False),
        "Identity": arrays.Identity(n, outer.dtype),
    }
    if n > 0:
        off = like((n - 1,), 29), like((n - 1,), 30)
        found["Tridiagonal"] = arrays.Tridiagonal(off[0], like((n,), 31), off[1])
        found["SymTridiagonal"] = arrays.SymTridiagonal(like((n,), 32), off[0])
        found["Circulant"] = arrays.Circulant(like((n,), 33))
    if n > 1:
        found["BlockDiagonal"] = arrays.BlockDiagonal(like((1, 1), 34), like((n - 1, n - 1), 35))
        found["Banded"] = arrays.Banded(like((3, n), 36), 1, 1)
    return found


def _values(shape: tuple[int, ...], dtype: DTypeLike, seed: int) -> PyTree:
    values = random(int(np.prod(shape)), seed).reshape(shape)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        values = values + 1j * random(values.size, seed + 50).reshape(shape)
    return jax.device_put(values.astype(dtype))
