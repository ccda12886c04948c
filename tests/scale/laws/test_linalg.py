"""Factorisations, systems and transforms of numbers that no one exponent holds.

Rows and columns in other units, powers of two up to 2^±3000, change a result by the very powers:
so what NumPy finds for the plain matrix says what is right.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy.linalg import cho_factor, cho_solve

import tanjax as tj
from tanjax.scale.graph._build import build
from tanjax.scale.magnitudes._evaluate import evaluate
from tanjax.scale.numbers._wide import Wide

pytestmark = pytest.mark.core

RANDOM = np.random.default_rng(5)
N = 7
A = RANDOM.normal(size=(2, N, N)) + 3 * np.eye(N)
B = RANDOM.normal(size=(2, N, 2))
Z = A + 1j * RANDOM.normal(size=A.shape)
SPD = A @ np.swapaxes(A, -1, -2) + np.eye(N)
ROWS, COLUMNS = (RANDOM.integers(-3000, 3000, (N, 1)) for _ in range(2))


def run(f, *args):
    """The results of a function of `Wide` arrays; nothing of it is skipped."""
    shapes = [jax.ShapeDtypeStruct(np.shape(x.array), x.array.dtype) for x in args]
    found = evaluate(build(jax.make_jaxpr(f)(*shapes)), args)
    assert [(s.node.primitive, s.reason) for s in found.skipped] == []
    return found.outputs


def assert_close(got, want, power, tolerance=1e-9):
    """Whether numbers are `want * 2**power`, to a part of the largest that has such a unit."""
    array, exponent = np.asarray(got.array), np.broadcast_to(got.exponent, np.shape(got.array))
    parts = np.frexp(np.abs(array))[1] + exponent - np.broadcast_to(power, array.shape)
    assert np.all((parts < 1000) | (array == 0))
    moved = np.exp2(np.clip(exponent - power, -1000, 1000).astype(float))
    np.testing.assert_allclose(array * moved, want, tolerance, tolerance * np.abs(want).max())


@pytest.mark.parametrize("m", [A, Z], ids=["real", "complex"])
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("transposed", [True, False], ids=["transposed", "plain"])
def test_triangular_systems_in_any_units(m, lower, left, transposed):
    solve = lambda a, b: lax.linalg.triangular_solve(
        a, b, left_side=left, lower=lower, transpose_a=transposed
    )
    b = (B if left else np.swapaxes(B, -1, -2)).astype(m.dtype)
    a = Wide(m, np.broadcast_to(ROWS + COLUMNS.T, m.shape))
    # Of `op(A) x = b` rows are the units of `b`, of `x op(A) = b` columns.
    given, wanted = (COLUMNS, ROWS) if transposed else (ROWS, COLUMNS)
    if not left:
        given, wanted = wanted.T, given.T
    (got,) = run(solve, a, Wide(b, np.broadcast_to(given, b.shape)))
    assert_close(got, solve(m, b), np.broadcast_to(-wanted, b.shape))


def test_unit_triangles_whose_solutions_leave_float64():
    m = np.eye(40) - 1e30 * np.eye(40, k=-1)
    solve = lambda a, b: lax.linalg.triangular_solve(
        a, b, left_side=True, lower=True, unit_diagonal=True
    )
    (got,) = run(solve, Wide(m), Wide(np.eye(40)[:, :1]))
    powers = np.log2(got.array[:, 0]) + got.exponent[:, 0]
    np.testing.assert_allclose(powers, np.arange(40) * np.log2(1e30), 1e-12)


def test_cholesky_of_a_covariance_in_any_units():
    (got,) = run(jnp.linalg.cholesky, Wide(SPD, np.broadcast_to(ROWS + ROWS.T, SPD.shape)))
    assert_close(got, np.linalg.cholesky(SPD), ROWS)
    (got,) = run(jnp.linalg.cholesky, Wide(-SPD, np.broadcast_to(ROWS + ROWS.T, SPD.shape)))
    assert np.isnan(got.array[:, np.tri(N, dtype=bool)]).all()


@pytest.mark.parametrize("m", [A, Z], ids=["real", "complex"])
def test_lu_of_columns_in_any_units_has_the_same_pivots(m):
    packed, pivots, order = run(lax.linalg.lu, Wide(m, np.broadcast_to(COLUMNS.T, m.shape)))
    want, *where = lax.linalg.lu(m)
    below = np.tri(N, k=-1, dtype=bool)
    assert_close(packed, want, np.where(below, 0, COLUMNS.T))
    for got, right in zip((pivots, order), where, strict=True):
        np.testing.assert_array_equal(got.array, right)


@pytest.mark.parametrize("m", [A, Z], ids=["real", "complex"])
def test_systems_in_any_units(m):
    """Rows of any size: some pivots are 2^-5000 of others."""
    b = B.astype(m.dtype)
    (got,) = run(
        jnp.linalg.solve,
        Wide(m, np.broadcast_to(ROWS + COLUMNS.T, m.shape)),
        Wide(b, np.broadcast_to(ROWS, b.shape)),
    )
    assert_close(got, np.linalg.solve(m, b), -COLUMNS)


def test_determinant_of_a_matrix_in_any_units():
    sign, log = run(jnp.linalg.slogdet, Wide(A[0], ROWS + COLUMNS.T))
    want = np.linalg.slogdet(A[0])
    assert float(sign.array) == want[0]
    total = float(want[1]) + (ROWS.sum() + COLUMNS.sum()) * np.log(2)
    assert float(log.array) * 2.0**log.exponent == pytest.approx(total, rel=1e-12)


def test_tridiagonal_systems_in_any_units():
    low, diagonal, high = RANDOM.normal(size=(3, N)) + np.array([[0.0], [4.0], [0.0]])
    low[0] = high[-1] = 0
    powers = ROWS[:, 0] + COLUMNS[:, 0]
    given = (
        Wide(low, ROWS[:, 0] + np.roll(COLUMNS[:, 0], 1)),
        Wide(diagonal, powers),
        Wide(high, ROWS[:, 0] + np.roll(COLUMNS[:, 0], -1)),
        Wide(B[0], np.broadcast_to(ROWS, B[0].shape)),
    )
    (got,) = run(lax.linalg.tridiagonal_solve, *given)
    matrix = np.diag(diagonal) + np.diag(low[1:], -1) + np.diag(high[:-1], 1)
    assert_close(got, np.linalg.solve(matrix, B[0]), -COLUMNS)


@pytest.mark.parametrize("full", [True, False])
def test_qr_of_columns_in_any_units(full):
    m = np.concatenate([A, A[::-1] - 1], 1)
    q, r = run(lambda a: jnp.linalg.qr(a, "complete" if full else "reduced"),
               Wide(m, np.broadcast_to(COLUMNS.T, m.shape)))  # fmt: skip
    want = np.linalg.qr(m, "complete" if full else "reduced")
    assert_close(q, want[0], 0)
    assert_close(r, want[1], COLUMNS.T)


def test_spectra_are_those_of_the_largest_entries():
    """Beside 2^3000, ordinary numbers are less than rounding errors."""
    large = np.array([1, 1, 0, 0, 1, 0, 0], bool)
    both = large[:, None] & large
    powers = np.where(both, 3000, 0)
    rest = Wide(np.where(both, SPD, 0.0)), Wide(SPD, np.broadcast_to(powers, SPD.shape))
    for f in (jnp.linalg.eigvalsh, lambda a: jnp.linalg.svd(a, compute_uv=False)):
        (want,), (got,) = (run(f, x) for x in rest)
        assert_close(got, want.array * 2.0**want.exponent, 3000)
    v, w = run(lambda a: lax.linalg.eigh(a, symmetrize_input=False), rest[1])
    u = np.asarray(v.array) * np.exp2(v.exponent)
    product = u @ (np.asarray(w.array)[..., None] * np.swapaxes(u, -1, -2))
    assert_close(Wide(product, w.exponent), np.where(both, SPD, 0.0), 3000)
    want = np.linalg.eigvals(np.where(both, A, 0.0))
    (got,) = run(jnp.linalg.eigvals, Wide(A, np.broadcast_to(powers, A.shape)))
    assert_close(Wide(np.sort(np.abs(got.array)), got.exponent), np.sort(np.abs(want)), 3000)


@pytest.mark.parametrize("f", [jnp.fft.fft, jnp.fft.rfft, jnp.fft.ifft, jnp.fft.irfft])
def test_transforms_of_rows_in_any_units_that_have_tails(f):
    x = RANDOM.normal(size=(3, 8))
    powers = np.array([[2900], [0], [-3000]])
    tail = np.where(np.arange(8) % 2, -1500, 0)
    (got,) = run(f, Wide(x, powers + tail))
    assert_close(got, f(np.where(tail, 0.0, x)), powers)


# -- programs -------------------------------------------------------------------------------------


def spectrum(amplitude, t):
    power = jnp.abs(jnp.fft.fft(amplitude * jnp.exp(-(t**2)))) ** 2
    return power / jnp.sum(power)


def weights(amplitude, x):
    d = (x[:, None] - x[None]) / 0.02
    k = amplitude**2 * (jnp.exp(-(d**2) / 2) + 0.01 * jnp.eye(len(x), dtype=x.dtype))
    return amplitude**2 * cho_solve(cho_factor(k), x + 1)


def fitted(amplitude, x):
    design = amplitude * jnp.exp(-(x[:, None] ** 2) * jnp.array([[0.5, 2.0]], x.dtype)) ** 20
    return jnp.linalg.lstsq(design, design @ jnp.array([1.0, 2.0], x.dtype))[0]


def modes(amplitude, x):
    k = amplitude**2 * jnp.exp(-((x[:, None] - x[None]) ** 2) * 40)
    w = jnp.linalg.eigh(k + amplitude**2 * jnp.diag(x + 2))[0]
    return w / jnp.sum(w)


PROGRAMS = {f.__name__: f for f in (spectrum, weights, fitted, modes)}


@pytest.mark.parametrize("amplitude", [1e-25, 1.0, 1e25])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_whose_arrays_have_tails(name, amplitude):
    """exp(-1600) has no place in float64: a node that could not run was taken for known."""
    f = PROGRAMS[name]
    x = jnp.linspace(-40, 40, 32) if f is spectrum else jnp.linspace(0, 6, 8)
    args = np.float32(amplitude), np.asarray(x, np.float32)
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("error")
        got = tj.jit(f)(*args)
        with jax.enable_x64(True):
            want = f(*(jnp.asarray(a, jnp.float64) for a in args))
    np.testing.assert_allclose(np.asarray(got, float), want, 2e-5, 1e-6 * np.abs(want).max())


def test_matrix_too_large_for_an_elimination_is_said():
    """Rows as far apart as exp(-1600) and 1."""
    m = np.float32(RANDOM.normal(size=(300, 300)))

    def f(t):
        rows = jnp.exp(-t)[:, None]
        return jnp.linalg.solve(m * rows * 1e-30, m[0] * rows[:, 0] * 1e-30)

    with pytest.warns(
        tj.errors.ScaleWarning, match=r"`tanjax_lu` at .* could not be looked at \(Apart"
    ):
        tj.jit(f)(jnp.linspace(0, 1600, 300, dtype=jnp.float32))
