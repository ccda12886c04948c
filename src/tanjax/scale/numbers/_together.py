"""Whether many arrays are in their windows, by one compiled program, where they are.

NumPy takes 3 us for each array, and would have to fetch those of an accelerator. XLA compares all
of them in one run. It reduces integers slowly, 0.9 ns each, and joins slices of them ten times as
fast; so arrays are cut in slices that are compared side by side, and joined by their bits.

    together = Together([Window(-3.0, 3.0)] * 2)
    together.inside([jnp.ones(5), jnp.full(3, 100.0)])  # False

Sharp edge: the program takes some 50 ms to compile, so that the first calls do without.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tanjax._typing import DType, Shape

from ._extremes import UNSIGNED, Window, ends_of, is_on_host, sizes_of
from ._measure import inside

_FOLD = 16  # slices of a large array that are compared side by side
_FOLDED = 1 << 14  # numbers from which on an array is taken apart
_AT_ONCE = 64  # pieces of one size that are joined before they are reduced
_WORTH = 1 << 18  # numbers from which on a compiled look is faster than NumPy

Ends: TypeAlias = dict[str, jax.Array]  # of windows, by the width of what is compared
Flags: TypeAlias = list[jax.Array]  # any of them says that a number is out of its window


class Together:
    """`inside` for JAX arrays of known shapes by one compiled program, where they are.

    A hundred arrays of three numbers take 40 us instead of 300, 4e6 numbers 0.9 ms instead of 3;
    the program takes some 50 ms to compile, so the first `EAGER` calls do without, fewer for large
    arrays, one where NumPy would have to fetch them. Windows are its arguments, so that others
    need no other program.
    """

    __slots__ = ("_calls", "_cuts", "_eager", "_ends", "_reduces", "_windows")
    EAGER = 100

    def __init__(self, windows: Sequence[Window]) -> None:
        self._windows, self._calls = tuple(windows), 0
        self._ends: Ends | None = None
        self._eager: int | None = None

    @staticmethod
    def can(x: object) -> bool:
        """Whether an argument is an array of JAX whose bits are compared."""
        return isinstance(x, jax.Array) and x.dtype.char in UNSIGNED and x.is_fully_addressable

    @staticmethod
    def is_worth(arrays: Sequence[jax.Array], least: int) -> bool:
        """Whether to compile a look at these: many of them, large ones, or out of NumPy's reach."""
        return (
            len(arrays) >= least
            or sum(x.size for x in arrays) >= _WORTH
            or not all(map(is_on_host, arrays))
        )

    def _begin(self, arrays: Sequence[jax.Array]) -> Flags | None:
        """Start the compiled look; None while that is not worth it, or where it cannot be."""
        self._calls += 1
        if self._eager is None:
            on_host = all(map(is_on_host, arrays))
            self._reduces = not on_host
            numbers = sum(x.size for x in arrays)
            self._eager = self.EAGER // (1 + (numbers >> 17)) if on_host else 1
            # Slices of an array that several devices share would have to be sent around.
            self._cuts = all(len(x.devices()) == 1 for x in arrays)
        if self._calls <= self._eager:
            return None
        try:
            if self._ends is None:
                self._ends = _arrays_of_ends(self._windows, arrays)
            return _flags(self._cuts, self._reduces, self._ends, *arrays)
        except Exception:  # on several devices: not so soon again
            self._calls = 0
            return None

    def inside(self, arrays: Sequence[jax.Array]) -> bool:
        """Whether each of the arrays lies in its window."""
        begun = self._begin(arrays)
        if begun is not None:
            try:
                if any([np.asarray(flags).any() for flags in begun]):
                    return False
                return self._have_peaks(arrays)
            except Exception:  # under a trace
                self._calls = 0
        return all([inside(x, w) for x, w in zip(arrays, self._windows, strict=True)])

    def _have_peaks(self, arrays: Sequence[jax.Array]) -> bool:
        """Whether the largest number is large enough, where that is asked for: one more look."""
        pairs = zip(arrays, self._windows, strict=True)
        return all([inside(x, w) for x, w in pairs if w.peak > -math.inf])


@functools.partial(jax.jit, static_argnums=(0, 1))
def _flags(cuts: bool, reduces: bool, ends: Ends, *arrays: jax.Array) -> Flags:
    """Flags, any of which says that a number is out of its window."""
    groups: dict[tuple[Shape, DType], list[jax.Array]] = {}
    rows = {name: iter(list(table)) for name, table in ends.items()}
    for x in arrays:
        row = next(rows[_bits(x.dtype).name])
        for piece in _pieces(x) if cuts else [x]:
            groups.setdefault((piece.shape, row.dtype), []).append(_outside(piece, row))
    found = [
        functools.reduce(jax.lax.bitwise_or, signs[i : i + _AT_ONCE]) < 0
        for signs in groups.values()
        for i in range(0, len(signs), _AT_ONCE)
    ]
    # On a CPU NumPy reduces them: XLA needs three kernels more for each, 20 us apiece.
    return [functools.reduce(jax.lax.bitwise_or, map(jnp.any, found))] if reduces else found


def _bits(dtype: DType) -> DType:
    """Signed integers of the width of a dtype: XLA compares them by one instruction."""
    return np.dtype(f"i{UNSIGNED[dtype.char].itemsize}")


def _arrays_of_ends(windows: Sequence[Window], arrays: Sequence[jax.Array]) -> Ends:
    """By width of their numbers the ends of all windows.

    Of each the least, the largest, the last that counts, and -1 where zeros count, else 0.
    """
    rows: dict[str, list[list[int]]] = {}
    for x, window in zip(arrays, windows, strict=True):
        low, high, infinite, ignored = (end // 2 for end in ends_of(window, x.dtype))
        last = infinite - 1 if ignored == infinite else ignored
        rows.setdefault(_bits(x.dtype).name, []).append([low, high, last, -window.nonzero])
    if "int64" in rows and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise TypeError("numbers of 64 bits are compared as integers of 64 bits")
    return {name: jnp.asarray(np.array(table, name)) for name, table in rows.items()}


def _pieces(x: jax.Array) -> list[jax.Array]:
    """A large array in equal slices, and what is left of it."""
    if x.size < _FOLDED:
        return [x]
    flat, step = x.reshape(-1), x.size // _FOLD
    found = [flat[i * step : (i + 1) * step] for i in range(_FOLD)]
    return [*found, flat[_FOLD * step :]] if x.size % _FOLD else found


def _outside(x: jax.Array, ends: jax.Array) -> jax.Array:
    """Negative where an entry is out of its window.

    Differences instead of comparisons: their signs are joined by bits, which takes half the time.
    """
    size = sizes_of(x)
    low, high, last, zero = ends
    is_small = (size - low) & (zero - size)
    return ((high - size) | is_small) & (size - last - size.dtype.type(1))
