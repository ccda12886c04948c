"""A local search for exponents, cell by cell: one pass through the program, then better ones.

A cell uses only its neighbours. Its operands are free at their own exponents, and at those to which
they are already converted. Its results are read at certain exponents. The cell takes the cheapest
of the few combinations that follow. Propagated bounds carry information from the whole program, so
the first pass often finds the best exponents. The next passes go back and forth as long as they
save conversions. All passes take linear time.

    exponents = descend(system, bounds)

All rows and pins hold after the first pass, and violations are as few as can be.

Sharp edges: two cells that would have to move together stay. Cells with rows of an unusual form
keep the exponents of the first pass. If the first pass finds none, the cell gets exponent 0. Every
row holds at 0, but a pin at another exponent would not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from ._cells import nearest, solve
from ._conflicts import Propagation
from ._presolve import ANY, EQUAL, SUM, Cell, System

CHOICES = 4  # exponents to try for an operand; benchmark row: hostile programs
PASSES = 12  # benchmark row: hostile programs, 10,000 equations


def descend(system: System, bounds: Propagation | None = None) -> list[int]:
    """Return an exponent for each variable.

    **Arguments:** `bounds`: the first pass stays within them if possible.
    """
    search = _LocalSearch(system)
    search.begin(bounds)
    for c in range(len(search.cells)):
        search.place(c, bounds)
    order = [c for c, movable in enumerate(search.movable) if movable]
    for _ in range(PASSES):
        order = order[::-1]
        if not search.sweep(order):
            break
    return search.finish()


class _LocalSearch:
    """Exponents so far (None: not yet), and per value the number of readings by exponent."""

    def __init__(self, system: System) -> None:
        self.system, self.low, self.high = system, list(system.low), list(system.high)
        self.at: list[int | None] = [None] * system.size
        self.read: list[dict[int, int]] = [{} for _ in range(system.n)]
        self.cells = system.cells
        self.movable = [_is_movable(system, cell) for cell in self.cells]
        self.cell_of = {x: c for c, cell in enumerate(self.cells) for x in cell.variables}
        self.waiting = [True] * len(self.cells)  # a neighbour has changed since the last visit

    def begin(self, bounds: Propagation | None) -> None:
        """Set the exponents of variables that are in no cell."""
        s = self.system
        if bounds is not None:
            bounds.fix({}, self.at)
        for x in range(s.size):
            if x not in self.cell_of and (s.pinned[x] or x < s.n):
                low, high = (s.low[x], s.high[x]) if bounds is None else bounds.of(x)
                self.put(x, nearest(low, high))

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

    def place(self, c: int, bounds: Propagation | None) -> None:
        """Give a cell its first exponents, within bounds if possible."""
        rows, variables, s = self.cells[c].rows, self.cells[c].variables, self.system
        if bounds is not None:
            for x in variables:
                self.low[x], self.high[x] = bounds.of(x)
            if self.rests(variables):
                for x in variables:
                    self.put(x, 0)
                    self.low[x], self.high[x] = s.low[x], s.high[x]
                return
        found = all(self.low[x] <= self.high[x] for x in variables) and self.satisfy(c)
        for x in variables:
            self.low[x], self.high[x] = s.low[x], s.high[x]
        if not found and not self.satisfy(c):
            low = {x: s.low[x] if s.pinned[x] else -ANY for x in variables}
            high = {x: s.high[x] if s.pinned[x] else ANY for x in variables}
            exponents = solve(rows, low, high, self.pick) or {}
            for x in variables:
                self.put(x, exponents.get(x, 0))
        if bounds is not None:
            bounds.fix({x: self.at[x] or 0 for x in sorted(variables)}, self.at)

    def rests(self, variables: list[int]) -> bool:
        """True if a cell can stay at exponent 0 without any conversion."""
        n, pinned, owner = self.system.n, self.system.pinned, self.system.owner
        return all(
            self.low[x] <= 0 <= self.high[x]
            and (pinned[x] or not (any(self.read[x]) if x < n else self.at[owner[x]]))
            for x in variables
        )

    def satisfy(self, c: int) -> bool:
        """Give a cell the cheapest exponents that the search tries; False if none solve it."""
        cell = self.cells[c]
        if self.movable[c] and self.improve(cell):
            return True
        variables, reads = cell.variables, cell.variables[: cell.reads]
        own = {x: self.at[self.system.owner[x]] for x in reads if not self.system.pinned[x]}
        kept = {x: e for x, e in own.items() if e is not None and self.low[x] <= e <= self.high[x]}
        for freed in ((), *((x,) for x in kept), tuple(kept)):
            held = {x: e for x, e in kept.items() if x not in freed}
            low = {x: held.get(x, self.low[x]) for x in variables}
            high = {x: held.get(x, self.high[x]) for x in variables}
            found = solve(cell.rows, low, high, self.pick)
            if found is not None:
                for x in variables:
                    self.put(x, found[x])
                return True
        return False

    def pick(self, x: int, low: int, high: int) -> int:
        """Return the best exponent of an interval: free of charge, or near 0."""
        v = self.system.owner[x]
        for e in (self.at[v], *self.read[v]):
            if e is not None and low <= e <= high:
                return e
        return min(max(nearest(self.system.low[x], self.system.high[x]), low), high)

    def sweep(self, order: list[int]) -> bool:
        """Improve every cell that waits; True if a cell is cheaper now."""
        gained = False
        for c in order:
            if self.waiting[c] and self.improve(self.cells[c]):
                gained = True
                for v in {self.system.owner[x] for x in self.cells[c].variables}:
                    for x in (v, *self.system.uses_of[v]):
                        if x in self.cell_of:
                            self.waiting[self.cell_of[x]] = True
            self.waiting[c] = False
        return gained

    def improve(self, cell: Cell) -> bool:
        """Give a cell the cheapest exponents that the search tries; True if they are cheaper."""
        variables = cell.variables
        old = [e for e in map(self.at.__getitem__, variables) if e is not None]
        for x in variables[: cell.reads]:
            self.take(x)
        best, least = old, (self.cost(cell, old) if old else float("inf"), 0)
        if least[0] > 0:
            for exponents in self.summed(cell) if cell.form == SUM else self.equal(variables):
                price = self.cost(cell, exponents)
                if price < least[0] or (price == least[0] and best is not old):
                    key = price, sum(map(abs, exponents[cell.reads :]))
                    if key < least or best is old:
                        least, best = key, exponents
                if least == (0.0, 0):
                    break
        for x, exponent in zip(variables, best, strict=bool(best)):
            self.put(x, exponent)
        return best is not old

    def cost(self, cell: Cell, exponents: list[int]) -> float:
        """Return the cost of the cell's conversions on top of those of all others."""
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
        """Return exponents at which a variable costs nothing, and one near 0."""
        s, low, high = self.system, self.low[x], self.high[x]
        if low == high:
            return [low]
        found, own = [], self.at[s.owner[x]]
        if own is not None and low <= own <= high:
            found.append(own)
        for e in self.read[s.owner[x]]:
            if e != own and low <= e <= high:
                found.append(e)
        # A constant is free at any exponent: its ends may save conversions of others.
        ends = (low, high) if s.cost[s.owner[x]] == 0.0 and high - low < ANY else ()
        return list(dict.fromkeys((*found[:CHOICES], nearest(low, high), *ends)))

    def equal(self, variables: list[int]) -> Iterable[list[int]]:
        low, high = max(self.low[x] for x in variables), min(self.high[x] for x in variables)
        if low <= high:
            several = {e for x in variables for e in self.choices(x) if low <= e <= high}
            for e in {*several, nearest(low, high)}:
                yield [e] * len(variables)

    def summed(self, cell: Cell) -> Iterable[list[int]]:
        """Yield exponents with all variables but one at their choices; the row sets that one."""
        coefficients = {x: c for c, x in cell.rows[0]}
        choices = [self.choices(x) for x in cell.variables]
        factors = [coefficients[x] for x in cell.variables]
        for i, x in enumerate(cell.variables):
            c, low, high = factors[i], self.low[x], self.high[x]
            for picked in itertools.product(*choices[:i], (0,), *choices[i + 1 :]):
                total = -sum(map(int.__mul__, factors, picked))
                if total % c == 0 and low <= total // c <= high:
                    exponents = list(picked)
                    exponents[i] = total // c
                    yield exponents

    def finish(self) -> list[int]:
        s = self.system
        for x in range(s.n, s.size):  # readings in no cell
            if self.at[x] is None:
                self.at[x] = min(max(self.at[s.owner[x]] or 0, s.low[x]), s.high[x])
        return [e or 0 for e in self.at]


def _is_movable(system: System, cell: Cell) -> bool:
    """True if a cell is of a simple form, and does not read its own results."""
    reads, outs = cell.variables[: cell.reads], cell.variables[cell.reads :]
    simple = cell.form == EQUAL or (cell.form == SUM and len(cell.variables) <= CHOICES)
    return simple and not any(system.owner[x] in outs for x in reads)
