"""Compare a structured computation with plain JAX on dense arrays, in every mode at once."""

import jax
import jax.numpy as jnp
import numpy as np

import tanjax as tj

FLOAT0 = jax.dtypes.float0


def densely(function):
    """Return the same function on dense arrays, which JAX differentiates without any rule."""

    def dense(*args):
        return function(*jax.tree.map(to_dense, args, is_leaf=tj.rules.is_structured))

    return dense


def to_dense(x):
    return tj.destructure(x) if tj.rules.is_structured(x) else x


def dense_tree(tree):
    """Return a tree with its structured arrays densified."""
    return jax.tree.map(to_dense, tree, is_leaf=tj.rules.is_structured)


def assert_close(got, want, tolerance=1e-10):
    """Assert the same tree, shapes and dtypes, and values up to a tolerance."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.shape(g) == np.shape(w)
        assert jnp.result_type(g) == jnp.result_type(w)
        if jnp.result_type(w) != FLOAT0:
            g, w = (
                np.asarray(v, np.promote_types(v.dtype, np.float32))
                for v in map(np.asarray, (g, w))
            )
            np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


def assert_same_gradient(ours, theirs, *args, tolerance=1e-9):
    """Assert the same value and gradient of two functions, each compiled whole."""
    got = jax.jit(jax.value_and_grad(ours))(*args)
    want = jax.jit(jax.value_and_grad(theirs))(*args)
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, atol=tolerance), got, want)


def wave(tree, phase=0.3):
    """Return a tree of the same kind with fixed numbers without symmetry in inexact leaves."""
    leaves, treedef = jax.tree.flatten(tree)

    def leaf(i, p):
        if not jnp.issubdtype(jnp.result_type(p), jnp.inexact):
            return np.zeros(np.shape(p), FLOAT0)
        values = np.cos(phase + 0.6 * i + 1.7 * np.arange(np.size(p))).reshape(np.shape(p))
        if jnp.iscomplexobj(p):
            values = values + 1j * np.sin(2.1 + values)
        return jnp.asarray(values, jnp.result_type(p))

    return treedef.unflatten([leaf(i, p) for i, p in enumerate(leaves)])


def scalar(function):
    """Return a curved scalar of all results of a function, read through the arrays."""

    def loss(*args):
        leaves = jax.tree.leaves(dense_tree(function(*args)))
        terms = [jnp.sum(jnp.real(wave(x, 0.9) * x * (1 + x))) for x in leaves]
        return sum(terms[1:], terms[0])

    return loss


def derivatives(function, *args):
    """Return value, gradient, jvp, and the three orders of second derivatives on one direction."""
    loss, where = scalar(function), tuple(range(len(args)))
    gradient = jax.grad(loss, where)

    def run(args, tangents):
        along = lambda *a: tj.tangents.inner_product(gradient(*a), tangents)
        value, moved = jax.jvp(lambda *a: dense_tree(function(*a)), args, tangents)
        return {
            "value": value,
            "jvp": moved,
            "grad": gradient(*args),
            "forward over reverse": jax.jvp(gradient, args, tangents)[1],
            "reverse over forward": jax.grad(lambda *a: jax.jvp(loss, a, tangents)[1], where)(
                *args
            ),
            "reverse over reverse": jax.grad(along, where)(*args),
        }

    return jax.jit(run)(args, tuple(wave(a, 0.1 + i) for i, a in enumerate(args)))


def assert_same_derivatives(function, reference, *args, tolerance=1e-10):
    """Assert the values and derivatives of the plain dense `reference`, in every mode."""
    got, want = (derivatives(f, *args) for f in (function, densely(reference)))
    for name in want:
        try:
            assert_close(got[name], want[name], tolerance)
        except AssertionError as error:
            error.add_note(f"in: {name}")
            raise


class Counter:
    """Count the calls of a function (under JAX: its traces)."""

    def __init__(self):
        self.count = 0

    def __call__(self):
        self.count += 1
