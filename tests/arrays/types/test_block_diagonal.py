"""Blocks that are not square: what is asked of the whole is asked of the blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import Samples

ODD = ((3, 1), (2, 4), (2, 3), (0, 1))  # shapes of blocks; together 7 by 9


def blocks(s):
    return tj.BlockDiagonal(*(s.normal(*shape) for shape in ODD))


QUESTIONS = {
    "diagonal": (lambda a: a.diagonal(), jnp.diagonal),
    "trace": (tj.trace, jnp.trace),
    "across blocks": (
        lambda a: a.submatrix(slice(2, 6), slice(0, 6)),
        lambda d: d[2:6, :6],
    ),
    "between blocks": (
        lambda a: a.submatrix(slice(0, 2), slice(5, 8)),
        lambda d: d[:2, 5:8],
    ),
    "a block": (lambda a: a.submatrix(slice(3, 5), slice(1, 5)), lambda d: d[3:5, 1:5]),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_array_of_the_whole(name):
    ask, define = QUESTIONS[name]
    a = blocks(Samples(0))
    np.testing.assert_array_equal(tj.destructure(ask(a)), define(a.to_dense()))
    program = str(jax.make_jaxpr(lambda a: tj.destructure(ask(a)))(a))
    assert f"[{','.join(map(str, a.shape))}]" not in program


def test_derivatives_of_the_diagonal():
    a = blocks(Samples(1))
    weights = jnp.cos(jnp.arange(7.0))
    by_query = jax.grad(lambda a: jnp.sum(weights * jnp.sin(a.diagonal())))(a)
    by_array = jax.grad(lambda a: jnp.sum(weights * jnp.sin(jnp.diagonal(a.to_dense()))))(a)
    for got, want in zip(by_query.blocks, by_array.blocks, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
