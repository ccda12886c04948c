"""`funm_multiply`: functions of Hermitian matrices times columns.

The judges are the literal definition by `eigh`, which JAX differentiates at distinct eigenvalues,
and the function's matrix where they are equal.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

pytestmark = pytest.mark.core

N, K = 4, 2
R = np.random.default_rng(7)
W, V = (jnp.asarray(R.normal(size=(N, K))) for _ in range(2))
REAL = R.normal(size=(N, N))
REAL = jnp.asarray(REAL @ REAL.T + np.eye(N))
BASIS = np.linalg.qr(R.normal(size=(N, N)))[0]


TWICE = [*itertools.product((jax.jacfwd, jax.jacrev), repeat=2)]


def literal(a, b, f):
    w, u = jnp.linalg.eigh((a + a.T) / 2)
    return (u * f(w)) @ u.T @ b


def by_matrix(a, b, f):
    return tj.linalg.funm_hermitian(a, f) @ b


@pytest.mark.slow
@pytest.mark.parametrize("values", [(1.0, 1.0, 1.0, 2.0), (1.5,) * 4, (1.0, 1 + 1e-9, 1.1, 2.0)])
def test_two_derivatives_at_equal_eigenvalues(values):
    a = jnp.asarray((BASIS * np.asarray(values)) @ BASIS.T)

    def losses(product):
        f = lambda a: jnp.sum(W * jnp.sin(product(a, V, lambda x: jnp.exp(-x) * x)))
        return [jax.jit(g)(a) for g in (f, jax.grad(f), jax.hessian(f))]

    for got, want in zip(losses(tj.linalg.funm_multiply), losses(by_matrix), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-11)


@pytest.mark.parametrize("product", [tj.linalg.funm_multiply, by_matrix], ids=["product", "matrix"])
@pytest.mark.parametrize("order", TWICE)
def test_second_derivatives_by_many_numbers_that_the_function_holds(product, order):
    """Of a polynomial with its coefficients: each has divided differences of its own.

    The coefficient of `exp` is zero and its eigenvalues are far apart, so that what suits the value
    does not suit the derivative.
    """
    a = jnp.asarray((BASIS * np.array([0.1, 0.2, 9.0, 20.0])) @ BASIS.T)
    outer, inner = order

    def mixed(product):
        def loss(a, c):
            f = lambda x: jnp.polyval(c[:3], x) + c[3] * jnp.exp(x / 2)
            return jnp.sum(W * product(a, V, f))

        return jax.jit(outer(inner(loss, 0), 1))(a, jnp.array([0.1, -0.3, 1.0, 0.0]))

    np.testing.assert_allclose(mixed(product), mixed(literal), rtol=1e-9, atol=1e-7)


def test_vectors_batches_and_a_batched_type():
    one = by_matrix(REAL, V, jnp.sqrt)
    np.testing.assert_allclose(
        tj.linalg.funm_multiply(REAL, V[:, 0], jnp.sqrt), one[:, 0], rtol=1e-12
    )
    both = jnp.stack([REAL, 2 * REAL])
    for a in (both, tj.Symmetric(both)):
        got = tj.linalg.funm_multiply(a, V, jnp.sqrt)
        np.testing.assert_allclose(got, [one, np.sqrt(2) * one], rtol=1e-12)
    mapped = jax.vmap(lambda a: tj.linalg.funm_multiply(a, V, jnp.sqrt))(both)
    np.testing.assert_allclose(mapped, [one, np.sqrt(2) * one], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("product", [tj.linalg.funm_multiply, by_matrix], ids=["product", "matrix"])
def test_loops_and_checkpoints_at_equal_eigenvalues(product):
    """JAX takes loops apart for reverse mode, and would keep no more than the body of a rule.

    What does not change in the loop would be taken out of it first: the matrix does.
    """
    a = jnp.asarray((BASIS * np.array([1.0, 1.0, 1 + 1e-13, 2.0])) @ BASIS.T)
    sizes = jnp.array([1.0, 1.5])
    step = jax.checkpoint(lambda a, x: (product(a, x, jnp.tanh), None))
    loop = lambda a: jnp.sum(W * jax.lax.scan(lambda x, s: step(a * s, x), V, sizes)[0])
    plain = lambda a: jnp.sum(W * product(1.5 * a, product(a, V, jnp.tanh), jnp.tanh))
    for mode in (jax.jacfwd, jax.hessian):
        np.testing.assert_allclose(jax.jit(mode(loop))(a), jax.jit(mode(plain))(a), atol=1e-11)


def test_no_product_of_matrices_but_those_of_the_gradient():
    """The gradient of the function's matrix takes four."""
    square = f"tensor<{N}x{N}xf64>"
    cubic = lambda f: jax.jit(f).lower(REAL).as_text().count(f"({square}, {square}) -> {square}")
    of = lambda product: lambda a: jnp.sum(W * product(a, V, jnp.sqrt))
    assert cubic(of(tj.linalg.funm_multiply)) == 0
    assert cubic(jax.grad(of(tj.linalg.funm_multiply))) == 2
    assert cubic(jax.grad(of(by_matrix))) == 4


@pytest.mark.slow
def test_units_and_bad_input():
    m = tj.unit("m")
    np.testing.assert_allclose(
        tj.linalg.funm_multiply(tj.Symmetric(REAL), V * m, jnp.sqrt).to_value("m"),
        by_matrix(REAL, V, jnp.sqrt),
    )
    with pytest.raises(tj.UnitError):
        tj.linalg.funm_multiply(REAL * m, V, jnp.sqrt)
    for a in (REAL, tj.Symmetric(REAL)):
        with pytest.raises(tj.ShapeError, match="does not fit"):
            tj.linalg.funm_multiply(a, V[1:], jnp.sqrt)
        with pytest.raises(tj.ShapeError, match="does not fit"):
            tj.linalg.funm_multiply(a, V[1:, 0], jnp.sqrt)
        with pytest.raises(tj.ShapeError, match="eigenvalues"):
            tj.linalg.funm_multiply(a, V, jnp.sum)
        with pytest.raises(TypeError, match="func"):
            tj.linalg.funm_multiply(a, V, 3)
    with pytest.raises(tj.ShapeError):
        tj.linalg.funm_multiply(REAL[:3], V, jnp.sqrt)
    assert tj.linalg.funm_multiply(jnp.zeros((0, 0)), jnp.zeros((0, 2)), jnp.sqrt).shape == (0, 2)
    integers = tj.linalg.funm_multiply(jnp.array([[4, 0], [0, 9]]), jnp.array([1, 1]), jnp.sqrt)
    np.testing.assert_allclose(integers, [2.0, 3.0])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Wave:
    """A callable pytree whose hash is that of the array that it holds, which has none."""

    rate: jax.Array

    def __call__(self, x):
        return jnp.sin(self.rate * x)


@pytest.mark.parametrize(
    "make", [Wave, lambda rate: jax.tree_util.Partial(Wave.__call__, Wave(rate))]
)
@pytest.mark.parametrize("is_product", [True, False])
def test_a_callable_pytree_is_a_function(make, is_product):
    """It need not be hashable, and what it holds has its derivative."""
    call = lambda f: (
        tj.linalg.funm_multiply(REAL, V, f) if is_product else tj.linalg.funm_hermitian(REAL, f) @ V
    )
    got = jax.jit(jax.value_and_grad(lambda f: jnp.sum(call(f) ** 2)))(make(jnp.asarray(0.7)))
    closed = lambda rate: jnp.sum(literal(REAL, V, lambda x: jnp.sin(rate * x)) ** 2)
    value, slope = jax.value_and_grad(closed)(0.7)
    np.testing.assert_allclose(got[0], value, rtol=1e-10)
    np.testing.assert_allclose(jax.tree.leaves(got[1])[0], slope, rtol=1e-10)
    np.testing.assert_allclose(jnp.sum(call(make(jnp.asarray(0.7))) ** 2), value, rtol=1e-10)
