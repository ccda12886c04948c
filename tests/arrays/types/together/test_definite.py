"""The promise of definiteness: who keeps it, who forgets it, and what it is used for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

DATA = np.array([[2.0, 0.5], [0.5, 1.0]])
TYPES = pytest.mark.parametrize("kind", [tj.Symmetric, tj.Hermitian])


@TYPES
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


@TYPES
def test_same_values_as_without_the_promise(kind):
    """Cholesky and LU agree in value and structural gradient."""
    b = jnp.asarray([[1.0, 2.0], [3.0, -1.0]])

    def f(a):
        return tj.logdet(a) + jnp.sum(tj.solve(a, b) ** 2) + tj.trace(tj.inv(a))

    promised, plain = (jax.value_and_grad(f)(kind(DATA, definite=d)) for d in (True, False))
    np.testing.assert_allclose(promised[0], plain[0], rtol=1e-12)
    np.testing.assert_allclose(promised[1].data, plain[1].data, rtol=1e-10)


def test_the_promise_saves_a_factorisation_by_lu():
    """The compiled program has a Cholesky factorisation and no LU, and the other way round."""
    programs = [
        str(jax.make_jaxpr(tj.logdet)(tj.Symmetric(DATA, definite=definite)))
        for definite in (True, False)
    ]
    assert ["cholesky" in p for p in programs] == [True, False]
    assert [" lu" in p for p in programs] == [False, True]


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


COLUMN = jnp.array([3.0, 1.0, 0.5])


def test_a_type_of_ones_own_may_promise():
    """Cholesky instead of LU, the same numbers, and nothing that may be indefinite is believed."""
    a, plain = Toeplitz(COLUMN, definite=True), Toeplitz(COLUMN)
    b = jnp.arange(3.0)
    with tj.densify("allow"):
        for f in (tj.logdet, tj.inv, lambda a: tj.solve(a, b)):
            program = str(jax.make_jaxpr(f)(a))
            assert "cholesky" in program
            assert " lu" not in program
            loss = lambda a, f=f: jnp.sum(jnp.sin(tj.destructure(f(a))))
            got, want = (jax.value_and_grad(loss)(x) for x in (a, plain))
            np.testing.assert_allclose(got[0], want[0], rtol=1e-12)
            np.testing.assert_allclose(got[1].column, want[1].column, rtol=1e-10)
        forgetful = (tj.grad(tj.logdet)(a), -a, 2.0 * a, a - a, a / 2.0)
    assert [getattr(x, "definite", False) for x in forgetful] == [False] * 5
