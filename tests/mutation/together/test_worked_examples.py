"""The worked examples of the document on which mutation is modelled, in its order and its letters.

A product with a tuple, XᵀX, squares in place, a composition in reverse, `mul` as a rule, `set_1!`
with its memory; each as a mathematical model, its derivative, its adjoint, and what comes of them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from mutation_modes import assert_same_in_every_mode

X = jnp.array([0.7, -0.4, 1.3])
BAR = jnp.array([0.3, 1.0, -0.6])
MATRIX = jnp.array([[0.7, -0.4], [1.3, 0.2], [-0.9, 0.8]])

assert_close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-14)


def assert_all_close(got, expected):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    jax.tree.map(assert_close, got, expected)


# -- a matrix, and a tuple -----------------------------------------------------------------------


@tj.operation
def gram(x):
    return x.T @ x


@gram.natural_rule
def gram_rule(x):
    """D f [X](Ẋ) = Ẋᵀ X + Xᵀ Ẋ, so D f [X]*(Ȳ) = X (Ȳ + Ȳᵀ)."""
    return gram.primal(x), lambda y_bar: x @ (y_bar + y_bar.T)


def test_a_product_with_itself():
    y_bar = jnp.array([[0.2, 1.1], [-0.5, 0.3]])
    x_dot = jnp.cos(MATRIX)
    value, y_dot = jax.jvp(gram, (MATRIX,), (x_dot,))
    assert_close(value, MATRIX.T @ MATRIX)
    assert_close(y_dot, x_dot.T @ MATRIX + MATRIX.T @ x_dot)
    (x_bar,) = jax.vjp(gram, MATRIX)[1](y_bar)
    assert_close(x_bar, MATRIX @ (y_bar + y_bar.T))
    assert_close(x_bar, jax.vjp(gram.primal, MATRIX)[1](y_bar)[0])
    # The adjoint by its definition, with the inner product tr(Xᵀ Y).
    assert_close(jnp.trace(y_bar.T @ y_dot), jnp.trace(x_bar.T @ x_dot))
    tj.testing.check_adjoint(gram, MATRIX)


def test_a_tuple_as_argument():
    """f(x, y) = x + y₁ y₂ from {R × {R × R}} to R; its adjoint is f̄ -> (f̄, (f̄ y₂, f̄ y₁))."""
    f = lambda x, y: x + y[0] * y[1]
    x, y = jnp.asarray(0.5), (jnp.asarray(2.0), jnp.asarray(-3.0))
    x_dot, y_dot = jnp.asarray(0.1), (jnp.asarray(0.2), jnp.asarray(0.3))
    value, f_dot = jax.jvp(f, (x, y), (x_dot, y_dot))
    assert_close(value, 0.5 - 6.0)
    assert_close(f_dot, x_dot + y_dot[0] * y[1] + y[0] * y_dot[1])
    f_bar = jnp.asarray(0.7)
    bars = jax.vjp(f, x, y)[1](f_bar)
    assert_all_close(bars, (f_bar, (f_bar * y[1], f_bar * y[0])))
    # A space of tuples has the sum of the inner products of its parts.
    assert_close(tj.inner_product(bars, (x_dot, y_dot)), f_bar * f_dot)
    tj.testing.check_adjoint(f, x, y)


# -- squares in place ------------------------------------------------------------------------------


@tj.inplace(mutates="x")
def f(x):
    """`x .*= x`, which returns nothing."""
    x[...] = x[...] * x[...]


@tj.inplace(mutates="x")
def g(x):
    f(x)
    return jnp.sum(x[...])


def test_squares_in_place():
    r = tj.new_ref(X)
    assert f(r) is None
    assert_close(r[...], X**2)
    assert_close(g(r), jnp.sum(X**4))
    assert_close(r[...], X**4)
    with pytest.raises(tj.MutationError, match="array"):
        f(X)


def test_the_model_of_squares_in_place():
    """Of `f` it is x -> x∘x; of `g` it is φ(x) = (x∘x, Σ x²), of the state and the output."""
    assert_close(f.transition(X).state[0], X**2)
    after, pullback = jax.vjp(g.transition, X)
    assert_close(after.state[0], X**2)
    assert_close(after.out, jnp.sum(X**2))
    out_bar = jnp.asarray(0.5)
    (x_bar,) = pullback(tj.Transition((BAR,), out_bar))
    assert_close(x_bar, 2 * X * BAR + 2 * X * out_bar)
    # Whoever asks for the output alone says that the final state is not asked for: ȳ₁ = 0.
    assert_close(jax.grad(lambda x: g.transition(x).out)(X), 2 * X)
    tj.testing.check_adjoint(g.transition, X)
    _, moved = jax.jvp(g.transition, (X,), (BAR,))
    assert_close(moved.state[0], 2 * X * BAR)


def test_the_final_state_has_a_cotangent():
    """A caller that reads the memory afterwards differentiates through it."""

    def caller(x):
        r = tj.new_ref(x)
        out = g(r)
        return out * r[0] + jnp.sum(jnp.sin(r[...]))

    plain = lambda x: jnp.sum(x**2) * x[0] ** 2 + jnp.sum(jnp.sin(x**2))
    assert_same_in_every_mode(tj.discharge(caller), plain, X, BAR)


def test_reverse_mode_is_a_composition_of_adjoints():
    """The forward pass keeps the adjoints, the reverse pass applies them, last first."""
    steps = [g.transition, f.transition, g.transition]
    x, adjoints = X, []
    for step in steps:
        after, adjoint = jax.vjp(lambda x, step=step: step(x).state[0], x)
        adjoints.append(adjoint)
        x = after
    bar = BAR
    for adjoint in reversed(adjoints):
        (bar,) = adjoint(bar)

    def whole(x):
        r = tj.new_ref(x)
        g(r)
        f(r)
        g(r)
        return jnp.vdot(BAR, r[...])

    assert_close(bar, jax.grad(tj.discharge(whole))(X))
    assert_close(bar, 8 * X**7 * BAR)


# -- rules -----------------------------------------------------------------------------------------


@tj.operation
def mul(a, b):
    return a * b


@mul.natural_rule
def mul_rule(a, b):
    return mul.primal(a, b), lambda c_bar: (c_bar * b, c_bar * a)


def test_mul():
    """A rule without memory is the one of ChainRules."""
    a, b = jnp.asarray(2.0), jnp.asarray(-3.0)
    assert_all_close(jax.vjp(mul, a, b)[1](jnp.asarray(0.5)), (0.5 * b, 0.5 * a))
    assert_all_close(jax.jvp(mul, (a, b), (b, a)), (a * b, b * b + a * a))
    tj.testing.check_operation(mul, jnp.asarray(0.3), jnp.asarray(1.7))


def set_1_like(factor=1.0):
    """`set_1!` with its rule in the form of the document: the cotangent is rewritten."""

    @tj.inplace(mutates="x")
    def set_1(x, y):
        x[0] = y
        return x

    @set_1.inplace_rule
    def set_1_rule(x, y):
        def set_1_pullback(x_bar, out_bar):
            # `out` is `x`, the same memory: it has no cotangent of its own.
            assert jax.tree.leaves(out_bar) == []
            y_bar = factor * x_bar[0]
            x_bar[0] = 0.0
            return y_bar

        return set_1.primal(x, y), set_1_pullback

    return set_1


set_1 = set_1_like()


def twice(set_1, x, y):
    """The document's `g`: a tuple with the same vector twice."""
    return x, set_1(x, y)


def test_memory_propagation():
    r = tj.new_ref(X)
    a, b = twice(set_1, r, 5.0)
    assert a is b is r
    assert_close(r[...], [5.0, -0.4, 1.3])
    (state,), out = set_1.transition(X, jnp.asarray(5.0))
    assert_close(state, [5.0, -0.4, 1.3])
    assert jax.tree.leaves(out) == []  # a mark, which says that it is `x`


def test_the_rule_of_set_1():
    x_bar, y_bar = jax.vjp(lambda x, y: set_1.transition(x, y).state[0], X, 5.0)[1](BAR)
    assert_close(x_bar, [0.0, 1.0, -0.6])
    assert_close(y_bar, 0.3)


def of_memory(set_1, x):
    def body(x):
        r = tj.new_ref(x)
        a, b = twice(set_1, r, x[1] * x[2])
        return jnp.sum(a[...] ** 2) + jnp.sum(jnp.cos(b[...])) * a[0]

    return tj.discharge(body)(x)


def by_hand(x):
    new = x.at[0].set(x[1] * x[2])
    return jnp.sum(new**2) + jnp.sum(jnp.cos(new)) * new[0]


def test_one_memory_has_one_cotangent_in_every_mode():
    """`a` and `b` are read both; what comes back to the one memory is the sum."""
    assert_same_in_every_mode(functools.partial(of_memory, set_1), by_hand, X, BAR)


def test_a_wrong_rule_is_seen():
    wrong = functools.partial(of_memory, set_1_like(factor=3.0))
    with pytest.raises(AssertionError, match="grad"):
        assert_same_in_every_mode(wrong, by_hand, X, BAR, ["grad"])
    with pytest.raises(AssertionError, match="jvp"):
        assert_same_in_every_mode(wrong, by_hand, X, BAR, ["jvp"])


# -- tangents, in two parts ------------------------------------------------------------------------


def test_forward_data_and_reverse_data():
    """A vector that is mutated has its tangent in memory, a number has it in what is returned."""
    primal = {"x": tj.new_ref(X), "y": jnp.asarray(2.0)}
    tangent = tj.zero_tangent(primal)
    assert tj.fdata(tangent)["x"] is tangent["x"]
    assert tj.fdata(tangent)["y"] is None
    assert tj.rdata(tangent)["x"] is None
    joined = tj.combine(tj.fdata(tangent), tj.rdata(tangent))
    assert all(a is b for a, b in zip(*map(jax.tree.leaves, (joined, tangent)), strict=True))


def test_each_address_has_one_tangent_address():
    r = tj.new_ref(X)
    a, b = tj.zero_tangent(twice(set_1, r, 5.0))
    assert a is b
    assert a is not r
    step = tj.zero_tangent((r, r))
    step[0][...] = BAR
    same, again = tj.increment((a, b), step)
    assert same is again is a
    assert_close(a[...], BAR)  # once, though it stands there twice


@pytest.mark.parametrize("x", [2.0, X, (X, 2.0), tj.Symmetric(jnp.eye(2))])
def test_tangent_types_are_unique(x):
    """Of a type of primals, and the same type for what is made of them."""
    kind = tj.tangent_type(x)
    assert kind == tj.tangent_type(jax.tree.map(lambda v: v * 3, x))
    assert kind == tj.tangent_type(tj.zero_tangent(x))
    in_memory = tj.new_ref(x)
    assert tj.tangent_type(in_memory) == tj.tangent_type(tj.zero_tangent(in_memory))
