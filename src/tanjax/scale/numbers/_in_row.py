"""The check whether several arrays that NumPy can read are in their windows, all in one row.

NumPy takes 3 us for each array, most of it to begin and to end each of five operations. So `InRow`
copies the bits of all arrays into one row, 0.5 us each, and compares them there. With 2000 numbers
each, 30 arrays take 29 us instead of 100, and the call waits for no JAX program.

    row = InRow([Window(-3.0, 3.0)] * 2, arrays)
    row.inside([jnp.ones(5), jnp.full(3, 100.0)])  # False

Sharp edge: the copy is a pass over all numbers, so large arrays are checked one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from tanjax._typing import AnyArray

from ._extremes import UNSIGNED, Unsigned, Window, ends_of, is_on_host, peak_of
from ._measure import inside

_BUFFERS = "efd"  # dtypes that Python's buffers know: JAX's arrays are joined like strings
# Arrays of one dtype: their places (`_are_inside`), and the results of `_ends`.
Row: TypeAlias = tuple[Any, ...]


class InRow:
    """`inside` for JAX's arrays of known shapes, real and on the host, `MOST` numbers together."""

    __slots__ = ("_rows", "_windows")
    MOST = 1 << 17

    def __init__(self, windows: Sequence[Window], arrays: Sequence[jax.Array]) -> None:
        self._windows = tuple(windows)
        places: dict[str, list[int]] = {}
        for i, x in enumerate(arrays):
            if x.size:
                places.setdefault(x.dtype.char, []).append(i)
        self._rows = [
            (where, *_ends([windows[i] for i in where], [arrays[i] for i in where]))
            for where in places.values()
        ]

    @staticmethod
    def can(arrays: Sequence[AnyArray]) -> bool:
        """True if arguments are several arrays that can be compared in a row."""
        return (
            len(arrays) > 1
            and all(isinstance(x, jax.Array) and x.dtype.char in UNSIGNED for x in arrays)
            and not any(x.dtype.kind == "c" for x in arrays)
            and all(map(is_on_host, arrays))
            and sum(x.size for x in arrays) <= InRow.MOST
        )

    def inside(self, arrays: Sequence[jax.Array]) -> bool:
        """True if each of the arrays lies in its window. Waits for those still being computed."""
        try:
            found = [_are_inside(row, arrays) for row in self._rows]
        except Exception:  # on several devices, or deleted: `inside` raises for that array
            found = [None]
        if None in found:
            return all([inside(x, w) for x, w in zip(arrays, self._windows, strict=True)])
        return all(found)


def _are_inside(row: Row, arrays: Sequence[jax.Array]) -> bool | None:
    """Return None if there are infinities, which some windows allow."""
    places, starts, unsigned, read, low, high, infinite, one, shared, nonzero, peaks = row
    every_low, every_high = shared
    bits = read([arrays[i] for i in places], unsigned)
    bits += bits  # doubled, they have no signs and grow with the magnitude
    has_zeros = nonzero is not None and not bits.item(bits.argmin())
    if has_zeros and (nonzero & (np.minimum.reduceat(bits, starts) == 0)).any():
        return False
    if peaks is not None and (np.maximum.reduceat(bits, starts) < peaks).any():
        return False
    is_low = bits.item(bits.argmax()) <= every_high
    largest = None if is_low else np.maximum.reduceat(bits, starts)
    bits -= one  # zeros wrap around, so that the least is nonzero
    # First check all numbers in the range that all windows share, by `argmin`: half the time.
    if is_low and bits.item(bits.argmin()) >= every_low:
        return True
    if largest is None:
        largest = np.maximum.reduceat(bits + one, starts)
    least = np.minimum.reduceat(bits, starts)
    if not ((largest > high) | (least < low)).any():
        return True
    return None if (largest >= infinite).any() else False


def _ends(windows: Sequence[Window], arrays: Sequence[jax.Array]) -> Row:
    """Return where each array of one dtype begins in a row, how it is read, and its bounds."""
    dtype = arrays[0].dtype
    unsigned = UNSIGNED[dtype.char]
    starts = np.cumsum([0, *(x.size for x in arrays[:-1])])
    ends = [ends_of(w, dtype) for w in windows]
    low = np.array([max(e[0] - 1, 0) for e in ends], unsigned)
    high = np.array([e[1] for e in ends], unsigned)
    read = _joined if dtype.char in _BUFFERS else _concatenated
    shared = int(low.max()), int(high.min())
    nonzero = np.array([w.nonzero for w in windows])
    peaks = np.array([peak_of(w, dtype) for w in windows], unsigned)
    asks = [x if x.any() else None for x in (nonzero, peaks)]
    return starts, unsigned, read, low, high, ends[0][2], unsigned.type(1), shared, *asks


def _joined(arrays: Sequence[jax.Array], unsigned: Unsigned) -> np.ndarray:
    return np.frombuffer(bytearray().join(arrays), unsigned)


def _concatenated(arrays: Sequence[jax.Array], unsigned: Unsigned) -> np.ndarray:
    return np.concatenate([np.asarray(x).reshape(-1) for x in arrays]).view(unsigned)
