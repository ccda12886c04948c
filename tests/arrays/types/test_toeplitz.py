"""Toeplitz matrices: what the constructor takes, and algebra against SciPy's dense matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import tanjax as tj

VALUES = jnp.array([3.0, 2.0, 1.0, 5.0, 7.0])
RNG = np.random.default_rng(5)


@pytest.mark.parametrize(
    ("values", "shape", "dense"),
    [
        (VALUES, None, [[1, 2, 3], [5, 1, 2], [7, 5, 1]]),
        (VALUES, (2, 4), [[5, 1, 2, 3], [7, 5, 1, 2]]),
        (VALUES, (4, 2), [[2, 3], [1, 2], [5, 1], [7, 5]]),
        (VALUES, (1, 5), [[7, 5, 1, 2, 3]]),
        ([4.0], None, [[4]]),
        ([], None, np.zeros((0, 0))),
        ([], (0, 3), np.zeros((0, 3))),
        ([], (3, 0), np.zeros((3, 0))),
    ],
)
def test_the_dense_array_and_products(values, shape, dense):
    a = tj.Toeplitz(jnp.asarray(values, float), shape)
    dense = np.asarray(dense, float)
    np.testing.assert_array_equal(a.to_dense(), dense)
    np.testing.assert_array_equal(a.mT.to_dense(), dense.T)
    assert a.shape == dense.shape
    b = RNG.normal(size=(dense.shape[1], 2))
    np.testing.assert_allclose(a @ jnp.asarray(b), dense @ b, atol=1e-14)
    np.testing.assert_allclose(jnp.asarray(b.T) @ a.mT, b.T @ dense.T, atol=1e-14)
    np.testing.assert_allclose(tj.sum(a), dense.sum(), atol=1e-14)
    np.testing.assert_allclose(tj.trace(a), np.trace(dense), atol=1e-14)


def test_from_column_is_what_scipy_makes():
    column, row = RNG.normal(size=3) + 1j * RNG.normal(size=3), RNG.normal(size=4) + 0j
    make = tj.Toeplitz.from_column
    np.testing.assert_array_equal(make(column, row), scipy.linalg.toeplitz(column, row))
    np.testing.assert_array_equal(make(column), scipy.linalg.toeplitz(column))
    assert make(jnp.ones(0)).shape == (0, 0)
    assert make(jnp.ones(0), jnp.ones(3)).shape == (0, 3)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: tj.Toeplitz(jnp.ones(4)), "(?s)odd number of diagonals.*Hint: say `shape"),
        (lambda: tj.Toeplitz(jnp.ones(4), (2, 4)), "do not fit the shape"),
        (lambda: tj.Toeplitz(jnp.ones(2), (0, 3)), "do not fit the shape"),
        (lambda: tj.Toeplitz(jnp.ones(3), jnp.ones((2, 2))), "tuple of whole numbers"),
        (lambda: tj.Toeplitz(jnp.ones(4), (2, 3, 1)), "do not fit the shape"),
        (lambda: tj.Fill(2.0, (2, -1)), "Fill: `shape` must be a tuple of whole numbers"),
        (lambda: tj.Zero(2.0), "Zero: `shape` must be a tuple of whole numbers"),
        (lambda: tj.Toeplitz(1.0), "`values` must.* 1 dimension"),
        (lambda: tj.Toeplitz.from_column(jnp.ones((2, 2))), "must be vectors"),
        (lambda: tj.solve(tj.Toeplitz(jnp.ones(4), (2, 3)), jnp.ones(2)), "needs a square matrix"),
        (lambda: tj.Toeplitz(VALUES) @ jnp.ones(4), "cannot multiply"),
    ],
)
def test_wrong_input_is_named(make, says):
    with pytest.raises(tj.ShapeError, match=says):
        make()


def test_integers_stay_exact():
    a = tj.Toeplitz(jnp.array([2**40 + 1, 3, 5]))
    assert (a @ jnp.array([1, 2**20])).tolist() == [3 + 2**60 + 2**20, 5 + 3 * 2**20]
    assert a.dtype == jnp.int64
    with jax.numpy_dtype_promotion("standard"):
        x = tj.solve(tj.Toeplitz(jnp.array([1, 3, 1])), jnp.array([4.0, 4.0]))
    np.testing.assert_allclose(x, [1.0, 1.0])


def test_blocks_and_sums_stay_in_the_type():
    a, dense = tj.Toeplitz(VALUES), np.asarray(tj.Toeplitz(VALUES))
    part = a.submatrix(slice(1, 3), slice(0, 2))
    assert isinstance(part, tj.Toeplitz)
    np.testing.assert_array_equal(part, dense[1:3, :2])
    noise = 0.5 * np.eye(3)
    for other, want in (
        (tj.Toeplitz(VALUES[::-1]), dense + dense.T),
        (tj.Identity(3), dense + np.eye(3)),
        (tj.Scaled(tj.Identity(3), 0.5), dense + noise),
        (tj.Fill(2.0, (3, 3)), dense + 2),
        (tj.Circulant(jnp.array([1.0, 2.0, 3.0])), dense + scipy.linalg.circulant([1, 2, 3])),
    ):
        for total in (a + other, other + a):
            assert isinstance(total, tj.Toeplitz)
            np.testing.assert_allclose(total, want)
    for multiple, want in ((2 * a, 2 * dense), (-a, -dense), (a / 4, dense / 4)):
        assert isinstance(multiple, tj.Toeplitz)
        np.testing.assert_array_equal(multiple, want)


N = 12
LAGS = np.arange(N)
SYSTEMS = {
    "generic": RNG.normal(size=2 * N - 1),
    "zeros on the diagonal": np.where(np.arange(2 * N - 1) == N - 1, 0, RNG.normal(size=2 * N - 1)),
    "a cyclic shift": np.where((np.arange(2 * N - 1) - N) % N == 0, 1.0, 0.0),
    "upper triangular": np.where(
        np.arange(2 * N - 1) < N, 0.5 ** (N - 1 - np.arange(2 * N - 1)), 0
    ),
    "symmetric, indefinite": np.cos(np.abs(np.arange(2 * N - 1) - N + 1) * 1.3),
}
SYSTEMS["symmetric, indefinite"][N - 1] = 0.2
DEFINITE = np.exp(-0.4 * LAGS) + 0.1 * (LAGS == 0)


@jax.jit
def everything(a, b):
    return tj.solve(a, b), tj.solve(a.mT, b), tj.slogdet(a), tj.logdet(a), tj.det(a)


@pytest.mark.parametrize("case", [*SYSTEMS, "definite"])
def test_systems_and_determinants_agree_with_dense_ones(case):
    if case in SYSTEMS:
        a = tj.Toeplitz(jnp.asarray(SYSTEMS[case]))
    else:
        a = tj.Toeplitz.from_column(DEFINITE)
    b, dense = RNG.normal(size=(N, 2)), np.asarray(a)
    x, y, (sign, logabsdet), logdet, det = everything(a, jnp.asarray(b))
    scale = np.linalg.cond(dense) * 1e-14
    np.testing.assert_allclose(x, np.linalg.solve(dense, b), atol=scale * np.abs(x).max())
    np.testing.assert_allclose(y, np.linalg.solve(dense.T, b), atol=scale * np.abs(y).max())
    want = np.linalg.slogdet(dense)
    assert sign == want.sign
    np.testing.assert_allclose([logabsdet, logdet], want.logabsdet, atol=1e-12)
    np.testing.assert_allclose(det, np.linalg.det(dense), rtol=1e-11)


def test_a_singular_matrix_has_a_sign_of_zero():
    singular = tj.Toeplitz(jnp.zeros(5))
    assert tj.slogdet(singular) == (0.0, -jnp.inf)
    assert tj.det(singular) == 0.0


def test_single_precision_is_as_good_as_dense_elimination():
    n = 200
    lags = np.arange(n)
    column = (np.exp(-((lags / 4.0) ** 2) / 2) + 0.05 * (lags == 0)).astype(np.float32)
    b = RNG.normal(size=n).astype(np.float32)
    exact = np.linalg.solve(scipy.linalg.toeplitz(column.astype(float)), b)
    dense = jnp.linalg.solve(jnp.asarray(scipy.linalg.toeplitz(column)), b)
    error = lambda x: np.linalg.norm(np.asarray(x, float) - exact) / np.linalg.norm(exact)
    values = tj.Toeplitz.from_column(column)
    almost = values.replace(values=values.values.at[0].add(1e-9))  # not Hermitian
    for a in (values, almost):
        x = tj.solve(a, jnp.asarray(b))
        assert x.dtype == jnp.float32
        assert error(x) < 3 * error(dense) + 1e-6
    product = values @ jnp.asarray(b)
    want = scipy.linalg.toeplitz(column.astype(float)) @ b
    assert product.dtype == jnp.float32
    assert np.max(np.abs(np.asarray(product) - want)) < 3e-6 * np.max(np.abs(want))


def test_batches():
    values = jnp.asarray(RNG.normal(size=(3, 5))).at[:, 2].add(4.0)
    b = jnp.asarray(RNG.normal(size=(3, 3)))
    batch = jax.vmap(tj.Toeplitz)(values)
    assert batch.shape == (3, 3, 3)
    dense = np.stack([np.asarray(tj.Toeplitz(v)) for v in values])
    np.testing.assert_array_equal(batch.to_dense(), dense)
    np.testing.assert_array_equal(batch.transposed().to_dense(), np.swapaxes(dense, 1, 2))
    natural = jnp.asarray(RNG.normal(size=(3, 3, 3)))
    want = jax.vmap(lambda y: jnp.stack([jnp.trace(y, -d) for d in range(-2, 3)]))(natural)
    np.testing.assert_allclose(tj.structural(batch, natural).values, want, atol=1e-14)
    solved = jax.vmap(tj.solve)(batch, b)
    np.testing.assert_allclose(solved, np.linalg.solve(dense, b[..., None])[..., 0], atol=1e-13)
    np.testing.assert_allclose(jax.vmap(tj.logdet)(batch), np.linalg.slogdet(dense)[1], atol=1e-13)


def test_quantities():
    length = tj.unit("m")
    a = tj.Toeplitz(tj.quantity(VALUES.at[2].add(9.0), length))
    assert isinstance(a, tj.Unitful)
    x = tj.solve(a, tj.quantity(jnp.ones(3), tj.unit("m s")))
    assert x.unit == tj.unit("s")
    np.testing.assert_allclose(np.asarray(a.value) @ x.value, np.ones(3), atol=1e-14)
    assert tj.det(a).unit == tj.unit("m3")
    with pytest.raises(tj.UnitError):
        tj.logdet(a)


def test_natural_gradients_of_complex_matrices():
    a = tj.Toeplitz(jnp.asarray(RNG.normal(size=4) + 1j * RNG.normal(size=4)), (2, 3))
    got = tj.grad(lambda a: jnp.real(tj.norm(a)) ** 2)(a)
    assert isinstance(got, tj.Toeplitz)
    np.testing.assert_allclose(got, 2 * np.conj(np.asarray(a)), atol=1e-14)
