"""The mode that finds arrays whose stored entries contradict each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import CheckFailure, check_storage

SYMMETRIC = tj.Symmetric(jnp.array([[2.0, 1.0], [1.0, 3.0]]))
B = jnp.ones(2)


def moved(x, seed=0):
    """Every stored number by itself, as a sampler does."""
    noise = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + 0.1 * noise.normal(size=leaf.shape), x)


BROKEN = moved(SYMMETRIC)
CALLS = {
    "operation": lambda x: tj.solve(x, B),
    "operator": lambda x: x @ B,
    "jit": jax.jit(lambda x: tj.logdet(x)),
    "loop": jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, v: v + tj.trace(x @ x), 0.0)),
    "gradient": jax.grad(lambda x: tj.logdet(x)),
    "tj.jit": lambda x: tj.jit(lambda x: tj.logdet(x))(x),
    "in a product": lambda x: tj.logdet(tj.Kronecker(x, tj.Diagonal(B))),
    "quantity": lambda x: tj.trace(x * tj.unit("m")),
    "batch": jax.vmap(lambda x: tj.logdet(x)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_contradiction_is_found_where_an_operation_reads_it(name):
    batched = lambda x: jax.tree.map(lambda v: jnp.stack([SYMMETRIC.data, v]), x)
    good, bad = (batched(x) if name == "batch" else x for x in (SYMMETRIC, BROKEN))
    CALLS[name](good)  # compiled before
    with check_storage():
        CALLS[name](good)
    with pytest.raises(CheckFailure, match="contradict each other") as caught, check_storage():
        CALLS[name](bad)
    assert "test_storage.py" in str(caught.value)
    CALLS[name](bad)  # not looked at any more


@pytest.mark.parametrize("kind", ["Hermitian", "Triangular", "Banded"])
def test_every_redundant_storage_is_looked_at(kind):
    full = np.array([[2.0, 1.0, 0.0], [0.5, 3.0, 1.0], [0.0, 0.5, 4.0]])
    x = {
        "Hermitian": tj.Hermitian(full),
        "Triangular": tj.Triangular(full),
        "Banded": tj.Banded(np.ones((3, 3)), 1, 1),
    }[kind]
    with check_storage():
        x @ np.ones(3)
    with pytest.raises(CheckFailure, match=kind), check_storage():
        moved(x) @ np.ones(3)


def test_steps_of_an_optimiser_and_what_free_numbers_give_pass():
    to_vector, from_vector, _ = tj.tangents.free_coordinates(SYMMETRIC)
    loss = lambda x: jnp.sum((x @ B) ** 2) - tj.logdet(x)
    with check_storage():
        x = jax.tree.map(lambda p, g: p - 0.01 * g, SYMMETRIC, jax.grad(loss)(SYMMETRIC))
        assert np.isfinite(loss(x))
        assert np.isfinite(loss(from_vector(to_vector(x) + 0.3)))
        nothing = jax.tree.map(lambda v: v * jnp.nan, SYMMETRIC)  # not a matter of storage
        assert np.isnan(tj.logdet(nothing))
