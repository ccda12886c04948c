"""The cases to which every JAX transformation is applied: shipped rules, an own rule, an own type.

Each case is a function of a structured matrix and a vector, next to the same lines of plain JAX on
dense arrays; a transformation is applied to both, and the results must agree.
"""

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj
from comparisons import assert_close, densely, wave

N = 4


@tj.operation
def quadratic(a, x):
    return x @ (a @ x) * x


@quadratic.implementation(tj.Diagonal, tj.Dense)
def _(a, x):
    return jnp.sum(a.diag * x * x) * x


@quadratic.natural_rule
def quadratic_rule(a, x):
    inner = x @ (a @ x)

    def quadratic_pullback(y_bar):
        along = y_bar @ x
        return tj.Outer(along * x, x), inner * y_bar + along * (a @ x + a.mT @ x)

    return quadratic.primal(a, x), quadratic_pullback


@tj.register_array_type
class Powers(tj.AbstractArray):
    """A Vandermonde matrix, with nothing but `to_dense`."""

    points: jax.Array
    degree: int = tj.static_field()

    def to_dense(self):
        return self.points[:, None] ** jnp.arange(self.degree, dtype=self.points.dtype)


def matrix():
    return wave(jnp.zeros((N, N))) + 3 * jnp.eye(N)


CASES = {
    "matmul, Triangular": (tj.matmul, jnp.matmul, lambda: tj.Triangular(matrix())),
    "solve, Symmetric": (tj.solve, jnp.linalg.solve, lambda: tj.Symmetric(matrix())),
    "solve, LowRankUpdate": (
        tj.solve,
        jnp.linalg.solve,
        lambda: tj.LowRankUpdate(tj.Diagonal(jnp.arange(2.0, 2 + N)), matrix()[:, :2]),
    ),
    "own rule, Diagonal": (
        quadratic,
        lambda a, x: x @ (a @ x) * x,
        lambda: tj.Diagonal(jnp.arange(1.0, 1 + N)),
    ),
    "own rule, own type": (
        quadratic,
        lambda a, x: x @ (a @ x) * x,
        lambda: Powers(0.5 + jnp.arange(1.0, 1 + N) / N, N),
    ),
}
every_case = pytest.mark.parametrize("case", CASES)


def load(case):
    function, reference, make = CASES[case]
    return function, reference, (make(), 1 + wave(jnp.zeros(N), 1.1))


def assert_agree(case, transform, tolerance=1e-10):
    """Apply a transformation to the case and to its dense code."""
    function, reference, args = load(case)
    with tj.densify("allow"):
        got = jax.jit(transform(function))(*args)
    assert_close(got, jax.jit(transform(densely(reference)))(*args), tolerance)


def stack(tree, axis=0):
    """A batch of three."""
    return jax.tree.map(lambda v: jnp.stack([v, 1.1 * v, 0.9 * v], axis), tree)
