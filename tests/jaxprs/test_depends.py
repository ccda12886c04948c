"""Dependence is exact in calls, and kept through branches and any number of steps of a loop."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tanjax.jaxprs import Depends

pytestmark = pytest.mark.core


def chain(x, y):
    """A carry of which one part takes two steps to reach the last."""
    step = lambda i, c: (x, c[0], c[1], c[3])
    return lax.fori_loop(0, 9, step, (y, y, y, y))


def stopped(x, y):
    return lax.while_loop(lambda c: c[0] < x, lambda c: (c[0] + 1.0, c[1] * 2.0), (y, y))


def branch(x, y):
    return lax.cond(x > 0.0, lambda a: (a + 1.0, 1.0), lambda a: (a * 2.0, a), y)


def stacked(x, y):
    return lax.scan(lambda c, row: (c, (row, c)), y, x * jnp.ones(3))


@pytest.mark.parametrize(
    ("f", "flags", "expected"),
    [
        (lambda x, y: (x, y, x * y, 2.0), [True, False], [True, False, True, False]),
        (lambda x, y: jax.jit(lambda a, b: (b, a))(x, y), [True, False], [False, True]),
        (chain, [True, False], [True, True, True, False]),
        (stopped, [True, False], [True, True]),
        (branch, [True, False], [True, True]),
        (lambda x, y: branch(y, x), [True, False], [True, True]),
        (stacked, [True, False], [False, True, False]),
    ],
)
def test_result_depends_on_flagged_arguments(f, flags, expected):
    assert Depends().run(jax.make_jaxpr(f)(1.0, 2.0), flags) == expected
