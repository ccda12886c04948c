"""Functions of Hermitian matrices whose divided differences are known in closed form."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

pytestmark = pytest.mark.core

N = 4
R = np.random.default_rng(11)
BASIS = R.normal(size=(N, N)) + 1j * R.normal(size=(N, N))
COLUMNS = jnp.asarray(R.normal(size=(N, 2)))
WEIGHTS = jnp.asarray(R.normal(size=(N, N)))


def root(c):
    """The square root of `c x`."""
    f = lambda x: jnp.sqrt(c * x)
    return tj.rules.WithDifferences(f, lambda x, y: c / (f(x) + f(y)))


def plain_root(c):
    return lambda x: jnp.sqrt(c * x)


def whole(f):
    return lambda a, c: jnp.sum(WEIGHTS * jnp.real(tj.linalg.funm_hermitian(a, f(c))))


def times(f):
    return lambda a, c: jnp.sum(
        jnp.abs(tj.linalg.funm_multiply(a, COLUMNS.astype(a.dtype), f(c))) ** 4
    )


def second(loss):
    gradient = lambda a, c: jnp.real(jax.grad(loss)(a, c))
    return jax.grad(lambda a, c: jnp.sum(WEIGHTS * gradient(a, c)), (0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("spectrum", [(0.5, 1.0, 2.0, 3.0), (1.0, 1.0 + 1e-9, 2.0, 2.0)])
def test_derivatives_are_those_of_the_function(spectrum, real):
    """By the matrix and by what both close over, of first and second order, as without them."""
    basis = np.linalg.qr(BASIS.real if real else BASIS)[0]
    a = jnp.asarray((basis * np.asarray(spectrum)) @ np.conj(basis).T)
    for loss in (whole, times):
        derivatives = [lambda f: jax.grad(f, (0, 1)), lambda f: jax.jacfwd(f, 1)]
        if loss is whole or spectrum[0] == 0.5:
            derivatives.append(second)
        for derivative in derivatives:
            got, want = (derivative(loss(f))(a, 2.0) for f in (root, plain_root))
            for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-9)


def test_only_the_closed_form_is_asked_for_pairs():
    """No derivative of the function is taken, nor a quotient of its values."""

    @jax.custom_jvp
    def values(x):
        return jnp.sqrt(x)

    @values.defjvp
    def _(primals, tangents):
        raise AssertionError("differentiated")

    closed = tj.rules.WithDifferences(values, lambda x, y: 1 / (jnp.sqrt(x) + jnp.sqrt(y)))
    a = jnp.asarray([[2.0, 1.0], [1.0, 2.0]])
    got = jax.grad(lambda a: tj.linalg.funm_hermitian(a, closed)[0, 1])(a)
    want = jax.grad(lambda a: tj.linalg.funm_hermitian(a, jnp.sqrt)[0, 1])(a)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    with pytest.raises(AssertionError, match="differentiated"):
        jax.grad(lambda a: tj.linalg.funm_hermitian(a, values)[0, 1])(a)


def test_square_roots_of_symmetric_matrices_take_one_division_of_each_pair():
    """And five products: the compiled gradient is that of a hand-written one, not of any `f`."""
    loss = lambda a: jnp.sum(jnp.sin(tj.linalg.sqrtm(tj.Symmetric(a)).data))
    compiled = jax.jit(jax.grad(loss)).lower(jnp.eye(7)).compile().as_text()
    count = lambda op: len(re.findall(rf"= f64\[7,7\]\S* {op}\(", compiled))
    assert [count(op) for op in ("divide", "dot", "maximum", "rsqrt", "sqrt")] == [1, 5, 0, 0, 0]


def test_differences_of_another_shape_are_refused():
    closed = tj.rules.WithDifferences(jnp.sqrt, lambda x, y: x)
    with pytest.raises(tj.ShapeError, match=r"made shape \[2, 1\] of the pairs of 2 values"):
        tj.linalg.funm_hermitian(jnp.eye(2), closed)


@pytest.mark.slow
def test_input_that_is_symmetric_already():
    """Without a pass over the matrix; only its lower triangle is read, derivatives are the same."""
    a = jnp.asarray([[2.0, 1.0], [1.0, 3.0]])
    f = lambda a, **how: tj.linalg.funm_hermitian(a, jnp.sqrt, **how)[0, 1]
    for derivative in (lambda g: g, jax.grad, jax.hessian):
        want, got = derivative(f)(a), derivative(lambda a: f(a, symmetrize_input=False))(a)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)
    upper = a.at[0, 1].set(7.0)
    np.testing.assert_allclose(f(upper, symmetrize_input=False), f(a), rtol=1e-12)
    for other in (tj.Diagonal(jnp.ones(2)), tj.Symmetric(a), tj.BlockDiagonal(a)):
        got, want = (
            tj.linalg.funm_hermitian(other, jnp.sqrt, **how)
            for how in ({"symmetrize_input": False}, {})
        )
        np.testing.assert_allclose(got.to_dense(), want.to_dense(), rtol=1e-12)


@pytest.mark.parametrize("make", [tj.Symmetric, tj.Hermitian])
def test_roots_and_their_tangents_are_symmetric(make):
    """The value to the last bit, tangents to rounding, and the gradient to the last bit."""
    basis = BASIS if make is tj.Hermitian else BASIS.real
    a = make(jnp.asarray(basis @ np.conj(basis).T + np.eye(N)))
    root, a_dot = tj.linalg.sqrtm(a), jax.tree.map(lambda x: x @ x, a)
    np.testing.assert_array_equal(root.data, np.conj(root.data).T)
    root_dot = jax.jvp(tj.linalg.sqrtm, (a,), (a_dot,))[1].data
    np.testing.assert_allclose(root_dot, np.conj(root_dot).T, rtol=1e-13, atol=1e-15)
    a_bar = jax.grad(lambda a: jnp.sum(WEIGHTS * jnp.real(tj.linalg.sqrtm(a).data)))(a).data
    np.testing.assert_array_equal(a_bar, np.conj(a_bar).T)
