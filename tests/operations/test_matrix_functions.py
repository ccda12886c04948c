"""Functions of matrices and matrix equations: values, derivatives, structure, bad input, units."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg as sl
import tanjax.scipy.linalg as tsl

import tanjax as tj

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(3, 3)) * 0.4 + 2 * np.eye(3)
COMPLEX = REAL + 0.4j * RNG.normal(size=(3, 3))
OTHER, RIGHT = RNG.normal(size=(3, 3)) * 0.3 + np.eye(3), RNG.normal(size=(3, 3))
BASIS = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
WEIGHTS = RNG.normal(size=(4, 4))


def power(a):
    return tj.linalg.fractional_matrix_power(a, -1.7)


def differences(f, x, h=1e-4):
    """Central differences of `f`, the axes of `x` first."""
    columns = []
    for i in range(x.size):
        e = np.zeros(x.size)
        e[i] = h
        e = e.reshape(x.shape)
        columns.append((np.asarray(f(x + e)) - np.asarray(f(x - e))) / (2 * h))
    return np.array(columns).reshape(*x.shape, *np.shape(columns[0]))


@pytest.mark.parametrize("a", [REAL, COMPLEX], ids=["real", "complex"])
def test_values_are_those_of_scipy(a):
    """Closer than the kit asks for."""
    for ours, theirs in (
        (tj.linalg.expm, sl.expm),
        (tj.linalg.sqrtm, sl.sqrtm),
        (tj.linalg.logm, sl.logm),
        (power, lambda a: sl.fractional_matrix_power(a, -1.7)),
    ):
        got = ours(jnp.asarray(a))
        assert got.dtype == a.dtype
        np.testing.assert_allclose(got, theirs(a), rtol=1e-12, atol=1e-13)
    # Between two numbers of squarings JAX's own loses four digits.
    entries = -np.array([10.0, 7.0, 1.0])
    got = jnp.diagonal(tj.linalg.expm(jnp.diag(entries.astype(a.dtype))))
    np.testing.assert_allclose(got, np.exp(entries), rtol=1e-13)


def test_logarithm_of_far_and_of_defective_matrices():
    defective = np.array([[2.0, 1.0, 0.5], [0.0, 2.0, 1.0], [0.0, 0.0, 2.0]])
    far = np.diag([1e-3, 1.0, 1e3]) + np.triu(RIGHT, 1)
    for a in (defective, far):
        np.testing.assert_allclose(
            tj.linalg.expm(tj.linalg.logm(jnp.asarray(a))), a, rtol=1e-12, atol=1e-11
        )
    loss = jax.jit(lambda a: jnp.sum(RIGHT * tj.linalg.logm(a)))
    gradient = jax.jit(jax.grad(loss))(defective)
    np.testing.assert_allclose(gradient, differences(loss, defective), atol=1e-7)


# -- equal eigenvalues -----------------------------------------------------------------------------

SPECTRA = {
    "three equal": [1.0, 1.0, 1.0, 2.0],
    "all equal": [1.5, 1.5, 1.5, 1.5],
    "nearly equal": [1.0, 1 + 1e-9, 1 + 3e-5, 2.0],
    "small": [1e-12, 3e-10, 1e-3, 1.0],
}


@pytest.fixture(scope="module")
def of_degenerate():
    """A loss of a function of a Hermitian matrix, its gradient and Hessians, compiled once."""

    def loss(a):
        f = tj.linalg.funm_hermitian(a, lambda x: jnp.exp(-x) * x)
        return jnp.sum(WEIGHTS * f) + jnp.sum(jnp.sin(f))

    return [jax.jit(f) for f in (loss, jax.grad(loss), jax.hessian(loss))]


@pytest.mark.parametrize("name", SPECTRA)
def test_two_derivatives_at_equal_eigenvalues(name, of_degenerate):
    a = (BASIS * np.array(SPECTRA[name])) @ BASIS.T
    loss, gradient, hessian = of_degenerate
    np.testing.assert_allclose(gradient(a), differences(loss, a), atol=1e-7)
    np.testing.assert_allclose(hessian(a), differences(gradient, a), atol=1e-6)


@pytest.mark.slow
def test_second_derivative_where_the_first_one_vanishes():
    """`x exp(-x)` at 1: rounding errors of the slope, divided by gaps of rounding errors."""
    weights = jnp.asarray(WEIGHTS)

    def ours(a):
        return jnp.sum(weights * tj.linalg.funm_hermitian(a, lambda x: jnp.exp(-x) * x))

    def by_products(a):
        a = (a + a.T) / 2
        return jnp.sum(weights * (a @ jax.scipy.linalg.expm(-a)))

    spectra = [[1, 1 + 1e-16 * k, 1 + 3e-16 * k, 2] for k in (1, 3, 10, 30, 100, 300, 1e4, 1e6)]
    turned = [np.linalg.qr(RNG.normal(size=(4, 4)))[0] for _ in spectra]
    a = jnp.asarray([(q * w) @ q.T for q, w in zip(turned, spectra, strict=True)])
    got, want = (jax.jit(jax.vmap(jax.hessian(f)))(a) for f in (ours, by_products))
    np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.slow
def test_batches_as_in_jax():
    batch = jnp.stack([REAL, 2 * REAL, OTHER])
    for op in (tj.linalg.expm, tj.linalg.sqrtm, tj.linalg.logm):
        got = op(batch[:, None])
        assert got.shape == (3, 1, 3, 3)
        np.testing.assert_allclose(got[1, 0], op(batch[1]), rtol=1e-12)
    x = tj.linalg.solve_sylvester(batch, jnp.asarray(OTHER), jnp.asarray(RIGHT))
    np.testing.assert_allclose(batch @ x + x @ OTHER, jnp.stack([RIGHT] * 3), atol=1e-12)
    assert tj.linalg.solve_lyapunov(batch, jnp.asarray(RIGHT)).shape == (3, 3, 3)
    assert tj.linalg.funm_hermitian(batch, jnp.exp).shape == (3, 3, 3)
    assert tj.linalg.sqrtm(jnp.zeros((0, 0))).shape == (0, 0)


# -- structure -------------------------------------------------------------------------------------

SYMMETRIC = tj.Symmetric(jnp.asarray(OTHER @ OTHER.T + np.eye(3)))


@pytest.mark.parametrize(
    "a",
    [
        tj.Diagonal(jnp.array([1.3, 0.7])),
        SYMMETRIC,
        tj.Hermitian(jnp.array([[2.0, 0.3j], [-0.3j, 1.0]])),
        tj.Triangular(jnp.asarray(REAL)),
        tj.BlockDiagonal(SYMMETRIC, tj.Diagonal(jnp.array([2.0]))),
        tj.Kronecker(SYMMETRIC, jnp.asarray(REAL)),
    ],
    ids=lambda a: type(a).__name__,
)
def test_functions_keep_the_type(a):
    with tj.densify("error"):
        for root in (tj.linalg.sqrtm, tsl.sqrtm) if type(a) is tj.Diagonal else (tj.linalg.sqrtm,):
            got = root(a)
            assert type(got) is type(a)
            np.testing.assert_allclose(got.to_dense(), sl.sqrtm(a.to_dense()), atol=1e-12)
        for module in (tj, np.linalg, tj.numpy.linalg):
            assert type(module.matrix_power(a, -2)) is type(a)
        if type(a) is not tj.Kronecker:
            assert type(tsl.expm(a)) is type(tj.linalg.logm(a)) is type(a)


def test_functions_of_the_identity_and_equations_keep_the_type():
    assert isinstance(tj.linalg.sqrtm(tj.Identity(3)), tj.Identity)
    assert isinstance(tj.linalg.logm(tj.Identity(3)), tj.Zero)
    for op in (tj.linalg.solve_lyapunov, tj.linalg.solve_discrete_lyapunov):
        q = tj.Symmetric(jnp.asarray(RIGHT))
        assert isinstance(op(jnp.asarray(0.3 * REAL), q), tj.Symmetric)


def test_functions_of_scipy_have_derivatives():
    assert tsl.sqrtm(jnp.asarray(REAL)).dtype == jnp.complex128  # as JAX's, which has none
    for ours, theirs in (
        (tj.linalg.sqrtm, tsl.sqrtm),
        (
            lambda a: tj.linalg.solve_sylvester(a, OTHER, RIGHT),
            lambda a: tsl.solve_sylvester(a, OTHER, RIGHT),
        ),
    ):
        got, want = (
            jax.grad(lambda a, f=f: jnp.sum(RIGHT * jnp.real(f(a))))(REAL) for f in (theirs, ours)
        )
        np.testing.assert_allclose(got, want, rtol=1e-10)


def test_equal_eigenvalues_in_equations():
    """Eigenvectors are not differentiated: the gradient by a multiple of the identity is finite."""
    loss = lambda a, q: jnp.sum(RIGHT * tj.linalg.solve_lyapunov(tj.Symmetric(a, "mean"), q))
    a = 2 * np.eye(3)
    np.testing.assert_allclose(
        jax.grad(loss)(a, RIGHT), differences(lambda a: loss(a, RIGHT), a), atol=1e-7
    )


def test_roots_of_singular_covariances():
    """An eigenvalue that is negative by rounding errors counts as zero."""
    v = jnp.asarray(RNG.normal(size=(4, 1)))
    cov = v @ v.T
    for a in (cov, tj.Symmetric(cov, "mean")):
        root = (
            tj.destructure(tj.linalg.sqrtm(a)) if tj.rules.is_structured(a) else tj.linalg.sqrtm(a)
        )
        np.testing.assert_allclose(root @ root, cov, atol=1e-7)


# -- bad input -------------------------------------------------------------------------------------


def test_matrices_of_other_shapes_are_refused():
    a, q = jnp.eye(2), jnp.ones((2, 3))
    for call in (
        lambda: tj.linalg.solve_sylvester(a, a, q),
        lambda: tj.linalg.solve_sylvester(tj.Diagonal(jnp.ones(2)), a, q),
        lambda: tj.linalg.solve_lyapunov(a, q),
        lambda: tj.linalg.solve_discrete_lyapunov(tj.Symmetric(a), q),
        lambda: tj.linalg.sqrtm(tj.BlockDiagonal(q, q.T)),
        lambda: tj.linalg.sqrtm(tj.Kronecker(q, q.T)),
        lambda: tj.linalg.funm_hermitian(a, jnp.sum),
    ):
        with pytest.raises(tj.ShapeError):
            call()
    for op in (
        tj.linalg.expm,
        tj.linalg.sqrtm,
        tj.linalg.logm,
        power,
        lambda a: tj.linalg.funm_hermitian(a, jnp.exp),
    ):
        for a in (q, q[0]):
            with pytest.raises(tj.ShapeError):
                op(a)
    upper = jnp.array([[1.0, 2.0], [0.0, 3.0]])  # a dense matrix may be Hermitian, these are not
    for a in (tj.Triangular(upper, lower=False), tj.Symmetric(upper.astype(complex))):
        for call in (
            lambda a: tj.linalg.funm_hermitian(a, jnp.exp),
            lambda a: tj.linalg.funm_multiply(a, jnp.ones(2), jnp.exp),
        ):
            with pytest.raises(tj.ShapeError, match="not Hermitian by its type"):
                call(a)


def test_powers_are_python_numbers():
    with pytest.raises(TypeError, match="static"):
        jax.jit(lambda t: tj.linalg.fractional_matrix_power(jnp.eye(2), t))(0.5)
    with pytest.raises(TypeError, match="func"):
        tj.linalg.funm_hermitian(tj.Symmetric(jnp.eye(2)), 3)
    for a in (jnp.eye(2), tj.Diagonal(jnp.ones(2)), tj.Symmetric(jnp.eye(2)) * tj.unit("m")):
        with pytest.raises(TypeError, match=r"matrix_power: `n` is static, a whole number"):
            tj.linalg.matrix_power(a, 0.5)
        with pytest.raises(TypeError, match=r"fractional_matrix_power: `t` is static, a real"):
            tj.linalg.fractional_matrix_power(a, "a")
    assert tj.linalg.matrix_power(tj.Identity(2), np.int64(3)).shape == (2, 2)


def test_matrices_without_a_value_give_nan():
    a = tj.Symmetric(jnp.array([[2.0, 1.0], [1.0, 3.0]]))
    promised = tj.Symmetric(a.data, definite=True)
    for x in (tj.Kronecker(a, -a), tj.Scaled(a, -1.0), tj.Scaled(promised, -1.0), -tj.Identity(2)):
        assert jnp.all(jnp.isnan(jnp.diagonal(tj.destructure(tj.linalg.cholesky(x)))))
    swap = jnp.array([[0.0, 1.0], [1.0, 0.0]])  # has a negative eigenvalue
    for op in (
        tj.linalg.sqrtm,
        tj.linalg.logm,
        lambda a: tj.linalg.fractional_matrix_power(a, 0.3),
    ):
        assert jnp.all(jnp.isnan(op(swap)))
        assert jnp.all(jnp.isnan(op(tj.Symmetric(swap)).data))
    root = tj.linalg.sqrtm(swap.astype(complex))
    np.testing.assert_allclose(root @ root, swap, atol=1e-14)
    turn = jnp.array([[-0.5, -0.8], [0.8, -0.5]])  # by more than a right angle; twice, more than pi
    assert jnp.all(jnp.isnan(tj.linalg.sqrtm(tj.Kronecker(turn, turn)).to_dense()))
    nilpotent = jnp.array([[0.0, 1.0], [0.0, 0.0]])  # has no root
    assert jnp.any(jnp.isnan(tj.linalg.sqrtm(nilpotent)))
    assert jnp.all(jnp.isnan(tj.linalg.sqrtm(jnp.full((2, 2), jnp.nan))))
    assert jnp.all(tj.linalg.sqrtm(jnp.zeros((2, 2))) == 0)
    assert not jnp.any(jnp.isfinite(tj.linalg.logm(jnp.zeros((2, 2)))))
    x = tj.linalg.solve_sylvester(jnp.eye(2), -jnp.eye(2), jnp.ones((2, 2)))
    assert not jnp.any(jnp.isfinite(x))
    np.testing.assert_allclose(tj.linalg.sqrtm(jnp.array([[4, 0], [0, 9]])), np.diag([2.0, 3.0]))


# -- quantities ------------------------------------------------------------------------------------


def test_matrix_functions_of_quantities_have_their_units():
    m, s = tj.unit("m"), tj.unit("s")
    area = jnp.asarray(REAL) * m**2
    assert tj.linalg.sqrtm(area).unit == m
    assert tj.linalg.fractional_matrix_power(area, 1.5).unit == m**3
    assert tj.linalg.matrix_power(area, -2).unit == m**-4
    assert tj.linalg.expm(jnp.asarray(REAL) * (m / m)).shape == (3, 3)
    rate, q = jnp.asarray(REAL) / s, jnp.asarray(RIGHT) * m
    assert tj.linalg.solve_lyapunov(rate, q).unit == m * s
    assert tj.linalg.solve_sylvester(rate, rate, q).unit == m * s
    for call in (
        lambda: tj.linalg.expm(area),
        lambda: tj.linalg.logm(area),
        lambda: tj.linalg.funm_hermitian(area, jnp.exp),
        lambda: tj.linalg.solve_discrete_lyapunov(rate, q),
        lambda: tj.linalg.solve_sylvester(rate, area, q),
    ):
        with pytest.raises(tj.UnitError):
            call()
    root = tj.linalg.sqrtm(SYMMETRIC * (1.0 * m**2))
    assert root.unit == m
    assert isinstance(root.value, tj.Symmetric)


def test_the_logarithm_of_a_definite_matrix_promises_nothing_and_its_root_does():
    a = tj.Symmetric(jnp.array([[0.1, 0.02], [0.02, 0.2]]), definite=True)
    assert tj.linalg.sqrtm(a).definite
    assert not tj.linalg.logm(a).definite


def test_equations_of_lyapunov_with_a_complex_diagonal_take_its_conjugate():
    d, q = jnp.array([0.3 + 0.4j, -0.5 + 0.1j]), jnp.array([[1.0, 2j], [0.5, 1.0 - 1j]])
    a, star = np.diag(d), np.diag(d).conj()

    def solutions(d):
        x = tj.linalg.solve_lyapunov(tj.Diagonal(d), q)
        y = tj.linalg.solve_discrete_lyapunov(tj.Diagonal(d), q)
        return x, y

    x, y = solutions(d)
    np.testing.assert_allclose(a @ x + x @ star, q, atol=1e-12)
    np.testing.assert_allclose(y - a @ y @ star, q, atol=1e-12)
    closed = lambda d: (
        q / (d[:, None] + jnp.conj(d)),
        q / (1 - d[:, None] * jnp.conj(d)),
    )
    loss = lambda f: lambda d: sum(jnp.sum(jnp.abs(x) ** 2) for x in f(d))
    np.testing.assert_allclose(jax.grad(loss(solutions))(d), jax.grad(loss(closed))(d), rtol=1e-9)


class Decay(eqx.Module):
    """`exp(-rate * x)`, with its divided differences: a function that holds an array."""

    rate: jax.Array

    def __call__(self, x):
        return jnp.exp(-self.rate * x)


class Quotient(Decay):
    def __call__(self, x, y):
        mean, half = self.rate * (x + y) / 2, self.rate * (x - y) / 2
        safe = jnp.where(half == 0, 1.0, half)
        return -self.rate * jnp.exp(-mean) * jnp.where(half == 0, 1.0, jnp.sinh(safe) / safe)


@pytest.mark.parametrize(
    "f", [Decay, lambda rate: tj.rules.WithDifferences(Decay(rate), Quotient(rate))]
)
@pytest.mark.parametrize("a", [SYMMETRIC, SYMMETRIC.to_dense()], ids=["Symmetric", "dense"])
def test_a_module_as_function_is_called_and_differentiated(a, f):
    rate, x = jnp.asarray(0.7), jnp.ones(3)
    dense = SYMMETRIC.to_dense()
    want = lambda rate: jnp.sum(jax.scipy.linalg.expm(-rate * dense) @ x)
    for loss in (
        lambda rate: jnp.sum(tj.linalg.funm_multiply(a, x, f(rate))),
        lambda rate: jnp.sum(tj.linalg.funm_hermitian(a, f(rate)) @ x),
    ):
        for by in (lambda g: g, jax.grad, jax.hessian, lambda g: jax.jit(jax.jacfwd(g))):
            np.testing.assert_allclose(by(loss)(rate), by(want)(rate), rtol=1e-10)
    by_module = jax.grad(lambda module: jnp.sum(tj.linalg.funm_multiply(a, x, module)))(Decay(rate))
    np.testing.assert_allclose(by_module.rate, jax.grad(want)(rate), rtol=1e-10)
