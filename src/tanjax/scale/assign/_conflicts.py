"""Find and prove the necessary conversions: bounds that contradict each other.

Suppose that nothing is converted. Then a reading has the exponent of its value, and every row ties
the exponents of an equation together. A value that cannot stay at exponent 0 pushes its neighbours
away from 0, too. If bounds pushed from two sides contradict each other, one of the values between
them has to be converted. The set of these values is a *conflict*: at least one of them must pay.
Disjoint conflicts add up to a lower bound of all costs.

    bounds = Propagation(system)
    bounds.propagate()  # 1 conflict
    bounds.conflicts  # [frozenset({0, 3})]
    bounds.choose({3})      # suppose that value 3 is converted: what else is in conflict?
    bounds.propagate()  # none

To *free* a value means to suppose that it is converted: its readings become variables of their own.
A `Propagation` remembers the row and the other bounds behind every bound. So when a value is freed,
only the bounds that rest on it are forgotten. After a conflict, all its values are freed.

Sharp edges: bounds do not detect everything (parity, two paths that meet again). So the absence of
conflicts does not prove that no other conversion is needed. Bounds that converge slowly are not
followed to the end.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Sequence

from ._presolve import Row, System

STEPS, LEAST = 12, 1000  # Visits per row, and rows of a small program. Row: time steps in SI.
OWN, SHARED, APART = 0, 1, 2  # Readings of a value: as it is, converted once, each by itself.
FORGOTTEN = 4  # Forgetting so many bounds takes the time of one visit. Row: hostile programs.
NEAR = 100  # The most bounds to search behind a contradiction in `fix`. Row: hostile programs.
MOVES = 12  # After so many moves a bound wakes no more rows. Promise: planning ends.
Entries = tuple[int, ...]


class Propagation:
    """Bounds of every variable, and the conflicts found so far.

    **Fields:** `low`, `high`: per variable (uses of a value that is not freed have the bounds of
    the value); `freed`: per value, `OWN`, `SHARED` or `APART`; `conflicts`: sets of values;
    `steps`: the remaining visits of rows; `most`: the search stops after so many conflicts.
    """

    def __init__(self, system: System, most: float = math.inf) -> None:
        self.system, self.most = system, most
        self.freed = [APART if cost == 0.0 else OWN for cost in system.cost]
        self.conflicts: list[frozenset[int]] = []
        self._rows, self._pin_of = _rows_in_order(system)
        self._touching: list[list[int]] = [[] for _ in range(system.size)]
        for r, row in enumerate(self._rows):
            for _, x in row:
                self._touching[x].append(r)
        self._terms: list[Row | None] = [None] * len(self._rows)
        self._wake: list[list[int] | None] = [None] * system.size
        self._first: dict[int, int] = {}  # the reading that stands for all of a shared value
        self.low, self.high = list(system.low), list(system.high)
        # The entry that implies a bound; -1: the interval itself.
        self._low_from = [-1] * system.size
        self._high_from = [-1] * system.size
        self._entry_of: list[tuple[int, int]] = []  # row, and variable or -1 - variable
        self._entry_from: list[Entries] = []
        self._children: list[list[int]] = []
        self._by_row: list[list[int]] = [[] for _ in self._rows]
        self._moves: dict[int, int] = {}
        self._diving = False
        self._waiting = set(range(len(self._rows)))
        self.steps = STEPS * (len(self._rows) + LEAST)

    @property
    def exhausted(self) -> bool:
        """True if the search stopped before all bounds were settled."""
        return self.steps <= 0

    def resume(self) -> None:
        """Allow as many visits again, and any number of conflicts."""
        self.steps, self.most = STEPS * (len(self._rows) + LEAST), math.inf

    def representative(self, x: int) -> int:
        """Return the variable with the bounds of `x`: the value that it reads, if not freed."""
        if self.system.pinned[x]:
            return x
        v = self.system.owner[x]
        freed = self.freed[v]
        if freed == OWN or x == v:
            return v
        return x if freed == APART else self._first[v]

    def of(self, x: int) -> tuple[int, int]:
        """Return the least and the largest exponent of a variable."""
        y, s = self.representative(x), self.system
        return max(self.low[y], s.low[x]), min(self.high[y], s.high[x])

    def share(self, values: Iterable[int]) -> None:
        """Give all readings of each of these values the same exponent, for a start."""
        for v in values:
            readings = [x for x in self.system.uses_of[v] if not self.system.pinned[x]]
            if len(readings) > 1:
                self._first[v] = readings[0]
                self._join(v, SHARED)
                self._waiting.update(self._woken(readings[0]))

    def propagate(self) -> int:
        """Propagate, free all values of each conflict, and return the number of conflicts."""
        before = len(self.conflicts)
        self._propagate()
        return len(self.conflicts) - before

    def fix(self, exponents: dict[int, int], decided: Sequence[int | None]) -> None:
        """Decide on exponents, after those `decided`; if they contradict, free more values."""
        self._diving = True
        for x, exponent in exponents.items():
            v = self.system.owner[x]
            y = self.representative(x)
            if (
                y != x
                and x != v
                and (
                    not self.low[y] <= exponent <= self.high[y]
                    or (y == v and decided[v] is not None and decided[v] != exponent)
                )
            ):
                self._waiting.update(self.free([v]))
            y = self.representative(x)
            if not self.low[y] == self.high[y] == exponent:
                self.low[y] = self.high[y] = exponent
                self._low_from[y] = self._high_from[y] = -1
                self._waiting.update(self._woken(y))
        self._propagate()

    def _propagate(self) -> None:
        if not self._waiting or self.exhausted:
            return
        self._moves.clear()
        waiting = self._waiting
        forth, back = sorted(waiting), list[int]()
        while (forth or back) and self.steps > 0:
            self.steps -= 1
            r = heapq.heappop(forth) if forth else -heapq.heappop(back)
            if r not in waiting:
                continue
            waiting.discard(r)
            for q in self._visit(r):
                if q not in waiting:
                    waiting.add(q)
                    heapq.heappush(*((forth, q) if q > r else (back, -q)))
        if not waiting:
            self._waiting = set()  # walking a set takes the time of the most it ever held

    def choose(self, values: set[int]) -> None:
        """Free just the given values (and those that cost nothing)."""
        for v, free in enumerate(self.freed):
            if free and v not in values and self.system.cost[v] > 0:
                self._join(v, OWN)
                self._waiting.update(self._woken(v))
        self._waiting.update(self.free([v for v in values if not self.freed[v]]))

    def free(self, values: Collection[int]) -> set[int]:
        """Give every reading of some values its own exponent, and return the rows to visit again.

        All values are freed at once: one by one, the same bounds would be forgotten many times.
        """
        uses_of = self.system.uses_of
        rows = {r for v in values for r in self._woken(v)}
        cut = {r for v in values for x in uses_of[v] for r in self._touching[x]}
        stack = [e for r in cut for e in self._by_row[r]]
        for v in values:
            self._join(v, APART)
        dead = set(stack)
        while stack and not (self._diving and self.exhausted):
            e = stack.pop()
            for child in self._children[e]:
                if child not in dead:
                    dead.add(child)
                    stack.append(child)
            x = self._entry_of[e][1]
            if x >= 0 and self._low_from[x] == e:
                self.low[x], self._low_from[x] = self.system.low[x], -1
                rows.update(self._woken(x))
            elif x < 0 and self._high_from[-1 - x] == e:
                x = -1 - x
                self.high[x], self._high_from[x] = self.system.high[x], -1
                rows.update(self._woken(x))
        for r in cut:
            self._by_row[r].clear()
        self.steps -= len(dead) // FORGOTTEN
        return rows

    def _join(self, v: int, state: int) -> None:
        self.freed[v] = state
        for x in (v, *self.system.uses_of[v]):
            self._wake[x] = None
            for r in self._touching[x]:
                self._terms[r] = None

    def _woken(self, x: int) -> list[int]:
        """Return the rows in which `x` or a reading of it occurs."""
        rows = self._wake[x]
        if rows is None:
            rows, v = self._touching[x], self.system.owner[x]
            if self.freed[v] == (OWN if x == v else SHARED) and not (
                x != v and self.system.pinned[x]
            ):
                more = {r for u in self.system.uses_of[v] for r in self._touching[u]}
                rows = list(more.union(rows))
            self._wake[x] = rows
        return rows

    def _row(self, r: int) -> Row:
        """Return the row over representatives, with coefficients of equal ones summed."""
        terms = self._terms[r]
        if terms is None:
            merged: dict[int, int] = {}
            if self._pin_of[r] < 0 or not self.freed[self._pin_of[r]]:
                for c, x in self._rows[r]:
                    x = self.representative(x)
                    merged[x] = merged.get(x, 0) + c
            terms = self._terms[r] = tuple((c, x) for x, c in merged.items() if c)
        return terms

    def _visit(self, r: int) -> Iterable[int]:
        """Bound each variable of a row by the others, and return the rows to visit again."""
        low, high = self.low, self.high
        terms = self._terms[r] or self._row(r)
        least = most = 0
        for c, x in terms:
            if c > 0:
                least += c * low[x]
                most += c * high[x]
            else:
                least += c * high[x]
                most += c * low[x]
        if least > 0 or most < 0:
            return self._contradict(r, self._support(terms, least > 0))
        if least == most:
            return ()
        changed: list[int] = []
        for c, x in terms:
            if c > 0:
                new_low, new_high = high[x] - most // c, low[x] + (-least) // c
            else:
                new_low, new_high = high[x] - (-least) // -c, low[x] + most // -c
            old_low, old_high = low[x], high[x]
            if new_low > old_low:
                support = self._support(terms, c < 0, x)
                if new_low > old_high:
                    return self._contradict(r, (*support, self._high_from[x]))
                low[x], self._low_from[x] = new_low, self._entry(r, x, support)
            if new_high < old_high:
                support = self._support(terms, c > 0, x)
                if new_high < low[x]:
                    return self._contradict(r, (*support, self._low_from[x]))
                high[x], self._high_from[x] = new_high, self._entry(r, -1 - x, support)
            elif new_low <= old_low:
                continue
            moves = self._moves[x] = self._moves.get(x, 0) + 1
            if moves < MOVES:
                changed += self._woken(x)
        return changed

    def _support(self, terms: Row, least: bool, but: int = -1) -> Entries:
        """Return the entries behind the least (or the greatest) value of a sum."""
        lows, highs = self._low_from, self._high_from
        return tuple(lows[x] if (c > 0) == least else highs[x] for c, x in terms if x != but)

    def _entry(self, r: int, x: int, support: Entries) -> int:
        e = len(self._entry_of)
        self._entry_of.append((r, x))
        self._entry_from.append(support)
        self._children.append([])
        self._by_row[r].append(e)
        for parent in support:
            if parent >= 0:
                self._children[parent].append(e)
        return e

    def _contradict(self, r: int, support: Entries) -> Iterable[int]:
        """Learn a conflict from contradicting bounds, and free the values that they rest on."""
        values = set(self._broken_by(r))
        seen: set[int] = set()
        stack = list(support)
        while stack and not (self._diving and values and len(seen) > NEAR):
            e = stack.pop()
            if e >= 0 and e not in seen:
                seen.add(e)
                values.update(self._broken_by(self._entry_of[e][0]))
                stack.extend(self._entry_from[e])
        if not values:
            return ()
        if self._diving:
            cost = self.system.cost
            return self.free([min(values, key=lambda v: (-self.freed[v], cost[v], -v))])
        self.conflicts.append(frozenset(values))
        if len(self.conflicts) > self.most:
            self.steps = 0
        return {r, *self.free(values)}

    def _broken_by(self, r: int) -> list[int]:
        """Return the values whose conversion would remove the row's constraint."""
        s = self.system
        if self._pin_of[r] >= 0:
            return [self._pin_of[r]]
        owners = (s.owner[x] for _, x in self._rows[r] if x >= s.n and not s.pinned[x])
        return [v for v in owners if self.freed[v] < APART]


def _rows_in_order(system: System) -> tuple[list[Row], list[int]]:
    """Return the rows, with one more for each pinned reading; and per row the pin's value or -1."""
    keyed: list[tuple[float, Row, int]] = [(r, row, -1) for r, row in enumerate(system.rows)]
    for v in range(system.n):
        for x in system.uses_of[v] if system.cost[v] else ():  # others are freed always
            if system.pinned[x] and not (system.pinned[v] and system.low[v] == system.low[x]):
                first = system.rows_of[v][0] if system.rows_of[v] else len(system.rows)
                keyed.append((first + 0.5, ((1, v), (-1, x)), v))
    keyed.sort(key=lambda entry: entry[0])
    return [row for _, row, _ in keyed], [v for _, _, v in keyed]
