"""The programs of an equation, their operands and the options of a loop are read in one place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj
from tanjax._jaxprs import all_equations
from tanjax.jaxprs import Kind, Loop, given, kind_of, nested_jaxprs, opened, trips

pytestmark = pytest.mark.core


def equation(f, *args, kind):
    return next(e for e in all_equations(jax.make_jaxpr(f)(*args)) if kind_of(e) is kind)


def scanned(x):
    return lax.scan(lambda c, row: (c + row, c), 0.0, x, reverse=True, unroll=2)


def looped(x):
    return lax.while_loop(lambda c: c < x, lambda c: c * 2.0, 1.0)


def test_loop_keeps_the_options_of_a_scan():
    loop = Loop.of(eqn := equation(scanned, jnp.ones(3), kind=Kind.SCAN), eqn.invars)
    assert (loop.length, loop.reverse, loop.unroll, loop.test) == (3, True, 2, None)
    again = jax.make_jaxpr(lambda x: loop.scan(lambda c, row: (c, row), 0.0, x))(jnp.ones(3))
    options = [again.eqns[-1].params[k] for k in ("length", "reverse", "unroll")]
    assert options == [3, True, 2]


def test_loop_over_applies_a_function_to_every_operand():
    eqn = equation(looped, 8.0, kind=Kind.WHILE)
    loop = Loop.of(eqn, ["limit", "start"]).over(str.upper)
    assert (loop.tested, loop.fixed, loop.carry, loop.rows) == (["LIMIT"], [], ["START"], [])


def test_loop_takes_other_programs_in_the_order_of_nested_jaxprs():
    eqn = equation(looped, 8.0, kind=Kind.WHILE)
    loop = Loop.of(eqn, eqn.invars, ("test", "body"))
    assert (loop.test, loop.body) == ("test", "body")
    assert nested_jaxprs(eqn) == Loop.of(eqn, eqn.invars)[:2]


@pytest.mark.parametrize(
    ("f", "kind", "runs", "programs"),
    [(scanned, Kind.SCAN, 3.0, 1), (looped, Kind.WHILE, 100.0, 2), (jax.jit(abs), Kind.JIT, 1, 1)],
)
def test_programs_arguments_and_runs_fit_together(f, kind, runs, programs):
    eqn = equation(f, jnp.ones(3) if f is scanned else 2.0, kind=kind)
    inner = nested_jaxprs(eqn)
    assert (trips(eqn), len(inner)) == (runs, programs)
    sizes = [len(opened(program)[0].invars) for program in inner]
    assert [len(operands) for operands in given(eqn, eqn.invars)] == sizes


def test_absent_programs_of_a_solve_are_skipped():
    f = lambda x: lax.custom_linear_solve(lambda v: 2.0 * v, x, lambda matvec, b: b / 2.0)
    program = tj.capture(f)(jnp.ones(3))
    np.testing.assert_array_equal(program(jnp.ones(3)), np.full(3, 0.5))
