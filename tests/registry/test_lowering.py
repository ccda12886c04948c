"""Both modes from one rule, also where its pullback cannot be transposed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import Counter, assert_close, assert_same_derivatives, wave

pytestmark = pytest.mark.core

X = jnp.asarray([0.3, -1.2, 0.8])


def by_while_loop(y_bar, a):
    """`3 a² ȳ`, with a loop whose length JAX does not know."""

    def body(state):
        k, total = state
        return k + 1, total + a * a * y_bar

    stop = jnp.where(jnp.isnan(a[0]), 1, 3)
    return jax.lax.while_loop(lambda s: s[0] < stop, body, (0, jnp.zeros_like(a)))[1]


def by_callback(y_bar, a):
    compute = lambda y_bar, a: np.asarray(3 * np.asarray(a) ** 2 * np.asarray(y_bar))
    shape = jax.ShapeDtypeStruct(a.shape, a.dtype)
    return jax.pure_callback(compute, shape, y_bar, a, vmap_method="sequential")


@jax.custom_vjp
def triple(y_bar):
    return 3 * y_bar


triple.defvjp(lambda y_bar: (3 * y_bar, None), lambda _, c: (3 * c,))


def by_custom_vjp(y_bar, a):
    return a * a * triple(y_bar)


def by_algebra(y_bar, a):
    return 3 * a * a * y_bar


def cubes(pull):
    @tj.operation
    def cube(a):
        return a.diag**3

    @cube.natural_rule
    def cube_rule(a):
        def cube_pullback(y_bar):
            pullback_ran()
            return tj.Diagonal(pull(y_bar, a.diag))

        return cube.primal(a), cube_pullback

    return cube


pullback_ran = Counter()


@pytest.mark.parametrize("lowering", ["linear", "public"])
@pytest.mark.parametrize("pull", [by_while_loop, by_callback, by_custom_vjp])
def test_reverse_runs_the_pullback_and_forward_works_although_it_cannot_be_transposed(
    pull, lowering
):
    def run(cube, a, a_dot):
        value, pullback = jax.vjp(lambda a: cube(a), a)
        moved = jax.jvp(lambda a: cube(a), (a,), (a_dot,))[1]
        bars = jax.vmap(jax.grad(lambda d: jnp.sum(cube(tj.Diagonal(d)))))(jnp.stack([X, X + 1]))
        _, push = jax.linearize(lambda d: cube(tj.Diagonal(d)), X)
        return value, pullback(X), moved, bars, push(X)

    a = tj.Diagonal(X + 1)
    with tj.rules.lowering(lowering):
        before = pullback_ran.count
        got = jax.jit(lambda *args: run(cubes(pull), *args))(a, wave(a))
        assert pullback_ran.count > before
    assert_close(got, run(lambda a: a.diag**3, a, wave(a)))


def test_second_derivatives_of_a_rule_that_can_be_transposed():
    for lowering in ("linear", "public"):
        with tj.rules.lowering(lowering):
            assert_same_derivatives(cubes(by_algebra), lambda a: jnp.diag(a) ** 3, tj.Diagonal(X))


def test_the_reverse_pass_of_forward_mode_over_a_loop_is_exact():
    """Reverse over forward needs the transpose of the tangent map: the author's pullback."""
    cube = cubes(by_while_loop)
    along = lambda d: jax.jvp(lambda d: cube(tj.Diagonal(d)), (d,), (X,))[1]
    assert_close(jax.jacfwd(along)(X + 1), jnp.diag(6 * (X + 1) * X))


def test_lowering_is_one_of_two_and_restored():
    with pytest.raises(ValueError, match="unknown lowering 'magic'"), tj.rules.lowering("magic"):
        pass
    with pytest.raises(RuntimeError), tj.rules.lowering("public"):
        raise RuntimeError
    jaxpr = str(jax.make_jaxpr(lambda a: jax.jvp(cubes(by_algebra), (a,), (a,)))(tj.Diagonal(X)))
    assert "tanjax_linear" in jaxpr or "cube" in jaxpr


def test_symbolic_zeros_are_not_computed():
    """Arguments that do not move cost nothing: their cotangents are never asked for."""
    asked = []

    @tj.operation
    def product(a, b):
        return a.diag * b

    @product.natural_rule
    def product_rule(a, b):
        def product_pullback(bar):
            asked.append(bar)
            return tj.Diagonal(bar * b), jnp.linalg.solve(jnp.diag(b), bar * a.diag * b)

        return product.primal(a, b), product_pullback

    a = tj.Diagonal(X)
    text = jax.jit(jax.grad(lambda a: jnp.sum(product(a, X)))).lower(a).compile().as_text()
    assert asked
    assert "lu" not in text.lower().replace("value", "")


@tj.operation
def constant(x):
    return jax.jit(lambda x: (x, jnp.ones(2)))(x)[1]


@constant.natural_rule
def constant_rule(x):
    return constant.primal(x), lambda y_bar: jnp.sum(y_bar) * jnp.zeros_like(x)


STILL = {
    "logdet": lambda x: tj.logdet(tj.Triangular(x, True, True)),
    "slogdet": lambda x: tj.linalg.slogdet(tj.Triangular(x, True, True))[1],
    "trace": lambda x: tj.trace(tj.Triangular(x, True, True)),
    "diagonal": lambda x: tj.linalg.diagonal(tj.tangents.Masked(x, "strictly_upper")),
    "within a call": lambda x: constant(x),
    "product": lambda x: tj.destructure(tj.matmul(tj.LowRank(x, x), tj.Zero((3, 2), x.dtype))),
}


@pytest.mark.parametrize("name", STILL)
def test_results_that_no_argument_moves(name):
    """They are no batch under `vmap` while their tangents are one, at which JAX raises."""
    f = STILL[name]
    total = lambda x: jnp.sum(jnp.sin(f(x)))
    x = jnp.arange(18.0).reshape(2, 3, 3)
    zero = jnp.zeros_like(x)
    modes = {
        "batch": jax.grad(total),
        "vmap": jax.jit(jax.vmap(jax.grad(total))),
        "through vmap": jax.grad(lambda x: jnp.sum(jax.jit(jax.vmap(total))(x))),
        "forward": lambda x: jax.jvp(jax.vmap(total), (x,), (x,))[1][:, None, None] + zero,
        "second": lambda x: jax.jvp(jax.grad(total), (x,), (x,))[1],
    }
    for mode, derivative in modes.items():
        np.testing.assert_array_equal(derivative(x), zero, err_msg=mode)
    assert " select(" not in jax.jit(f).lower(x[0]).compile().as_text()
