"""The pseudo-inverse against that of JAX: another rule, and other products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

RNG = np.random.default_rng(0)
WIDE, FACTOR = RNG.normal(size=(3, 5)), RNG.normal(size=(4, 2))
MATRICES = {
    "wide": WIDE,
    "tall and complex": (WIDE + 1j * RNG.normal(size=(3, 5))).T,
    "rank 2": FACTOR @ RNG.normal(size=(2, 3)),
    "batch": RNG.normal(size=(2, 3, 2)),
    "equal singular values": 2 * np.linalg.qr(RNG.normal(size=(4, 4)))[0],
}


@pytest.mark.parametrize("name", MATRICES)
def test_both_derivatives_are_those_of_jax(name):
    a = jnp.asarray(MATRICES[name])
    # Within the rank: across it the inverse is not continuous.
    a_dot = a @ jnp.asarray(RNG.normal(size=(a.shape[-1],) * 2)).astype(a.dtype)

    def measured(inverse):
        loss = lambda x: jnp.sum(jnp.sin(jnp.abs(inverse(x, rtol=1e-9)) ** 2))
        slope = lambda x: jax.jvp(loss, (x,), (a_dot,))[1]
        return loss(a), slope(a), jax.grad(loss)(a), jax.grad(slope)(a)

    for ours, theirs in zip(*map(measured, (tj.pinv, jnp.linalg.pinv)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("a", [jnp.eye(2), tj.Diagonal(jnp.ones(2))], ids=["dense", "diagonal"])
def test_tolerances_are_python_numbers(a):
    for call in (
        lambda rtol: tj.pinv(a, rtol),
        lambda rtol: tj.matrix_rank(a, rtol=rtol),
        lambda rtol: tj.lstsq(a, jnp.ones(2), rcond=rtol),
    ):
        for wrong in ("x", jnp.ones(2), jnp.asarray(0.1)):
            with pytest.raises(TypeError, match=r"is static, a real number.*\n.*float"):
                call(wrong)
        with pytest.raises(TypeError, match="is static, a real number"):
            jax.jit(call)(0.1)
        call(np.float64(0.1))
