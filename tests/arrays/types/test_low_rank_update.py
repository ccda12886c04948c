"""The Hermitian update of complex numbers, `u @ u.conj().T`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import Samples

S = Samples(3)
NOISE, CHANNEL, POWER = S.positive(3), S.complex(3, 2), S.positive(2)


def capacity(matrix):
    """Of a channel, and a filter of ones: what is real whichever way it is computed."""
    return lambda noise, channel, power: (
        tj.logdet(matrix(noise, channel, power)),
        jnp.real(jnp.sum(tj.solve(matrix(noise, channel, power), jnp.ones(3, complex)))),
    )


def by_type(noise, channel, power):
    return tj.LowRankUpdate.hermitian(
        tj.Diagonal(noise.astype(complex)), channel, power.astype(complex)
    )


def by_hand(noise, channel, power):
    scaled = channel * power.astype(complex)
    return jnp.diag(noise).astype(complex) + scaled @ channel.conj().T


def test_hermitian_update_has_the_values_and_gradients_of_its_formula():
    def everything(matrix):
        loss = lambda *z: sum(jnp.sin(x) for x in capacity(matrix)(*z))
        slopes = jax.value_and_grad(loss, (0, 1, 2))
        batch = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), (NOISE, CHANNEL, POWER))
        along = lambda *z: jax.jvp(loss, z, z)[1]
        return jax.jit(jax.vmap(lambda *z: (slopes(*z), along(*z))))(*batch)

    for g, e in zip(*map(jax.tree.leaves, map(everything, (by_type, by_hand))), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-12)


def test_hermitian_update_of_a_real_matrix_is_the_symmetric_one_and_takes_batches():
    assert tj.LowRankUpdate.hermitian(tj.Diagonal(NOISE), S.normal(3, 2)).v is None
    batch = tj.LowRankUpdate.hermitian(tj.Identity(3, complex), S.complex(4, 3, 2))
    dense = batch.to_dense()
    assert dense.shape == (4, 3, 3)
    np.testing.assert_allclose(dense, jnp.conj(jnp.swapaxes(dense, 1, 2)), rtol=1e-12)


def test_an_operation_on_hermitian_matrices_points_to_the_hermitian_update():
    update = tj.LowRankUpdate(tj.Diagonal(NOISE.astype(complex)), CHANNEL)
    with pytest.raises(tj.ShapeError, match=r"LowRankUpdate\.hermitian"):
        tj.linalg.eigvalsh(update)
