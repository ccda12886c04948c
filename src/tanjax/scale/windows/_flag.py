"""A program that returns a flag: True if its numbers have left their windows.

The flag is computed with the results, in one program; loops carry it, branches return it. The ends
of windows are an argument of the program, so that windows may move without a compilation.

    run = flagged(graph, exponents, windows)
    flag, results = jax.jit(run)(limits_of(windows, exponents), arguments)

A flag that is not raised proves that the results are right; a raised one proves nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph._graph import Exponents, Node, ScaleGraph, Value
from ..laws._law import vanish_of
from ..laws._vanish import is_tiny, magnitude
from ..replay._replay import Array, Arrays, run_watched
from ._find import Windows

# The ends of windows as stored numbers, and the program with a flag.
Limits: TypeAlias = np.ndarray | jax.Array
Flagged: TypeAlias = Callable[[Limits, Sequence[Array]], tuple[jax.Array, Arrays]]


def limits_of(windows: Windows, e: Exponents) -> np.ndarray:
    """Return the ends of each window inside as stored numbers, in the order of their places.

    **Returns:** an array `(windows, 3)`, of float64 if JAX has it enabled, else of float32.
    """
    wide = jax.dtypes.canonicalize_dtype(np.float64)
    rows = [
        (
            np.inf if w.high is None else w.high - e.values[i],
            -np.inf if w.low is None else w.low - e.values[i],
            -np.inf if w.peak is None else w.peak - e.values[i],
        )
        for i, w in sorted(windows.inner.items())
    ]
    with np.errstate(over="ignore", under="ignore"):
        return np.exp2(np.array(rows or np.zeros((0, 3)))).astype(wide)


def flagged(graph: ScaleGraph, e: Exponents, windows: Windows) -> Flagged:
    """Return the program that also checks its windows.

    **Arguments:** `e`: the exponents of its values; `windows`: those of a plan.
    **Returns:** a function from the limits of the windows inside, and arguments, to a flag and the
    results. The flag is True if a number has left its window.
    """
    hidden = e._replace(guarded=e.guarded | windows.hidden)
    places = {index: place for place, index in enumerate(sorted(windows.inner))}

    def run(limits: Limits, arguments: Sequence[Array]) -> tuple[jax.Array, Arrays]:
        watch = _Watch(windows, places, limits)
        results = run_watched(graph, arguments, hidden, watch)
        return watch.flag(), results

    return run


class _Watch:
    """A watch that collects the entries that have left their windows.

    It joins entries of arrays of one shape, so that few reductions remain: XLA repeats a chain of
    equations in the kernel of each reduction, and 100 of them took a minute to compile.
    """

    def __init__(self, windows: Windows, places: Mapping[int, int], limits: Limits) -> None:
        self._windows, self._places, self._limits = windows, places, limits
        self.asked = windows.told | windows.inner.keys()
        self._bad: dict[tuple[int, ...], jax.Array] = {}
        self._peaks = [i for i, w in sorted(windows.inner.items()) if w.peak is not None]
        self._high: dict[int, jax.Array] = {}

    def fresh(self) -> _Watch:
        """Return a watch of a nested graph."""
        return _Watch(self._windows, self._places, self._limits)

    def note(self, flags: jax.Array) -> None:
        """Join the flags of a nested graph."""
        bad, *high = flags
        self._raise(bad)
        for index, is_high in zip(self._peaks, high, strict=True):
            self._note_high(index, is_high)

    def raised(self) -> jax.Array:
        """Return the flag of all ends, and per peak True if some iteration reached it."""
        none = jnp.array(False)
        bad = functools.reduce(lax.bitwise_or, map(jnp.any, self._bad.values()), none)
        return jnp.stack([bad, *(self._high.get(i, none) for i in self._peaks)])

    def flag(self) -> jax.Array:
        """Return the flag of the program."""
        bad, *high = self.raised()
        return functools.reduce(lax.bitwise_or, map(jnp.logical_not, high), bad)

    def besides(self, graphs: Sequence[ScaleGraph]) -> jax.Array:
        """Return the flags of a branch that is not taken: its peaks count as reached."""
        inside = {v.index for g in graphs for n in g.walk() for v in n.outputs}
        return jnp.array([False, *(i in inside for i in self._peaks)])

    def _raise(self, bad: jax.Array) -> None:
        before = self._bad.get(bad.shape)
        self._bad[bad.shape] = bad if before is None else before | bad

    def _note_high(self, index: int, is_high: jax.Array) -> None:
        self._high[index] = self._high[index] | is_high if index in self._high else is_high

    def entered(self, value: Value, x: Array) -> None:
        """Check an argument of a nested graph."""
        self._within(value, x, [])

    def converted(self, value: Value, before: jax.Array, after: jax.Array) -> None:
        """Check a value that is read at another exponent."""
        if value.index in self._windows.told:
            self._raise(is_tiny(after) & (before != 0))

    def computed(self, node: Node, operands: Arrays, results: Arrays) -> None:
        """Check the results of an equation."""
        for value, x in zip(node.outputs, results, strict=True):
            self._within(value, x, operands)
            if value.index in self._windows.told and not node.graphs:
                self._tells(node, operands, x)

    def _tells(self, node: Node, operands: Arrays, x: jax.Array) -> None:
        vanish = vanish_of(node)
        if vanish.flag is None:  # moved: only a conversion can lose digits
            return
        floating = [y for u, y in zip(node.uses, operands, strict=True) if u.value.is_floating]
        for bad in vanish.flag(floating, x):
            self._raise(bad)

    def _within(self, value: Value, x: jax.Array, operands: Arrays) -> None:
        window = self._windows.inner.get(value.index)
        if window is None:
            return
        size, limits = magnitude(x), self._limits[self._places[value.index]]
        if window.high is not None:
            largest = np.asarray(jnp.finfo(size.dtype).max, limits.dtype)
            self._raise(~(size <= jnp.minimum(limits[0], largest).astype(size.dtype)))
        if window.low is not None:
            self._raise(size < limits[1].astype(size.dtype))
        if window.peak is not None:
            is_high = jnp.max(size, initial=0) >= limits[2].astype(size.dtype)
            if window.spares_zero:
                is_high |= self._is_zero(value, operands)
            self._note_high(value.index, is_high)

    def _is_zero(self, value: Value, operands: Arrays) -> jax.Array:
        """True if a result is zero because its operands are."""
        uses = value.node.uses if value.node else ()
        zero = [
            ~jnp.any(x != 0) for u, x in zip(uses, operands, strict=False) if u.value.is_floating
        ]
        is_product = value.node is not None and vanish_of(value.node).is_product
        return functools.reduce(lax.bitwise_or if is_product else lax.bitwise_and, zero)
