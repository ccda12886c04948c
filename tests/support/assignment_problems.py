"""Integer programs made equation by equation, and conditions on every answer."""

import math

import numpy as np

from tanjax.scale.assign._assign import FREE, Assignment, AssignmentProblem, evaluate


class Program:
    """An integer program, built equation by equation as in a trace; float32, one magnitude each."""

    def __init__(self, low: int = -126, high: int = 128) -> None:
        self.range = low, high
        self.values: list[tuple[int, int, int, float]] = []
        self.uses: list[tuple[int, int]] = []
        self.rows: list[list[tuple[int, tuple[str, int]]]] = []
        self.size: list[float] = []

    def value(self, log2: float, cost: float = 1.0, pin: int = FREE) -> int:
        low, high = math.ceil(log2 - self.range[1] + 0.5), math.floor(log2 - self.range[0] - 0.5)
        return self.between(low, high, cost, pin, log2)

    def between(self, low: int, high: int, cost=1.0, pin: int = FREE, log2: float = 0.0) -> int:
        self.values.append((low, high, pin, cost))
        self.size.append(log2)
        return len(self.values) - 1

    def input(self, log2: float, cost: float = 1.0) -> int:
        return self.value(log2, cost, 0)

    def constant(self, log2: float) -> int:
        return self.value(log2, 0.0)

    def use(self, value: int, pin: int = FREE) -> tuple[str, int]:
        self.uses.append((value, pin))
        return "use", len(self.uses) - 1

    def row(self, *terms: tuple[int, tuple[str, int]]) -> None:
        self.rows.append(list(terms))

    def multiply(self, a: int, b: int, cost: float = 1.0, sign: int = 1) -> int:
        out = self.value(self.size[a] + sign * self.size[b], cost)
        self.row((1, self.use(a)), (sign, self.use(b)), (-1, ("value", out)))
        return out

    def divide(self, a: int, b: int) -> int:
        return self.multiply(a, b, sign=-1)

    def add(self, a: int, b: int) -> int:
        out = self.value(max(self.size[a], self.size[b]))
        first, second = self.use(a), self.use(b)
        self.row((1, first), (-1, second))
        self.row((1, first), (-1, ("value", out)))
        return out

    def root(self, a: int) -> int:
        out = self.value(self.size[a] / 2)
        self.row((1, self.use(a)), (-2, ("value", out)))
        return out

    def tanh(self, a: int) -> int:
        self.use(a, 0)
        return self.value(0.0, 1.0, 0)

    def problem(self) -> AssignmentProblem:
        low, high, pin, cost = (np.array(c) for c in zip(*self.values, strict=True))
        n = len(low)
        rows = [
            tuple((c, i if kind == "value" else n + i) for c, (kind, i) in row) for row in self.rows
        ]
        owner, use_pin = (np.array(c, dtype=np.int64) for c in zip(*self.uses, strict=True))
        return AssignmentProblem(low, high, pin, cost.astype(float), owner, use_pin, rows)


def assert_valid(problem: AssignmentProblem, found: Assignment) -> None:
    """Assert that all rows and pins hold, and that the answer's numbers match its exponents."""
    exponents = [*found.values.tolist(), *found.uses.tolist()]
    for row in problem.rows:
        assert sum(c * exponents[x] for c, x in row) == 0
    pins = np.concatenate([problem.value_pin, problem.use_pin])
    assert np.all((pins == FREE) | (pins == exponents))
    expected = evaluate(problem, found.values, found.uses)
    assert (found.objective, found.conversions, found.violations) == expected
    assert found.bound <= found.objective
