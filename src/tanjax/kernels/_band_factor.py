r"""Elimination inside a band, and systems and determinants by it, in $O(n b^2)$ and $O(n b)$.

A band is kept by rows: `rows[i, j]` is the entry of row `i` at column `i - lower + j`, zero outside
of the matrix. One step of the elimination reads the `lower + 1` rows that may hold the pivot of its
column. The row with the largest entry becomes the pivot row (partial pivoting, so that no
multiplier exceeds 1; rows are not scaled before). Then a new row enters the window. The elimination
is a scan with a small carry, which XLA compiles to one loop on a CPU. On a GPU every step is a
kernel of its own.

Sharp edge: rows are tuples, and the loops over them are unrolled, so that narrow bands are fast.
The program grows with the width of the band, not with `n`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, PyTree, Shaped

from tanjax import _compat

from ._exported import exported


@exported
class BandFactor(NamedTuple):
    """The `n` steps of an elimination, with the rows before it.

    `upper`: the pivot rows from their pivot on, `(n, width)`. `multipliers`, `(n, lower)`: the
    multiples of the pivot row that were subtracted from the other rows. `exchanged`, `(n, lower)`:
    true for each row, in order, that changed places with the pivot row.
    """

    rows: Shaped[Array, "n width"]
    upper: Shaped[Array, "n width"]
    multipliers: Shaped[Array, "n lower"]
    exchanged: Bool[Array, "n lower"]

    @property
    def lower(self) -> int:
        return self.multipliers.shape[1]


def diagonal_columns(n: int, offset: int) -> slice:
    """Return the columns in which a diagonal has entries; for `-offset`, the rows."""
    return slice(max(0, offset), max(n - max(0, -offset), 0))


def diagonal_padding(n: int, offset: int) -> tuple[int, int]:
    """Return how many columns before and after a diagonal lack an entry; for `-offset`, rows."""
    return max(0, min(offset, n)), max(0, min(-offset, n))


def diagonal_of_rows(
    rows: Shaped[Array, "n width"], lower: int, offset: int
) -> Shaped[Array, " m"]:
    """Return a diagonal of a band that is kept by rows."""
    return rows[diagonal_columns(rows.shape[0], -offset), lower + offset]


def transposed_rows(rows: Shaped[Array, "n width"], lower: int) -> Shaped[Array, "n width"]:
    """Return the band of the transpose, by rows: its diagonal `k` was the diagonal `-k`."""
    n, offsets = rows.shape[0], range(lower - rows.shape[1] + 1, lower + 1)
    columns = [jnp.pad(diagonal_of_rows(rows, lower, -k), diagonal_padding(n, -k)) for k in offsets]
    return jnp.stack(columns, axis=1)


def _product(
    rows: Shaped[Array, "n width"], lower: int, b: Shaped[Array, "n k"]
) -> Shaped[Array, "n k"]:
    """Multiply a band by a matrix."""
    n, out = b.shape[0], jnp.zeros_like(b)
    for j in range(rows.shape[1]):
        k = j - lower
        out = out + rows[:, j, None] * jnp.pad(
            b[diagonal_columns(n, k)], (diagonal_padding(n, -k), (0, 0))
        )
    return out


def band_factor(rows: Shaped[Array, "n width"], lower: int) -> BandFactor:
    """Eliminate with row exchanges, in the order of `n * lower * width` operations."""
    if lower == 0:
        none = jnp.zeros((rows.shape[0], 0), rows.dtype)
        return BandFactor(rows, rows, none, none.astype(bool))
    padded = jnp.pad(rows, ((0, lower), (0, 0)))
    first = tuple(jnp.pad(padded[i, lower - i :], (0, lower - i)) for i in range(lower))

    def eliminate(rest: tuple[Array, ...], entering: Array) -> PyTree:
        pivot, others = _window_of(rest, entering)
        exchanged = []
        for i, other in enumerate(others):
            exchange = jnp.abs(other[0]) > jnp.abs(pivot[0])
            pivot, others[i] = _swap(exchange, pivot, other)
            exchanged.append(exchange)
        is_zero = pivot[0] == 0  # then the whole column is zero
        divisor = jnp.where(is_zero, jnp.ones_like(pivot[0]), pivot[0])
        factors = [other[0] / divisor for other in others]
        below = [other - m * pivot for m, other in zip(factors, others, strict=True)]
        rest = tuple(jnp.pad(row[1:], (0, 1)) for row in below)
        return rest, (pivot, jnp.stack(factors), jnp.stack(exchanged))

    return BandFactor(rows, *lax.scan(eliminate, first, padded[lower:])[1])


def _window_of(rest: tuple[Array, ...], entering: Array) -> tuple[Array, list[Array]]:
    """Return the first row that may hold the pivot, and the others."""
    rows = [*rest, entering]
    return rows[0], rows[1:]


def _swap(
    condition: Bool[Array, ""], a: Shaped[Array, " k"], b: Shaped[Array, " k"]
) -> tuple[Shaped[Array, " k"], Shaped[Array, " k"]]:
    """Exchange two rows if the condition holds."""
    return jnp.where(condition, b, a), jnp.where(condition, a, b)


def solve_band(f: BandFactor, b: Shaped[Array, "n k"]) -> Shaped[Array, "n k"]:
    """`A⁻¹ b` for a matrix `b`, differentiable in `A` and `b` to any order."""
    return _solve(f, b, transposed=False)


def solve_band_transposed(f: BandFactor, b: Shaped[Array, "n k"]) -> Shaped[Array, "n k"]:
    """`A⁻ᵀ b`, without conjugation, with the same factor."""
    return _solve(f, b, transposed=True)


def _solve(f: BandFactor, b: Shaped[Array, "n k"], *, transposed: bool) -> Shaped[Array, "n k"]:
    """Solve without differentiating the factor: the solution states its own derivative."""
    fixed = f._replace(**{k: lax.stop_gradient(v) for k, v in f._asdict().items()})
    directions = [lambda _, y: _substitute(fixed, y), lambda _, y: _substitute_back(fixed, y)]
    width, lower = f.rows.shape[1], f.lower
    b = _compat.align(b, f.rows)
    if not transposed:
        return lax.custom_linear_solve(lambda x: _product(f.rows, lower, x), b, *directions)
    rows, upper = transposed_rows(f.rows, lower), width - 1 - lower
    return lax.custom_linear_solve(lambda x: _product(rows, upper, x), b, *directions[::-1])


def _substitute(f: BandFactor, b: Shaped[Array, "n k"]) -> Shaped[Array, "n k"]:
    """Solve forward through exchanges and multipliers, then backward through the pivot rows."""
    width, lower = f.upper.shape[1], f.lower
    y = b
    if lower:
        padded = jnp.pad(b, ((0, lower), (0, 0)))

        def eliminate(rest: tuple[Array, ...], step: PyTree) -> PyTree:
            factors, exchanged, entering = step
            pivot, others = _window_of(rest, entering)
            for i, other in enumerate(others):
                pivot, others[i] = _swap(exchanged[i], pivot, other)
            return tuple(other - factors[i] * pivot for i, other in enumerate(others)), pivot

        steps = f.multipliers, f.exchanged, padded[lower:]
        y = lax.scan(eliminate, tuple(padded[:lower]), steps)[1]

    def divide(later: tuple[Array, ...], step: PyTree) -> PyTree:
        pivot, x = step
        for j, value in enumerate(later):
            x = x - pivot[j + 1] * value
        x = x / pivot[0]
        return (x, *later)[: width - 1], x

    later = (jnp.zeros_like(b[:1].sum(0)),) * (width - 1)
    return lax.scan(divide, later, (f.upper, y), reverse=True)[1]


def _substitute_back(f: BandFactor, b: Shaped[Array, "n k"]) -> Shaped[Array, "n k"]:
    """Solve with the two triangles of the transpose, in the other order."""
    width, lower = f.upper.shape[1], f.lower
    zero = jnp.zeros_like(b[:1].sum(0))

    def divide(pending: tuple[Array, ...], step: PyTree) -> PyTree:
        pivot, c = step
        z = (c - pending[0] if pending else c) / pivot[0]
        moved = (*pending[1:], zero)[: width - 1]
        return tuple(p + pivot[j + 1] * z for j, p in enumerate(moved)), z

    z = lax.scan(divide, (zero,) * (width - 1), (f.upper, b))[1]
    if lower == 0:
        return z

    def gather(rest: tuple[Array, ...], step: PyTree) -> PyTree:
        factors, exchanged, pivot = step
        for i, other in enumerate(rest):
            pivot = pivot - factors[i] * other
        window = _in_order(exchanged, pivot, rest)
        return window[:lower], window[lower]

    steps = f.multipliers, f.exchanged, z
    first, others = lax.scan(gather, (zero,) * lower, steps, reverse=True)
    return jnp.concatenate([jnp.stack(first), others])[: b.shape[0]]


def _in_order(
    exchanged: Bool[Array, " lower"], pivot: Shaped[Array, " k"], others: Sequence[Array]
) -> tuple[Array, ...]:
    """Return the rows of a window in their order before the exchanges."""
    others = list(others)
    for i in reversed(range(len(others))):
        pivot, others[i] = _swap(exchanged[i], pivot, others[i])
    return (pivot, *others)


def inverse_band(f: BandFactor) -> Shaped[Array, "n width"]:
    r"""The band of $A^{-\top}$, by rows like `A`: the derivative of the determinant needs no more.

    The recursion goes backward through the elimination. With the pivot row $(p, q)$, the
    multipliers $m$ and the inverse $Z$ of the remaining matrix, the inverse before that step is

    $$\begin{pmatrix} (1 + q Z m)/p & -q Z/p \\ -Z m & Z \end{pmatrix}.$$

    The recursion keeps only the columns in the window. $O(n \cdot lower \cdot width)$.
    **References:** Takahashi, Fagan, Chin 1973, for sparse factors without exchanges.
    """
    n, width = f.upper.shape
    lower = f.lower

    with_first = lambda x, column: jnp.concatenate([x[None], column])

    def step(rest: tuple[Array, ...], factors: PyTree) -> PyTree:
        pivot, multipliers, exchanged = factors
        beside = jnp.zeros_like(pivot[1:])  # - Z m
        for i, z in enumerate(rest):
            beside = beside - multipliers[i] * z
        columns = [with_first(-jnp.sum(pivot[1:] * z) / pivot[0], z) for z in rest]
        first = with_first((1 - jnp.sum(pivot[1:] * beside)) / pivot[0], beside)
        window = _in_order(exchanged, first, columns)
        return tuple(z[:-1] for z in window[:lower]), window[lower]

    nothing = (jnp.zeros((width - 1,), f.upper.dtype),) * lower
    start = _compat.align(nothing, f.upper)
    first, rows = lax.scan(step, start, (f.upper, f.multipliers, f.exchanged), reverse=True)
    top = [jnp.pad(z, (lower - i, 0))[:width] for i, z in enumerate(first)]
    return jnp.concatenate([*(z[None] for z in top), rows])[:n]


def pivots_and_sign(f: BandFactor) -> tuple[Shaped[Array, " n"], Shaped[Array, ""]]:
    """Return the pivots, and the sign of the row exchanges: their product is the determinant."""
    odd = jnp.sum(f.exchanged) % 2 == 1
    one = jnp.ones((), f.upper.dtype)
    return f.upper[:, 0], jnp.where(odd, -one, one)
