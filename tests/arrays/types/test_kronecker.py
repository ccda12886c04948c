"""Products with a Kronecker product, factor by factor: the cheapest order, either side."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

RNG = np.random.default_rng(0)
SHAPES = (
    ((2, 2), (3, 3)),
    ((6, 2), (2, 5)),
    ((1, 4), (4, 1), (3, 3)),
    ((5, 1), (2, 2), (3, 2)),
    ((2, 3), (3, 2), (4, 4)),
)


def multiplications(shapes, order, right):
    """Those of one vector, counted axis by axis."""
    sizes = [s[0] if right else s[1] for s in shapes]
    count = 0
    for i in order:
        m, n = shapes[i]
        count += m * n * np.prod([s for j, s in enumerate(sizes) if j != i])
        sizes[i] = n if right else m
    return count


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_no_order_of_factors_multiplies_less(shapes, right):
    order = tj.Kronecker(*map(jnp.ones, shapes)).cheapest_order(right)
    every = itertools.permutations(range(len(shapes)))
    assert multiplications(shapes, order, right) == min(
        multiplications(shapes, other, right) for other in every
    )


@pytest.mark.parametrize(
    "factors",
    [
        lambda x, y: (x, y, x),
        lambda x, y: (tj.Symmetric(x), y, tj.Diagonal(jnp.diagonal(x))),
        lambda x, y: (y[:, :2], x, y[:2]),
    ],
    ids=["dense", "structured", "rectangular"],
)
def test_products_of_three_factors_have_the_gradients_of_the_dense_product(factors):
    x, y = (jnp.asarray(RNG.normal(size=(n, n))) for n in (2, 3))

    dense = lambda *f: jnp.kron(jnp.kron(*map(tj.destructure, f[:2])), tj.destructure(f[2]))
    sides = lambda a, b: (
        jnp.sum(jnp.sin(a @ b[: a.shape[1]])) + jnp.sum(jnp.sin(b[: a.shape[0]].T @ a))
    )
    b = jnp.asarray(RNG.normal(size=(18, 2)))
    got, expected = (
        jax.jit(jax.value_and_grad(lambda x, y, b, f=f: sides(f(*factors(x, y)), b), (0, 1, 2)))(
            x, y, b
        )
        for f in (tj.Kronecker, dense)
    )
    for g, e in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-12)
