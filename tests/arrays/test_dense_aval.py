"""The shape of an array whose type does not say it: one, a batch, a batch of batches."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj


@tj.register_array_type(linear=True, injective=True)
class Corner(tj.AbstractArray):
    """Numbers in the first row of a square; of a batch `to_dense` would form one matrix."""

    row: jax.Array
    n: int = tj.rules.static_field()
    core_ndim = 2

    def to_dense(self):
        return jnp.zeros((self.n, self.n), self.row.dtype).at[0].set(self.row)


@tj.register_array_type
class Turned(tj.AbstractArray):
    """Of a batch `to_dense` fails."""

    v: jax.Array

    def to_dense(self):
        return jnp.eye(self.v.shape[0]) - jnp.outer(self.v, self.v)


@tj.register_array_type
class Nested(tj.AbstractArray):
    inner: Corner
    shift: jax.Array

    def to_dense(self):
        return self.inner.to_dense() + self.shift


MAKE = {
    "one field": lambda v: Corner(v, 3),
    "fails on a batch": Turned,
    "nested": lambda v: Nested(Corner(v, 3), v[0]),
}


@pytest.mark.parametrize("name", MAKE)
def test_the_shape_of_a_batch_has_its_leading_axes(name):
    make, rows = MAKE[name], jnp.arange(24.0).reshape(4, 2, 3)
    assert make(rows[0, 0]).shape == (3, 3)
    batch = jax.vmap(make)(rows[0])
    assert batch.shape == (2, 3, 3)
    assert batch.ndim == 3
    assert batch.dtype == rows.dtype
    assert jax.vmap(jax.vmap(make))(rows).shape == (4, 2, 3, 3)
    inside = []
    jax.vmap(lambda x: inside.append(x.shape) or x)(batch)
    assert inside == [(3, 3)]
    assert jax.tree.map(lambda v: v[0], batch).shape == (3, 3)
    assert pickle.loads(pickle.dumps(make(rows[0, 0]))).shape == (3, 3)


def test_operations_take_a_batch():
    """Of a type that says nothing of batches, as `jax.vmap` gives it."""
    batch = jax.vmap(MAKE["one field"])(jnp.arange(6.0).reshape(2, 3))
    with tj.densify("allow"):
        for mapped in (batch @ jnp.ones(3), jax.vmap(lambda a: a @ jnp.ones(3))(batch)):
            np.testing.assert_array_equal(mapped, [[3.0, 0.0, 0.0], [12.0, 0.0, 0.0]])
    dense = [[[0.0, 1, 2], [0, 0, 0], [0, 0, 0]], [[3, 4, 5], [0, 0, 0], [0, 0, 0]]]
    np.testing.assert_array_equal(batch.to_dense(), dense)


@tj.register_array_type
class Either(tj.AbstractArray):
    """Takes a row or a whole matrix: what its constructor took is one array."""

    data: jax.Array

    def to_dense(self):
        return self.data if self.data.ndim == 2 else self.data[None]


def test_fields_of_several_ranks():
    assert Either(jnp.ones(3)).shape == (1, 3)
    assert Either(jnp.ones((2, 3))).shape == (2, 3)
