"""The places of a sparse matrix: constants of the trace that are cheap to compare.

A pattern is part of the type of a `Sparse`, not one of its numbers. So it passes through `jit`,
`vmap`, `scan`, `grad` and optimisers, which see one array of values. The trace compares and joins
patterns.

    p = Pattern.of(rows, columns, (m, n))   # sorted by rows, then columns; no place twice
    p is Pattern.of(rows, columns, (m, n))  # one object per pattern: its hash is its identity

Sharp edges. The places are constants of the compiled program, so another pattern compiles again. A
million places add half a second to the compilation, and nothing to the run. NumPy does the work, so
places are known numbers, never tracers.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from weakref import WeakValueDictionary

import numpy as np
from jaxtyping import Bool, Int

from tanjax._typing import Places, Shape

LARGEST = 2**31 - 1  # indices are int32, which need no 64-bit mode

_PATTERNS: WeakValueDictionary[bytes, Pattern] = WeakValueDictionary()


class Pattern:
    """Places of a matrix of a `shape`, as `rows` and `columns`: sorted, without repetition."""

    rows: Int[np.ndarray, " p"]
    columns: Int[np.ndarray, " p"]
    shape: tuple[int, int]

    @staticmethod
    def of(rows: Places, columns: Places, shape: Shape) -> Pattern:
        """Return the one object for a pattern of sorted, different places inside of a shape."""
        rows, columns = (np.array(x, np.int32) for x in (rows, columns))  # private copies
        m, n = shape
        key = hashlib.blake2b(repr((m, n)).encode())
        for places in (rows, columns):
            key.update(places.data)
            places.flags.writeable = False
        found = _PATTERNS.get(key.digest())
        if found is None:
            found = object.__new__(Pattern)
            found.rows, found.columns, found.shape = rows, columns, (int(m), int(n))
            found = _PATTERNS.setdefault(key.digest(), found)
        return found

    @staticmethod
    def of_flat(flat: Places, shape: Shape) -> Pattern:
        """Return the pattern of sorted, different places counted along the rows."""
        rows, columns = np.divmod(flat, max(shape[1], 1))
        return Pattern.of(rows, columns, shape)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Pattern.of, (self.rows, self.columns, self.shape)

    def __copy__(self) -> Pattern:
        return self

    def __deepcopy__(self, memo: object) -> Pattern:
        return self

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"{len(self)} of {self.shape[0]}x{self.shape[1]}"

    @functools.cached_property
    def flat(self) -> Int[np.ndarray, " p"]:
        """The places counted along the rows, in increasing order."""
        return flat_places(self.rows, self.columns, self.shape)

    @functools.cached_property
    def transposed(self) -> tuple[Pattern, Int[np.ndarray, " p"]]:
        """The transposed pattern, and the positions of its places in this one."""
        order = np.argsort(flat_places(self.columns, self.rows, self.shape[::-1]), kind="stable")
        turned = Pattern.of(self.columns[order], self.rows[order], self.shape[::-1])
        return turned, order.astype(np.int32)

    def find(
        self, rows: Places, columns: Places
    ) -> tuple[Int[np.ndarray, " p"], Bool[np.ndarray, " p"]]:
        """Return the positions of places in this pattern, and a mask of those it has."""
        wanted = flat_places(rows, columns, self.shape)
        if not len(self):
            return np.zeros(wanted.shape, np.int32), np.zeros(wanted.shape, bool)
        at = np.minimum(np.searchsorted(self.flat, wanted), len(self) - 1)
        return at.astype(np.int32), self.flat[at] == wanted

    def union(self, other: Pattern) -> Pattern:
        """Return all places of two patterns of one shape."""
        return Pattern.of_flat(np.union1d(self.flat, other.flat), self.shape)

    def product(
        self, other: Pattern
    ) -> tuple[Pattern, Int[np.ndarray, " q"], Int[np.ndarray, " q"], Int[np.ndarray, " q"]]:
        """Return the pattern of a matrix product, and its terms.

        The terms are three arrays: positions in `self`, in `other`, and in the result, sorted by
        the last. **Cost:** one term for each pair of a place `(i, j)` here and a place `(j, k)`
        in `other`.
        """
        counts = np.bincount(other.rows, minlength=other.shape[0])
        starts = np.concatenate([[0], np.cumsum(counts)])
        repeats = counts[self.columns]
        left = np.repeat(np.arange(len(self)), repeats)
        within = np.arange(len(left)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        right = starts[self.columns[left]] + within
        shape = (self.shape[0], other.shape[1])
        places = flat_places(self.rows[left], other.columns[right], shape)
        order = np.argsort(places, kind="stable")
        flat, to = np.unique(places[order], return_inverse=True)
        narrow = lambda x: x.astype(np.int32)
        pattern = Pattern.of_flat(flat, shape)
        return pattern, narrow(left[order]), narrow(right[order]), narrow(to)

    def window(self, rows: slice, columns: slice) -> tuple[Pattern, Int[np.ndarray, " q"]]:
        """Return the pattern of a contiguous sub-matrix, and its positions in this one."""
        (r, r_end, _), (c, c_end, _) = rows.indices(self.shape[0]), columns.indices(self.shape[1])
        inside = (self.rows >= r) & (self.rows < r_end)
        inside &= (self.columns >= c) & (self.columns < c_end)
        at = np.flatnonzero(inside).astype(np.int32)
        shape = (max(r_end - r, 0), max(c_end - c, 0))
        return Pattern.of(self.rows[at] - r, self.columns[at] - c, shape), at


def flat_places(rows: Places, columns: Places, shape: Sequence[int]) -> Int[np.ndarray, " p"]:
    """Return places counted along the rows."""
    return rows.astype(np.int64) * shape[1] + columns
