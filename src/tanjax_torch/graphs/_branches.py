"""Torch's control flow on tensors (`torch.cond`, `while_loop`, `scan`, `map`), as JAX's.

Modules that run on tensors, exported programs and `torch.compile` share this module. Each of them
passes a `run`, which evaluates a function of torch on arrays.

Sharp edges. The body of a loop is traced once, so random numbers would be the same at each step:
drawing them there raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

import torch
from jax import lax
from jaxtyping import PyTree
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op
from torch._ops import HigherOrderOperator

from tanjax._errors import NoRuleError, message
from tanjax_torch._typing import Args, Function
from tanjax_torch.arguments._keys import random_key
from tanjax_torch.table._registry import no_rule

Run = Callable[[Function, Args], PyTree]  # a function of tensors, on arrays
_COND = torch.ops.higher_order.cond
_FLOWS = (_COND, while_loop_op, scan_op, map_impl)


def branched(op: HigherOrderOperator, args: Args, run: Run) -> PyTree:
    """Run an operation that takes functions on arrays.

    **Raises:** `NoRuleError` for operations other than `cond`, `while_loop`, `scan` and `map`, and
    for random numbers in the body of a loop.
    """
    if op not in _FLOWS:
        raise no_rule(op)
    if op is _COND:
        predicate, yes, no, operands = args
        if isinstance(predicate, bool):
            return run(yes if predicate else no, operands)
        return lax.cond(
            predicate.reshape(()),
            lambda given: _plain(run(yes, given)),
            lambda given: _plain(run(no, given)),
            tuple(operands),
        )
    with random_key(_NoKey(op)):  # type: ignore[arg-type]
        return _looped(op, args, run)


def _looped(op: HigherOrderOperator, args: Args, run: Run) -> PyTree:
    if op is while_loop_op:
        goes_on, body, carried, rest = args
        return lax.while_loop(
            lambda state: run(goes_on, (*state, *rest)).reshape(()),
            lambda state: _plain(run(body, (*state, *rest))),
            tuple(carried),
        )
    if op is map_impl:
        body, rows, rest = args
        return lax.map(lambda row: _plain(run(body, (*row, *rest))), tuple(rows))
    body, first, rows, rest = args
    count = len(first)

    def step(carried: PyTree, row: PyTree) -> tuple[PyTree, PyTree]:
        out = _plain(run(body, (*carried, *row, *rest)))
        return out[:count], out[count:]

    last, stacked = lax.scan(step, tuple(first), tuple(rows))
    return (*last, *stacked)


class _NoKey:
    """A key that raises when an operation draws from it."""

    def __init__(self, op: HigherOrderOperator) -> None:
        self._op = op

    def __getattr__(self, name: str) -> NoReturn:
        raise NoRuleError(
            message(
                f"random numbers in the body of {self._op} would be the same at each step.",
                hint="draw them before the loop, and give them to it.",
            )
        )


def nodes_of(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yield the nodes of a graph and of the graphs of its control flow."""
    for node in graph.nodes:
        yield node
        if node.op == "call_function" and node.target in _FLOWS:
            for a in node.args:
                if isinstance(a, torch.fx.Node) and a.op == "get_attr":
                    inner = getattr(graph.owning_module, str(a.target))
                    if isinstance(inner, torch.fx.GraphModule):
                        yield from nodes_of(inner.graph)


def is_flow(target: object) -> bool:
    """True if a function of torch is control flow that JAX has."""
    return target in _FLOWS


def _plain(out: PyTree) -> PyTree:
    """Return several results as a tuple, from a list or a tuple of a graph."""
    return tuple(out) if isinstance(out, (list, tuple)) else out
