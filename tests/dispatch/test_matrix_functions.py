"""Functions of matrices and matrix equations: values, derivatives, structure, bad input, units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg as sl

import tanjax as tj

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(3, 3)) * 0.4 + 2 * np.eye(3)
COMPLEX = REAL + 0.4j * RNG.normal(size=(3, 3))
OTHER, RIGHT = RNG.normal(size=(3, 3)) * 0.3 + np.eye(3), RNG.normal(size=(3, 3))
BASIS = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
WEIGHTS = RNG.normal(size=(4, 4))

OF_ONE = {
    "expm": (tj.expm, sl.expm),
    "sqrtm": (tj.sqrtm, sl.sqrtm),
    "logm": (tj.logm, sl.logm),
    "power": (
        lambda a: tj.fractional_matrix_power(a, -1.7),
        lambda a: sl.fractional_matrix_power(a, -1.7),
    ),
}


def differences(f, x, h=1e-4):
    """Central differences of `f`, the axes of `x` first."""
    columns = []
    for i in range(x.size):
        e = np.zeros(x.size)
        e[i] = h
        e = e.reshape(x.shape)
        columns.append((np.asarray(f(x + e)) - np.asarray(f(x - e))) / (2 * h))
    return np.array(columns).reshape(*x.shape, *np.shape(columns[0]))


@pytest.mark.parametrize("name", OF_ONE)
@pytest.mark.parametrize("a", [REAL, COMPLEX], ids=["real", "complex"])
def test_values_are_those_of_scipy(name, a):
    ours, theirs = OF_ONE[name]
    got = ours(jnp.asarray(a))
    assert got.dtype == a.dtype
    np.testing.assert_allclose(got, theirs(a), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("size", [1.0, 1j], ids=["real", "complex"])
def test_equations_are_those_of_scipy(size):
    """With their signs."""
    a, b, q = (jnp.asarray(x + size * 0.1 * x.T) for x in (REAL, OTHER, RIGHT))
    close = lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)
    close(tj.solve_sylvester(a, b, q), sl.solve_sylvester(a, b, q))
    close(tj.solve_lyapunov(a, q), sl.solve_continuous_lyapunov(a, q))
    small = 0.2 * a
    close(tj.solve_discrete_lyapunov(small, q), sl.solve_discrete_lyapunov(small, q))


def test_exponential_is_exact_between_two_numbers_of_squarings():
    """JAX's own loses four digits here."""
    entries = -np.array([10.0, 7.0, 1.0])
    np.testing.assert_allclose(
        jnp.diagonal(tj.expm(jnp.diag(jnp.asarray(entries)))), np.exp(entries), rtol=1e-13
    )


def test_logarithm_of_far_and_of_defective_matrices():
    defective = np.array([[2.0, 1.0, 0.5], [0.0, 2.0, 1.0], [0.0, 0.0, 2.0]])
    far = np.diag([1e-3, 1.0, 1e3]) + np.triu(RIGHT, 1)
    for a in (defective, far):
        np.testing.assert_allclose(tj.expm(tj.logm(jnp.asarray(a))), a, rtol=1e-12, atol=1e-11)


def test_logarithm_is_differentiated_at_a_defective_matrix():
    a = np.array([[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 2.0]])
    loss = jax.jit(lambda a: jnp.sum(RIGHT * tj.logm(a)))
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(a), differences(loss, a), atol=1e-7)


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
        f = tj.funm_hermitian(a, lambda x: jnp.exp(-x) * x)
        return jnp.sum(WEIGHTS * f) + jnp.sum(jnp.sin(f))

    return [jax.jit(f) for f in (loss, jax.grad(loss), jax.hessian(loss))]


@pytest.mark.parametrize("name", SPECTRA)
def test_two_derivatives_at_equal_eigenvalues(name, of_degenerate):
    a = (BASIS * np.array(SPECTRA[name])) @ BASIS.T
    loss, gradient, hessian = of_degenerate
    np.testing.assert_allclose(gradient(a), differences(loss, a), atol=1e-7)
    np.testing.assert_allclose(hessian(a), differences(gradient, a), atol=1e-6)


def test_second_derivative_where_the_first_one_vanishes():
    """`x exp(-x)` at 1: rounding errors of the slope, divided by gaps of rounding errors."""
    weights = jnp.asarray(WEIGHTS)

    def ours(a):
        return jnp.sum(weights * tj.funm_hermitian(a, lambda x: jnp.exp(-x) * x))

    def by_products(a):
        a = (a + a.T) / 2
        return jnp.sum(weights * (a @ jax.scipy.linalg.expm(-a)))

    spectra = [[1, 1 + 1e-16 * k, 1 + 3e-16 * k, 2] for k in (1, 3, 10, 30, 100, 300, 1e4, 1e6)]
    turned = [np.linalg.qr(RNG.normal(size=(4, 4)))[0] for _ in spectra]
    a = jnp.asarray([(q * w) @ q.T for q, w in zip(turned, spectra, strict=True)])
    got, want = (jax.jit(jax.vmap(jax.hessian(f)))(a) for f in (ours, by_products))
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_function_that_closes_over_a_parameter():
    eye = 2 * jnp.eye(3)
    f = lambda c: jnp.sum(tj.funm_hermitian(eye, lambda x: jnp.exp(c * x)))
    np.testing.assert_allclose(jax.grad(f)(0.3), 3 * 2 * np.exp(0.6), rtol=1e-12)


# -- batches, transformations ----------------------------------------------------------------------


def test_batches_as_in_jax():
    batch = jnp.stack([REAL, 2 * REAL, OTHER])
    for op in (tj.expm, tj.sqrtm, tj.logm):
        got = op(batch[:, None])
        assert got.shape == (3, 1, 3, 3)
        np.testing.assert_allclose(got[1, 0], op(batch[1]), rtol=1e-12)
    x = tj.solve_sylvester(batch, jnp.asarray(OTHER), jnp.asarray(RIGHT))
    np.testing.assert_allclose(batch @ x + x @ OTHER, jnp.stack([RIGHT] * 3), atol=1e-12)
    assert tj.solve_lyapunov(batch, jnp.asarray(RIGHT)).shape == (3, 3, 3)
    assert tj.funm_hermitian(batch, jnp.exp).shape == (3, 3, 3)
    assert tj.sqrtm(jnp.zeros((0, 0))).shape == (0, 0)


def test_gradient_in_a_checkpointed_scan_of_a_vmap():
    def loss(a):
        step = jax.checkpoint(lambda x, _: (tj.sqrtm(x) + 0.1 * tj.logm(x), None))
        return jnp.sum(RIGHT * jax.lax.scan(step, a, length=2)[0])

    value, gradient = (jax.jit(jax.vmap(f)) for f in (loss, jax.grad(loss)))
    batch = np.stack([REAL, 1.5 * REAL])
    numeric = differences(value, batch)  # (batch, 3, 3, batch): no loss sees the other matrix
    expected = np.stack([numeric[k, ..., k] for k in range(2)])
    np.testing.assert_allclose(gradient(batch), expected, atol=1e-6)


# -- structure -------------------------------------------------------------------------------------

SYMMETRIC = tj.Symmetric(jnp.asarray(OTHER @ OTHER.T + np.eye(3)))


@pytest.mark.parametrize(
    ("a", "kind"),
    [
        (tj.Diagonal(jnp.array([1.3, 0.7])), tj.Diagonal),
        (SYMMETRIC, tj.Symmetric),
        (tj.Hermitian(jnp.array([[2.0, 0.3j], [-0.3j, 1.0]])), tj.Hermitian),
        (tj.Triangular(jnp.asarray(REAL)), tj.Triangular),
        (tj.BlockDiagonal(SYMMETRIC, tj.Diagonal(jnp.array([2.0]))), tj.BlockDiagonal),
    ],
    ids=lambda x: "" if isinstance(x, type) else type(x).__name__,
)
def test_functions_keep_the_type(a, kind):
    with tj.densify("error"):
        for op, theirs in (
            (tj.sqrtm, sl.sqrtm),
            (lambda a: tj.matrix_power(a, -2), lambda a: np.linalg.matrix_power(a, -2)),
        ):
            got = op(a)
            assert type(got) is kind
            np.testing.assert_allclose(got.to_dense(), theirs(a.to_dense()), atol=1e-12)


def test_identity():
    assert isinstance(tj.sqrtm(tj.Identity(3)), tj.Identity)
    assert isinstance(tj.logm(tj.Identity(3)), tj.Zero)
    np.testing.assert_allclose(tj.expm(tj.Identity(2)).to_dense(), np.e * np.eye(2))


def test_kronecker_products():
    pair = tj.Kronecker(SYMMETRIC, jnp.asarray(REAL))
    root = tj.sqrtm(pair)
    assert isinstance(root, tj.Kronecker)
    np.testing.assert_allclose(root.to_dense(), sl.sqrtm(pair.to_dense()), atol=1e-12)
    turn = jnp.array([[-0.5, -0.8], [0.8, -0.5]])  # by more than a right angle; twice, more than pi
    assert jnp.all(jnp.isnan(tj.sqrtm(tj.Kronecker(turn, turn)).to_dense()))


def test_a_symmetric_right_hand_side_has_a_symmetric_solution():
    q = tj.Symmetric(jnp.asarray(RIGHT))
    for op in (tj.solve_lyapunov, tj.solve_discrete_lyapunov):
        x = op(jnp.asarray(0.3 * REAL), q)
        assert isinstance(x, tj.Symmetric)
        np.testing.assert_allclose(x.data, op(0.3 * REAL, q.data), rtol=1e-10)


def test_equal_eigenvalues_in_equations():
    """Eigenvectors are not differentiated: the gradient by a multiple of the identity is finite."""
    loss = lambda a, q: jnp.sum(RIGHT * tj.solve_lyapunov(tj.Symmetric(a, "mean"), q))
    a = 2 * np.eye(3)
    np.testing.assert_allclose(
        jax.grad(loss)(a, RIGHT), differences(lambda a: loss(a, RIGHT), a), atol=1e-7
    )


def test_roots_of_singular_covariances():
    """An eigenvalue that is negative by rounding errors counts as zero."""
    v = jnp.asarray(RNG.normal(size=(4, 1)))
    cov = v @ v.T
    for a in (cov, tj.Symmetric(cov, "mean")):
        root = tj.destructure(tj.sqrtm(a)) if tj.is_structured(a) else tj.sqrtm(a)
        np.testing.assert_allclose(root @ root, cov, atol=1e-7)


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3), (3,)])
def test_only_square_matrices(shape):
    a = jnp.ones(shape)
    power = lambda a: tj.fractional_matrix_power(a, 0.5)
    for op in (tj.expm, tj.sqrtm, tj.logm, power, lambda a: tj.funm_hermitian(a, jnp.exp)):
        with pytest.raises(tj.ShapeError):
            op(a)


def test_shapes_that_do_not_fit():
    a, q = jnp.eye(2), jnp.ones((2, 3))
    for call in (
        lambda: tj.solve_sylvester(a, a, q),
        lambda: tj.solve_sylvester(tj.Diagonal(jnp.ones(2)), a, q),
        lambda: tj.solve_lyapunov(a, q),
        lambda: tj.solve_discrete_lyapunov(tj.Symmetric(a), q),
        lambda: tj.sqrtm(tj.BlockDiagonal(q, q.T)),
        lambda: tj.sqrtm(tj.Kronecker(q, q.T)),
        lambda: tj.funm_hermitian(a, jnp.sum),
    ):
        with pytest.raises(tj.ShapeError):
            call()


def test_powers_are_python_numbers():
    with pytest.raises(TypeError, match="static"):
        jax.jit(lambda t: tj.fractional_matrix_power(jnp.eye(2), t))(0.5)
    with pytest.raises(TypeError, match="func"):
        tj.funm_hermitian(tj.Symmetric(jnp.eye(2)), 3)
    for a in (jnp.eye(2), tj.Diagonal(jnp.ones(2)), tj.Symmetric(jnp.eye(2)) * tj.unit("m")):
        with pytest.raises(TypeError, match=r"matrix_power: `n` is static, a whole number"):
            tj.matrix_power(a, 0.5)
        with pytest.raises(TypeError, match=r"fractional_matrix_power: `t` is static, a real"):
            tj.fractional_matrix_power(a, "a")
    assert tj.matrix_power(tj.Identity(2), np.int64(3)).shape == (2, 2)


def test_functions_of_hermitian_matrices_alone():
    """Of a dense matrix the Hermitian part is taken; of a type that says otherwise nothing."""
    upper = jnp.array([[1.0, 2.0], [0.0, 3.0]])
    for a in (tj.Triangular(upper, lower=False), tj.Symmetric(upper.astype(complex))):
        with pytest.raises(tj.ShapeError, match="not Hermitian by its type"):
            tj.funm_hermitian(a, jnp.exp)
        with pytest.raises(tj.ShapeError, match="not Hermitian by its type"):
            tj.funm_multiply(a, jnp.ones(2), jnp.exp)


def definite(n, seed):
    half = np.random.default_rng(seed).normal(size=(n, n))
    return tj.Symmetric(half @ half.T + np.eye(n))


@pytest.mark.parametrize(
    "op", [tj.cholesky, tj.sqrtm, lambda a: tj.fractional_matrix_power(a, -0.3)]
)
@pytest.mark.parametrize(
    "a",
    [
        tj.Kronecker(-definite(2, 0), -definite(3, 1)),
        tj.Kronecker(-definite(2, 0), tj.Diagonal(jnp.array([1.0, 2.0])), -definite(2, 2)),
        tj.Scaled(-definite(3, 1), -2.0),
        tj.Scaled(tj.Kronecker(definite(2, 0), -definite(2, 1)), -0.5),
        tj.Scaled(tj.BlockDiagonal(-definite(2, 0), tj.Kronecker(-definite(2, 3))), -3.0),
    ],
)  # fmt: skip
def test_signs_that_cancel(op, a):
    """A definite matrix of negative parts: the literal definition has a factor, and a gradient."""
    weights = jnp.sin(jnp.arange(a.size)).reshape(a.shape)
    by_parts = lambda a: tj.destructure(op(a))
    literal = lambda a: op(tj.destructure(a))
    with tj.densify("allow"):
        np.testing.assert_allclose(by_parts(a), literal(a), atol=1e-12)
        found, expected = (
            jax.grad(lambda a, f=f: jnp.sum(weights * f(a)))(a) for f in (by_parts, literal)
        )
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-11)


def test_signs_that_do_not_cancel():
    a = definite(2, 0)
    promised = tj.Symmetric(a.data, definite=True)
    for x in (tj.Kronecker(a, -a), tj.Scaled(a, -1.0), tj.Scaled(promised, -1.0), -tj.Identity(2)):
        assert jnp.all(jnp.isnan(jnp.diagonal(tj.destructure(tj.cholesky(x)))))


def test_negative_eigenvalues_of_real_matrices_give_nan():
    swap = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    for op in (tj.sqrtm, tj.logm, lambda a: tj.fractional_matrix_power(a, 0.3)):
        assert jnp.all(jnp.isnan(op(swap)))
        assert jnp.all(jnp.isnan(op(tj.Symmetric(swap)).data))
    root = tj.sqrtm(swap.astype(complex))
    np.testing.assert_allclose(root @ root, swap, atol=1e-14)


def test_singular_matrices():
    assert jnp.all(tj.sqrtm(jnp.zeros((2, 2))) == 0)
    nilpotent = jnp.array([[0.0, 1.0], [0.0, 0.0]])  # has no root
    assert jnp.any(jnp.isnan(tj.sqrtm(nilpotent)))
    assert not jnp.any(jnp.isfinite(tj.logm(jnp.zeros((2, 2)))))
    x = tj.solve_sylvester(jnp.eye(2), -jnp.eye(2), jnp.ones((2, 2)))
    assert not jnp.any(jnp.isfinite(x))


def test_nan_and_integers():
    assert jnp.all(jnp.isnan(tj.sqrtm(jnp.full((2, 2), jnp.nan))))
    np.testing.assert_allclose(tj.sqrtm(jnp.array([[4, 0], [0, 9]])), np.diag([2.0, 3.0]))


# -- quantities ------------------------------------------------------------------------------------


def test_units():
    m, s = tj.unit("m"), tj.unit("s")
    area = jnp.asarray(REAL) * m**2
    assert tj.sqrtm(area).unit == m
    assert tj.fractional_matrix_power(area, 1.5).unit == m**3
    assert tj.matrix_power(area, -2).unit == m**-4
    assert tj.expm(jnp.asarray(REAL) * (m / m)).shape == (3, 3)
    rate, q = jnp.asarray(REAL) / s, jnp.asarray(RIGHT) * m
    assert tj.solve_lyapunov(rate, q).unit == m * s
    assert tj.solve_sylvester(rate, rate, q).unit == m * s
    for call in (
        lambda: tj.expm(area),
        lambda: tj.logm(area),
        lambda: tj.funm_hermitian(area, jnp.exp),
        lambda: tj.solve_discrete_lyapunov(rate, q),
        lambda: tj.solve_sylvester(rate, area, q),
    ):
        with pytest.raises(tj.UnitError):
            call()
    root = tj.sqrtm(SYMMETRIC * (1.0 * m**2))
    assert root.unit == m
    assert isinstance(root.value, tj.Symmetric)


# -- other doors -----------------------------------------------------------------------------------


def test_functions_of_jax_gain_their_derivatives():
    import tanjax.scipy.linalg as tsl

    root = tsl.sqrtm(jnp.asarray(REAL))
    assert root.dtype == jnp.complex128  # as JAX's
    ours = jax.grad(lambda a: jnp.sum(RIGHT * tj.sqrtm(a)))(REAL)
    theirs = jax.grad(lambda a: jnp.sum(RIGHT * jnp.real(tsl.sqrtm(a))))(REAL)
    np.testing.assert_allclose(theirs, ours, rtol=1e-10)
    gradient = jax.grad(lambda a: jnp.sum(tsl.solve_sylvester(a, OTHER, RIGHT)))(REAL)
    want = jax.grad(lambda a: jnp.sum(tj.solve_sylvester(a, OTHER, RIGHT)))(REAL)
    np.testing.assert_allclose(gradient, want, rtol=1e-12)


def test_structured_arrays_through_other_doors():
    import tanjax.scipy.linalg as tsl

    d = tj.Diagonal(jnp.array([4.0, 9.0]))
    with tj.densify("error"):
        assert isinstance(tsl.sqrtm(d), tj.Diagonal)
        assert isinstance(tsl.expm(d), tj.Diagonal)
        assert isinstance(np.linalg.matrix_power(d, 3), tj.Diagonal)
        assert isinstance(tj.numpy.linalg.matrix_power(d, 3), tj.Diagonal)
