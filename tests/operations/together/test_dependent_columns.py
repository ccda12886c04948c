"""Low-rank matrices whose factors have columns that depend on each other.

A sum of two of the same, a factor that starts at zero, more columns than rows: the matrix is
nothing special, but the QR decomposition of its factors has no derivative.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

RNG = np.random.default_rng(0)
M, N = 5, 4


def normal(*shape, is_complex=False):
    return jnp.asarray(RNG.normal(size=shape) + (1j * RNG.normal(size=shape) if is_complex else 0))


def dense(x):
    return x.to_dense() if tj.rules.is_structured(x) else x


WEIGHTS = normal(M, N)


def weighted(x):
    return jnp.sum(WEIGHTS * jnp.real(x) + WEIGHTS[::-1] * jnp.imag(x))


def of_vectors(a):
    """`U f(S) Vh`, which no choice of the vectors changes."""
    u, s, vh = tj.linalg.svd(a, False, invariant=True)
    return weighted((u * (jnp.tanh(s) ** 3).astype(u.dtype)) @ vh)


LOSSES = {
    "values": lambda a: jnp.sum(1 - jnp.cos(tj.linalg.svd(a, compute_uv=False))),
    "vectors": of_vectors,
    "spectral norm": lambda a: tj.norm(a, 2),
    "pinv": lambda a: weighted(dense(tj.linalg.pinv(a)).T),
    "lstsq": lambda a: weighted(tj.linalg.lstsq(a, jnp.eye(M, dtype=a.dtype)).T),
}
KINDS = {
    "independent": lambda u: u,
    "twice the same": lambda u: jnp.concatenate([u, u[:, :1]], axis=1),
    "a zero": lambda u: jnp.concatenate([u, 0 * u[:, :1]], axis=1),
    "wide": lambda u: jnp.concatenate([u, u, u], axis=1),
}
EVERY = pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])


def factors(kind, is_complex):
    u = normal(M, 2, is_complex=is_complex)
    return u, normal(N, KINDS[kind](u).shape[1], is_complex=is_complex)


def assert_close(got, want, tolerance):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.isfinite(other).all()
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@EVERY
@pytest.mark.parametrize("kind", ["twice the same", "a zero", "wide"])
@pytest.mark.parametrize("name", ["values", "vectors"])
def test_even_functions_of_zero_values_have_the_gradients_of_the_dense_matrix(
    name, kind, is_complex
):
    """Zero values by themselves have none, so that the kit cannot ask for it."""
    u, v = factors(kind, is_complex)
    both = (tj.LowRank, lambda u, v: u @ v.T)
    run = lambda make: jax.value_and_grad(lambda u, v: LOSSES[name](make(u, v)), (0, 1))
    ours, theirs = (jax.jit(run(make))(KINDS[kind](u), v) for make in both)
    assert_close(ours, theirs, 1e-9)


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("kind", ["independent", "twice the same", "a zero"])
@pytest.mark.parametrize("name", [*LOSSES, "nuclear norm"])
def test_second_derivatives_along_matrices_of_one_rank(name, kind, is_complex):
    """Both ways, by differences of gradients."""
    x, moves = factors(kind, is_complex), factors(kind, is_complex)
    loss = LOSSES.get(
        name, lambda a: tj.norm(a, "nuc")
    )  # another subgradient than of the dense one
    f = lambda u, v: loss(tj.LowRank(KINDS[kind](u), v))
    slope = jax.jit(jax.grad(f, (0, 1)))
    along = lambda *x: jax.jvp(f, x, moves)[1]
    bends = jax.jit(lambda *x: (jax.jvp(slope, x, moves)[1], jax.grad(along, (0, 1))(*x)))(*x)
    ahead, behind = (
        slope(*(a + t * b for a, b in zip(x, moves, strict=True))) for t in (1e-5, -1e-5)
    )
    want = jax.tree.map(lambda a, b: (a - b) / 2e-5, ahead, behind)
    is_smooth = name in ("spectral norm", "pinv", "lstsq") or kind == "independent"
    for bend in bends:  # of others nan is right, too, as of a dense matrix with zero values
        if is_smooth or np.isfinite(bend[0]).all():
            assert_close(bend, want, 1e-6)


@pytest.mark.slow
def test_a_factor_that_starts_at_zero():
    u, v = jnp.zeros((M, 2)), normal(N, 2)
    for name in ("values", "vectors", "pinv", "lstsq"):
        slopes = jax.grad(lambda u, v, f=LOSSES[name]: f(tj.LowRank(u, v)), (0, 1))(u, v)
        assert_close(slopes, (jnp.zeros((M, 2)), jnp.zeros((N, 2))), 1e-12)
    slope = jax.grad(lambda u: tj.norm(tj.LowRank(u, v), "nuc"))(u)
    assert np.isfinite(slope).all()
    assert np.any(slope)
