"""Types that say little of themselves: `to_dense`, perhaps one query, and every operation is right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj


@pytest.fixture(autouse=True)
def quiet():
    with tj.densify("allow"):
        yield


@tj.register_array_type
class OnlyDense(tj.AbstractArray):
    points: jax.Array

    def to_dense(self):
        return self.points[:, None] ** jnp.arange(3, dtype=self.points.dtype)


@tj.register_array_type(linear=True, injective=True)
class OnlyApply(tj.AbstractArray):
    rows: jax.Array

    def to_dense(self):
        return jnp.tile(self.rows[:, None], (1, 3))

    def apply(self, b):
        return jnp.tensordot(self.rows, jnp.sum(b, axis=0), 0)


@tj.register_array_type
class DenseTransposed(tj.AbstractArray):
    data: jax.Array

    def to_dense(self):
        return jnp.sin(self.data)

    def transposed(self):
        return jnp.sin(self.data).T


NUMBERS = np.random.default_rng(3)
MINIMAL = [
    OnlyDense(jnp.asarray(NUMBERS.normal(size=3))),
    OnlyApply(jnp.asarray(NUMBERS.normal(size=3))),
    DenseTransposed(jnp.asarray(NUMBERS.normal(size=(3, 3)))),
]
X = NUMBERS.normal(size=3)
M = NUMBERS.normal(size=(2, 3))
DIAGONAL = tj.Diagonal(NUMBERS.normal(size=3))
USES = {
    "vector @ a": lambda a: X @ a,
    "jnp vector @ a": lambda a: jnp.asarray(X) @ a,
    "matrix @ a": lambda a: M @ a,
    "np.dot": lambda a: np.dot(X, a) if not isinstance(a, jax.Array) else X @ a,
    "a.mT @ x": lambda a: a.mT @ X,
    "a @ a": lambda a: tj.destructure(a @ a),
    "a @ diagonal": lambda a: tj.destructure(a @ DIAGONAL),
    "diagonal @ a": lambda a: tj.destructure(DIAGONAL @ a),
    "columns": lambda a: tj.sum(a, axis=0),
    "rows": lambda a: tj.sum(a, axis=1),
    "vmap": lambda a: jax.vmap(lambda x: x @ a)(jnp.asarray(M)),
    "quadratic": lambda a: tj.quadratic_form(a, jnp.asarray(X)),
    "dot": lambda a: tj.dot(a, DIAGONAL),
    "by its argument": lambda a: jax.grad(lambda x: jnp.sum(jnp.sin(a @ x)))(jnp.asarray(X)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("a", MINIMAL, ids=lambda a: type(a).__name__)
def test_operations_are_right_on_types_that_say_little(a, use):
    function = USES[use]
    np.testing.assert_allclose(function(a), function(a.to_dense()), rtol=1e-12)
    by_rule, by_ad = (
        jax.grad(lambda a: jnp.sum(jnp.sin(function(form(a)))))(a)
        for form in (lambda a: a, lambda a: a.to_dense())
    )
    for got, want in zip(*map(jax.tree.leaves, (by_rule, by_ad)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10)
