"""What a graph of torch gives: arrays that JAX computes, arguments, and views of both.

Torch's graphs keep track of memory: of two results one may be a view of the other, and a result may
be an argument, or a view of one. A compiled program gives new arrays, so of results that share a
memory one is computed, and torch takes the views of it.
"""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.fx import Node


class Result(NamedTuple):
    """A result: a view of something that is computed, or of an argument."""

    base: Node
    views: tuple[Node, ...]  # from the base to the result


class Results:
    """The results of a graph, and which of its nodes must be computed for them."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        given = list(graph.output_node().args[0])
        chains = [_chain(x) if isinstance(x, Node) else x for x in given]
        shared = Counter([c.base for c in chains if isinstance(c, Result)])
        self._of = [
            Result(x, ())
            if isinstance(x, Node) and shared[c.base] == 1 and c.base.op != "placeholder"
            else c
            for x, c in zip(given, chains, strict=True)
        ]
        results = [r for r in self._of if isinstance(r, Result)]
        self.computed = list(dict.fromkeys(r.base for r in results if r.base.op != "placeholder"))
        self.sizes = {n for r in results for v in r.views for n in v.all_input_nodes[1:]}

    def given(self, known: dict[Node, Any]) -> list[Any]:
        """All results, from the values of arguments, computed nodes and sizes."""
        made: dict[Result, Any] = {}
        return [
            r
            if not isinstance(r, Result)
            else self._made(r, known, made)
            if r.views
            else known[r.base]
            for r in self._of
        ]

    def _made(self, result: Result, known: dict[Node, Any], made: dict[Result, Any]) -> Any:
        found = made.get(result)
        if found is None:
            found = known[result.base]
            for view in result.views:
                rest = torch.fx.node.map_arg(view.args[1:], known.__getitem__)
                kwargs = torch.fx.node.map_arg(view.kwargs, known.__getitem__)
                found = view.target(found, *rest, **kwargs)
            made[result] = found
        return found


def _chain(node: Node) -> Result:
    views: list[Node] = []
    while _is_view(node):
        views.insert(0, node)
        node = node.args[0]
    return Result(node, tuple(views))


def _is_view(node: Any) -> bool:
    if node.op != "call_function" or not isinstance(node.args[0], Node):
        return False
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    return isinstance(node.target, OpOverload) and node.target.is_view
