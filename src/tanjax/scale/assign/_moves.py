"""Exponents in linear time: one pass through the program, then better ones cell by cell.

Bounds see far ahead, but in a program that wanders out of range every few equations they contradict
each other everywhere, and following them takes seconds. Here a cell looks at its neighbours only:
at which exponents its operands can be had for nothing (their own, and those to which they have been
converted already), and at which its results are read. Of the few combinations that follow, each
cell takes the cheapest. The first pass goes forth through the program; the next go back and forth
as long as conversions are saved.

    exponents = descend(system, until=time.thread_time() + 0.1)

All rows and pins hold after the first pass, and violations are as few as can be.

Sharp edges: this is a local search; two cells that would have to move together stay. Cells with
rows of an unusual form keep what solves them alone.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import NamedTuple

from ._cells import all_equal, common, nearest, solve
from ._presolve import Cell, Row, System

CHOICES = 4  # exponents at which an operand is tried
PASSES = 12
TICK = 64  # cells between two looks at the clock


class Movable(NamedTuple):
    """A cell that is one sum, `row`, or, without it, whose variables are all equal."""

    row: Row
    variables: list[int]  # readings first
    reads: int  # how many of them are readings


def descend(system: System, *, until: float, start: list[int] | None = None) -> list[int]:
    """An exponent for each variable.

    **Arguments:** `until`: when to stop, by `time.thread_time`, but not before the first pass;
    `start`: exponents to begin with.
    """
    search = _Search(system)
    search.begin(start)
    order = search.movable
    if start is None:
        search.sweep(order, None)
    for _ in range(PASSES):
        order = order[::-1]
        if not search.sweep(order, until):
            break
    return search.finish()


class _Search:
    """Exponents so far (None: not yet), and per value how many readings are at which exponent."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.at: list[int | None] = [None] * system.size
        self.read: list[dict[int, int]] = [{} for _ in range(system.n)]
        self.movable: list[Movable] = []

    def begin(self, start: list[int] | None) -> None:
        """Exponents of all that does not move; of the rest if there are some to start from."""
        s = self.system
        inside = [False] * s.size
        for cell in s.cells:
            form = _form(s, cell)
            if form is not None:
                self.movable.append(form)
            alone = form is None and start is None
            found = _alone(s, cell) if alone else {x: start[x] for x in cell[1]} if start else {}
            for x in cell[1]:
                inside[x] = True
                if x in found:
                    self.put(x, found[x])
        for x in range(s.size):
            if not inside[x] and (s.pinned[x] or x < s.n):
                self.put(x, nearest(s.low[x], s.high[x]))

    def put(self, x: int, exponent: int) -> None:
        self.at[x] = exponent
        if x >= self.system.n:
            read = self.read[self.system.owner[x]]
            read[exponent] = read.get(exponent, 0) + 1

    def take(self, x: int) -> None:
        read, exponent = self.read[self.system.owner[x]], self.at[x]
        if exponent is not None:
            read[exponent] -= 1
            if not read[exponent]:
                del read[exponent]

    def sweep(self, order: list[Movable], until: float | None) -> bool:
        """Look once at every cell; whether any has become cheaper, and there is time for more."""
        gained = False
        for k, cell in enumerate(order):
            if until is not None and k % TICK == 0 and time.thread_time() > until:
                return False
            gained |= self.improve(cell)
        return gained

    def improve(self, cell: Movable) -> bool:
        """Give a cell the cheapest exponents that are tried; whether they are cheaper."""
        variables = cell.variables
        old = [e for e in map(self.at.__getitem__, variables) if e is not None]
        for x in variables[: cell.reads]:
            self.take(x)
        best, least = old, (self.cost(cell, old) if old else float("inf"), 0)
        if least[0] > 0:
            for exponents in self.summed(cell) if cell.row else self.equal(variables):
                price = self.cost(cell, exponents)
                if price < least[0] or (price == least[0] and best is not old):
                    key = price, sum(map(abs, exponents[cell.reads :]))
                    if key < least or best is old:
                        least, best = key, exponents
                if least == (0.0, 0):
                    break
        if not best:
            found = _alone(self.system, ([], variables), [cell.row])
            best = [found[x] for x in variables]
        for x, exponent in zip(variables, best, strict=True):
            self.put(x, exponent)
        return best is not old

    def cost(self, cell: Movable, exponents: list[int]) -> float:
        """What the cell's conversions cost on top of those of all others."""
        owner, cost, at = self.system.owner, self.system.cost, self.at
        total, seen = 0.0, set()
        for i, e in enumerate(exponents):
            v = owner[cell.variables[i]]
            if i >= cell.reads:
                total += cost[v] * (len(self.read[v]) - (e in self.read[v]))
            elif e != at[v] and e not in self.read[v] and (v, e) not in seen:
                seen.add((v, e))
                total += cost[v]
        return total

    def choices(self, x: int) -> list[int]:
        """Exponents at which a variable costs nothing, and one near 0."""
        s = self.system
        low, high = s.low[x], s.high[x]
        if low == high:
            return [low]
        found, own = [], self.at[s.owner[x]]
        if own is not None and low <= own <= high:
            found.append(own)
        for e in self.read[s.owner[x]]:
            if e != own and low <= e <= high:
                found.append(e)
        near = nearest(low, high)
        return found[:CHOICES] if near in found else [*found[:CHOICES], near]

    def equal(self, variables: list[int]) -> Iterable[list[int]]:
        low, high = common(self.system, variables)
        several = {e for x in variables for e in self.choices(x) if low <= e <= high}
        for e in {*several, nearest(low, high)}:
            yield [e] * len(variables)

    def summed(self, cell: Movable) -> Iterable[list[int]]:
        """All variables but one at one of their choices; that one as the row demands."""
        s, coefficients = self.system, dict(((x, c) for c, x in cell.row))
        choices = [self.choices(x) for x in cell.variables]
        factors = [coefficients[x] for x in cell.variables]
        for i, x in enumerate(cell.variables):
            c, low, high = factors[i], s.low[x], s.high[x]
            for picked in itertools.product(*choices[:i], (0,), *choices[i + 1 :]):
                total = -sum(map(int.__mul__, factors, picked))
                if total % c == 0 and low <= total // c <= high:
                    exponents = list(picked)
                    exponents[i] = total // c
                    yield exponents

    def finish(self) -> list[int]:
        s = self.system
        for x in range(s.n, s.size):  # readings of no cell
            if self.at[x] is None:
                self.at[x] = min(max(self.at[s.owner[x]] or 0, s.low[x]), s.high[x])
        return [e or 0 for e in self.at]


def _form(system: System, cell: Cell) -> Movable | None:
    rows, variables = cell
    uses = [x for x in variables if x >= system.n]
    outs = [x for x in variables if x < system.n]
    if any(system.owner[x] in outs for x in uses):
        return None
    given = [system.rows[r] for r in rows]
    if all_equal(given):
        return Movable((), [*uses, *outs], len(uses))
    if len(given) > 1 or len(given[0]) != len(variables) or len(variables) > CHOICES:
        return None
    hopeless = any(x in system.widened or x in system.loose for x in variables)
    return None if hopeless else Movable(given[0], [*uses, *outs], len(uses))


def _alone(system: System, cell: Cell, given: list[Row] | None = None) -> dict[int, int]:
    """Exponents of a cell near 0, or those that violate the least."""
    rows, variables = cell
    if any(x in system.widened for x in variables):
        return {x: system.widened.get(x, system.low[x]) for x in variables}
    given = [system.rows[r] for r in rows] if given is None else given
    low = {x: system.low[x] for x in variables}
    high = {x: system.high[x] for x in variables}

    def pick(x: int, a: int, b: int) -> int:
        return min(max(nearest(system.low[x], system.high[x]), a), b)

    return solve(given, low, high, pick) or dict.fromkeys(variables, 0)
