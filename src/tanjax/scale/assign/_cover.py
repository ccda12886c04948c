"""A cheap set of values that meets every conflict, and a lower bound of its cost.

A greedy choice takes the value that meets the most conflicts for its cost. In the end it drops the
values that later choices made redundant. A packing bounds the cost from below. Often the bound
equals the cost, because conflicts along a chain are intervals.

    >>> greedy([{1, 2}, {2, 3}], [1.0, 1.0, 1.0, 1.0])
    {2}

Sharp edges: a set that meets all known conflicts may leave unknown ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence


def greedy(conflicts: Sequence[Collection[int]], cost: Sequence[float]) -> set[int]:
    """Return a cheap set with an element in each of `conflicts`. Later values win ties."""
    met_by: dict[int, list[int]] = {}
    for k, conflict in enumerate(conflicts):
        for v in conflict:
            met_by.setdefault(v, []).append(k)
    left = {v: len(met) for v, met in met_by.items()}
    heap = [(cost[v] / count, -v) for v, count in left.items()]
    heapq.heapify(heap)
    times, chosen, unmet = [0] * len(conflicts), [], len(conflicts)
    while unmet:
        price, v = heapq.heappop(heap)
        v = -v
        if left[v] == 0:
            continue
        if cost[v] / left[v] > price:  # chosen values have met some of its conflicts since
            heapq.heappush(heap, (cost[v] / left[v], -v))
            continue
        chosen.append(v)
        for k in met_by[v]:
            if not times[k]:
                unmet -= 1
                for u in conflicts[k]:
                    left[u] -= 1
            times[k] += 1
    needed = set(chosen)
    for v in reversed(chosen):
        if all(times[k] > 1 for k in met_by[v]):
            needed.remove(v)
            for k in met_by[v]:
                times[k] -= 1
    return needed


def packing(conflicts: Sequence[Collection[int]], cost: Sequence[float]) -> float:
    """Return a lower bound of the cost of any set with an element in each conflict.

    Each conflict takes the least remaining cost of its values from all of them.

    >>> packing([{1, 2}, {2, 3}, {4}], [1.0, 1.0, 3.0, 1.0, 5.0])
    7.0
    """
    left = {v: cost[v] for conflict in conflicts for v in conflict}
    bound = 0.0
    for conflict in conflicts:
        paid = min(left[v] for v in conflict)
        bound += paid
        for v in conflict:
            left[v] -= paid
    return bound
