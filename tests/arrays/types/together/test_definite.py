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


# -- tridiagonal ---------------------------------------------------------------------------------

A = tj.SymTridiagonal(jnp.array([3.0, 2.5, 4.0]), jnp.array([0.7, -1.2]), definite=True)
PLAIN = A.replace(definite=False)
B = jnp.array(np.random.default_rng(0).normal(size=(300, 12)))
LARGE = tj.SymTridiagonal(3 + jnp.abs(B[:, 0]), jnp.tanh(B[1:, 1]), definite=True)


@pytest.mark.parametrize("columns", [4, 12])
def test_system_of_a_definite_band_exchanges_no_rows(columns):
    """The system has three recursions of one row each, and no calls of LAPACK."""
    loss = lambda a: jnp.sum(jnp.sin(tj.solve(a, B[:, :columns])))
    program = str(jax.make_jaxpr(jax.value_and_grad(loss))(LARGE))
    assert "tridiagonal_solve" not in program
    assert program.count("= scan[") == 5  # one factor, and two substitutions in each direction
    got, want = (jax.value_and_grad(loss)(x) for x in (LARGE, LARGE.replace(definite=False)))
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-13)


def test_broken_promise_of_a_band_is_nan_in_every_number():
    indefinite = LARGE.replace(diag=LARGE.diag.at[150].set(-1.0))
    factors = tj.factorize(indefinite)
    for x in (tj.solve(indefinite, B), factors.solve(B[:, 0]), factors.inv_quad(B)):
        assert np.isnan(x).all()


def test_complex_symmetric_band_cannot_be_definite():
    with pytest.raises(tj.RegistrationError, match=r"tj\.Hermitian"):
        tj.SymTridiagonal(A.diag.astype(complex), A.off.astype(complex), definite=True)


OTHERS = {
    "itself": A,
    "without the promise": PLAIN,
    "negative diagonal": tj.Diagonal([-9.0, 1.0, -9.0]),
    "identity": tj.Identity(3),
    "definite": tj.Symmetric(2 * jnp.eye(3) + 0.5, definite=True),
    "indefinite": tj.Symmetric(jnp.eye(3) - 2.0),
    "band": tj.Banded(-jnp.ones((3, 3)), 1, 1),
    "low rank": tj.LowRank(jnp.ones((3, 1)), -jnp.ones((3, 1))),
    "dense": -jnp.ones((3, 3)),
    "number": jnp.array(-2.0),
    "integer": -3,
    "nothing": None,
}


def results_of(operation, other):
    """The result in either order, its tangent and its cotangent; `[]` where the call is refused."""
    found = []
    for args in ((A,),) if other is None else ((A, other), (other, A)):
        place = next(i for i, x in enumerate(args) if x is A)
        f = lambda x, args=args, i=place: operation(*args[:i], x, *args[i + 1 :])
        try:
            out = f(A)
            found.append(out)
            found.append(tj.jvp(f, (A,), (jax.tree.map(lambda x: -x, PLAIN),)))
            found.append(tj.grad(lambda x, f=f: sum(map(jnp.sum, jax.tree.leaves(f(x)))))(A))
        except Exception:  # the operation has other arguments
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("other", OTHERS)
def test_every_operation_promises_only_what_holds(other):
    """Over all operations: a result with the promise has positive eigenvalues."""
    promising = 0
    with tj.densify("allow"):
        for operation in tj.rules.operations():
            for found in results_of(operation, OTHERS[other]):
                for x in jax.tree.leaves(found, is_leaf=lambda v: hasattr(v, "definite")):
                    if getattr(x, "definite", False):
                        promising += 1
                        assert np.linalg.eigvalsh(np.asarray(x.to_dense())).min() > 0, operation
    assert promising or other not in ("itself", "identity", "definite", "nothing")
