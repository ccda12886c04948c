"""Properties of the shipped operations: values and gradients are those of dense arrays."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tanjax as tj
from tanjax.testing import strategies

N = 4
TYPES = [tj.Diagonal, tj.Symmetric, tj.Triangular, tj.Fill, tj.Scaled, tj.LowRank]
TYPES += [tj.LowRankUpdate, tj.Kronecker, tj.BlockDiagonal]
SOLVED = [tj.Diagonal, tj.Symmetric, tj.Triangular, tj.LowRankUpdate, tj.Kronecker]


@pytest.fixture(autouse=True)
def densify():
    """Some results below are dense by nature, and densifying is not the subject."""
    with tj.densify("allow"):
        yield


def program(a, b, x, dense):
    """A program through many operations, on structured arrays or on their dense values."""
    if dense:
        a, b = tj.destructure(a), tj.destructure(b)
        product, total, scaled = a @ b, a + b, 3.0 * a - b.T
        form, inner = x @ a @ x, jnp.sum(a * b)
        return product @ x, total @ x + scaled @ x, form + inner + jnp.trace(a) + jnp.sum(b)
    product, total, scaled = tj.matmul(a, b), a + b, 3.0 * a - b.mT
    form, inner = tj.linalg.quadratic_form(a, x), tj.linalg.pairing(a, b)
    return product @ x, total @ x + scaled @ x, form + inner + tj.trace(a) + tj.linalg.sum(b)


def loss(dense, weights, a, b, x):
    """A scalar that every output and every entry of it reaches."""
    return sum(jnp.sum(w * out) for w, out in zip(weights, program(a, b, x, dense), strict=True))


@jax.jit
def both(a, b, x, weights):
    grad = lambda dense: jax.value_and_grad(functools.partial(loss, dense, weights), (0, 1, 2))
    return grad(False)(a, b, x), grad(True)(a, b, x)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("other", [tj.Diagonal, tj.Symmetric], ids=lambda kind: kind.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_a_program_of_linear_operations(kind, other, data):
    """Values and structural gradients agree with AD of the dense program."""
    a = data.draw(strategies.arrays_of(kind, n=N))
    b = data.draw(strategies.arrays_of(other, n=N))
    x = data.draw(strategies.values((N,)))
    weights = (data.draw(strategies.values((N,))), x, jnp.asarray(0.7))
    ours, theirs = both(a, b, x, weights)
    check = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
    jax.tree.map(check, ours, theirs)


def definite(kind):
    """Strategies of well conditioned matrices of a type, for solving."""
    positive = strategies.values((N,)).map(jnp.abs)
    eye = jnp.eye(N)
    if kind is tj.Diagonal:
        return positive.map(tj.Diagonal)
    if kind is tj.LowRankUpdate:
        return st.builds(tj.LowRankUpdate, positive.map(tj.Diagonal), strategies.values((N, 2)))
    square = strategies.values((N, N)).map(lambda m: m @ m.T / N + eye)
    if kind is tj.Kronecker:
        small = strategies.values((2, 2)).map(lambda m: m @ m.T + jnp.eye(2))
        return st.builds(tj.Kronecker, small, small)
    return square.map(kind)


@jax.jit
def solved(a, b, w):
    def ours(a, b):
        return jnp.sum(w * tj.solve(a, b)) + tj.logdet(a)

    def theirs(a, b):
        dense = tj.destructure(a)
        return jnp.sum(w * jnp.linalg.solve(dense, b)) + jnp.linalg.slogdet(dense).logabsdet

    return [jax.value_and_grad(f, (0, 1))(a, b) for f in (ours, theirs)]


@pytest.mark.parametrize("kind", SOLVED, ids=lambda kind: kind.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_solve_and_logdet(kind, data):
    """Values and structural gradients of `solve` and `logdet` agree with dense AD."""
    a = data.draw(definite(kind))
    b, w = data.draw(strategies.values((N, 2))), data.draw(strategies.values((N, 2)))
    ours, theirs = solved(a, b, w)
    scale = max(1.0, *(float(jnp.max(jnp.abs(v))) for v in jax.tree.leaves(theirs)))
    check = functools.partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-9 * scale)
    jax.tree.map(check, ours, theirs)
