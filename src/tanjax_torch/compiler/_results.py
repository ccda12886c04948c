"""The results of a graph of torch: arrays that JAX computes, arguments, and views of both.

Torch's graphs keep track of memory. A result may be a view of another result, an argument, or a
view of an argument. A compiled program returns new arrays. So it computes one of the results that
share a memory, and torch takes the views of it.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch._ops import OpOverload
from torch.fx.node import Node, map_arg

from tanjax_torch._typing import Function

Known: TypeAlias = torch.Tensor | int | None  # `None` for a token


class Result(NamedTuple):
    """A result: a view of a computed node or of an argument."""

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
        unlike = list(dict.fromkeys(results))
        self._made = [(r.base, tuple(map(_taken, r.views))) for r in unlike]
        self._where = [unlike.index(r) if isinstance(r, Result) else None for r in self._of]

    def given(self, known: dict[Node, Known]) -> list[Known]:
        """All results, from the values of arguments, computed nodes and sizes."""
        made = []
        for base, views in self._made:
            found = known[base]
            for view in views:
                found = view(found, known)
            made.append(found)
        return [r if i is None else made[i] for r, i in zip(self._of, self._where, strict=True)]


def _taken(view: Node) -> Callable[[torch.Tensor, dict[Node, Known]], torch.Tensor]:
    """Take a view of its base, with the known sizes."""
    target: Function = view.target
    rest, kwargs = view.args[1:], view.kwargs
    if view.all_input_nodes[1:]:
        return lambda x, known: target(x, *map_arg(rest, known.get), **map_arg(kwargs, known.get))
    return lambda x, known: target(x, *rest, **kwargs)


def _chain(node: Node) -> Result:
    views: list[Node] = []
    while _is_view(node):
        views.insert(0, node)
        node = node.args[0]
    return Result(node, tuple(views))


def _is_view(node: Node) -> bool:
    if node.op != "call_function" or not isinstance(node.args[0], Node):
        return False
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    return isinstance(node.target, OpOverload) and node.target.is_view
