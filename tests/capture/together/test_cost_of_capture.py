"""What makes capture cheap, counted and not timed: `benchmarks/bench_capture.py` measures it."""

from __future__ import annotations

import jax.numpy as jnp

import tanjax as tj
from tanjax import _compat

X = jnp.array([0.3, 1.7, -0.9])


def test_functions_and_definitions_run_once_however_deep() -> None:
    """Closures become operands without a second trace."""
    runs = {"function": 0, "definition": 0}

    @tj.higher_order(curried=True)
    def twice(f):
        def new(x):
            runs["definition"] += 1
            return f(f(x)) + jnp.arange(3.0)  # an array of the definition's own

        return new

    def level(depth):
        def f(x):
            runs["function"] += 1
            inner = twice(level(depth - 1))(x) if depth else x
            return tj.matmul(tj.Diagonal(X), inner) + closed

        return f

    def outer(x):
        nonlocal closed
        closed = jnp.sin(x)
        return twice(level(5))(x)

    closed = X
    program = tj.capture(outer)(X)
    assert runs == {"function": 6, "definition": 6}
    assert jnp.array_equal(program(X), outer(X))


def test_source_lines_are_looked_for_when_asked(monkeypatch) -> None:
    """They are half of what reading costs."""
    program = tj.capture(lambda x: tj.solve(tj.Diagonal(x), x))(X)
    asked = []
    found = _compat.source_of
    monkeypatch.setattr(_compat, "source_of", lambda eqn: asked.append(eqn) or found(eqn))
    assert "solve" in str(program)
    assert not asked
    assert __file__ in program[-1].source
    assert asked
