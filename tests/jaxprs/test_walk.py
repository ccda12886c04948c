"""An interpreter gets each equation with its programs, and its operands by their purpose."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tanjax import _compat
from tanjax.jaxprs import CALLS, LOOPS, Kind, Walk

pytestmark = pytest.mark.core


class Run(Walk):
    """JAX's own meaning of every equation, step by step; it notes the kinds that it entered."""

    enters = (*CALLS, Kind.BRANCH, Kind.SOLVE, *LOOPS)

    def __init__(self):
        self.entered = []

    def leaf(self, eqn, values):
        return _compat.bind(eqn, values)

    def call(self, eqn, program, values):
        self.entered.append("call")
        return self.run(program, values)

    def checkpoint(self, eqn, program, values):
        self.entered.append("checkpoint")
        return self.run(program, values)

    def jvp_rule(self, eqn, program, values):
        self.entered.append("jvp_rule")
        return self.run(program, values)

    def cond(self, eqn, branches):
        self.entered.append("cond")
        return self.run(branches.programs[int(branches.index)], branches.operands)

    def scan(self, eqn, loop):
        self.entered.append("scan")
        carry, stacked, count = loop.carry, [], len(loop.carry)
        for i in range(loop.length)[:: -1 if loop.reverse else 1]:
            out = self.run(loop.body, [*loop.fixed, *carry, *(row[i] for row in loop.rows)])
            carry = out[:count]
            stacked.append(out[count:])
        stacked = stacked[:: -1 if loop.reverse else 1]
        return [*carry, *(jnp.stack(column) for column in zip(*stacked, strict=True))]

    def while_(self, eqn, loop):
        self.entered.append("while")
        carry = loop.carry
        while self.run(loop.test, [*loop.tested, *carry])[0]:
            carry = self.run(loop.body, [*loop.fixed, *carry])
        return carry


def assert_runs(f, *args, entered):
    walk = Run()
    out = walk.run(jax.make_jaxpr(f)(*args), args)
    expected = jax.tree.leaves(f(*args))
    for a, b in zip(expected, out, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert walk.entered == entered


X = np.arange(1.0, 5.0, dtype=np.float32)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_gets_constants_carry_and_rows_in_order(reverse):
    def f(a, x):
        def step(carry, row):
            return (carry[0] * a + row, carry[1] + 1), carry[0] - a

        return lax.scan(step, (a, 0), x, reverse=reverse)

    assert_runs(f, np.float32(3.0), X, entered=["scan"])


def test_while_gets_constants_of_test_and_of_body_apart():
    def f(limit, factor, x):
        return lax.while_loop(lambda c: c[0] < limit, lambda c: (c[0] * factor, c[1] - 1), (x, 9))

    assert_runs(f, np.float32(50.0), np.float32(2.0), np.float32(3.0), entered=["while"])


@pytest.mark.parametrize("index", [0, 1, 2])
def test_cond_gets_its_branches_and_the_operands_without_the_index(index):
    branches = [lambda a, b: a - b, lambda a, b: a * b, lambda a, b: b]
    f = lambda i, a, b: lax.switch(i, branches, a, b)
    run = lambda i, a, b: f(i, a, b)
    assert_runs(run, np.int32(index), X[0], X[2], entered=["cond"])


def test_calls_are_entered_each_by_its_own_method():
    @jax.custom_jvp
    def ruled(x):
        return x * 2.0

    ruled.defjvp(lambda p, t: (ruled(*p), t[0]))
    f = lambda x: jax.jit(lambda y: y + 1.0)(ruled(jax.checkpoint(lambda y: y * 3.0)(x)))
    assert_runs(f, X, entered=["checkpoint", "jvp_rule", "call"])


def test_solve_gets_the_operands_of_its_solver_alone():
    def f(a, b):
        solver = lambda matvec, y: y / a
        return lax.custom_linear_solve(lambda x: x * a, b, solver, solver)

    assert_runs(f, X, X[::-1].copy(), entered=["call"])


def test_constants_and_literals_are_read_by_constant():
    class Marks(Walk):
        def constant(self, number):
            return "constant"

        def leaf(self, eqn, values):
            return [" ".join([eqn.primitive.name, *values])]

    found = Marks().run(jax.make_jaxpr(lambda x: (jnp.sin(x + 2.0 * x), 3.0))(1.0), ["x"])
    assert found == ["sin add x mul constant x", "constant"]


def test_kind_outside_of_enters_is_a_leaf():
    class Named(Walk):
        enters = (Kind.JIT,)

        def leaf(self, eqn, values):
            names.append(eqn.primitive.name)
            return [0.0] * len(eqn.outvars)

        def call(self, eqn, program, values):
            return self.run(program, values)

    names = []
    f = lambda x: jax.jit(lambda y: lax.fori_loop(0, 3, lambda i, z: z * 2.0, jnp.cos(y)))(x)
    Named().run(jax.make_jaxpr(f)(1.0), [1.0])
    assert "cos" in names
    assert not {"jit", "pjit", "mul"} & set(names)
