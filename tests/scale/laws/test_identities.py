"""Functions of numbers that no plain number holds, against the same program in float64.

Each program takes numbers out of the range of its dtype, where the function works on them, and
brings them back. Factors are powers of two, so that float64 sees the same operands; magnitudes are
drawn at random, far beyond the range and near its ends.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj
from tanjax.scale.laws._powers_of_two import times_power

pytestmark = pytest.mark.core

DTYPES = {"float32": 126, "bfloat16": 126, "float16": 14}
# In units in the last place of the dtype; a sum of a logarithm and an exponent has some more.
ULPS = 4.0


def errors(f, x, far, dtype):
    """By how many units in the last place each result of `tj.jit(f)` differs from float64.

    `f(x, up)`: `up` is a power of two that is held by the dtype but whose square is not.
    """
    x = jnp.asarray(x, dtype)
    up = jnp.asarray(2.0**far, dtype)
    got = tj.jit(f)(x, up)
    with jax.enable_x64(True):
        want = f(jnp.asarray(x, jnp.float64), jnp.asarray(up, jnp.float64))
    info = jnp.finfo(dtype)

    def difference(a, b):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert np.isfinite(b).all(), "the reference is out of range, too"
        size = np.maximum(np.abs(b), float(info.smallest_normal))
        found = np.abs(a - b) / size / float(info.eps)
        return np.inf if np.isnan(found).any() else float(found.max())

    return jax.tree.map(difference, got, want)


def worst(f, x, far, dtype):
    return max(jax.tree.leaves(errors(f, x, far, dtype)))


def numbers(seed, low=1.0, high=2.0, n=7):
    return np.random.default_rng(seed).uniform(low, high, n)


# -- powers -----------------------------------------------------------------------------------


def brought_back(result, power, up):
    """About `up**(-2 power)` times a result, in steps that fit."""
    back = up if power > 0 else 1 / up
    for _ in range(round(2 * abs(power))):
        result = result / back
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", [0.5, 1.5, 1 / 3, 0.7, -1 / 3, -1.7])
def test_any_real_power(power, dtype):
    """Fractions that are no binary numbers, times exponents of two hundred."""

    def f(x, up):
        large, small = (x * up * up) ** power, (x / up / up) ** power
        return brought_back(large, power, up), brought_back(small, -power, up)

    assert worst(f, numbers(1), DTYPES[dtype] * 3 // 4, dtype) < ULPS


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", [0.5, 1.5, 1 / 3, -0.7])
def test_gradients_of_powers(power, dtype):
    """The trace says `sub 1.5 1.0` and raises the base to that."""

    def f(x, up):
        slope = jax.grad(lambda x: jnp.sum((x * up * up) ** power))(x)
        return brought_back(slope, power, up)

    assert worst(f, numbers(2), DTYPES[dtype] * 3 // 4, dtype) < ULPS


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_power_that_is_computed(dtype):
    """Value and both gradients of `x**y`; the gradient of the power has a logarithm."""
    far = DTYPES[dtype] * 3 // 4

    def f(x, up):
        y = x / x / 4 + 0.25 * (x - 1)  # from a quarter to a half, exactly
        power = lambda x, y: jnp.sum((x * up * up) ** y)
        value = (x * up * up) ** y
        by_x, by_y = jax.grad(power, (0, 1))(x, y)
        return value / up, by_x / up, by_y / up

    x = np.array([1.0, 1.25, 1.5, 1.75, 2.0])
    assert worst(f, x, far, dtype) < 4 * ULPS


def test_powers_of_what_is_no_ordinary_number():
    """Zeros, infinities, NaN and negative numbers beside one that is out of range."""
    x = jnp.array([0.0, -0.0, np.inf, -np.inf, np.nan, -2.0, 3.0], jnp.float32)
    n = jnp.array([2.0, 3.0, 2.0, 3.0, 0.0, 3.0, 1.0], jnp.float32)
    far = jnp.float32(1e25)

    def f(x, n, far):
        x = jnp.append(x, far * far)
        return x ** jnp.append(n, 0.5), x ** jnp.append(n - 4, 0.25)

    got = tj.jit(f)(x, n, far)
    want = f(np.float64(x), np.float64(n), np.float64(far))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a[:-1], np.asarray(b)[:-1].astype(np.float32), rtol=1e-6)
    np.testing.assert_allclose(got[0][-1], 1e25, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [4, 12, -5, 31])
def test_whole_powers_of_numbers_far_apart(n, dtype):
    """A mean of powers is that of the largest; the smallest may vanish beside them."""
    f = lambda x, up: jnp.mean(jnp.abs(x**n)) ** (1 / n)
    x = np.array([0.001, 1.0, -1.5, 100.0, 3.0])
    assert worst(f, x, 1, dtype) < 2 * ULPS


def test_a_power_so_large_that_it_is_halved():
    """`1.2**900.5` is 2^237: even the part that is near 1 has a power out of range."""
    x = jnp.array([1.2, 1.1, 1.3], jnp.float32)
    got = tj.jit(lambda x: jnp.log2(x**900.5))(x)
    np.testing.assert_allclose(got, 900.5 * np.log2(np.float64(x)), rtol=1e-6)


# -- functions at both ends -------------------------------------------------------------------

ODD = {
    "sin": jnp.sin,
    "tan": jnp.tan,
    "asin": jnp.arcsin,
    "atan": jnp.arctan,
    "sinh": jnp.sinh,
    "tanh": jnp.tanh,
    "asinh": jnp.arcsinh,
    "atanh": jnp.arctanh,
    "erf": lax.erf,
    "erf_inv": lax.erf_inv,
    "log1p": jnp.log1p,
    "expm1": jnp.expm1,
    "atan2": lambda x: jnp.arctan2(x, jnp.ones_like(x)),
    "smooth": lambda x: x * jax.nn.sigmoid(x),
}


def unlike(found, most):
    return {name: error for name, error in found.items() if max(jax.tree.leaves(error)) >= most}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_tiny_numbers(dtype):
    """They are the numbers, times a slope; gradients too."""

    def of(g, x, up):
        slope = jax.grad(lambda x: jnp.sum(g(x / up / up)))(x)
        return g(x / up / up) * up * up, g(-x / up / up) * up * up, slope * up * up

    f = lambda x, up: {name: of(g, x, up) for name, g in ODD.items()}
    assert not unlike(errors(f, numbers(3), DTYPES[dtype] * 3 // 4, dtype), ULPS)


LARGE = {
    "log1p": (jnp.log1p, 1),
    "asinh": (jnp.arcsinh, 1),
    "asinh of negative": (lambda x: jnp.arcsinh(-x), 1),
    "acosh": (jnp.arccosh, 1),
    "log": (jnp.log, 1),
    "log2": (jnp.log2, 1),
    "log10": (jnp.log10, 1),
    "tanh": (jnp.tanh, 0),
    "atan": (jnp.arctan, 0),
    "erf": (lax.erf, 0),
    "logistic": (jax.nn.sigmoid, 0),
    "erfc": (lax.erfc, 0),
    "exp of minus": (lambda x: jnp.exp(-x), 0),
    "cos of the inverse": (lambda x: jnp.cos(1 / x), 0),
    "softplus": (lambda x: jax.nn.softplus(-x), 0),
    "atan2": (lambda x: jnp.arctan2(x, 2 * x), 0),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_huge_numbers(dtype):
    """Logarithms, or limits; something else in the program needs the exponents."""

    def of(g, has_slope, x, up):
        out = g(x * up * up), x * up * up / up / up
        slope = (jax.grad(lambda x: jnp.sum(g(x * up * up)))(x),) if has_slope else ()
        return *out, *slope

    f = lambda x, up: {name: of(*entry, x, up) for name, entry in LARGE.items()}
    assert not unlike(errors(f, numbers(4), DTYPES[dtype] * 3 // 4, dtype), 2 * ULPS)


GROWING = {
    "exp": (jnp.exp, 1),
    "exp2": (jnp.exp2, 1),
    "expm1": (jnp.expm1, 1),
    "sinh": (jnp.sinh, 1),
    "cosh": (jnp.cosh, 1),
    "logistic": (jax.nn.sigmoid, -1),
    "softplus": (jax.nn.softplus, -1),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponentials_that_no_number_holds(dtype):
    """Their operands are short numbers, so that differences of them are exact in every dtype."""
    top = 16.0 if dtype == "float16" else 128.0

    def of(g, sign, x):
        y = sign * x * top
        return g(y) / jnp.exp(y - 2), -g(y) / -jnp.exp(y - 2)

    f = lambda x, up: {name: of(*entry, x) for name, entry in GROWING.items()}
    assert not unlike(errors(f, [1.0, 1.25, 1.5], 2, dtype), 2 * ULPS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_tail_of_a_normal_distribution(dtype):
    f = lambda x, up: lax.erfc(x) * jnp.exp(x * x - 4)  # the square is exact
    x = [2.0, 3.0, 4.0] if dtype == "float16" else [8.0, 10.0, 12.0]
    assert worst(f, x, 2, dtype) < 2 * ULPS


def test_a_complex_exponential_has_the_size_of_its_real_part():
    z = jnp.array([100 + 1j, 95 - 2j, 120 + 0.5j], jnp.complex64)
    wide = np.asarray(z, np.complex128)
    np.testing.assert_allclose(tj.jit(lambda z: jnp.exp(z) * jnp.exp(-z))(z), 1, rtol=1e-5)
    small = tj.jit(lambda z: jnp.exp(z) * 1e-30)(z)
    np.testing.assert_allclose(small, np.exp(wide) * 1e-30, rtol=1e-5)
    log = tj.jit(lambda z: jnp.log(z * 1e30 * z))(z)
    np.testing.assert_allclose(log, np.log(wide**2 * 1e30), rtol=1e-5)
    root = tj.jit(lambda z: jnp.sqrt(z * 1e30 * z * 1e10))(z)
    np.testing.assert_allclose(root, np.sqrt(wide**2 * 1e40), rtol=1e-5)


# -- whole numbers, comparisons, products --------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_signs_counts_and_indices_of_numbers_out_of_range_are_right(dtype):
    """Signs, flags, counts, indices, whole numbers of what is out of range."""
    far = DTYPES[dtype] * 3 // 4

    def f(x, up):
        big, small = x * up * up, x / up / up
        return (
            *(jnp.digitize(big, jnp.array([0.5, 1.5], x.dtype) * up * up), small.astype(bool)),
            *(jnp.searchsorted(jnp.sort(small), small), jnp.any(small > 0), jnp.all(big)),
            *(jnp.ceil(small), jnp.floor(-small), jnp.round(small), jnp.floor(big) / up / up),
            *(jnp.sign(small), jnp.sign(-big), jnp.count_nonzero(small), jnp.argmax(small)),
        )

    assert worst(f, numbers(5), far, dtype) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_a_number(dtype):
    far = DTYPES[dtype] * 3 // 4

    def f(x, up):
        mantissa, power = jnp.frexp(x * up * up)
        return mantissa, power, jnp.ldexp(x * up * up, -far) / up, jnp.ldexp(x, 2 * far) / up / up

    assert worst(f, numbers(6), far, dtype) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_many(dtype):
    """Partial products are out of range even where the whole is not."""
    far = DTYPES[dtype] * 3 // 4

    def f(x, up):
        both = jnp.stack([x * up, x * up, x / up, x / up])
        back = jnp.stack([up, up * up, up, up / up])[:, None]
        return jnp.prod(both, 0), jnp.cumprod(both, 0) / back, lax.cumprod(both, 0, reverse=True)

    assert worst(f, numbers(7, 1.0, 1.1), far, dtype) < 2 * ULPS


@pytest.mark.parametrize("dtype", DTYPES)
def test_polynomials_of_numbers_out_of_range_are_right(dtype):
    far = DTYPES[dtype] * 3 // 4
    coefficients = [1.0, 2.0, 3.0]

    def f(x, up):
        a = jnp.array(coefficients, x.dtype)
        return jnp.polyval(a, x * up) / up / up, jax.vmap(
            lambda x: jnp.polyval(a, x * up) / up / up
        )(x)

    assert worst(f, numbers(8), far, dtype) < ULPS


def test_number_that_fills_in_has_the_exponent_of_the_rest():
    x, up = jnp.array([1.5, 2.5], jnp.float32), jnp.float32(2.0**90)
    at = jnp.array([0, 7])
    f = lambda x: (x * up * up).at[at].get(mode="fill", fill_value=3e38) / up
    np.testing.assert_array_equal(tj.jit(f)(x), np.float32([1.5 * 2.0**90, np.float32(3e38) / up]))
    g = lambda x: jnp.take_along_axis(x * up * up, at, 0) / up / up
    np.testing.assert_array_equal(tj.jit(g)(x), [1.5, np.nan])


# -- matrices ---------------------------------------------------------------------------------

MATRIX = np.array(
    [[4.0, 1.0, 0.5, -1.0], [1.5, 3.0, 0.25, 2.0], [0.5, -0.25, 2.0, 1.0], [2, 1, 0, 5]]
)
FAR_MATRICES = {
    "solve": lambda a, b: jnp.linalg.solve(a, b),
    "inverse": lambda a, b: jnp.linalg.inv(a) @ b,
    "of a batch": lambda a, b: jax.vmap(jnp.linalg.solve, (None, 0))(a, jnp.stack([b, 2 * b])),
    "factors kept": lambda a, b: jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(a), b),
    "gradient": lambda a, b: jax.grad(lambda b: jnp.sum(jnp.linalg.solve(a, b) * b))(b),
    "logarithm of the determinant": lambda a, b: jnp.linalg.slogdet(a),
    "gradient of that": lambda a, b: jax.grad(lambda a: jnp.linalg.slogdet(a)[1])(a) @ b,
    "orthogonal factor": lambda a, b: jnp.abs(jnp.linalg.qr(a)[0]),
    "cholesky": lambda a, b: jnp.linalg.cholesky(a @ a.T)[0, 0] / b[0],
}


@pytest.mark.parametrize("power", [160, -160])
@pytest.mark.parametrize("name", FAR_MATRICES)
def test_matrices_out_of_range(name, power):
    """A matrix and a vector of one magnitude: the results are plain numbers."""
    f = FAR_MATRICES[name]
    half = jnp.float32(2.0 ** (power // 2))
    a, b = jnp.asarray(MATRIX, jnp.float32), jnp.array([1.0, -2.0, 0.5, 3.0], jnp.float32)
    got = tj.jit(lambda a, b: f(a * half * half, b * half * half))(a, b)
    with jax.enable_x64(True):
        far = 2.0**power
        want = f(jnp.asarray(MATRIX) * far, jnp.asarray(b, jnp.float64) * far)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, np.asarray(y), rtol=2e-5, atol=2e-6)


def test_gradient_of_a_determinant_that_leaves_float32():
    """JAX solves for a vector of ones, to see whether the matrix has full rank."""
    f = lambda a: jnp.log(jnp.linalg.det(a))
    a = jnp.array([[1e20, 1e19], [1e19, 1e20]], jnp.float32)
    want = np.linalg.inv(np.asarray(a, float)).T
    np.testing.assert_allclose(tj.jit(jax.grad(f))(a), want, rtol=2e-6)


@pytest.mark.parametrize("transposed", [False, True])
def test_substitution_whose_products_are_larger_than_all_numbers(transposed):
    a = jnp.array([[1e20, 1e19], [0.0, 1e-20]], jnp.float32)
    a = a.T[::-1, ::-1] if transposed else a
    solve = lambda a: jax.scipy.linalg.solve_triangular(
        a, jnp.ones(2, a.dtype), trans=int(transposed)
    )
    want = [1e20, -1e19] if transposed else [-1e19, 1e20]
    np.testing.assert_allclose(tj.jit(solve)(a), want, rtol=1e-6)


def test_substitution_whose_solution_has_numbers_that_float32_flushes():
    a = jnp.array([[-1e18, 0.0], [-4e16, -0.2]], jnp.float32)
    b = jnp.array([3e-21, -1e-26], jnp.float32)
    solve = lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True)
    want = np.linalg.solve(np.asarray(a, float), np.asarray(b, float))
    assert abs(want[0]) < 1e-38
    np.testing.assert_allclose(tj.jit(solve)(a, b)[1], want[1], rtol=1e-6)


# -- what is left alone -----------------------------------------------------------------------


def test_a_harmless_result_beside_a_planned_one_keeps_its_bits():
    x = jnp.float32(1e30)
    y = jnp.asarray(numbers(9, n=1000), jnp.float32)
    f = lambda x, y: (x * x / x, y / 1.1 / 1.3 / 1.7, y * 3.24 * 1.7 / 1.1)
    assert not tj.scale_graph(f)(x, y).plan.identity
    got, want = tj.jit(f)(x, y), jax.jit(f)(x, y)
    np.testing.assert_allclose(got[0], 1e30, rtol=1e-6)
    np.testing.assert_array_equal(got[1], want[1])
    np.testing.assert_array_equal(got[2], want[2])


def test_zero_times_any_power_of_two_is_zero():
    """Half of `2^512` does not fit in float32 either."""
    x = jnp.array([0.0, jnp.inf, -0.0, 1.0, 1.0, 1.5], jnp.float32)
    got = times_power(x, jnp.array([512, -512, 300, 512, -512, 3], jnp.int32))
    np.testing.assert_array_equal(got, np.array([0, np.inf, 0, np.inf, 0, 12], np.float32))


def test_zero_to_the_zeroth_power_is_one_at_any_exponent():
    x, y = jnp.array([0.0, 1e30], jnp.float32), jnp.array([0.0, 1.0], jnp.float32)
    got = tj.jit(lambda x, y: jnp.abs(x * x) ** y / 1e20 / 1e18)(x, y)
    np.testing.assert_allclose(np.asarray(got, float), [1e-38, 1e22], rtol=1e-5, atol=1e-38)


def test_an_integer_beyond_float16_is_converted_where_its_product_is_held():
    f = tj.jit(lambda n, x: n.astype(jnp.float16) * x)
    assert f(jnp.int32(100_000), jnp.float16(0.001)) == pytest.approx(100, rel=1e-3)


def test_factors_that_meet_in_one_entry_are_all_multiplied():
    """At first they do not meet."""
    f = tj.jit(lambda x, i, y: x.at[i].multiply(y) * 1e-30)
    x, y = jnp.ones(3, "float32"), jnp.full(3, 1e15, "float32")
    np.testing.assert_allclose(f(x, jnp.arange(3), y), [1e-15] * 3, rtol=1e-6)
    np.testing.assert_allclose(f(x, jnp.zeros(3, int), y), [1e15, 1e-30, 1e-30], rtol=1e-6)


def test_a_logarithm_to_the_base_of_two_is_right_beyond_the_range():
    found = tj.jit(lambda x: jnp.log2(x**12))(jnp.float32(1e30))
    assert found == pytest.approx(360 * np.log2(10), rel=1e-6)
