"""`lift` on structured arguments: what keeps the structure, what becomes dense, and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj
from comparisons import assert_close, dense_tree

pytestmark = pytest.mark.core

X = jnp.asarray([0.5, -1.0, 2.0])
MATRICES = {
    "Diagonal": tj.Diagonal(jnp.asarray([1.0, 2.0, 4.0])),
    "Symmetric": tj.Symmetric(jnp.asarray([[4.0, 1, 0.5], [1, 5, -1], [0.5, -1, 3]])),
}


@jax.custom_jvp
def doubled(a, x):
    return a @ x


doubled.defjvp(lambda primals, tangents: (doubled(*primals), 2 * tangents[1]))

KEPT = {  # and nothing becomes dense on the way
    "products": lambda a, x: (a @ x, x @ a, a.T @ x, jnp.einsum("ij,j->i", a, x), x @ (a @ x)),
    "sums": lambda a, x: ((a + 2 * a - a / 3) @ x, -a, jnp.sum(a), a.sum(0), jnp.trace(a)),
    "solve": lambda a, x: jnp.linalg.solve(a, x),
    "triangle": lambda a, x: jax.scipy.linalg.solve_triangular(
        jnp.linalg.cholesky(a), x, lower=True
    ),
    "diagonal": lambda a, x: jnp.diagonal(a) * x,
    "conjugate": lambda a, x: (jnp.conj(a), lax.stop_gradient(a) @ x),
    "nested jit": lambda a, x: jax.jit(lambda a, x: jax.jit(jnp.matmul)(a, x) + x)(a, x),
    "checkpoint": lambda a, x: jax.checkpoint(lambda x: jnp.sin(a @ x))(x),
    "gradient": lambda a, x: jax.grad(lambda x: jnp.sum(jnp.sin(a @ x)))(x),
    "branch": lambda a, x: lax.cond(x[0] > 0, lambda a: a @ x, lambda a: 2 * (a @ x), a),
    "branch of types": lambda a, x: lax.cond(x[0] < 0, lambda a: 3 * a, lambda a: -a, a),
    "scan": lambda a, x: lax.scan(lambda c, r: (jnp.sin(a @ c) + r, c), x, jnp.ones((3, 3))),
    "structured carry": lambda a, x: lax.scan(lambda c, _: (c / 2, c @ x), a, None, length=3),
    "fori": lambda a, x: lax.fori_loop(0, 3, lambda _, c: jnp.cos(a @ c), x),
}  # fmt: skip


def both(function, a, x):
    """The value of a program and its gradients, read through the dense arrays."""

    def loss(a, x):
        out = dense_tree(function(a, x))
        return sum(jnp.sum(jnp.sin(v)) for v in jax.tree.leaves(out)), out

    return jax.value_and_grad(loss, (0, 1), has_aux=True)(a, x)


@pytest.mark.slow
@pytest.mark.parametrize("name", MATRICES)
def test_the_structure_is_kept(name):
    """All programs as one: what `lift` gives, what the dense code gives, and the gradients."""
    a = MATRICES[name]
    plain = lambda f: lambda a, x: f(a.to_dense(), x)
    lifted = {k: tj.lift(f) for k, f in KEPT.items()}
    with tj.densify("error"):
        got = jax.jit(lambda a, x: {k: both(f, a, x) for k, f in lifted.items()})(a, X)
    want = jax.jit(lambda a, x: {k: both(plain(f), a, x) for k, f in KEPT.items()})(a, X)
    for key in KEPT:
        assert_close(got[key][0], want[key][0])
        for g, w in zip(got[key][1], want[key][1], strict=True):
            assert_close(g, w, 1e-9)


def test_types_that_come_back():
    loop = lambda a, x: lax.while_loop(lambda c: jnp.sum(c) < 50, lambda c: a @ c + 1, x * x)
    d, s = MATRICES.values()
    for a, factor in ((d, tj.Diagonal), (s, tj.Triangular)):
        assert type(tj.lift(jnp.linalg.cholesky)(a)) is factor
        assert type(tj.lift(jnp.linalg.inv)(a)) is type(a)
        narrow = tj.lift(lambda a: a.astype(jnp.float32))(a)
        assert (type(narrow), narrow.dtype) == (type(a), jnp.float32)
        out, _ = tj.lift(lambda a: lax.scan(lambda c, _: (c / 2, None), a, None, length=2))(a)
        assert type(out) is type(a)
        with tj.densify("error"):
            assert_close(tj.lift(loop)(a, X), loop(a.to_dense(), X))


DENSE = {
    "exp": jnp.exp,
    "no name": lambda a: jnp.vdot(a, a),
    "offset": lambda a: jnp.tril(a, 1),
    "precision": lambda a: jnp.matmul(a, a, preferred_element_type=jnp.float32),
    "carry that changes": lambda a: lax.fori_loop(0, 2, lambda _, c: jnp.cos(c), a),
    "branches that differ": lambda a: lax.cond(a[0, 0] > 0, lambda a: a, jnp.cos, a),
    "rule of its own": lambda a: doubled(a, X),
}


@pytest.mark.parametrize("name", DENSE)
def test_lifted_function_without_a_rule_becomes_dense(name):
    function, a = DENSE[name], MATRICES["Symmetric"]
    with tj.densify("error"), pytest.raises(tj.NoRuleError, match="lift: "):
        tj.lift(function)(a)
    with tj.densify("allow"):
        assert_close(dense_tree(tj.lift(function)(a)), function(a.to_dense()))


def test_a_derivative_of_its_own_is_kept():
    """The rule of `doubled` is not that of its body."""
    a = MATRICES["Diagonal"]
    with tj.densify("allow"):
        got = jax.jacobian(lambda x: tj.lift(doubled)(a, x))(X)
    np.testing.assert_allclose(got, 2 * np.eye(3))
