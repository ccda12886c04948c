"""Blocks that are not square: what is asked of the whole is asked of the blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import Samples

ODD = ((3, 1), (2, 4), (2, 3), (0, 1), (2, 0))  # shapes of blocks; together 9 by 9


@pytest.mark.parametrize(
    ("ask", "define"),
    [
        (lambda a: a.diagonal(), jnp.diagonal),
        (tj.trace, jnp.trace),
        (lambda a: a.submatrix(slice(2, 6), slice(0, 6)), lambda d: d[2:6, :6]),  # across blocks
        (lambda a: a.submatrix(slice(0, 2), slice(5, 8)), lambda d: d[:2, 5:8]),  # between blocks
        (lambda a: a.submatrix(slice(3, 5), slice(1, 5)), lambda d: d[3:5, 1:5]),  # a block
    ],
)
def test_queries_of_rectangular_blocks_form_no_array_of_the_whole(ask, define):
    s = Samples(0)
    a = tj.BlockDiagonal(*(s.normal(*shape) for shape in ODD))
    np.testing.assert_array_equal(tj.destructure(ask(a)), define(a.to_dense()))
    loss = lambda a: jnp.sum(jnp.sin(tj.destructure(ask(a))))
    by_query = jax.grad(loss)(a)
    by_array = jax.grad(lambda a: jnp.sum(jnp.sin(define(a.to_dense()))))(a)
    jax.tree.map(np.testing.assert_allclose, by_query, by_array)
    assert "[9,9]" not in str(jax.make_jaxpr(lambda a: tj.destructure(ask(a)))(a))
