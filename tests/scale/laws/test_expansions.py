"""Sparse products and reductions by a user's function: programs to the graph, at any magnitude."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import sparse

import tanjax as tj

pytestmark = pytest.mark.core

DENSE = np.float32([[1.5, 0, 2, 0], [0, 3, 0, -1], [0.5, 0, 0, 2]])
M = sparse.BCOO.fromdense(DENSE, index_dtype=np.int32)
ROWS = sparse.BCSR.fromdense(DENSE, index_dtype=np.int32)
V = np.float32([1, -2, 0.5, 3])


def of(data):
    return sparse.BCOO((data, M.indices), shape=M.shape)


def of_rows(data):
    return sparse.BCSR((data, ROWS.indices, ROWS.indptr), shape=ROWS.shape)


def norm(x):
    """Of numbers whose squares no float32 holds."""
    return jnp.sqrt(jnp.sum(x * x))


SPARSE = {
    "vector": lambda d, v: norm(of(d) @ v),
    "left": lambda d, v: norm(v[:3] @ of(d)),
    "matrix": lambda d, v: norm(of(d) @ jnp.stack([v, 2 * v], 1)),
    "sparse": lambda d, v: jnp.sqrt(norm((of(d) @ of(d).T).todense()) + v[0] * v[0] * 0),
    "dense": lambda d, v: norm(of(d).todense()) + 0 * v[0],
    "sum": lambda d, v: norm(of(d).sum(0).todense()) + 0 * v[0],
    "duplicates": lambda d, v: norm(of(d).sum_duplicates(nse=6).data) + 0 * v[0],
    "from dense": lambda d, v: norm(sparse.BCOO.fromdense(jnp.outer(d, v), nse=24).data) / v[0],
    "slope": lambda d, v: norm(jax.grad(lambda d: jnp.sum((of(d) @ v) ** 2))(d) / v[0]),
    "rows": lambda d, v: norm(of_rows(d) @ v),
}


def in_double(f, *args):
    with jax.enable_x64(True):
        return np.asarray(f(*(jnp.asarray(x, jnp.float64) for x in args)))


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_matrices_are_planned(name, size):
    f = SPARSE[name]
    # Products of the entries of two operands: only one of them is large or small.
    scaled = np.float32(M.data * np.float32(1.0 if name in ("from dense", "slope") else size))
    vector = V * np.float32(size if name in ("from dense", "slope") else 1.0)
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("error")
        got = tj.jit(f)(scaled, vector)
        want = in_double(f, scaled, vector)
    np.testing.assert_allclose(np.asarray(got, float), want, 1e-5)


def test_sparse_matrices_in_range_run_as_in_jax():
    f = lambda d, v: of(d) @ v
    np.testing.assert_array_equal(tj.jit(f)(M.data, V), jax.jit(f)(M.data, V))


def with_largest(x):
    """The sum of squares and the largest entry, by one reduction."""
    start = jnp.zeros((), x.dtype)
    combine = lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1]))
    total, largest = lax.reduce((x * x, x), (start, start), combine, (1,))
    return jnp.stack([jnp.sqrt(total), largest])


REDUCTIONS = {
    "hypot": lambda x: lax.reduce(x, jnp.zeros((), x.dtype), jnp.hypot, (0,)),
    "both axes": lambda x: lax.reduce(x, jnp.zeros((), x.dtype), jnp.hypot, (1, 0)),
    "several": with_largest,
    "nothing": lambda x: lax.reduce(x[:0], x[0, 0], jnp.hypot, (0,)),
    "logaddexp": lambda x: x[0] * lax.reduce(x / x[0], x[0, 0] * 0, jnp.logaddexp, (0,)),
}


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_by_a_function_of_the_users_are_planned(name, size):
    f = REDUCTIONS[name]
    x = np.float32(np.random.default_rng(1).uniform(1, 2, (5, 3))) * np.float32(size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = tj.jit(f)(x)
    np.testing.assert_allclose(np.asarray(got, float), in_double(f, x), 1e-5)
