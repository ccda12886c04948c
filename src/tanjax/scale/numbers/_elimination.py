"""Elimination with numbers that have an exponent each.

Each step aligns every entry by its own terms, so that rows and columns may have any units. LAPACK
on numbers at one exponent would treat the small ones as zeros, and find the matrix singular.

    >>> a = Wide(np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[0, 0], [0, 5000]]))
    >>> solve_triangle(a, Wide(np.ones((2, 1))), lower=False, unit=False).exponent.ravel()
    array([    1, -4999])

Sharp edge: elimination takes 0.1 ms for each row, one matrix at a time.

References: Golub and Van Loan, "Matrix computations", 4th edition, algorithms 3.1.1 and 3.4.1.
"""

from __future__ import annotations

import numpy as np

from ._spread import NONE, multiply_matrices, parts_of, plus
from ._wide import Wide


def solve_triangle(a: Wide, b: Wide, lower: bool, unit: bool) -> Wide:
    """Solve `a @ x = b` by substitution; a zero on the diagonal gives infinities, no error.

    **Arguments:** `a`: "*batch n n", a triangle; `b`: "*batch n k"; `unit`: the diagonal is 1.
    """
    shape = b.array.shape
    (f, p), (g, q) = ([m.reshape(-1, *m.shape[-2:]) for m in parts_of(x)] for x in (a, b))
    x, powers = np.zeros(g.shape, np.result_type(f, g)), np.zeros(g.shape, np.int64)
    size = shape[-2]
    for i in range(size) if lower else range(size - 1, -1, -1):
        at, known = slice(i, i + 1), slice(0, i) if lower else slice(i + 1, size)
        taken = multiply_matrices(
            (f[:, at, known], p[:, at, known]), (x[:, known], powers[:, known])
        )
        row = plus(Wide(g[:, at], q[:, at]), Wide(-taken.array, taken.exponent))
        if not unit:
            row = Wide(row.array / f[:, at, at], row.exponent - p[:, at, at])
        x[:, at], powers[:, at] = parts_of(row)
    return Wide(x.reshape(shape), powers.reshape(shape))


def eliminate(a: Wide) -> tuple[Wide, np.ndarray]:
    """Return both factors of a matrix "n m" in one, and the row swaps, as LAPACK does.

    A column without a pivot stays as it is.
    """
    f, p = (np.array(x) for x in parts_of(a))
    pivots = np.arange(min(f.shape), dtype=np.int32)
    for k in pivots:
        size = np.where(f[k:, k] == 0, NONE, p[k:, k])
        pivots[k] = other = k + np.lexsort((-np.abs(f[k:, k]), -size))[0]
        for x in (f, p):
            x[[k, other]] = x[[other, k]]
        if f[k, k] == 0:
            continue
        rest = slice(k + 1, None)
        low = Wide(f[rest, k] / f[k, k], p[rest, k] - p[k, k])
        f[rest, k], p[rest, k] = parts_of(low)
        product = Wide(-f[rest, k, None] * f[k, None, rest], p[rest, k, None] + p[k, None, rest])
        f[rest, rest], p[rest, rest] = parts_of(plus(Wide(f[rest, rest], p[rest, rest]), product))
    return Wide(f, p), pivots
