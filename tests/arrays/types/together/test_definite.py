"""The promise of definiteness: who keeps it, who forgets it, and what it is used for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

DATA = np.array([[2.0, 0.5], [0.5, 1.0]])


@pytest.mark.parametrize("kind", [tj.Symmetric, tj.Hermitian])
def test_promise_survives_only_where_it_must_hold(kind):
    """Sums and inverses stay definite; scalings, differences and tangents may not be."""
    a, plain = kind(DATA, definite=True), kind(DATA)
    assert (a + a).definite
    assert tj.inv(a).definite
    assert (a + tj.Identity(2, DATA.dtype)).definite
    assert not (a + plain).definite
    assert not (-1.0 * a).definite
    assert not (a - a).definite
    assert not (a + tj.Diagonal([-3.0, 0.0])).definite
    assert not tj.grad(tj.logdet)(a).definite


def test_a_broken_promise_is_nan():
    """A compiled program cannot raise, so the result says it."""
    assert np.isnan(tj.logdet(tj.Symmetric([[1.0, 2.0], [2.0, 1.0]], definite=True)))


def test_complex_symmetric_cannot_be_definite():
    """The error points to the type that can."""
    with pytest.raises(tj.RegistrationError, match=r"tj\.Hermitian"):
        tj.Symmetric(DATA + 0j, definite=True)


def test_repr_shows_the_promise_only_where_given():
    """The common case stays short."""
    assert "definite" not in repr(tj.Symmetric(DATA))
    assert "definite=True" in repr(tj.Symmetric(DATA, definite=True))


@tj.register_array_type(linear=True, injective=True)
class Toeplitz(tj.AbstractArray):
    """A type of one's own with a promise: a static field `definite`."""

    column: jax.Array
    definite: bool = tj.static_field(default=False)

    def to_dense(self):
        n = self.column.shape[0]
        return self.column[np.abs(np.arange(n)[:, None] - np.arange(n))]

    def transposed(self):
        return self

    def apply(self, b):
        return self.to_dense() @ b


PROMISING = tj.Symmetric(DATA, definite=True), Toeplitz(jnp.array([3.0, 1.0, 0.5]), definite=True)


@pytest.mark.parametrize("a", PROMISING, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("f", [tj.logdet, tj.inv, lambda a: tj.solve(a, jnp.ones(a.shape[0]))])
def test_promise_saves_a_factorisation_by_lu(a, f):
    """Cholesky instead of LU, and the same numbers and gradients."""
    plain = a.replace(definite=False)
    loss = lambda a: jnp.sum(jnp.sin(tj.destructure(f(a))))
    with tj.densify("allow"):
        programs = [str(jax.make_jaxpr(f)(x)) for x in (a, plain)]
        got, want = (jax.value_and_grad(loss)(x) for x in (a, plain))
    assert ["cholesky" in p for p in programs] == [True, False]
    assert [" lu" in p for p in programs] == [False, True]
    np.testing.assert_allclose(got[0], want[0], rtol=1e-12)
    for g, w in zip(*map(jax.tree.leaves, (got[1], want[1])), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-10)


@pytest.mark.parametrize("a", PROMISING, ids=lambda a: type(a).__name__)
def test_result_that_may_be_indefinite_does_not_promise(a):
    with tj.densify("allow"):
        forgetful = (tj.grad(tj.logdet)(a), -a, 2.0 * a, a - a, a / 2.0, a / -2.0)
    assert not any(getattr(x, "definite", False) for x in forgetful)
