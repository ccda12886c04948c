"""Properties of the four maps, for every built-in array type."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tanjax as tj
from tanjax.testing import strategies

TYPES = [tj.Diagonal, tj.Symmetric, tj.Hermitian, tj.Triangular, tj.Fill, tj.Scaled, tj.LowRank]
TYPES += [
    tj.LowRankUpdate,
    tj.Kronecker,
    tj.BlockDiagonal,
    tj.Outer,
    tj.tangents.Masked,
    tj.tangents.Sum,
]
by_type = pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
N = 4  # one shape: the values vary, and JAX compiles once


def assert_close(got, expected, scale=1.0):
    """Agreement to rounding, relative to a scale that the test knows."""
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-10 * max(1.0, float(scale)))


def vectors(x):
    """Structural tangents of `x`."""
    leaves, tree = jax.tree.flatten(x)
    drawn = st.tuples(*(strategies.values(leaf.shape) for leaf in leaves))
    return drawn.map(lambda values: jax.tree.unflatten(tree, values))


@jax.jit
def maps(x, t, y):
    """Everything that the properties compare, compiled once per type."""
    pushed = tj.destructure(tj.tangents.pushforward_of_destructure(x)(t))
    pulled = tj.tangents.pullback_of_destructure(x)(y)
    natural = tj.destructure(tj.tangents.natural(x, pulled))
    return {
        "pushed": pushed,
        "pulled": pulled,
        "natural": natural,
        "again": tj.destructure(tj.tangents.natural(x, tj.tangents.structural(x, natural))),
        "projected": tj.destructure(tj.tangents.project(x, y)),
        "definition": jax.jvp(tj.destructure, (x,), (t,))[1],
        "visible": tj.tangents.is_visible(x, pulled, tolerance=1e-5),
        "round": tj.tangents.restructure(x, tj.destructure(x)),
    }


@by_type
@settings(max_examples=25)
@given(data=st.data())
def test_maps_fit_together_and_storage_is_kept(kind, data):
    """J is the derivative of D, Jᵀ its adjoint, and J⁺ᵀ Jᵀ the projection on the tangent space."""
    x = data.draw(strategies.arrays_of(kind, n=N))
    t = data.draw(vectors(x))
    y = data.draw(strategies.values((N, N)))
    out = maps(x, t, y)
    assert_close(out["pushed"], out["definition"])
    assert_close(tj.tangents.inner_product(out["pulled"], t), jnp.sum(y * out["pushed"]))
    assert bool(out["visible"])
    scale = jnp.max(jnp.abs(y))
    # An ill-conditioned draw costs the default J⁺ the square of its condition.
    loose = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4 * float(scale))
    loose(out["again"], out["natural"])
    loose(out["natural"], out["projected"])
    loose(jnp.sum(out["natural"] * out["pushed"]), jnp.sum(y * out["pushed"]))
    jax.tree.map(assert_close, out["round"], x)
    jax.tree.map(assert_close, x.canonical(), x)
    junk = t.canonical()
    jax.tree.map(assert_close, junk.canonical(), junk)


@by_type
@settings(max_examples=10)
@given(data=st.data())
def test_degenerate_values_keep_the_pairing(kind, data):
    """Equal entries, zeros and rank drops: still finite, still adjoint."""
    x = data.draw(strategies.arrays_of(kind, n=N, degenerate=True))
    t = data.draw(vectors(x))
    y = data.draw(strategies.values((N, N)))
    out = maps(x, t, y)
    assert_close(tj.tangents.inner_product(out["pulled"], t), jnp.sum(y * out["pushed"]))
    assert np.all(np.isfinite(out["natural"]))
