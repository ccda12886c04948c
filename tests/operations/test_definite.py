"""`tj.linalg.assert_definite`: the promise after looking, eager and compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import Samples

S = Samples(11)
DEFINITE = {
    "Symmetric": tj.Symmetric(S.definite(3)),
    "Hermitian": tj.Hermitian(S.definite(2, complex=True)),
    "Diagonal": tj.Diagonal(S.positive(3)),
    "Identity": tj.Identity(2),
    "SymTridiagonal": tj.SymTridiagonal(S.positive(3) + 4, S.normal(2)),
    "Scaled": tj.Scaled(tj.Symmetric(S.definite(2)), jnp.asarray(2.0)),
    "Kronecker": tj.Kronecker(tj.Symmetric(S.definite(2)), tj.Diagonal(S.positive(2))),
    "BlockDiagonal": tj.BlockDiagonal(tj.Symmetric(S.definite(2)), tj.Diagonal(S.positive(1))),
    "quantity": tj.Symmetric(S.definite(3)) * tj.unit("m"),
}


def broken(name):
    """The same with an eigenvalue below zero."""
    a = DEFINITE[name]
    if name == "Identity":
        return tj.Scaled(a, -jnp.ones(()))
    return a.replace(factor=-a.factor) if name == "Scaled" else jax.tree.map(jnp.negative, a)


@pytest.mark.parametrize("name", DEFINITE)
def test_a_definite_matrix_passes_and_is_promised(name):
    a = DEFINITE[name]
    with tj.densify("allow"):
        promised = tj.linalg.assert_definite(a)
        for found in (promised, jax.jit(tj.linalg.assert_definite)(a)):
            assert getattr(found, "unit", None) == getattr(a, "unit", None)
            found, want = (x.stored if isinstance(x, tj.Quantity) else x for x in (found, a))
            np.testing.assert_array_equal(tj.destructure(found), tj.destructure(want))
        with pytest.raises(tj.errors.NotDefiniteError, match="not positive definite"):
            tj.linalg.assert_definite(broken(name))
    symmetric = jax.tree.leaves(promised, is_leaf=lambda x: isinstance(x, tj.Symmetric))
    assert all(s.definite for s in symmetric if isinstance(s, tj.Symmetric))


@pytest.mark.parametrize("last", [0.0, np.nan, -1e-300])
def test_a_matrix_at_the_edge_is_refused(last):
    for a in (tj.Diagonal(np.array([1.0, last])), tj.Symmetric(np.diag([1.0, last]))):
        with pytest.raises(tj.errors.NotDefiniteError):
            tj.linalg.assert_definite(a)
    with pytest.raises(tj.errors.NotDefiniteError):  # while tracing
        jax.jit(tj.linalg.assert_definite)(tj.Zero((2, 2)))


def test_a_compiled_program_refuses_when_it_runs():
    def logdet(a):
        return tj.logdet(tj.linalg.assert_definite(a))

    good, bad = DEFINITE["Symmetric"], broken("Symmetric")
    run = jax.jit(logdet)
    np.testing.assert_allclose(run(good), tj.logdet(good), rtol=1e-12)
    with pytest.raises(Exception, match="not positive definite"):
        jax.block_until_ready(run(bad))
    batch = jax.tree.map(lambda g, b: jnp.stack([g, b]), good, bad)
    with pytest.raises(Exception, match="not positive definite"):
        jax.block_until_ready(jax.jit(jax.vmap(logdet))(batch))
    for gradient in (tj.grad(logdet), jax.jit(tj.grad(logdet))):
        inverse = np.linalg.inv(tj.destructure(good))
        np.testing.assert_allclose(tj.destructure(gradient(good)), inverse, rtol=1e-10)


@pytest.mark.parametrize(
    "a",
    [np.eye(2), tj.Triangular(np.eye(2)), tj.Fill(1.0, (2, 3)), tj.Diagonal(1j * np.ones(2))],
    ids=["dense", "Triangular", "rectangular", "complex"],
)
def test_types_that_are_not_hermitian_are_refused(a):
    with pytest.raises(tj.ShapeError, match="assert_definite: "):
        tj.linalg.assert_definite(a)
