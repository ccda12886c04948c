"""Spectra of symmetric tridiagonal matrices: every hard family, large ones, every front door."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.kernels import tridiagonal_eigenpairs, tridiagonal_eigenvalues
from tanjax.kernels._divide_and_conquer import SMALLEST

R = np.random.default_rng(7)
N = 37
T = tj.SymTridiagonal([2.0, 3.0, 4.0, 5.0], [-1.0, 0.5, 0.25])


@pytest.fixture(autouse=True)
def nothing_becomes_dense():
    with tj.densify("error"):
        yield


def families(n=N):
    """Families that have broken algorithms, the same in every order of the tests.

    No number is subnormal in float32: XLA takes those for zeros.
    """
    drawn = np.random.default_rng(7)
    i, draw, ones = np.arange(1.0, n), drawn.normal, np.ones(n)
    tiny = lambda size: 1e-36 * drawn.choice([-1, 1], size) * drawn.uniform(0.02, 2, size)
    wilkinson = np.abs(np.arange(n) - n // 2.0)
    tiled = np.tile(np.abs(np.arange(9) - 4.0), n)[:n]
    glue = lambda size: np.where(np.arange(1, n) % 9 == 0, size, 1.0)
    falls = 10.0 ** -np.linspace(0, 30, n)
    yield "random", draw(size=n), draw(size=n - 1)
    yield "1 2 1", 2 * ones, -ones[1:]
    yield "Wilkinson", wilkinson, ones[1:]
    for size in (1e-3, 1e-7, 1e-14, 0.0):
        yield f"glued by {size}", tiled, glue(size)
    yield "nearly constant", ones, 1e-10 * draw(size=n - 1)
    yield "constant up to rounding", ones, 1e-16 * ones[1:]
    yield "identity", ones, 0 * i
    yield "zero", 0 * ones, 0 * i
    yield "diagonal", draw(size=n), 0 * i
    yield "Clement", 0 * ones, np.sqrt(i * (n - i))
    yield "Legendre", 0 * ones, i / np.sqrt(4 * i * i - 1)
    yield "Laguerre", 2 * np.arange(n) + 1.0, i
    yield "falling", falls, 0.3 * falls[1:]
    yield "rising", falls[::-1], 0.3 * falls[:0:-1]
    yield "huge", 1e37 * draw(size=n), 1e37 * draw(size=n - 1)
    yield "tiny", tiny(n), tiny(n - 1)
    yield "of small whole numbers", drawn.integers(-1, 2, n), drawn.integers(-1, 2, n - 1)
    yield "of all sizes", 10.0 ** drawn.uniform(-20, 0, n), 10.0 ** drawn.uniform(-20, 0, n - 1)
    yield "clusters", np.round(2 * draw(size=n)), 1e-7 * draw(size=n - 1)


def solved(dtype):
    """All families at once: eigenvalues by bisection, pairs by two levels of division."""
    names, diag, off = zip(*families(), strict=True)
    diag, off = jnp.asarray(np.stack(diag), dtype), jnp.asarray(np.stack(off), dtype)
    both = lambda d, o: (
        tridiagonal_eigenvalues(d, o),
        *tridiagonal_eigenpairs(d, o, smallest=N // 4 + 1),
    )
    found = map(np.asarray, (diag, off, *jax.jit(jax.vmap(both))(diag, off)))
    return zip(names, *found, strict=True)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_family(dtype):
    """Residuals, orthogonality and eigenvalues, in rounding errors of the norm of the matrix."""
    limit = 24 * float(np.finfo(dtype).eps)
    for name, diag, off, values, w, v in solved(dtype):
        size = max(np.abs(diag).max(), np.abs(off).max()) or 1.0
        d, o, w, values = (x.astype(np.longdouble) / size for x in (diag, off, w, values))
        v = v.astype(np.longdouble)
        image = d[:, None] * v
        image[:-1] += o[:, None] * v[1:]
        image[1:] += o[:, None] * v[:-1]
        assert np.abs(image - v * w).max() <= limit, name
        assert np.abs(v.T @ v - np.eye(N)).max() <= limit, name
        assert (np.diff(w) >= 0).all(), name
        assert (np.diff(values) >= 0).all(), name
        want = np.linalg.eigvalsh((np.diag(d) + np.diag(o, 1) + np.diag(o, -1)).astype(float))
        assert np.abs(values - want).max() <= limit, name
        assert np.abs(w - want).max() <= limit, name


def test_random_matrices_of_whole_numbers_and_zeros():
    """Exactly equal eigenvalues, blocks, and poles without weight, in every order."""
    count, n = 300, 12
    diag = jnp.asarray(R.integers(-2, 3, (count, n)), float)
    off = jnp.asarray(R.integers(-1, 2, (count, n - 1)) * R.choice([1, 1e-8, 1e-16], (count, 1)))
    divide = functools.partial(tridiagonal_eigenpairs, smallest=3)
    w, v = map(np.asarray, jax.jit(jax.vmap(divide))(diag, off))
    dense = np.asarray(tj.SymTridiagonal(diag, off).to_dense())
    assert np.abs(dense @ v - v * w[:, None]).max() < 1e-14
    assert np.abs(v.mT @ v - np.eye(n)).max() < 1e-14
    assert np.abs(w - np.linalg.eigvalsh(dense)).max() < 1e-14


def test_divided_matrices_are_differentiated_like_dense_ones():
    """Larger than what LAPACK is asked for: values, projectors and their gradients."""
    n = SMALLEST + 9
    diag, off, x = (jnp.asarray(R.normal(size=k)) for k in (n, n - 1, n))

    def both(eigh):
        def loss(diag, off):
            w, v = eigh(tj.SymTridiagonal(3 * diag, off))
            return jnp.sum(jnp.sin(w)) + x @ (v @ (jnp.tanh(w) * (v.T @ x))) / n

        return jax.jit(jax.value_and_grad(loss, (0, 1)))(diag, off)

    got, want = both(tj.linalg.eigh), both(lambda a: jnp.linalg.eigh(a.to_dense()))
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9), got, want)


def test_equal_eigenvalues():
    """As for full matrices: right for losses of the space that belongs to them, else nan."""
    a = tj.SymTridiagonal([1.0, 2.0, 1.0, 2.0], [0.5, 0.0, 0.5])  # two blocks, the same
    weights = jnp.asarray(R.normal(size=(4, 4)))

    def projector(a, **promise):
        v = tj.linalg.eigh(a, **promise).eigenvectors[:, :2]
        return jnp.sum(weights * (v @ v.T))

    full = tj.Symmetric(a.to_dense())
    want = tj.tangents.structural(a, jax.grad(projector)(full).data)
    for gradient in (
        jax.grad(projector)(a),
        jax.jacrev(functools.partial(projector, invariant=True))(a),
        jax.jacfwd(functools.partial(projector, invariant=True))(a),
    ):
        np.testing.assert_allclose(gradient.diag, want.diag, atol=1e-12)
        np.testing.assert_allclose(gradient.off, want.off, atol=1e-12)
    first = jax.grad(lambda a: tj.linalg.eigh(a).eigenvectors[0, 0])(a)
    assert np.isnan(first.diag).all()
    symmetric = jax.grad(lambda a: jnp.sum(jnp.log(tj.linalg.eigvalsh(a))))(a)
    np.testing.assert_allclose(symmetric.diag, np.diag(np.linalg.inv(a.to_dense())), rtol=1e-12)
    trace = jax.grad(lambda a: tj.linalg.eigvalsh(a).sum())(
        tj.SymTridiagonal(jnp.ones(3), jnp.zeros(2))
    )
    np.testing.assert_allclose(trace.diag, 1.0, rtol=1e-15)


def test_programs_of_values_hold_no_matrix():
    """A gradient of values has one, of the vectors, and no product with it."""
    a = tj.SymTridiagonal(jnp.ones(50), jnp.ones(49))
    program = lambda f: str(jax.make_jaxpr(f)(a))
    orders = (1, -1, jnp.inf, -jnp.inf, 2, -2, "nuc", "fro")
    for f in (tj.linalg.eigvalsh, *(functools.partial(tj.norm, ord=p) for p in orders)):
        assert "[50,50]" not in program(f)
    assert "[50,50]" not in program(functools.partial(tj.linalg.matrix_power, n=5))
    assert "[50,50]" not in program(
        lambda a: (tj.linalg.condition_number(a), tj.linalg.matrix_rank(a))
    )
    assert "dot_general" not in program(jax.grad(lambda a: jnp.sum(tj.linalg.eigvalsh(a) ** 2)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_entries_that_are_not_finite_give_nan(bad):
    for a in (tj.SymTridiagonal([1.0, bad, 2.0], [0.1, 0.2]), tj.SymTridiagonal([1.0, 2.0], [bad])):
        assert np.isnan(tj.linalg.eigvalsh(a)).all()
        assert all(np.isnan(x).all() for x in tj.linalg.eigh(a))


def test_small_integer_and_batched_matrices():
    empty = tj.SymTridiagonal(jnp.zeros(0), jnp.zeros(0))
    assert (tj.linalg.eigvalsh(empty).shape, tj.linalg.eigh(empty).eigenvectors.shape) == (
        (0,),
        (0, 0),
    )
    np.testing.assert_array_equal(
        tj.linalg.eigvalsh(tj.SymTridiagonal([3], np.zeros(0, int))), [3.0]
    )
    np.testing.assert_allclose(
        tj.linalg.eigvalsh(tj.SymTridiagonal([1, 1], [2])), [-1, 3], rtol=1e-15
    )
    batch = tj.SymTridiagonal(R.normal(size=(2, 3, 4)), R.normal(size=(2, 3, 3)))
    w, v = tj.linalg.eigh(batch)
    dense = batch.to_dense()
    np.testing.assert_allclose(tj.linalg.eigvalsh(batch), np.linalg.eigvalsh(dense), atol=1e-14)
    np.testing.assert_allclose((v * w[..., None, :]) @ v.mT, dense, atol=1e-14)
    gradient = jax.grad(lambda a: jnp.sum(jnp.exp(tj.linalg.eigvalsh(a))))(batch)
    want = np.diagonal(jax.scipy.linalg.expm(dense), axis1=-2, axis2=-1)
    np.testing.assert_allclose(gradient.diag, want, rtol=1e-12)


def test_every_front_door_and_units():
    want = np.linalg.eigvalsh(T.to_dense())
    metre = tj.unit("m")
    for w in (
        tj.lift(jnp.linalg.eigh)(T)[0],
        tj.lift(jnp.linalg.eigvalsh)(T),
        np.linalg.eigh(T)[0],
        np.linalg.eigvalsh(T),
        tj.numpy.linalg.eigh(T)[0],
        tj.numpy.linalg.eigvalsh(T),
        tj.linalg.eigvalsh(T * metre).to_value("m"),
        tj.linalg.eigh(T * metre).eigenvalues.to_value("m"),
    ):
        np.testing.assert_allclose(w, want, rtol=1e-14)
    root = tj.linalg.sqrtm(T * metre**2)
    np.testing.assert_allclose(root.to_value("m").data, tj.linalg.sqrtm(T).data)
    with pytest.raises(tj.ShapeError, match="not Hermitian by its type"):
        tj.linalg.eigh(tj.SymTridiagonal([1.0 + 0j, 1.0], [1.0j]))


def test_functions_are_symmetric_and_powers_are_bands():
    cosine = lambda a: tj.linalg.funm_hermitian(a, jnp.cos)
    root = functools.partial(tj.linalg.fractional_matrix_power, t=0.3)
    assert [
        type(f(T)) for f in (tj.linalg.expm, tj.linalg.logm, tj.linalg.sqrtm, root, cosine)
    ] == [tj.Symmetric] * 5
    off, diag, bands = R.normal(size=(2, 8)), R.normal(size=9), R.normal(size=(3, 9))
    tridiagonals = tj.Tridiagonal(off[0], diag, off[1]), tj.SymTridiagonal(diag, off[0])
    for a in (*tridiagonals, tj.Banded(bands, 2, 0)):
        assert isinstance(tj.linalg.matrix_power(a, 3), tj.Banded)
        for n in (0, 1, 5):
            want = np.linalg.matrix_power(a.to_dense(), n)
            np.testing.assert_allclose(tj.linalg.matrix_power(a, n), want, rtol=1e-12, atol=1e-9)
