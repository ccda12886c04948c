"""A program that tells by a flag whether its numbers have left their windows.

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
from ._attempt import Inner
from ._find import Windows

# The ends of windows as stored numbers, and the program with a flag.
Limits: TypeAlias = np.ndarray | jax.Array
Flagged: TypeAlias = Callable[[Limits, Sequence[Array]], tuple[jax.Array, Arrays]]


def limits_of(windows: Windows, e: Exponents) -> np.ndarray:
    """The ends of each window inside as stored numbers, in the order of their places.

    **Returns:** an array `(windows, 3)`, of float64 where JAX has that, else of float32.
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
    """The program at exponents: from limits and arguments to a flag and results."""
    hidden = e._replace(guarded=e.guarded | windows.hidden)
    places = {index: place for place, index in enumerate(sorted(windows.inner))}

    def run(limits: Limits, arguments: Sequence[Array]) -> tuple[jax.Array, Arrays]:
        watch = _Watch(windows, places, limits)
        results = run_watched(graph, arguments, hidden, watch)
        return watch.raised(), results

    return run


class _Watch:
    """Collects where numbers have left their windows.

    By shape, so that few reductions are left: XLA repeats a chain of equations in the kernel of
    each reduction, and 100 of them took a minute to compile.
    """

    def __init__(self, windows: Windows, places: Mapping[int, int], limits: Limits) -> None:
        self._windows, self._places, self._limits = windows, places, limits
        self.asked = windows.told | windows.inner.keys()
        self._bad: dict[tuple[int, ...], jax.Array] = {}

    def fresh(self) -> _Watch:
        """A watch of a nested graph."""
        return _Watch(self._windows, self._places, self._limits)

    def note(self, bad: jax.Array) -> None:
        """Raise the flag where this is true; of a nested graph, its flag."""
        before = self._bad.get(bad.shape)
        self._bad[bad.shape] = bad if before is None else before | bad

    def raised(self) -> jax.Array:
        """The flag."""
        return functools.reduce(lax.bitwise_or, map(jnp.any, self._bad.values()), jnp.array(False))

    def entered(self, value: Value, x: Array) -> None:
        """An argument of a nested graph."""
        window = self._windows.inner.get(value.index)
        if window is not None:
            self._within(window, self._limits[self._places[value.index]], x)

    def converted(self, value: Value, before: jax.Array, after: jax.Array) -> None:
        """A value is read at another exponent."""
        if value.index in self._windows.told:
            self.note(is_tiny(after) & (before != 0))

    def computed(self, node: Node, operands: Arrays, results: Arrays) -> None:
        """An equation was run."""
        for value, x in zip(node.outputs, results, strict=True):
            self.entered(value, x)
            if value.index in self._windows.told and not node.graphs:
                self._tells(node, operands, x)

    def _tells(self, node: Node, operands: Arrays, x: jax.Array) -> None:
        vanish = vanish_of(node)
        if vanish.flag is None:  # moved: only a conversion can lose digits
            return
        floating = [y for u, y in zip(node.uses, operands, strict=True) if u.value.is_floating]
        for bad in vanish.flag(floating, x):
            self.note(bad)

    def _within(self, window: Inner, limits: Limits, x: jax.Array) -> None:
        size = magnitude(x)
        if window.high is not None:
            largest = np.asarray(jnp.finfo(size.dtype).max, limits.dtype)
            self.note(~(size <= jnp.minimum(limits[0], largest).astype(size.dtype)))
        if window.low is not None:
            self.note(size < limits[1].astype(size.dtype))
        if window.peak is not None and x.size:
            self.note(jnp.max(size) < limits[2].astype(size.dtype))
