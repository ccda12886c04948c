"""The largest and the least number of each value, found by running the program itself.

A look only samples a long loop, so its later iterations are an estimate. If the flag of windows
around estimates is raised, the program runs once more, compiled and with all iterations. This run
returns the extremes of its values, and new windows are drawn around them.

    found, results = jax.jit(extremes(graph, exponents, {3}))(arguments)
    magnitudes_in(graph, exponents, found)[3]  # Magnitude(low=-4.0, high=9.5, exact=True)

Sharp edges. Numbers that underflow are zeros here; the windows check for underflow. With fusion,
XLA would repeat a chain of equations in the kernel of each reduction: 100 of them took seconds to
compile. So compile the program without fusion (`_compat.UNFUSED`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph._graph import Exponents, Magnitude, Magnitudes, Node, ScaleGraph, Value
from ..laws._vanish import magnitude
from ..replay._replay import Array, Arrays, run_watched


def extremes(
    graph: ScaleGraph, e: Exponents, asked: Collection[int]
) -> Callable[[Sequence[Array]], tuple[jax.Array, Arrays]]:
    """Return the program at exponents: a function from arguments to ends of values and results.

    The ends are an array `(values, 2)`: the largest stored number, and minus the least.

    **Arguments:** `e`: the exponents of its values; `asked`: the indices of the values to measure.
    """

    def run(arguments: Sequence[Array]) -> tuple[jax.Array, Arrays]:
        watch = _Extremes(len(graph.values), asked)
        for value, x in zip(graph.inputs, arguments, strict=True):
            watch.entered(value, x)
        results = run_watched(graph, arguments, e, watch)
        return watch.raised(), results

    return run


def magnitudes_in(graph: ScaleGraph, e: Exponents, found: jax.Array) -> Magnitudes:
    """Return the true magnitudes of measured ends; None for a value that is zero or not measured.

    **Arguments:** `e`: the exponents given to `extremes`; `found`: its ends.
    """
    out: list[Magnitude | None] = []
    ends = np.asarray(found, np.float64) * (1.0, -1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.nan_to_num(np.log2(ends), nan=np.inf, posinf=np.inf, neginf=-np.inf).tolist()
    for value, (top, bottom), (high, _) in zip(graph.values, logs, ends.tolist(), strict=True):
        at = e.of(value)
        out.append(None if high <= 0 else Magnitude(min(bottom, top) + at, top + at, True))
    return out


class _Extremes:
    """A watch that collects the ends of values."""

    def __init__(self, count: int, asked: Collection[int]) -> None:
        self._wide = jax.dtypes.canonicalize_dtype(np.float64)
        self._found, self.asked = jnp.full((count, 2), -jnp.inf, self._wide), asked
        self._ends: dict[int, jax.Array] = {}

    def fresh(self) -> _Extremes:
        """Return a watch of a nested graph."""
        return _Extremes(len(self._found), self.asked)

    def note(self, found: jax.Array) -> None:
        """Join the ends of a nested graph."""
        self._found = lax.max(self._found, found)

    def besides(self, graphs: Sequence[ScaleGraph]) -> jax.Array:
        """Return the ends of graphs that are not run: none."""
        return jnp.full_like(self._found, -jnp.inf)

    def raised(self) -> jax.Array:
        """Return all ends."""
        if not self._ends:
            return self._found
        places = np.array(list(self._ends))
        return self._found.at[places].max(jnp.stack(list(self._ends.values())))

    def entered(self, value: Value, x: Array) -> None:
        """Note the ends of an argument or a result."""
        if value.index not in self.asked or not value.size:
            return
        size = magnitude(jnp.asarray(x))
        zero, infinite = (np.array(end, size.dtype) for end in (0, np.inf))
        counted = lax.select(size > zero, size, lax.full_like(size, np.inf))
        axes = tuple(range(size.ndim))
        high = lax.reduce(size, zero, lax.max, axes)
        ends = high, -lax.reduce(counted, infinite, lax.min, axes)
        self._ends[value.index] = jnp.stack(ends).astype(self._wide)

    def converted(self, value: Value, before: jax.Array, after: jax.Array) -> None:
        """Ignore a value that is read at another exponent."""

    def computed(self, node: Node, operands: Arrays, results: Arrays) -> None:
        """Note the ends of the results of an equation."""
        for value, x in zip(node.outputs, results, strict=True):
            self.entered(value, x)
