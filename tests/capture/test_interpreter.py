"""Interpreters: who handles what, what is walked, what is kept, and what other types do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from program_checks import assert_captures, body_of, is_same, names

pytestmark = pytest.mark.core

X = jnp.asarray([0.5, -1.0, 2.0])
D = jnp.asarray([1.0, 2.0, 4.0])


class Half(tj.programs.Interpreter):
    """Handles by operation, by name and by class, and hands on to what would have happened."""

    @tj.programs.handles(tj.solve)
    def solve(self, equation, a, b):
        return tj.solve(a, b) / 2

    @tj.programs.handles("sin")
    def sin(self, equation, x):
        return x

    @tj.programs.handles(tj.Diagonal)
    def diagonal(self, equation, d):
        return tj.Diagonal(2 * d)


def f(d, x):
    return tj.solve(tj.Diagonal(d), jnp.sin(x))


def in_loops(a, x, f):
    """`f(a, x)` in every loop, branch and map of tanjax and of JAX."""
    y = tj.scan(lambda c, r: (f(a, c) * r, None), x, x)[0]
    y = jax.lax.fori_loop(0, 2, lambda i, y: f(a, y), y)
    y = jax.lax.cond(y[0] > 0, lambda y: f(a, y), lambda y: y, y)
    y = jax.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, f(a, s[1])), (0, y))[1]
    y = jax.checkpoint(lambda y: f(a, y))(y)
    return jax.jit(lambda y: f(a, y))(y) + tj.vmap(lambda s: f(a, y) * s)(y).sum(0)


class Times(tj.programs.Interpreter):
    """Solves become products: numbers in every loop tell whether it was walked."""

    @tj.programs.handles(tj.solve)
    def solve(self, equation, a, b):
        return tj.matmul(a, b)


def test_handlers_by_operation_name_and_class():
    np.testing.assert_array_equal(Half()(f)(D, X), X / (2 * D) / 2)
    program = Half().rewrite(tj.capture(f)(D, X))
    assert "sin" not in list(names(program))
    assert is_same(program(D, X), Half()(f)(D, X))


def test_inheritance_and_override():
    class Quarter(Half):
        @tj.programs.handles(tj.solve)
        def solve(self, equation, a, b):
            return Half.solve(self, equation, a, b) / 2

    class Plain(Half):
        def sin(self, equation, x):  # a method that overrides a handler is the handler
            return 3 * x

    class Other(Half):
        @tj.programs.handles(tj.solve)
        def mine(self, equation, a, b):  # under another name
            return b

    np.testing.assert_array_equal(Other()(f)(D, X), X)
    np.testing.assert_array_equal(Quarter()(f)(D, X), X / (2 * D) / 4)
    np.testing.assert_array_equal(Plain()(f)(D, X), 3 * X / (2 * D) / 2)


def test_default_and_equation():
    seen = []

    class Look(tj.programs.Interpreter):
        @tj.programs.handles(tj.solve, "sin")
        def look(self, equation, *args):
            seen.append((equation.kind, equation.name, "test_interpreter.py" in equation.source))
            return self.default(equation, *args)

    assert is_same(Look()(f)(D, X), f(D, X))
    assert seen == [("primitive", "sin", True), ("operation", "solve", True)]


def test_every_inner_program_is_walked():
    solved, product = (
        lambda d, x, f=f: in_loops(tj.Diagonal(d), x, f) for f in (tj.solve, tj.matmul)
    )
    expected = jax.jit(product)(D, X)
    np.testing.assert_allclose(jax.jit(Times()(solved))(D, X), expected, rtol=1e-14)
    rewritten = Times().rewrite(tj.capture(solved)(D, X))
    assert "solve" not in list(names(rewritten))
    assert "matmul" in list(names(rewritten))
    np.testing.assert_allclose(rewritten(D, X), expected, rtol=1e-14)


def branches(d, x):
    """Branches of JAX, of two and of three cases, one with what it closes over."""
    a, table = tj.Diagonal(d), np.array([0.5, 0.25, 0.125])
    y = jax.lax.cond(x[0] > 0, lambda y: tj.solve(a, y) * table, lambda y: y, x)
    index = jnp.floor(y[2]).astype(jnp.int32)
    cases = [lambda y: y, lambda y: jax.lax.cond(y[0] > 0, jnp.sin, lambda y: y * d, y), jnp.cos]
    return jax.lax.switch(index, cases, y), table


def test_branches_are_the_same_equations_again():
    """No index is clamped twice: the text of a rewrite is that of the program."""
    program, rows = assert_captures(branches, D, X), (jnp.stack([D, D]), jnp.stack([X, -X]))
    assert is_same(jax.vmap(program)(*rows), jax.vmap(branches)(*rows))


def test_branches_that_become_others_are_walked_once():
    """What a handler closes over becomes an operand of the branch."""

    class Outer(tj.programs.Interpreter):
        calls = 0

        @tj.programs.handles("cos")
        def cos(self, equation, x):
            self.found = x
            return self.default(equation, x)

        @tj.programs.handles("sin")
        def sin(self, equation, x):
            Outer.calls += 1
            return self.found * x

    f = lambda x: (jnp.cos(x), jax.lax.cond(x[0] > 0, jnp.sin, lambda y: y, x))
    program = Outer().rewrite(tj.capture(f)(X))
    assert Outer.calls == 1
    np.testing.assert_array_equal(program(X)[1], X * X)
    np.testing.assert_array_equal(jax.jit(program)(-X)[1], -X)
    assert is_same(jax.grad(lambda x: program(x)[1].sum())(X), 2 * X)


def test_constants_made_in_a_body():
    def with_(f):
        body = lambda i, c: f(tj.Diagonal(jnp.full(3, 2.0) + i), c) + np.arange(3.0)
        return jax.jit(lambda x: tj.fori_loop(0, 3, body, x))

    g = with_(tj.solve)
    assert is_same(jax.jit(tj.programs.Interpreter()(g))(X), g(X))
    np.testing.assert_allclose(Times()(g)(X), with_(tj.matmul)(X))


def test_results_of_another_type_are_dispatched_on():
    """A field that the other type lacks is an error."""

    class Dense(tj.programs.Interpreter):
        @tj.programs.handles(tj.Diagonal)
        def diagonal(self, equation, d):
            return jnp.diag(d)

        @tj.programs.handles(tj.linalg.transpose)
        def transpose(self, equation, a):
            return tj.destructure(a).T

    program = Dense().rewrite(tj.capture(lambda d, x: tj.matmul(tj.Diagonal(d), x))(D, X))
    assert [e.types for e in program if e.name == "matmul"] == [("Dense", "Dense")]
    np.testing.assert_allclose(program(D, X), D * X)
    with pytest.raises(TypeError, match="no such field") as error:
        Dense()(lambda a: tj.linalg.transpose(a).diag * 2)(tj.Diagonal(D))
    assert "handle the field" in str(error.value)


def test_transformations_of_a_transformed_function():
    total = lambda g: lambda d, x: jnp.sum(g(d, x) ** 2)
    expected = jax.grad(lambda d, x: jnp.sum((X / (2 * D * d / D) / 2) ** 2))(D, X)
    np.testing.assert_allclose(jax.jit(jax.grad(total(Half()(f))))(D, X), expected, rtol=1e-13)
    rows = jax.vmap(Half()(f))(jnp.stack([D, D]), jnp.stack([X, X * 2]))
    np.testing.assert_allclose(rows[1], X / (2 * D), rtol=1e-14)
    both = Half()(Half()(f))(D, X)
    np.testing.assert_allclose(both, X / (4 * D) / 4)
    natural = tj.grad(lambda a: jnp.sum(Half()(lambda a: tj.solve(a, X))(a)))(tj.Diagonal(D))
    np.testing.assert_allclose(natural.diag, -X / D**2 / 2)


def test_passes_are_applied_once():
    """And arguments are compared with a program that was given."""
    applied = []

    def rewrite(g):
        applied.append(g)
        return Half()(g)

    jitted = tj.jit(f, passes=[rewrite])
    program = tj.capture(jitted)(D, X)
    assert applied == [f]
    np.testing.assert_array_equal(program(D, X), X / (2 * D) / 2)
    with pytest.raises(tj.errors.CaptureError, match="argument"):
        Half()(program)(D, X[:2])


def test_a_state_per_run_and_inner_program():
    class Depth(tj.programs.Interpreter):
        def __init__(self):
            self.depth, self.deepest = 0, 0

        def run(self, program, args, kwargs=None, consts=None):
            self.depth += 1
            self.deepest = max(self.deepest, self.depth)
            try:
                return super().run(program, args, kwargs, consts)
            finally:
                self.depth -= 1

    walker = Depth()
    g = lambda x: tj.fori_loop(0, 2, lambda i, c: tj.cond(i > 0, jnp.sin, jnp.cos, c), x)
    assert is_same(jax.jit(walker(g))(X), jax.jit(g)(X))
    assert (walker.depth, walker.deepest) == (0, 3)


def test_equations_that_nobody_needs_any_more_go():
    class Gone(tj.programs.Interpreter):
        @tj.programs.handles(tj.solve)
        def solve(self, equation, a, b):
            return b

    program = Gone().rewrite(
        tj.capture(lambda d, x: tj.solve(tj.Symmetric(jnp.outer(d, d)), x))(D, X)
    )
    assert list(program) == []
    assert is_same(program(D, X), X)


def test_higher_order_equations_are_handled_whole():
    class Unrolled(tj.programs.Interpreter):
        @tj.programs.handles(tj.fori_loop)
        def loop(self, equation, low, high, body, x):
            for i in range(low, high):
                x = body(i, x)
            return x

    g = lambda x: tj.grad(lambda x: tj.fori_loop(0, 3, lambda i, c: c * x, x).sum())(x)
    program = Unrolled().rewrite(tj.capture(g)(X))
    inner = body_of(program, "grad")["f"]
    assert "fori_loop" not in list(names(program))
    assert [e.name for e in inner].count("mul") >= 2
    np.testing.assert_allclose(program(X), 4 * X**3, rtol=1e-14)


def test_a_rule_that_came_later_is_seen_by_a_rewrite():
    @tj.operation(dense=True)
    def later(a, x):
        return a @ x

    with tj.densify("allow"):
        program = tj.capture(lambda d, x: later(tj.Diagonal(d), x))(D, X)
    before = str(program)

    @later.implementation(tj.Diagonal, tj.Dense)
    def _(a, x):
        return a.diag * x

    assert "densify" in before
    assert str(program) == before
    assert "densify" not in str(tj.programs.Interpreter().rewrite(program))


def of_jvp():
    f = jax.custom_jvp(lambda x: tj.solve(tj.Diagonal(D), x))
    f.defjvp(lambda p, t: (f(*p), 2 * f(*t)))
    return f


def of_vjp():
    f = jax.custom_vjp(lambda x: tj.solve(tj.Diagonal(D), x))
    f.defvjp(lambda x: (f(x), None), lambda _, g: (2 * g / D,))
    return f


@pytest.mark.parametrize("make", [of_jvp, of_vjp])
def test_bodies_with_derivatives_of_their_own_are_not_walked_with_a_warning(make):
    """A rule for a derivative would not fit another body."""
    g = make()
    program = tj.capture(g)(X)
    assert "solve" in list(names(program))
    with pytest.warns(UserWarning, match="is not walked"):
        out = Times()(g)(X)
    assert is_same(out, g(X))
    for same in (program, tj.programs.Interpreter()(g), tj.programs.Interpreter().rewrite(program)):
        assert is_same(same(X), g(X))  # nothing to handle, nothing to say
        assert is_same(jax.grad(lambda x, f=same: f(x).sum())(X), 2 / D)
