"""What exponents do to the results of a program, and what is to be said about it.

Exponents are judged by the results alone: a program is run on its numbers as its dtypes hold them,
and compared with a run in a wide range. Two things count: entries that are wrong, and, before all,
those that plain JAX has right.

    plain = Judged.of(graph, reference)
    Judged.of(graph, reference, exponents, plain).badness  # (0, 0): nothing is lost

Sharp edge: without a complete reference nothing is known, and any exponents count as good.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .graph._graph import Exponents, Magnitudes, Node, ScaleGraph
from .laws._constraints import is_known
from .magnitudes._evaluate import OVER_BUDGET, UNDEFINED, Evaluation, simulate
from .magnitudes._losses import losses, lost_entries
from .numbers import _range


class Judged(NamedTuple):
    """What exponents (or none) do to the results.

    **Fields:** `lost`: entries of the results that are wrong; `worse`: of those, how many plain JAX
    has right; `right`: per output, which entries are as the dtype holds them; `undefined`: the
    equations where the range has made a nan of 0 · inf.
    """

    lost: int
    worse: int
    right: list[Any]
    undefined: frozenset[int] = frozenset()

    @property
    def badness(self) -> tuple[int, int]:
        return self.worse, self.lost

    @classmethod
    def of(
        cls,
        graph: ScaleGraph,
        reference: Evaluation,
        exponents: Exponents | None = None,
        plain: Judged | None = None,
    ) -> Judged:
        """Run the program at exponents, and compare it with the run at none, `plain`."""
        none = [None] * len(graph.outputs)
        if not reference.complete:
            return cls(int(plain is None), 0, none)
        simulated = simulate(graph, reference, exponents)
        wrong = lost_entries(graph, reference, simulated, strict=True)
        right = [None if mask is None else ~mask for mask in wrong]
        before = none if plain is None else plain.right
        worse = sum(
            int(np.count_nonzero(was & ~now))
            for was, now in zip(before, right, strict=True)
            if was is not None and now is not None
        )
        lost = sum(loss.entries for loss in losses(graph, reference, simulated))
        nodes = [e.node for e in simulated.events if e.kind == UNDEFINED]
        return cls(lost, worse, right, frozenset(node.index for node in nodes if node))


def unseen(reference: Evaluation) -> list[str]:
    """Equations that could not be run, and of whose numbers nothing is known."""
    m = reference.magnitudes
    return [
        f"the numbers of `{node.primitive}`{_at(node)} could not be looked at ({reason})."
        for node, reason in reference.skipped
        if reason != OVER_BUDGET
        and not all(v.is_floating and m[v.index] is not None for v in node.outputs)
    ][:3]


def _at(node: Node) -> str:
    return f" at {node.source}" if node.source else ""


def unknown_primitives(graph: ScaleGraph) -> list[str]:
    names = sorted({n.primitive for n in graph.walk() if not is_known(n.primitive)})
    return [
        f"`{name}` has no entry in the table of constraints: it works on the numbers themselves "
        "(`tj.scale.register_constraint`)."
        for name in names
    ]


def unholdable(graph: ScaleGraph, m: Magnitudes) -> list[str]:
    """What no exponent can hold, where that was found out on numbers."""
    said = []
    for value in graph.values:
        found = m[value.index]
        if found and found.exact and not _range.holds_together(value, m):
            where = (value.node.source or value.node.primitive) if value.node else value.kind
            said.append(f"no exponent of {value.aval.dtype} holds every number of {where}.")
    return said[:5]
