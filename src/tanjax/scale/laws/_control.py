"""Primitives that compute nothing: copies, barriers, devices, and equations that run jaxprs.

A nested jaxpr is a nested graph; equalities tie its values to those outside. The modules that walk
graphs run, bound and replay it. Collectives are sums and choices over devices.

    LAWS["optimization_barrier"].each  # each operand has a result in its own unit

Sharp edge: the mesh in the types gives the size of a collective sum's axis; without a mesh it
counts as 1.
"""

from __future__ import annotations

import math

import jax
import numpy as np

from tanjax.jaxprs import KINDS

from ..graph._graph import Node
from ..numbers._interval_record import NOTHING, Records, sum_of
from ..numbers._wide import Wide
from . import _rows as rows
from ._forms import each, moves
from ._integers import PLAIN
from ._law import law
from ._vanish import MOVES, SUM, Operands, Vanish, worst

# -- the same numbers -----------------------------------------------------------------------------

law(
    """copy stop_gradient optimization_barrier pvary pcast pbroadcast name device_put
    sharding_constraint layout_constraint reshard reduced_vary_cast reduced_vary_cast_p
    vary_unreduced_cast vary_unreduced_cast_p with_memory_space_constraint""",
    "x: U -> u",
    each=True,
    evaluate=lambda node, xs: list(xs),
    spread=True,
    bound=each,
    vanish=MOVES,
)
law("preduced pin unpin relayout tie", "x: U -> u", each=True, bound=each, vanish=MOVES)
law("dce_sink inspect_sharding", PLAIN, bound=moves)

# -- over devices ---------------------------------------------------------------------------------


def _axis_size(node: Node) -> int:
    """Return how many devices a collective operation spans, as far as types name the mesh."""
    mesh = getattr(getattr(node.uses[0].value.aval, "sharding", None), "mesh", None)
    sizes = dict(getattr(mesh, "shape", None) or {})
    axes = node.params.get("axes", node.params.get("axis_name", ()))
    axes = axes if isinstance(axes, tuple) else (axes,)
    return math.prod(sizes.get(axis, 1) for axis in axes)


def _summed(node: Node, records: Records) -> Records:
    count = _axis_size(node)
    return [r and sum_of(r, count) for r in records]


def _sum_of_errors(node: Node, xs: Operands, high: float) -> float:
    return worst(xs) + math.log2(_axis_size(node))


law(
    """pmax pmin ppermute all_gather all_gather_invariant all_gather_reduced all_to_all""",
    "x: U -> u",
    each=True,
    bound=each,
    vanish=MOVES,
)
law(
    """psum psum_invariant reduce_scatter unreduced_psum
    unreduced_reduce_scatter""",
    "x: u -> u",
    each=True,
    bound=_summed,
    vanish=Vanish(_sum_of_errors, SUM.flag, adds=True),
)

# -- other jaxprs ---------------------------------------------------------------------------------

law(" ".join(KINDS), "", rows=rows.nested)

# -- nothing of numbers ---------------------------------------------------------------------------

law("axis_index after_all ffi_call pure_callback io_callback debug_callback debug_print", PLAIN)
law("from_edtype to_edtype stage", PLAIN)
# Mutable arrays, whose contents have no place in a graph.
law("get swap addupdate new_ref freeze empty_ref free_ref accum_grad_in_ref", PLAIN)
# Graphs and `tj.lift` treat these as programs (`_expansions.py`).
law("polynomial symmetric_product call_hi_primitive", "")
law("create_token", PLAIN, bound=lambda node, records: [NOTHING] * len(node.outputs))
law("Ldexp", "a: u, b: - -> u")  # a primitive that stands for a program, by its class
law("SearchSorted", "*x: U -> -")


@law("platform_index", PLAIN)
def platform_index(node: Node, xs: list[Wide]) -> list[Wide]:
    """Return the index of the branch of `lax.platform_dependent` for the default backend."""
    backend = jax.default_backend()
    for i, names in enumerate(node.params["platforms"]):
        if names is None or backend in names:
            return [Wide(np.int32(i))]
    raise NotImplementedError(f"no branch for {backend}")
