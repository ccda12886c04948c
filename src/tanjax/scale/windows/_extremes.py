"""The largest and the least number of each value, found by running the program itself.

A long loop is sampled by a look, and what it computes later is an estimate. Where the flag of
windows around estimates is raised, the program is run once more, compiled and with all iterations,
and hands out the extremes of its values; windows are drawn around these.

    found, results = jax.jit(extremes(graph, exponents))(arguments)
    magnitudes_in(graph, exponents, found)[3]  # Magnitude(low=-4.0, high=9.5, exact=True)

Sharp edge: numbers that underflow are zeros here. Windows tell whether they do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph._graph import Exponents, Magnitude, Magnitudes, Node, ScaleGraph, Value
from ..laws._vanish import magnitude
from ..replay._replay import Array, Arrays, run_watched


def extremes(
    graph: ScaleGraph, e: Exponents
) -> Callable[[Sequence[Array]], tuple[jax.Array, Arrays]]:
    """The program at exponents: from arguments to `log2` of the ends of all values, and results.

    The former are an array `(values, 2)` of float32: of stored numbers the largest, and the least
    with a minus.
    """

    def run(arguments: Sequence[Array]) -> tuple[jax.Array, Arrays]:
        watch = _Extremes(len(graph.values))
        for value, x in zip(graph.inputs, arguments, strict=True):
            watch.entered(value, x)
        results = run_watched(graph, arguments, e, watch)
        return watch.raised(), results

    return run


def magnitudes_in(graph: ScaleGraph, e: Exponents, found: jax.Array) -> Magnitudes:
    """What `extremes` has found, as true magnitudes; None of what is zero or never computed."""
    out: list[Magnitude | None] = []
    for value, (high, less) in zip(graph.values, np.asarray(found, float).tolist(), strict=True):
        at, top = e.of(value), np.inf if np.isnan(high) else high
        out.append(None if top == -np.inf else Magnitude(min(at - less, at + top), at + top, True))
    return out


class _Extremes:
    """Collects the ends of all values."""

    def __init__(self, count: int) -> None:
        self._found = jnp.full((count, 2), -jnp.inf, jnp.float32)

    def fresh(self) -> _Extremes:
        """A watch of a nested graph."""
        return _Extremes(len(self._found))

    def note(self, found: jax.Array) -> None:
        """Join the ends of a nested graph."""
        self._found = lax.max(self._found, found)

    def raised(self) -> jax.Array:
        """All ends."""
        return self._found

    def asks(self, node: Node) -> bool:
        """Whether a result of a node is a number."""
        return any(v.is_floating for v in node.outputs)

    def enters(self, node: Node) -> bool:
        """Whether there are numbers inside of a node."""
        return bool(node.graphs)

    def entered(self, value: Value, x: Array) -> None:
        """An argument."""
        if not value.is_floating or not value.size:
            return
        size = magnitude(jnp.asarray(x))
        high = jnp.log2(jnp.max(size))
        low = jnp.log2(jnp.min(size, initial=jnp.inf, where=size > 0))
        ends = jnp.stack([high, -low]).astype(jnp.float32)
        self._found = self._found.at[value.index].max(ends)

    def converted(self, value: Value, before: jax.Array, after: jax.Array) -> None:
        """A value is read at another exponent."""

    def computed(self, node: Node, operands: Arrays, results: Arrays) -> None:
        """An equation was run."""
        for value, x in zip(node.outputs, results, strict=True):
            self.entered(value, x)
