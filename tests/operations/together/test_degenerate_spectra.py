"""Equal eigenvalues and singular values: right where a loss has a derivative, `nan` where not.

The judge is central differences of the same loss: where it is smooth, they need no rule.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax_rules.factorizations import gauge

N = 4
R = np.random.default_rng(3)
WEIGHTS = jnp.asarray(R.normal(size=(N, N)))
BASIS = np.linalg.qr(R.normal(size=(N, N)))[0]
SPECTRA = {"double": (1.0, 1.0, 2.0, 3.0), "triple": (1.0, 2.0, 2.0, 2.0)}


def with_spectrum(values, basis=BASIS):
    return jnp.asarray((basis * np.asarray(values)) @ basis.T)


def differences(f, a, step=1e-5):
    """The gradient of a function of symmetric matrices."""
    out = np.zeros(a.shape)
    for i, j in np.ndindex(a.shape):
        e = np.zeros(a.shape)
        e[i, j] = e[j, i] = 0.5 if i != j else 1.0
        out[i, j] = (f(a + step * e) - f(a - step * e)) / (2 * step)
    return out


def projector(count, **options):
    """A loss of the projector on the first eigenvectors."""

    def loss(a):
        v = tj.linalg.eigh(a, **options).eigenvectors[:, :count]
        return jnp.sum(WEIGHTS * (v @ v.T))

    return loss


def count_of(name):
    return 2 if name == "double" else 1


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("basis", [BASIS, np.eye(N)], ids=["turned", "axes"])
def test_projector_of_equal_eigenvalues_has_the_gradient_of_differences(name, basis):
    """Rounding-close and exactly equal eigenvalues, and both modes where it is promised."""
    a, count = with_spectrum(SPECTRA[name], basis), count_of(name)
    want = differences(jax.jit(projector(count)), a)
    np.testing.assert_allclose(jax.grad(projector(count))(a), want, atol=1e-8)
    promised = projector(count, invariant=True)
    np.testing.assert_allclose(jax.grad(promised)(a), want, atol=1e-8)
    np.testing.assert_allclose(jax.jacfwd(promised)(a), want, atol=1e-8)
    # The first eigenvector of the triple spectrum is a simple one, and has a tangent.
    assert np.isnan(jax.jacfwd(projector(count))(a)).any() == (name == "double")


def test_symmetric_functions_of_eigenvalues():
    a = with_spectrum(SPECTRA["double"])
    loss = lambda a: jnp.sum(jnp.log(tj.linalg.eigh(a).eigenvalues)) + projector(2)(a)
    want = np.linalg.inv(a) + jax.grad(projector(2))(a)
    np.testing.assert_allclose(jax.grad(loss)(a), want, atol=1e-10)
    symmetric = jax.grad(lambda a: jnp.sum(jnp.log(tj.linalg.eigvalsh(a))))(tj.Symmetric(a))
    np.testing.assert_allclose(symmetric.data, np.linalg.inv(a), atol=1e-12)


def function_of(f, a):
    w, v = tj.linalg.eigh(a)
    return (v * f(w).astype(v.dtype)) @ jnp.conj(v.mT)


def made_of_factors(a):
    u, s, vh = tj.linalg.svd(a, False)
    return (u * s) @ vh


NOT_INVARIANT = {
    "an entry of an eigenvector": (
        lambda a: tj.linalg.eigh(a).eigenvectors[0, 0],
        (1.0, 1.0, 2.0, 3.0),
    ),
    "one of two projectors": (projector(1), (1.0, 1.0, 2.0, 3.0)),
    "a function of the matrix": (
        lambda a: jnp.sum(WEIGHTS * function_of(jnp.exp, a)),
        (1.0, 1.0, 2.0, 3.0),
    ),
    "one entry of a function at the identity": (
        lambda a: function_of(jnp.exp, a)[0, 1],
        (1.0,) * N,
    ),
}


@pytest.mark.parametrize("name", NOT_INVARIANT)
@pytest.mark.parametrize("basis", [BASIS, np.eye(N)], ids=["turned", "axes"])
def test_loss_that_is_not_invariant_has_a_nan_gradient(name, basis):
    """Never a finite number, not even where LAPACK's basis would let one pass."""
    loss, spectrum = NOT_INVARIANT[name]
    assert np.isnan(jax.grad(loss)(with_spectrum(spectrum, basis))).any()


def test_complex_bases_and_zero_matrices_give_nan():
    """An imaginary weight would pass a real reflection; vectors with cotangent zero are used."""
    weights = jnp.array([[0, 1j], [-1j, 0]])
    loss = lambda a: jnp.real(jnp.sum(weights * function_of(lambda w: w**2, a)))
    assert np.isnan(jax.grad(loss)(jnp.eye(2, dtype=complex))).any()
    weights = jnp.arange(9.0).reshape(3, 3)
    for made in (lambda a: function_of(lambda w: w, a), made_of_factors):
        assert np.isnan(
            jax.grad(lambda a, f=made: jnp.sum(weights * f(a)))(jnp.zeros((3, 3)))
        ).all()


def test_values_alone_have_the_derivative_that_jax_has():
    """Vectors whose cotangent is zero are not used, and cannot spoil the gradient."""
    a = with_spectrum((1.0, 2.0, 2.0, 2.0))
    loss = lambda eigh: lambda a: jnp.sum(jnp.arange(4.0) * eigh(a)[0] ** 2)
    want = jax.grad(loss(jnp.linalg.eigh))(a)
    np.testing.assert_allclose(jax.grad(loss(tj.linalg.eigh))(a), want, atol=1e-12)
    np.testing.assert_allclose(jax.jit(jax.grad(loss(tj.linalg.eigh)))(a), want, atol=1e-12)
    for full in (True, False):
        values = lambda a, full=full: jnp.sum(jnp.arange(4.0) * tj.linalg.svd(a, full).S ** 2)
        want = jax.grad(lambda a: jnp.sum(jnp.arange(4.0) * jnp.linalg.svd(a, False)[1] ** 2))(a)
        np.testing.assert_allclose(jax.grad(values)(a), want, atol=1e-12)


def test_the_largest_eigenvalue_has_a_subgradient():
    gradient = jax.grad(lambda a: tj.linalg.eigvalsh(a)[-1])(jnp.eye(3))
    np.testing.assert_allclose(np.trace(gradient), 1.0)
    assert np.linalg.eigvalsh(gradient).min() > -1e-12


def test_second_derivatives_are_nan_and_not_wrong():
    a = with_spectrum(SPECTRA["double"])
    gradient = jax.grad(projector(2, invariant=True))
    for second in (jax.jacfwd(gradient), jax.jacrev(gradient)):
        assert np.isnan(second(a)).any()


def test_neighbours_in_single_precision_are_no_ties():
    """Of many random eigenvalues some lie closer than their size times `n` rounding errors."""
    n = 256
    rng = np.random.default_rng(0)
    half = rng.normal(size=(n, n)) / n**0.5
    a, weights = half @ half.T + np.eye(n), rng.normal(size=(n, n))

    def loss(eigh, a):
        w, v = eigh(a)
        return jnp.sum(weights.astype(a.dtype) * ((v * jnp.exp(-w)) @ v.T))

    closest = np.diff(np.linalg.eigvalsh(a)).min() / np.linalg.norm(a, 2)
    assert closest < n * np.finfo(np.float32).eps
    got = jax.grad(lambda a: loss(tj.linalg.eigh, a))(jnp.asarray(a, jnp.float32))
    want = jax.grad(lambda a: loss(jnp.linalg.eigh, a))(jnp.asarray(a))
    assert np.linalg.norm(np.subtract(got, want)) < 1e-3 * np.linalg.norm(want)


@pytest.mark.slow
def test_one_pair_of_many_may_be_tied():
    """What is missing of the gradient is then less than its rounding; of few, `nan` as above."""
    n = 200
    rng = np.random.default_rng(1)
    basis, values = np.linalg.qr(rng.normal(size=(n, n)))[0], np.linspace(1.0, 4.0, n)
    values[7] = values[8]
    a, weights = (basis * values) @ basis.T, rng.normal(size=(n, n))

    def loss(function_of, a):
        return jnp.sum(weights.astype(a.dtype) * function_of(jnp.log, a))

    got = jax.grad(lambda a: loss(function_of, a))(jnp.asarray(a, jnp.float32))
    want = jax.grad(lambda a: loss(lambda f, a: tj.linalg.funm_hermitian(a, f), a))(jnp.asarray(a))
    error = np.linalg.norm(np.subtract(got, want)) / np.linalg.norm(want)
    assert error < np.finfo(np.float32).eps ** 0.25
    assert np.isnan(jax.grad(lambda a: loss(function_of, a))(jnp.asarray(a))).any()  # precise


# -- singular values -------------------------------------------------------------------------------


def rectangle(shape, values):
    k = len(values)
    u = np.linalg.qr(R.normal(size=(shape[0], k)))[0]
    v = np.linalg.qr(R.normal(size=(shape[1], k)))[0]
    return jnp.asarray((u * np.asarray(values)) @ v.T)


def entries(f, a, step=1e-6):
    out = np.zeros(a.shape)
    for i, j in np.ndindex(a.shape):
        out[i, j] = (f(a.at[i, j].add(step)) - f(a.at[i, j].add(-step))) / (2 * step)
    return out


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3)], ids=str)
@pytest.mark.parametrize("values", [(3.0, 1.0, 1.0), (3.0, 0.0, 0.0)], ids=str)
def test_the_leading_singular_space_has_a_derivative_and_the_matrix_none(shape, values):
    """The derivative of the matrix is no function of the factors' cotangents at equal values."""
    weights, a = jnp.asarray(R.normal(size=shape)), rectangle(shape, values)

    def loss(a, full=False, **options):
        u, _, vh = tj.linalg.svd(a, full, **options)
        return jnp.sum(weights * (u[:, :1] @ vh[:1]))

    want = entries(jax.jit(loss), a)
    np.testing.assert_allclose(jax.grad(loss)(a), want, atol=1e-7)
    np.testing.assert_allclose(jax.grad(lambda a: loss(a, full=True))(a), want, atol=1e-7)
    np.testing.assert_allclose(jax.jacfwd(lambda a: loss(a, invariant=True))(a), want, atol=1e-7)
    whole = jax.grad(lambda a: jnp.sum(weights * made_of_factors(a)))
    assert np.isnan(whole(a)).any()
    if shape == (3, 3):  # a simple zero of a square matrix is no equal value
        np.testing.assert_allclose(whole(rectangle(shape, (3.0, 1.0, 0.0))), weights, atol=1e-10)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4)], ids=str)
def test_the_null_space_of_full_matrices(shape):
    """The projector on it is differentiable; one of its vectors is not, if there are two."""
    wide = shape[0] < shape[1]
    weights = jnp.asarray(R.normal(size=(4, 4)))

    def loss(a):
        u, _, vh = tj.linalg.svd(a)
        null = vh[3:].T if wide else u[:, 3:]
        return jnp.sum(weights * (null @ null.T))

    a = rectangle(shape, (3.0, 2.0, 1.0))
    want = entries(jax.jit(loss), a)
    np.testing.assert_allclose(jax.grad(loss)(a), want, atol=1e-7)
    np.testing.assert_allclose(jax.jacfwd(loss)(a), want, atol=1e-7)
    two = rectangle((4, 2), (2.0, 1.0))
    for derivative in (jax.grad, jax.jacfwd):
        assert np.isnan(derivative(lambda a: tj.linalg.svd(a).U[0, 2])(two)).any()


@pytest.mark.parametrize("a", [np.zeros((3, 2)), np.eye(3), np.ones((2, 3))], ids=str)
def test_the_nuclear_norm_has_a_subgradient(a):
    gradient = jax.grad(lambda a: tj.norm(a, "nuc"))(jnp.asarray(a))
    assert np.linalg.norm(gradient, 2) <= 1 + 1e-12
    np.testing.assert_allclose(np.sum(gradient * a), np.linalg.norm(a, "nuc"), atol=1e-12)


def test_a_batch_has_its_own_degenerate_matrices():
    """One matrix that has no derivative does not spoil the others."""
    bad, good = with_spectrum(SPECTRA["double"]), with_spectrum((1.0, 1.5, 2.0, 3.0))
    loss = lambda a: jnp.sum(tj.linalg.eigh(a).eigenvectors[..., 0, 0])
    gradient = jax.grad(loss)(jnp.stack([bad, good]))
    assert np.isnan(gradient[0]).any()
    np.testing.assert_allclose(gradient[1], jax.grad(loss)(good), atol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("size", [8, 64, 256])
def test_ties_come_within_sixteen_rounding_errors(size, dtype):
    """What LAPACK makes of eigenvalues that are equal before rounding."""
    few = np.repeat([-1.0, 0.25, 2.0, 3.0], size // 4)
    basis = np.linalg.qr(R.normal(size=(size, size)))[0]
    w = jnp.linalg.eigvalsh(with_spectrum(few, basis).astype(dtype)).reshape(4, -1)
    spread = np.max(np.diff(w, axis=1)) / (jnp.finfo(dtype).eps * 3)
    assert spread < 16


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("with_zeros", [False, True])
def test_a_diagonal_between_turned_bases(dtype, with_zeros):
    """What values alone give is in LAPACK's basis, whose turns are undone by vectors alone."""
    group = jnp.array([[0, 0, 1, 2, 2, 2], [0, 1, 2, 3, 4, 5]])
    apart = group == group[:, -1:] if with_zeros else None
    d, eye = jnp.asarray(R.normal(size=group.shape)), jnp.broadcast_to(jnp.eye(6), (2, 6, 6))
    left = gauge.turned(eye.astype(dtype), group)
    right = gauge.turned(eye.astype(dtype), group, apart)
    inner = (left * d[:, None].astype(dtype)) @ right
    got = gauge.turned_diagonal(d, group, dtype, apart)
    np.testing.assert_allclose(got, inner, atol=1e-14)
    for turn in (left, right):  # its own inverse
        np.testing.assert_allclose(turn @ turn, eye, atol=1e-14)
    assert float(jnp.max(jnp.abs(left[0] - eye[0].astype(dtype)))) > 0.1
