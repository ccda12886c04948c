"""Blocks that are not square: what is asked of the whole is asked of the blocks."""

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj


@pytest.mark.parametrize(
    "ask",
    [
        lambda a: a.diagonal(),
        tj.trace,
        lambda a: a.submatrix(slice(2, 6), slice(0, 6)),  # across blocks
        lambda a: a.submatrix(slice(0, 2), slice(5, 8)),  # between blocks
        lambda a: a.submatrix(slice(3, 5), slice(1, 5)),  # a block
    ],
)
def test_queries_of_rectangular_blocks_form_no_array_of_the_whole(ask):
    shapes = ((3, 1), (2, 4), (2, 3), (0, 1), (2, 0))  # together 9 by 9
    a = tj.BlockDiagonal(*map(jnp.ones, shapes))
    assert "[9,9]" not in str(jax.make_jaxpr(lambda a: tj.destructure(ask(a)))(a))
