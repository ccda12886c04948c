"""Products and quotients of arrays that fill the range of their dtype."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj


def exactly(q):
    return np.ldexp(np.asarray(q.stored, np.float64), q.scale)


# Bits of the smallest normal, the largest and the smallest number, and the precision.
RANGES = {
    "float16": (-14, 16, -24, 11),
    "bfloat16": (-126, 128, -126, 8),
    "float32": (-126, 128, -126, 24),
}


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("seed", range(3))
def test_wide_products_are_right_or_warn(dtype, seed):
    """`3 * q` was zero for the smallest entry, beside a large one: one digit was missing."""
    (lowest, highest, smallest, precision), random = RANGES[dtype], np.random.default_rng(seed)
    digits = 2.0 ** (3 - precision)
    least = smallest + precision if smallest < lowest else lowest
    silent = 0
    for _ in range(60):
        ends = lowest + random.integers(0, 4), highest - 1 - random.integers(0, 4)
        a = np.ldexp(1 + random.random(3), [*ends, random.integers(*ends)])
        b = np.ldexp(1 + random.random(3), random.integers(-4, 5, 3))
        if random.random() < 0.3:  # subnormal numbers of float16
            b = np.ldexp(b, random.integers(smallest + 4, 5, 3))
        if random.random() < 0.3:
            b = np.maximum(1 / a, np.ldexp(1.0, lowest))
        if random.random() < 0.2:
            a, b = b, a
        x, y = (
            tj.Quantity(jnp.asarray(v, dtype), unit, int(random.integers(-50, 50)))
            for v, unit in ((a, "m"), (b, "s"))
        )
        for f in (lambda x, y: x * y, lambda x, y: x / y, lambda x, y: 3 * x, lambda x, y: y / 7.0):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", tj.errors.ScaleWarning)
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
    mass = tj.Quantity(jnp.float16([50000.0, 0.5]), "kg", 1)
    pull = 6.6743e-11 * tj.unit("m3 / kg / s2") * mass
    square = tj.Quantity(jnp.float16([595.5, 2.0**-22]), "kg2", 24)
    found = pull / square
    np.testing.assert_allclose(exactly(found), exactly(pull) / exactly(square), rtol=3e-3)
