"""The symmetric part of a product: one product of twice the width, or a sum, by shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("columns", [2, 40])
def test_symmetric_part_of_an_outer_product_is_that_of_the_dense_one(columns):
    left, right = (jnp.asarray(RNG.normal(size=(2, 3, columns))) for _ in range(2))
    like = tj.Symmetric(jnp.zeros((3, 3)))

    def by_map(left, right):
        return tj.tangents.pullback_of_destructure(like)(tj.Outer(left, right)).data

    def by_hand(left, right):
        product = left @ right.T
        return (product + product.T) / 2

    def everything(f):
        value = jax.vmap(f)
        loss = lambda *z: jnp.sum(jnp.sin(value(*z)))
        slopes = lambda *z: jax.jvp(jax.grad(loss, (0, 1)), z, z)
        return jax.jit(lambda *z: (value(*z), slopes(*z)))(left, right)

    for g, e in zip(*map(jax.tree.leaves, map(everything, (by_map, by_hand))), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-12)
