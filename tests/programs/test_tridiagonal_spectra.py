"""Spectra of symmetric tridiagonal matrices: every hard family, derivatives, every front door."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax_rules.factorizations.divide_and_conquer import SMALLEST, eigenpairs
from tanjax_rules.factorizations.sturm import eigenvalues

R = np.random.default_rng(7)
N = 37
T = tj.SymTridiagonal([2.0, 3.0, 4.0, 5.0], [-1.0, 0.5, 0.25])


@pytest.fixture(autouse=True)
def nothing_becomes_dense():
    with tj.densify("error"):
        yield


def families(n=N):
    """What algorithms for tridiagonal matrices have been broken by."""
    i, draw, ones = np.arange(1.0, n), R.normal, np.ones(n)
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
    yield "tiny", 1e-36 * draw(size=n), 1e-36 * draw(size=n - 1)
    yield "of small whole numbers", R.integers(-1, 2, n), R.integers(-1, 2, n - 1)
    yield "of all sizes", 10.0 ** R.uniform(-20, 0, n), 10.0 ** R.uniform(-20, 0, n - 1)
    yield "clusters", np.round(2 * draw(size=n)), 1e-7 * draw(size=n - 1)


def solved(dtype):
    """All families at once: eigenvalues by bisection, pairs by two levels of division."""
    names, diag, off = zip(*families(), strict=True)
    diag, off = jnp.asarray(np.stack(diag), dtype), jnp.asarray(np.stack(off), dtype)
    both = lambda d, o: (eigenvalues(d, o), *eigenpairs(d, o, smallest=N // 4 + 1))
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
    divide = functools.partial(eigenpairs, smallest=3)
    w, v = map(np.asarray, jax.jit(jax.vmap(divide))(diag, off))
    dense = np.asarray(tj.SymTridiagonal(diag, off).to_dense())
    assert np.abs(dense @ v - v * w[:, None]).max() < 1e-14
    assert np.abs(v.mT @ v - np.eye(n)).max() < 1e-14
    assert np.abs(w - np.linalg.eigvalsh(dense)).max() < 1e-14


def dense_of(diag, off):
    return jnp.diag(diag) + jnp.diag(off, 1) + jnp.diag(off, -1)


def test_divided_matrices_are_differentiated_like_dense_ones():
    """Larger than what LAPACK is asked for: values, projectors and their gradients."""
    n = SMALLEST + 9
    diag, off = jnp.asarray(3 * R.normal(size=n)), jnp.asarray(R.normal(size=n - 1))
    x = jnp.asarray(R.normal(size=n))

    def loss(w, v):
        return jnp.sum(jnp.sin(w)) + x @ (v @ (jnp.tanh(w) * (v.T @ x))) / n

    ours = lambda d, o: loss(*tj.eigh(tj.SymTridiagonal(d, o)))
    plain = lambda d, o: loss(*jnp.linalg.eigh(dense_of(d, o)))
    got, want = (jax.jit(jax.value_and_grad(f, (0, 1)))(diag, off) for f in (ours, plain))
    jax.tree.map(lambda g, h: np.testing.assert_allclose(g, h, rtol=1e-9, atol=1e-9), got, want)
    weights = jnp.asarray(R.normal(size=n))
    values = lambda d, o: weights @ tj.eigvalsh(tj.SymTridiagonal(d, o))
    plain = lambda d, o: weights @ jnp.linalg.eigvalsh(dense_of(d, o))
    got, want = (jax.jit(jax.value_and_grad(f, (0, 1)))(diag, off) for f in (values, plain))
    jax.tree.map(lambda g, h: np.testing.assert_allclose(g, h, rtol=1e-9, atol=1e-9), got, want)


def test_second_derivatives():
    weights = jnp.asarray([1.0, -0.5, 2.0, 0.3])
    ours = lambda d, o: weights @ jnp.cos(tj.eigvalsh(tj.SymTridiagonal(d, o)))
    plain = lambda d, o: weights @ jnp.cos(jnp.linalg.eigvalsh(dense_of(d, o)))
    for mode in (jax.hessian, lambda f, at: jax.jacrev(jax.jacrev(f, at), at)):
        got, want = (jax.jit(mode(f, (0, 1)))(T.diag, T.off) for f in (ours, plain))
        jax.tree.map(lambda g, h: np.testing.assert_allclose(g, h, atol=1e-12), got, want)


def test_equal_eigenvalues():
    """As for full matrices: right for losses of the space that belongs to them, else nan."""
    a = tj.SymTridiagonal([1.0, 2.0, 1.0, 2.0], [0.5, 0.0, 0.5])  # two blocks, the same
    weights = jnp.asarray(R.normal(size=(4, 4)))

    def projector(a, **promise):
        v = tj.eigh(a, **promise).eigenvectors[:, :2]
        return jnp.sum(weights * (v @ v.T))

    full = tj.Symmetric(a.to_dense())
    want = tj.structural(a, jax.grad(projector)(full).data)
    for gradient in (
        jax.grad(projector)(a),
        jax.jacrev(functools.partial(projector, invariant=True))(a),
        jax.jacfwd(functools.partial(projector, invariant=True))(a),
    ):
        np.testing.assert_allclose(gradient.diag, want.diag, atol=1e-12)
        np.testing.assert_allclose(gradient.off, want.off, atol=1e-12)
    first = jax.grad(lambda a: tj.eigh(a).eigenvectors[0, 0])(a)
    assert np.isnan(first.diag).all()
    symmetric = jax.grad(lambda a: jnp.sum(jnp.log(tj.eigvalsh(a))))(a)
    np.testing.assert_allclose(symmetric.diag, np.diag(np.linalg.inv(a.to_dense())), rtol=1e-12)
    trace = jax.grad(lambda a: tj.eigvalsh(a).sum())(tj.SymTridiagonal(jnp.ones(3), jnp.zeros(2)))
    np.testing.assert_allclose(trace.diag, 1.0, rtol=1e-15)


def test_values_need_no_matrix():
    a = tj.SymTridiagonal(jnp.ones(50), jnp.ones(49))
    program = lambda f: str(jax.make_jaxpr(f)(a))
    orders = (1, -1, jnp.inf, -jnp.inf, 2, -2, "nuc", "fro")
    for f in (tj.eigvalsh, *(functools.partial(tj.norm, ord=p) for p in orders)):
        assert "[50,50]" not in program(f)
    assert "[50,50]" not in program(functools.partial(tj.matrix_power, n=5))
    assert "[50,50]" not in program(lambda a: (tj.condition_number(a), tj.matrix_rank(a)))


def test_a_gradient_of_values_is_bands():
    """No matrix but the vectors, and no product with them."""
    a = tj.SymTridiagonal(jnp.ones(50), jnp.ones(49))
    program = str(jax.make_jaxpr(jax.grad(lambda a: jnp.sum(tj.eigvalsh(a) ** 2)))(a))
    assert "dot_general" not in program


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_of_what_is_not_finite(bad):
    for a in (tj.SymTridiagonal([1.0, bad, 2.0], [0.1, 0.2]), tj.SymTridiagonal([1.0, 2.0], [bad])):
        assert np.isnan(tj.eigvalsh(a)).all()
        assert all(np.isnan(x).all() for x in tj.eigh(a))


def test_small_integer_and_batched_matrices():
    assert tj.eigvalsh(tj.SymTridiagonal(jnp.zeros(0), jnp.zeros(0))).shape == (0,)
    assert tj.eigh(tj.SymTridiagonal(jnp.zeros(0), jnp.zeros(0))).eigenvectors.shape == (0, 0)
    np.testing.assert_array_equal(tj.eigvalsh(tj.SymTridiagonal([3], np.zeros(0, int))), [3.0])
    np.testing.assert_allclose(tj.eigvalsh(tj.SymTridiagonal([1, 1], [2])), [-1, 3], rtol=1e-15)
    batch = tj.SymTridiagonal(R.normal(size=(2, 3, 4)), R.normal(size=(2, 3, 3)))
    w, v = tj.eigh(batch)
    dense = batch.to_dense()
    np.testing.assert_allclose(tj.eigvalsh(batch), np.linalg.eigvalsh(dense), atol=1e-14)
    np.testing.assert_allclose((v * w[..., None, :]) @ v.mT, dense, atol=1e-14)
    gradient = jax.grad(lambda a: jnp.sum(jnp.exp(tj.eigvalsh(a))))(batch)
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
        tj.eigvalsh(T * metre).to_value("m"),
        tj.eigh(T * metre).eigenvalues.to_value("m"),
    ):
        np.testing.assert_allclose(w, want, rtol=1e-14)
    with pytest.raises(tj.ShapeError, match="not Hermitian by its type"):
        tj.eigh(tj.SymTridiagonal([1.0 + 0j, 1.0], [1.0j]))


def test_functions_are_symmetric_and_as_those_of_a_full_matrix():
    full = tj.Symmetric(T.to_dense())
    weights = jnp.asarray(R.normal(size=(4, 4)))
    for f in (
        tj.expm,
        tj.logm,
        tj.sqrtm,
        functools.partial(tj.fractional_matrix_power, t=0.3),
        lambda a: tj.funm_hermitian(a, jnp.cos),
    ):
        assert isinstance(f(T), tj.Symmetric)
        loss = lambda a, f=f: jnp.sum(weights * f(a).data)
        got, of_full = jax.grad(loss)(T), jax.grad(loss)(full)
        want = tj.structural(T, of_full.data)
        np.testing.assert_allclose(f(T).data, f(full).data, rtol=1e-12)
        np.testing.assert_allclose(got.diag, want.diag, rtol=1e-11)
        np.testing.assert_allclose(got.off, want.off, rtol=1e-11)
    root = tj.sqrtm(T * tj.unit("m2"))
    np.testing.assert_allclose(root.to_value("m").data, tj.sqrtm(T).data)


BANDS = {
    "Tridiagonal": lambda n: tj.Tridiagonal(*(R.normal(size=n - abs(k)) for k in (-1, 0, 1))),
    "SymTridiagonal": lambda n: tj.SymTridiagonal(R.normal(size=n), R.normal(size=n - 1)),
    "Banded": lambda n: tj.Banded(jnp.asarray(R.normal(size=(3, n))), 2, 0),
}


@pytest.mark.parametrize("kind", BANDS)
def test_norms_and_powers_of_bands(kind):
    a = BANDS[kind](9)
    dense = np.asarray(a.to_dense())
    for order in (1, -1, np.inf, -np.inf):
        np.testing.assert_allclose(tj.norm(a, order), np.linalg.norm(dense, order), rtol=1e-14)
    for n in range(8):
        power, want = tj.matrix_power(a, n), np.linalg.matrix_power(dense, n)
        np.testing.assert_allclose(np.asarray(power), want, rtol=1e-12, atol=1e-12)
    assert isinstance(tj.matrix_power(a, 3), tj.Banded)
    want = np.linalg.matrix_power(dense, -2)
    np.testing.assert_allclose(tj.matrix_power(a, -2), want, rtol=1e-8, atol=1e-8)


def test_norms_by_singular_values():
    """Those of a symmetric matrix are the sizes of its eigenvalues; it need not be definite."""
    a = tj.SymTridiagonal([1.0, -3.0, 2.0, 0.5], [1.0, 2.0, -1.0])
    dense = np.asarray(a.to_dense())
    for order in (2, -2, "nuc", "fro"):
        np.testing.assert_allclose(tj.norm(a, order), np.linalg.norm(dense, order), rtol=1e-14)
        got = jax.grad(functools.partial(tj.norm, ord=order))(a)
        full = jax.grad(functools.partial(tj.norm, ord=order))(tj.Symmetric(dense))
        want = tj.structural(a, full.data)
        np.testing.assert_allclose(got.diag, want.diag, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(got.off, want.off, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(tj.condition_number(a), np.linalg.cond(dense), rtol=1e-13)
    values = tj.svd(a, compute_uv=False)
    np.testing.assert_allclose(values, np.linalg.svd(dense, compute_uv=False), rtol=1e-14)
    factors = tj.svd(a, full_matrices=False)
    np.testing.assert_allclose((factors.U * factors.S) @ factors.Vh, dense, atol=1e-14)
