"""Factor once: how many factorisations a value and its derivatives take; what a factor is."""

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import tanjax as tj

R = np.random.default_rng(7)
N = 5
FACTORS = ("lu", "cholesky")


def definite(n):
    x = R.normal(size=(n, n))
    return jnp.asarray(x @ x.T + n * np.eye(n))


def equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for value in jax.tree.leaves(
            list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "eqns")
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def factorisations(function, *args):
    """The sizes of all factorisations in a program."""
    closed = jax.make_jaxpr(function)(*args)
    found = [e for e in equations(closed.jaxpr) if e.primitive.name in FACTORS]
    return sorted(e.invars[0].aval.shape[-1] for e in found)


TYPES = {
    "dense": (lambda x: x, [N]),
    "Symmetric": (lambda x: tj.Symmetric(x, "mean"), [N]),
    "definite": (lambda x: tj.Symmetric(x, "mean", definite=True), [N]),
    "Diagonal": (lambda x: tj.Diagonal(jnp.diagonal(x)), []),
    "BlockDiagonal": (lambda x: tj.BlockDiagonal(x[:3, :3], tj.Symmetric(x[3:, 3:])), [2, 3]),
    "LowRankUpdate": (lambda x: tj.LowRankUpdate(tj.Symmetric(x, "mean"), x[:, :2]), [2, N]),
    "Scaled": (lambda x: tj.Scaled(tj.Symmetric(x, "mean"), x[0, 0]), [N]),
}


def loss(make, x, b):
    """A solution, with the transpose too, the determinant and a quadratic form."""
    f = tj.factorize(make(x))
    y = f.solve(f.solve(b), transposed=True)
    return jnp.sum(jnp.sin(y)) + f.logdet() * f.inv_quad(b)


def by_hand(make, x, b):
    a = tj.destructure(make(x))
    y = jnp.linalg.solve(a.T, jnp.linalg.solve(a, b))
    return jnp.sum(jnp.sin(y)) + jnp.linalg.slogdet(a)[1] * jnp.sum(b * jnp.linalg.solve(a, b))


@pytest.mark.parametrize("kind", TYPES)
def test_one_factorisation_serves_value_and_derivatives(kind):
    make, sizes = TYPES[kind]
    x, b = definite(N), jnp.asarray(R.normal(size=(N, 2)))
    function = jax.value_and_grad(lambda x, b: loss(make, x, b), (0, 1))
    assert factorisations(function, x, b) == sizes


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "definite", "LowRankUpdate"])
def test_second_derivatives_use_the_same_factor(kind):
    make, sizes = TYPES[kind]
    x, b, v = definite(N), jnp.asarray(R.normal(size=N)), jnp.asarray(R.normal(size=(N, N)))
    along = lambda loss: lambda x: jax.jvp(jax.grad(lambda x: loss(make, x, b)), (x,), (v,))[1]
    assert factorisations(along(loss), x) == sizes
    np.testing.assert_allclose(along(loss)(x), along(by_hand)(x), atol=1e-9)
    back = jax.grad(lambda x: jnp.sum(v * jax.grad(lambda x: loss(make, x, b))(x)))(x)
    want = jax.grad(lambda x: jnp.sum(v * jax.grad(lambda x: by_hand(make, x, b))(x)))(x)
    np.testing.assert_allclose(back, want, atol=1e-9)


def test_a_factorization_goes_through_transformations():
    """A pytree: an argument of `jit`, a carry of `scan`, differentiated by its matrix."""
    x, b = definite(N), jnp.ones(N)
    f = jax.jit(tj.factorize)(x)
    np.testing.assert_allclose(jax.jit(lambda f, b: f.solve(b))(f, b), jnp.linalg.solve(x, b))
    end, _ = jax.lax.scan(lambda c, _: ((c[0], c[0].solve(c[1])), None), (f, b), length=3)
    np.testing.assert_allclose(end[1], np.linalg.matrix_power(np.linalg.inv(x), 3) @ b, atol=1e-12)
    bar = jax.grad(lambda f: f.logdet(), allow_int=True)(f)
    np.testing.assert_allclose(bar.matrix, np.linalg.inv(x).T, atol=1e-12)
    assert "5x5" in repr(f)


def test_complex_matrices():
    x = jnp.asarray(R.normal(size=(N, N)) + 1j * R.normal(size=(N, N)))
    b = jnp.asarray(R.normal(size=N) + 1j * R.normal(size=N))
    read = lambda s: jnp.real(s.sign) + 2 * jnp.imag(s.sign) + s.logabsdet
    ours = lambda x: read(tj.factorize(x).slogdet())
    theirs = lambda x: read(tj.linalg.SlogdetResult(*jnp.linalg.slogdet(x)))
    np.testing.assert_allclose(jax.grad(ours)(x), jax.grad(theirs)(x), atol=1e-12)
    hermitian = tj.Hermitian(x @ jnp.conj(x.T), "mean", definite=True)
    f = tj.factorize(hermitian)
    np.testing.assert_allclose(jnp.imag(f.inv_quad(b)), 0, atol=1e-12)
    np.testing.assert_allclose(f.solve(b, transposed=True), jnp.linalg.solve(hermitian.data.T, b))


@pytest.mark.parametrize("noise", [1e-3, 1e-5])
def test_quadratic_form_of_a_vector_near_the_span_of_an_update_keeps_its_digits(noise):
    """A good sparse Gaussian process: `b @ tj.solve(a, b)` is off by 0.3 to 10 %."""
    u = R.normal(size=(60, 5)).astype(np.float32)
    b = (u @ R.normal(size=5) + 1e-3 * R.normal(size=60)).astype(np.float32)

    def quadratic(b, noise):
        a = tj.LowRankUpdate(tj.Diagonal(jnp.broadcast_to(noise, (60,))), jnp.asarray(u))
        return tj.factorize(a).inv_quad(b)

    noise = np.float32(noise)
    x = np.linalg.solve(u.astype(float) @ u.T + float(noise) * np.eye(60), b.astype(float))
    value, (b_bar, noise_bar) = jax.value_and_grad(quadratic, (0, 1))(jnp.asarray(b), noise)
    np.testing.assert_allclose(value, b @ x, rtol=1e-4)
    np.testing.assert_allclose(b_bar, 2 * x, rtol=0, atol=2e-3 * np.max(np.abs(x)))
    np.testing.assert_allclose(noise_bar, -x @ x, rtol=1e-3)


SMALL = tj.Symmetric(jnp.array([[3.0, 1.0], [1.0, 2.0]]), definite=True)
SAVED = {
    "Kronecker": tj.Kronecker(SMALL, SMALL),
    "shifted": tj.Kronecker(SMALL, SMALL) + 2.0 * tj.Identity(4),
    "sum": tj.KroneckerSum(SMALL, SMALL),
    "Banded": tj.Banded(jnp.array([[0.0, 1.0, 1.0], [4.0, 5.0, 6.0], [1.0, 1.0, 0.0]]), 1, 1),
    "SymTridiagonal": tj.SymTridiagonal([4.0, 5.0, 6.0], [1.0, 2.0]),
    "Tridiagonal": tj.Tridiagonal([1.0, 0.5], [4.0, 5.0, 6.0], [1.0, 2.0]),
    "Toeplitz": tj.Toeplitz(jnp.array([1.0, 2.0, 5.0, 2.0, 1.0])),
    "Circulant": tj.Circulant(jnp.array([5.0, 2.0, 2.0])),
    "Triangular": tj.Triangular(jnp.eye(2)),
}


@pytest.mark.parametrize("unit", [None, "kg"])
@pytest.mark.parametrize("kind", [*TYPES, *SAVED])
def test_a_factorization_pickles_and_is_exported(kind, unit):
    """As every array type: the copy has the same structure, and solves as the original."""
    a = TYPES[kind][0](definite(N)) if kind in TYPES else SAVED[kind]
    f = tj.factorize(a if unit is None else a * tj.unit(unit))
    b = jnp.linspace(0.5, 1.0, f.n)
    exported = export.export(jax.jit(lambda f: (f, f.solve(b))))(f)
    known = export.deserialize(exported.serialize())
    again, solution = known.call(f)
    for copy in (again, pickle.loads(pickle.dumps(f))):
        assert jax.tree.structure(copy) == jax.tree.structure(f)
        assert repr(copy.solve(b)) == repr(f.solve(b)) == repr(solution)


OWN = tj.linalg.FactorizationPlan(lambda *_: 0, lambda *_: (1, 0))


def test_a_plan_of_no_rule_pack_pickles_and_is_not_exported():
    f = tj.linalg.Factorization(jnp.eye(2), (), OWN, 2)
    assert pickle.loads(pickle.dumps(f)).plan == OWN
    for plan in (OWN, OWN._replace(root=lambda *_: 0)):
        written = export.export(jax.jit(lambda f: f))(dataclasses.replace(f, plan=plan)).serialize()
        with pytest.raises(tj.errors.RulePackError, match="no rule pack has a function"):
            export.deserialize(written)


def test_a_plan_of_ones_own_type():
    """What a third party writes: an implementation that makes a `Factorization`."""

    @tj.register_array_type
    class Shift(tj.AbstractArray):
        amount: jax.Array

        def to_dense(self):
            return jnp.diag(self.amount) + jnp.eye(self.amount.shape[0])

    plan = tj.linalg.FactorizationPlan(
        lambda a, parts, b, transposed: b / (1 + a.amount)[:, None],
        lambda a, parts: (jnp.ones(()), jnp.sum(jnp.log(1 + a.amount))),
    )

    @tj.factorize.implementation(Shift, differentiate=True)
    def _(a):
        return tj.linalg.Factorization(a, (), plan, a.amount.shape[0])

    amount = jnp.array([1.0, 3.0])
    quad, log = jax.value_and_grad(lambda d: tj.factorize(Shift(d)).logdet())(amount)
    np.testing.assert_allclose(quad, np.log(8))
    np.testing.assert_allclose(log, 1 / (1 + amount))
    np.testing.assert_allclose(tj.factorize(Shift(amount)).solve(jnp.ones(2)), [0.5, 0.25])
