"""Factorizations of low-rank updates: the sum of squares by which `inv_quad` keeps its digits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import Samples

S = Samples(27)
BASES = {
    "Diagonal": tj.Diagonal(S.positive(4)),
    "Symmetric": tj.Symmetric(S.definite(4), definite=True),
    "Triangular": tj.Triangular(S.regular(4)),  # not Hermitian: the sum is not stationary
    "dense": S.definite(4),
}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("d", [None, np.array([0.7, -0.01])], ids=["ones", "d"])
def test_inv_quad_has_every_derivative(base, d):
    """The first derivative holds the minimiser, the second must not."""
    a = tj.LowRankUpdate(BASES[base], S.normal(4, 2), d)
    b = S.normal(4, 2)
    own = lambda a, b: jnp.sin(tj.factorize(a).inv_quad(b))
    dense = lambda a, b: jnp.sin(jnp.sum(b * jnp.linalg.solve(tj.destructure(a), b)))
    tangents = jax.tree.map(jnp.cos, (a, b))

    def first_and_second(f):
        return jax.jit(lambda a, b: jax.jvp(jax.value_and_grad(f, (0, 1)), (a, b), tangents))(a, b)

    for got, want in zip(*map(jax.tree.leaves, map(first_and_second, (own, dense))), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-9)
