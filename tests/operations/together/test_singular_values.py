"""Nuclear norms, spectral norms and condition numbers: second derivatives beside equal values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj

pytestmark = [pytest.mark.core, pytest.mark.slow]

RNG = np.random.default_rng(0)
ORDERS = ("nuc", 2, -2)
TURN = np.linalg.qr(RNG.normal(size=(4, 4)))[0]


def by_differences(f, x, step=1e-5):
    """The Hessian of a function of a real array, by differences of its gradient."""
    slope = jax.jit(jax.grad(f))
    moves = step * np.eye(x.size).reshape(x.size, *x.shape)
    rows = [(slope(x + move) - slope(x - move)) / (2 * step) for move in moves]
    return np.stack(rows).reshape(*x.shape, *x.shape)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (2, 2, 3)])
@pytest.mark.parametrize("ord", ORDERS)
def test_the_third_derivative_is_that_of_jax(ord, shape):
    x, x_dot = RNG.normal(size=shape), RNG.normal(size=shape)

    def third(norm):
        f = lambda x: jnp.sum(jnp.sin(norm(x, ord, axis=(-2, -1))))
        slope = lambda x: jax.jvp(f, (x,), (x_dot,))[1]
        return jax.grad(lambda x: jax.jvp(slope, (x,), (x_dot,))[1])(x)

    np.testing.assert_allclose(third(tj.norm), third(jnp.linalg.norm), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 5)])
def test_nuclear_norm_along_matrices_of_one_rank(shape, is_complex):
    """Where the rest is rounding: JAX's second derivative divides it by itself."""
    m, n = shape
    phase = (lambda t: jnp.exp(1j * t)) if is_complex else jnp.cos
    one = jnp.ones((m, 1)) if not is_complex else jnp.ones((m, 1), complex)
    matrix = lambda t: phase(t) * one @ (1 + t * jnp.arange(float(n))).astype(one.dtype)[None]
    norm = jax.jit(lambda t: tj.norm(matrix(t), "nuc"))
    exact = jax.jit(lambda t: jnp.linalg.norm(matrix(t)))  # of rank one
    for t in (0.3, 0.7, 1.1):
        got, want = (jax.jvp(jax.grad(f), (t,), (1.0,)) for f in (norm, exact))
        np.testing.assert_allclose(got, want, rtol=1e-10)
    zero = jnp.zeros(shape, one.dtype)
    second = jax.jvp(jax.grad(lambda a: tj.norm(a, "nuc")), (zero,), (zero + 1,))[1]
    np.testing.assert_array_equal(second, zero)


EQUAL = {  # the largest and the least value are alone where their norm is asked for
    "nuc of all": ("nuc", 2 * TURN),
    "nuc of some": ("nuc", TURN @ np.diag([3.0, 1, 1, 2]) @ TURN.T),
    "nuc of tall": ("nuc", 0.5 * TURN[:, :3]),
    "largest beside equal ones": (2, TURN @ np.diag([3.0, 1, 1, 1]) @ TURN),
    "least beside equal ones": (-2, TURN @ np.diag([3.0, 3, 3, 1]) @ TURN),
    "least beside zeros of none": (2, TURN @ np.diag([3.0, 1, 0, 0]) @ TURN),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_singular_values(name):
    ord, a = EQUAL[name]
    f = lambda x: tj.norm(x, ord)
    want = by_differences(f, a)
    for hessian in (jax.hessian(f), jax.jacrev(jax.jacrev(f)), jax.jacrev(jax.jacfwd(f))):
        np.testing.assert_allclose(hessian(a), want, atol=1e-7)


def test_a_kink_has_a_subgradient_and_no_second_derivative():
    for ord in (2, -2):
        f = lambda x, ord=ord: tj.norm(x, ord)
        slope = jax.grad(f)(2 * TURN)
        np.testing.assert_allclose(jnp.sum(slope * TURN), 1, rtol=1e-12)
        assert np.isnan(jax.hessian(f)(2 * TURN)).all()


@pytest.mark.parametrize("ord", [*ORDERS, 1, -1, np.inf, -np.inf])
def test_a_real_circulant_has_every_value_twice(ord):
    """Its norms are smooth in its column, which the norms of matrices nearby are not."""
    f = lambda c: tj.norm(tj.Circulant(c), ord)
    c = jnp.array([3.0, 1.0, 0.5, -0.2, 0.7])
    np.testing.assert_allclose(f(c), np.linalg.norm(tj.Circulant(c).to_dense(), ord), rtol=1e-12)
    np.testing.assert_allclose(jax.hessian(f)(c), by_differences(f, c), atol=1e-7)


@pytest.mark.parametrize(
    ("a", "least"),
    [
        (tj.BlockDiagonal(np.ones((2, 1)), np.ones((1, 2))), 0.0),
        (tj.BlockDiagonal(np.full((1, 1), 2.0), np.full((1, 1), 3.0)), 2.0),
        (tj.Kronecker(np.ones((2, 1)), np.ones((1, 2))), 0.0),
        (tj.Kronecker(np.diag([2.0, 3.0]), np.diag([5.0, 7.0])), 10.0),
        (tj.LowRank(np.ones((3, 1)), np.ones((3, 1))), 0.0),
    ],
)
def test_values_that_are_left_out_are_zero(a, least):
    np.testing.assert_allclose(tj.norm(a, -2), least)
    np.testing.assert_allclose(np.linalg.norm(a.to_dense(), -2), least, atol=1e-12)


@pytest.mark.parametrize("p", [None, 2, -2])
def test_condition_numbers(p):
    """The extreme values alone count, and others may be equal."""
    a = TURN @ np.diag([4.0, 2, 2, 1]) @ TURN
    f = lambda x: tj.linalg.condition_number(x, p)
    np.testing.assert_allclose(f(a), jnp.linalg.cond(a, p), rtol=1e-12)
    np.testing.assert_allclose(jax.hessian(f)(a), by_differences(f, a), atol=1e-6)
    assert tj.linalg.condition_number(np.zeros((2, 2)), p) == np.inf
    assert tj.linalg.condition_number(np.diag([1.0, 0.0]), p) == (0 if p == -2 else np.inf)


@pytest.mark.slow
def test_in_loops_as_elsewhere():
    """JAX before 0.12 drops the rule of a `jax.custom_jvp` in a scan that it takes apart."""
    a = TURN @ np.diag([3.0, 1, 1, 1]) @ TURN

    def rolled(x):
        step = lambda y, _: (y + 0.1 * jnp.tanh(y) * (tj.norm(y, 2) + tj.norm(y, "nuc")), None)
        return jnp.sum(lax.scan(step, x, None, length=2)[0] ** 2)

    def unrolled(x):
        for _ in range(2):
            x = x + 0.1 * jnp.tanh(x) * (tj.norm(x, 2) + tj.norm(x, "nuc"))
        return jnp.sum(x**2)

    want = jax.hessian(unrolled)(a)
    for hessian in (jax.hessian(rolled), jax.jacrev(jax.jacrev(rolled))):
        np.testing.assert_allclose(hessian(a), want, rtol=1e-9, atol=1e-9)
