"""Every array type among the parameters of optax, and as a field of an equinox Module."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix
import pytest

import tanjax as tj

TYPES = [t for t in tj.rules.registered_array_types() if t.__module__.startswith("tanjax.")]
TREE = {t.__name__: x for t in TYPES for x in t.examples(tj.testing.Samples(3))[:1]}


@pytest.fixture(autouse=True)
def promotion():
    """Optax counts steps in int32 and raises floats to them."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def loss(tree):
    """Something of every matrix that no symmetry makes constant."""
    terms = []
    for x in tree.values():
        y = x @ jnp.linspace(0.5, 1.0, x.shape[-1]) if len(x.shape) == 2 else tj.linalg.sum(x)
        terms.append(jnp.sum(jnp.sin(jnp.abs(getattr(y, "value", y)))))
    return sum(terms)


def test_the_tree_has_one_of_each():
    assert {"Sparse", "Tridiagonal", "Banded", "Toeplitz", "Permutation", "Kronecker"} <= set(TREE)


@pytest.mark.slow
def test_two_steps_of_adam_stay_in_every_type_and_are_adam_on_the_fields():
    moving, fixed = eqx.partition(TREE, eqx.is_inexact_array)
    optimiser = optax.adam(0.1)
    gradient = jax.grad(lambda moving: loss(eqx.combine(moving, fixed)))
    leaves, tree = jax.tree.flatten(moving)
    gradient_of_leaves = lambda leaves: jax.tree.leaves(gradient(tree.unflatten(leaves)))

    def descend(gradient):
        def step(_, carry):
            params, state = carry
            updates, state = optimiser.update(gradient(params), state, params)
            return optax.apply_updates(params, updates), state

        return jax.jit(lambda p: jax.lax.fori_loop(0, 2, step, (p, optimiser.init(p)))[0])

    after = descend(gradient)(moving)
    assert jax.tree.structure(after) == jax.tree.structure(moving)
    for got, want in zip(jax.tree.leaves(after), descend(gradient_of_leaves)(leaves), strict=True):
        np.testing.assert_array_equal(got, want)
    for name, x in eqx.combine(after, fixed).items():
        assert type(x) is type(TREE[name])
        if name == "Quantity":
            continue
        kept = tj.destructure(jax.tree.map(jnp.asarray, x.canonical()))  # the invariant, too
        np.testing.assert_allclose(tj.destructure(x), kept, rtol=1e-14)


class Model(eqx.Module):
    """All types as fields, beside what else a Module holds."""

    matrices: dict
    bias: jax.Array
    name: str = eqx.field(static=True, default="all")


def test_gradients_of_fields_under_filters_are_structural():
    run = lambda model: loss(model.matrices) * model.bias
    gradient = eqx.filter_jit(eqx.filter_grad(run))(Model(TREE, jnp.array(2.0)))
    for name, bar in gradient.matrices.items():
        assert type(bar) is type(TREE[name])
    np.testing.assert_allclose(gradient.bias, loss(TREE))


def test_an_array_is_the_whole_unknown_and_the_whole_state():
    """Equinox writes `array**ω` for trees, and one array is a tree."""
    start, solver = tj.Diagonal([1.0, 2.0]), optimistix.BFGS(1e-8, 1e-8)
    loss = lambda d, _: tj.trace(d) - tj.logdet(d)
    np.testing.assert_allclose(optimistix.minimise(loss, solver, start).value.diag, 1, rtol=1e-6)
    term = diffrax.ODETerm(lambda t, d, _: -1.0 * d)
    out = diffrax.diffeqsolve(term, diffrax.Euler(), 0.0, 1.0, 0.5, start)
    np.testing.assert_allclose(out.ys.diag, [[0.25, 0.5]])
