"""Functions of plain numbers anywhere in the range of their dtype, their results anywhere beyond.

Nothing ties the exponents of numbers that are stored at 0: the laws do, or numbers are lost.
"""

import itertools
import math
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.scale import scaled_call

pytestmark = pytest.mark.core

TWO = (
    *("arctan2", "hypot", "logaddexp", "logaddexp2", "divide", "multiply", "add", "subtract"),
    *("maximum", "minimum", "fmod", "remainder", "copysign", "heaviside"),
)
ONE = (
    *("sin", "cos", "tan", "arctan", "arcsin", "arccos", "tanh", "arcsinh", "arccosh", "arctanh"),
    *("log", "log2", "log10", "log1p", "sqrt", "cbrt", "square", "reciprocal", "rint", "floor"),
    *("ceil", "trunc", "abs", "sign", "deg2rad"),
)
FAR = {"float16": 11, "bfloat16": 118, "float32": 118}
SIGNS = np.array([1, -1, 1, -1]), np.array([1, 1, -1, -1])


@pytest.mark.parametrize("dtype", FAR)
def test_results_of_two_numbers_anywhere(dtype):
    """The quotient of an angle was lost: `arctan2(2^-120, 2^120)` was 0."""
    places = [-FAR[dtype], 0, FAR[dtype]]
    for name, (a, b) in itertools.product(TWO, itertools.product(places, places)):
        x = jnp.asarray(SIGNS[0] * 1.25 * 2.0**a, dtype)
        y = jnp.asarray(SIGNS[1] * 1.5 * 2.0**b, dtype)
        assert_right(name, dtype, x, y)


@pytest.mark.parametrize("dtype", FAR)
def test_results_of_a_number_anywhere(dtype):
    for name, a in itertools.product(ONE, [-FAR[dtype], -4, 4, FAR[dtype]]):
        assert_right(name, dtype, jnp.asarray(SIGNS[0] * 1.25 * 2.0**a, dtype))


def assert_right(name, dtype, *args):
    (found,), (exponent,) = scaled_call(name, getattr(jnp, name), args)
    assert found.dtype == dtype
    found = np.ldexp(np.asarray(found, np.longdouble), exponent)
    with np.errstate(all="ignore"):
        wide = [np.asarray(x, np.float64).astype(np.longdouble) for x in args]
        exact = getattr(np, name)(*wide)
    rtol = 8 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(found, exact, rtol=rtol, atol=0, err_msg=f"{name}{args}")


@pytest.mark.parametrize("dtype", FAR)
def test_a_result_that_is_lost_where_it_is_stored_is_said(dtype):
    """In float16 subnormal numbers would have held 2^-20 beside 2^20, at another exponent."""
    info = jnp.finfo(dtype)
    room = math.log2(info.max) - math.log2(info.smallest_normal)
    said = []
    for wide in np.linspace(0.2, 0.45, 40) * room:
        x = jnp.asarray([1.0, 1.37 * 2.0 ** -round(wide)], dtype)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", tj.errors.ScaleWarning)
            (found,), (exponent,) = scaled_call("cube", lambda x: x**3, [x])
        exact, number = np.float64(x[1]) ** 3, np.ldexp(np.float64(found[1]), exponent)
        assert caught or abs(number / exact - 1) < 0.03
        said.append(bool(caught))
    assert said == sorted(said)
    assert not said[0]
    assert said[-1]


def test_entries_that_are_lost_on_the_way_are_warned_of():
    """The results would be held, were they right."""
    x = jnp.array([1e-30, 1e30], "float32")
    with pytest.warns(tj.errors.ScaleWarning, match="ratio"):
        scaled_call("ratio", lambda x: (x * x) / (x * x), [x])
