"""The assignment problem as lists: the rows of each variable, the uses of each value, the cells.

Arrays are fast for checking a whole assignment and slow for following one exponent through a
program; lists are the reverse. So a `System` holds the same problem as lists, with the rows of each
variable, the uses of each value, and the *cells*. A cell is a set of rows that share variables (the
rows of one equation, as a rule). Two cells meet only at a reading of a value, where a conversion is
always possible. So every cell can be solved by itself, and only the number of conversions is left
to choose.

    system = System(problem)
    system.uses_of[0]       # the variables (not the use numbers) that read value 0  # [2, 3]

Sharp edges: a value that no exponent can hold (`low > high`) gets the interval between the two
bounds: it loses equally much at each exponent there. A value that is pinned outside its interval
loses numbers in any plan, so its interval is widened to the pin. Neither counts as a violation of
the plan.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

FREE = -(2**31)  # No exponent is given.
ANY = 10**6  # A value of unknown or zero magnitude has the exponents -ANY..ANY.

REACH = 3  # times the largest bound, for values of unknown size; promise: hard formulas

EQUAL, SUM, OTHER = 0, 1, 2  # forms of a cell: all variables are equal; one row over all of them

Row = tuple[tuple[int, int], ...]


class Cell(NamedTuple):
    """Rows that share variables; `variables`: the `reads` readings among them first."""

    rows: list[Row]
    variables: list[int]
    reads: int
    form: int


class AssignmentProblem(NamedTuple):
    """The constraints and costs of an assignment of exponents.

    **Fields:** `low`, `high`: exponents at which a value's stored numbers stay in range, inclusive;
    `value_pin`, `use_pin`: `FREE` or the given exponent; `cost`: of one conversion of the value
    (elements times computations; 0 for constants, converted once at planning time); `use_value`:
    the value that a use reads; `rows`: `(coefficient, variable)` pairs whose weighted sum is 0,
    where variable `i` is the exponent of value `i` and `len(low) + j` that of use `j`.
    """

    low: Int[np.ndarray, " n"]
    high: Int[np.ndarray, " n"]
    value_pin: Int[np.ndarray, " n"]
    cost: Float[np.ndarray, " n"]
    use_value: Int[np.ndarray, " m"]
    use_pin: Int[np.ndarray, " m"]
    rows: list[Row]

    def intervals(self) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """Return `low` and `high`, in order, and with the pin of the value inside."""
        low, high = np.minimum(self.low, self.high), np.maximum(self.low, self.high)
        pinned = self.value_pin != FREE
        low = np.where(pinned, np.minimum(low, self.value_pin), low)
        return low, np.where(pinned, np.maximum(high, self.value_pin), high)

    def weight(self) -> float:
        """The cost of one bit out of range: more than all conversions together."""
        return 2.0 * float(self.cost.sum()) + 1.0

    def unavoidable(self) -> float:
        """Return the part of the objective that the pins of readings cost in any assignment."""
        given = self.use_pin != FREE
        pin, owner = self.use_pin[given], self.use_value[given]
        low, high = (bound[owner] for bound in self.intervals())
        return self.weight() * float((np.maximum(low - pin, 0) + np.maximum(pin - high, 0)).sum())


class System:
    """An `AssignmentProblem` as lists. Its variables are numbered as in rows: values, then uses."""

    def __init__(self, problem: AssignmentProblem) -> None:
        n, m = len(problem.low), len(problem.use_value)
        self.n, self.size = n, n + m
        low, high = problem.intervals()
        pins = np.concatenate([problem.value_pin, problem.use_pin])
        given = pins != FREE
        owner = np.concatenate([np.arange(n), problem.use_value])
        self.owner: list[int] = owner.tolist()
        self.low: list[int] = np.where(given, pins, low[owner]).tolist()
        self.high: list[int] = np.where(given, pins, high[owner]).tolist()
        self.pinned: list[bool] = given.tolist()
        self.cost: list[float] = problem.cost.tolist()
        self.rows = problem.rows
        self.uses_of: list[list[int]] = [[] for _ in range(n)]
        for x in range(n, n + m):
            self.uses_of[self.owner[x]].append(x)
        self.rows_of: list[list[int]] = [[] for _ in range(n + m)]
        for r, row in enumerate(self.rows):
            for _, x in row:
                self.rows_of[x].append(r)

    @functools.cached_property
    def reach(self) -> int:
        """The largest useful exponent: `REACH` times the largest end of an interval."""
        return REACH * max([8, *(abs(e) for e in (*self.low, *self.high) if abs(e) < ANY)])

    @functools.cached_property
    def cells(self) -> list[Cell]:
        """The cells in the order of their first rows."""
        seen = [False] * len(self.rows)
        found = [False] * self.size
        cells = []
        for first in range(len(self.rows)):
            if seen[first]:
                continue
            seen[first] = True
            rows, variables = [first], []
            for r in rows:  # grows while it is walked
                for _, x in self.rows[r]:
                    if not found[x]:
                        found[x] = True
                        variables.append(x)
                        for q in self.rows_of[x]:
                            if not seen[q]:
                                seen[q] = True
                                rows.append(q)
            cells.append(self._cell([self.rows[r] for r in rows], variables))
        return cells

    def _cell(self, rows: list[Row], variables: list[int]) -> Cell:
        uses = [x for x in variables if x >= self.n]
        form = SUM if len(rows) == 1 and len(rows[0]) == len(variables) else OTHER
        if all(len(row) == 2 and row[0][0] == -row[1][0] for row in rows):
            form = EQUAL
        return Cell(rows, [*uses, *(x for x in variables if x < self.n)], len(uses), form)
