"""Replay outside of a trace: the bits, the effects and the memory of the function itself."""

from __future__ import annotations

import weakref

import jax
import jax.numpy as jnp
import numpy as np

import tanjax as tj
from tanjax import _marks

MATRIX = [[2.0, 0.3, -0.7], [0.3, 1.5, 0.1], [-0.7, 0.1, 3.1]]


def chain(a, d, x):
    """Operations, JAX's functions, literals, a value used twice, a loop."""
    s = tj.Symmetric(a, definite=True)
    y = jnp.tanh(tj.solve(s, x)) * 0.3 + x / 7
    y, total = tj.scan(lambda c, r: (tj.matmul(tj.Diagonal(d), c) + r, jnp.sum(c)), y, jnp.ones(3))
    return {"y": y, "again": (y, tj.logdet(s)), "total": total, "none": None, "three": 3}


def arguments():
    return jnp.array(MATRIX), jnp.array([0.3, 1.7, -0.9]), jnp.array([0.1, 1.1, -2.3])


def test_bits_are_those_of_the_function() -> None:
    """Twice, with other numbers the second time."""
    program = tj.capture(chain)(*arguments())
    for factor in (1.0, 1 / 3):
        args = [v * factor for v in arguments()]
        expected, got = chain(*args), program(*args)
        assert jax.tree.structure(expected) == jax.tree.structure(got)
        for e, g in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
            np.testing.assert_array_equal(e, g)


def test_equal_calls_are_compiled_once() -> None:
    """The compiled function of an operation is kept by its mark, for all programs."""
    args = arguments()
    solve = lambda a, x: tj.solve(tj.Diagonal(a), x)
    programs = [tj.capture(lambda a, x: solve(a, solve(a, x)))(*args[1:]) for _ in range(2)]
    for program in programs:
        program(*args[1:])
    marks = [_marks.mark_of(e.eqn) for p in programs for e in p if e.name == "solve"]
    assert len(marks) == 4
    assert len({id(mark.compiled) for mark in marks}) == 1
    assert marks[0].compiled._cache_size() == 1


def test_values_are_let_go_after_their_last_use(collect) -> None:
    """A long program holds no more than it needs."""
    seen, watched = [], []

    def f(x):
        y = jnp.sin(x)
        z = jnp.cos(y)
        return jnp.exp(z)

    program = tj.capture(f)(jnp.ones(3))
    steps = program._eagerly._steps
    for i, (call, *rest) in enumerate(steps):

        def watching(*operands, call=call):
            outs = call(*operands)
            collect()
            watched.append(sum(r() is not None for r in seen))
            seen.extend(weakref.ref(o) for o in outs)
            return outs

        steps[i] = (watching, *rest)
    program(jnp.ones(3))
    assert watched == [0, 1, 1]


def test_effects_happen_in_order(capfd) -> None:
    """Also between operations, and in loops."""

    def f(d, x):
        jax.debug.print("first", ordered=True)
        y = tj.matmul(tj.Diagonal(d), x)
        y = tj.fori_loop(0, 2, lambda i, y: (jax.debug.print("{}", i, ordered=True), y)[1], y)
        jax.debug.print("last", ordered=True)
        return y

    args = arguments()[1:]
    program = tj.capture(f)(*args)
    capfd.readouterr()
    program(*args)
    jax.effects_barrier()
    assert capfd.readouterr().out.split() == ["first", "0", "1", "last"]
