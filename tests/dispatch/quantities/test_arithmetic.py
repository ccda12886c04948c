"""Products and quotients of arrays that fill the range of their dtype."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax._dtype_range import range_of

DTYPES = ("float16", "bfloat16", "float32")


def exactly(q):
    return np.ldexp(np.asarray(q.stored, np.float64), q.scale)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_middle_leaves_room_on_both_sides(dtype):
    """float32 reaches from 2^-126 to 2^128: the middle of a range as wide is 2^1, not 1."""
    span = range_of(jnp.dtype(dtype))
    width = span.highest - span.lowest
    for low in range(-2 * width, 2 * width, 7):
        for high in (low + width, low + width - 1, low + 1):
            middle = span.centre(low, high)
            assert span.holds(low - middle, high - middle)
        assert span.centre(low, low + width + 1) is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_lost_of_wide_products_is_said(dtype, seed):
    """`3 * q` was zero for the smallest entry, beside a large one: one digit was missing."""
    span, random = range_of(jnp.dtype(dtype)), np.random.default_rng(seed)
    digits = 2.0 ** (3 - span.digits)
    least = span.smallest + span.digits if span.smallest < span.lowest else span.lowest
    silent = 0
    for _ in range(60):
        ends = span.lowest + random.integers(0, 4), span.highest - 1 - random.integers(0, 4)
        a = np.ldexp(1 + random.random(3), [*ends, random.integers(*ends)])
        b = np.ldexp(1 + random.random(3), random.integers(-4, 5, 3))
        if random.random() < 0.3:  # subnormal numbers of float16
            b = np.ldexp(b, random.integers(span.smallest + 4, 5, 3))
        if random.random() < 0.3:
            b = np.maximum(1 / a, np.ldexp(1.0, span.lowest))
        if random.random() < 0.2:
            a, b = b, a
        x, y = (
            tj.Unitful(jnp.asarray(v, dtype), unit, int(random.integers(-50, 50)))
            for v, unit in ((a, "m"), (b, "s"))
        )
        for f in (lambda x, y: x * y, lambda x, y: x / y, lambda x, y: 3 * x, lambda x, y: y / 7.0):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", tj.ScaleWarning)
                found = f(x, y)
            with np.errstate(all="ignore"):
                exact = f(exactly(x), exactly(y))
            held = np.abs(exact) >= np.ldexp(1.0, least + found.scale)
            right = np.abs(exactly(found) - exact) <= np.where(held, digits, 1.0) * np.abs(exact)
            assert said or np.all(right & (exactly(found) != 0)), f"{exactly(found)}, {exact}"
            silent += not said
    assert silent > 150


def test_a_factor_with_subnormal_numbers_stays_where_it_is():
    """It was moved out of the range: a quotient by what had become infinite was zero."""
    mass = tj.Unitful(jnp.float16([50000.0, 0.5]), "kg", 1)
    pull = 6.6743e-11 * tj.unit("m3 / kg / s2") * mass
    square = tj.Unitful(jnp.float16([595.5, 2.0**-22]), "kg2", 24)
    found = pull / square
    np.testing.assert_allclose(exactly(found), exactly(pull) / exactly(square), rtol=3e-3)
