"""`tj.assert_definite`: the promise after looking, eager and compiled."""

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


def assert_same(found, a):
    assert getattr(found, "unit", None) == getattr(a, "unit", None)
    found, a = (x.stored if isinstance(x, tj.Unitful) else x for x in (found, a))
    np.testing.assert_array_equal(tj.destructure(found), tj.destructure(a))


def broken(name):
    """The same with an eigenvalue below zero."""
    negated = {"Identity": tj.Scaled(tj.Identity(2), -jnp.ones(())), "Scaled": DEFINITE["Scaled"]}
    a = negated.get(name, DEFINITE[name])
    if name == "Scaled":
        return a.replace(factor=-a.factor)
    return a if name == "Identity" else jax.tree.map(jnp.negative, a)


@pytest.mark.parametrize("name", DEFINITE)
def test_a_definite_matrix_passes_and_is_promised(name):
    a = DEFINITE[name]
    with tj.densify("allow"):
        promised = tj.assert_definite(a)
        compiled = jax.jit(tj.assert_definite)(a)
    for found in (promised, compiled):
        assert_same(found, a)
    symmetric = jax.tree.leaves(promised, is_leaf=lambda x: isinstance(x, tj.Symmetric))
    assert all(s.definite for s in symmetric if isinstance(s, tj.Symmetric))


@pytest.mark.parametrize("name", DEFINITE)
def test_another_is_refused(name):
    with tj.densify("allow"), pytest.raises(tj.NotDefiniteError, match="not positive definite"):
        tj.assert_definite(broken(name))


@pytest.mark.parametrize(
    "diagonal", [[1.0, 0.0], [1.0, np.nan], [1.0, -1e-300]], ids=["zero", "nan", "tiny"]
)
def test_the_edge_is_refused(diagonal):
    with pytest.raises(tj.NotDefiniteError):
        tj.assert_definite(tj.Diagonal(np.array(diagonal)))
    with pytest.raises(tj.NotDefiniteError):
        tj.assert_definite(tj.Symmetric(np.diag(diagonal)))


def test_zero_is_refused_while_tracing():
    with pytest.raises(tj.NotDefiniteError):
        jax.jit(tj.assert_definite)(tj.Zero((2, 2)))


def test_in_a_compiled_program_it_says_so_when_run():
    def logdet(a):
        return tj.logdet(tj.assert_definite(a))

    good, bad = DEFINITE["Symmetric"], broken("Symmetric")
    run = jax.jit(logdet)
    np.testing.assert_allclose(run(good), tj.logdet(good), rtol=1e-12)
    with pytest.raises(Exception, match="not positive definite"):
        jax.block_until_ready(run(bad))
    batch = jax.tree.map(lambda g, b: jnp.stack([g, b]), good, bad)
    with pytest.raises(Exception, match="not positive definite"):
        jax.block_until_ready(jax.jit(jax.vmap(logdet))(batch))


def test_the_derivative_is_that_of_the_identity():
    a = DEFINITE["Symmetric"]
    for wrap in (lambda f: f, jax.jit):
        found = wrap(tj.grad(lambda a: tj.logdet(tj.assert_definite(a))))(a)
        np.testing.assert_allclose(
            tj.destructure(found), np.linalg.inv(tj.destructure(a)), rtol=1e-10
        )


@pytest.mark.parametrize(
    "a",
    [np.eye(2), tj.Triangular(np.eye(2)), tj.Fill(1.0, (2, 3)), tj.Diagonal(1j * np.ones(2))],
    ids=["dense", "Triangular", "rectangular", "complex"],
)
def test_types_that_are_not_hermitian_are_refused(a):
    with pytest.raises(tj.ShapeError, match="assert_definite: "):
        tj.assert_definite(a)
