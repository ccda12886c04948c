"""Later calls have other numbers than the first, and are right without a warning.

A first call draws windows around its numbers. A later call here leaves the range of float32 on the
way, or has a number that vanishes and does no harm in the first call alone. Each call is compared
with float64; a warning would be an error.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj

pytestmark = pytest.mark.core


def f32(*numbers):
    return jnp.asarray(numbers, jnp.float32)


def assert_right(program, *calls):
    """Each of the calls, one after the other, has the results of float64."""
    planned = tj.jit(program)
    for args in calls:
        got = planned(*(f32(*x) for x in args))
        with jax.enable_x64(True):
            true = program(*(jnp.asarray(f32(*x), jnp.float64) for x in args))
        np.testing.assert_allclose(np.asarray(got), true, rtol=2e-5, atol=1e-37)


def test_a_single_entry_that_vanishes_is_noticed():
    assert_right(lambda x: jnp.exp(-x) * 1e30, ([60.0, 61.0, 62.0],), ([60.0, 95.0, 61.0],))


def test_infinities_of_both_signs_do_not_meet_in_a_divisor():
    assert_right(lambda x, y: 1 / (x**5 + y**5), ([1.0], [2.0]), ([1e9], [-2e9]))


def test_a_divisor_that_must_not_overflow_is_bounded_from_above_as_from_below():
    def program(x, y):
        product = x * y
        return product / jnp.sqrt(product)

    near, large, small = (([size], [size]) for size in (1.2e19, 1e20, 1e-18))
    assert_right(program, near, large, small)


def test_a_quotient_by_an_infinity_is_no_zero_where_its_numerator_is_large():
    program = lambda a, x: a / (1 + jnp.exp(x))
    assert_right(program, ([1e30], [3.0]), ([1e30], [95.0]), ([2e30], [95.0]))


def test_a_number_that_vanishes_in_a_step_before_the_last_is_noticed():
    program = lambda xs: lax.scan(lambda c, x: (c, jnp.exp(-x) * 1e30), None, xs)[1]
    assert_right(program, ([60.0, 61.0, 62.0],), ([60.0, 95.0, 61.0],))


def test_a_test_of_a_loop_that_ends_it_too_soon_is_noticed():
    """The last test alone has a number that vanishes: the loop would have gone on."""

    def program(t):
        going = lambda c: (jnp.exp(-c) * 1e35 > t).all()
        return lax.while_loop(going, lambda c: c + 10, 0 * t)

    assert_right(program, ([1e2],), ([1e-5],))


@pytest.mark.parametrize("taken", [-1.0, 1.0])
def test_an_error_of_either_branch_does_harm(taken):
    tail, itself = lambda x: jnp.exp(-x) * 1e30, lambda x: x
    branches = (itself, tail) if taken < 0 else (tail, itself)
    program = lambda i, x: lax.cond(i[0] > 0, *branches, x)
    assert_right(program, ([taken], [60.0]), ([taken], [95.0]), ([-taken], [95.0]))


def test_a_sum_of_many_that_became_small_keeps_its_digits():
    """Entries below the last digit of the sum of the first call are all of a later one."""
    program = lambda x: jnp.sum(jnp.exp(-x)) * 1e30
    near, far = [0.1] * 15, [93.0] * 15
    assert_right(program, ([0.1, *near],), ([93.0, *far],))
    assert_right(program, ([0.1, *far],), ([93.0, *far],), ([60.0, *far],))


def test_divisors_that_xla_would_join_are_kept_apart_in_later_calls():
    """XLA makes `x / (y * z)` of `x / y / z`: the product fits in the first call alone."""
    program = lambda x, y, z: x / y / z
    assert_right(program, ([1e30], [1.5e19], [1.5e19]), ([1e30], [5e19], [5e19]))


TERMS = {
    "a sum of tails": lambda y, x: jnp.sum(y * jnp.exp(-x)) * 1e30,
    "a product of matrices": lambda y, x: jnp.dot(y, jnp.exp(-x)) * 1e30,
    "a sum of powers": lambda y, x: jnp.sum(y * x**-20) * 1e12,
}


@pytest.mark.parametrize("name", TERMS)
def test_a_sum_of_either_sign_that_became_small_keeps_its_digits(name):
    """In the first call what vanishes is below the rounding of the sum."""
    y, near, far = [1.0, -0.5, 1.5], [0.1, 93.0, 93.0], [93.0, 93.5, 94.0]
    assert_right(TERMS[name], (y, near), (y, far))


def test_a_comparison_with_zero_is_right_for_what_vanishes():
    assert_right(lambda x: jnp.where(jnp.exp(-x) > 0, 1.0, 2.0), ([60.0],), ([95.0],))
    assert_right(lambda x: jnp.sign(jnp.exp(-x)), ([60.0],), ([95.0],))


V = np.array([1.0, -2.0, 1.5])
SUMS = {
    "sum": lambda a, b, c: jnp.sum(a * b * c) * 1e6,
    "cube root": lambda a, b, c: jnp.cbrt(jnp.sum(a * b * c)) / jnp.max(jnp.abs(a)),
    "sign": lambda a, b, c: jnp.sign(jnp.sum(a * b * c)),
    "branch": lambda a, b, c: jnp.where(jnp.sum(a * b * c) > 0, 1.0, 2.0),
    "difference": lambda a, b, c: jnp.diff(a * b * c) * 1e6,
    "dot": lambda a, b, c: ((a * b) @ c) * 1e6,
    "convolution": lambda a, b, c: jnp.convolve(a * b, c) * 1e6,
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("sizes", [(1e-3, 2e-13, 1e-13), (1e-13, 1e-3, 1e-13), (1.0, 1e-13, 1e10)])
def test_sums_of_products_that_become_small_together_are_right_in_any_order(name, sizes):
    assert_right(SUMS[name], *([V * size] * 3 for size in sizes))


def test_sums_of_products_in_half_precision_keep_their_digits():
    w, u = np.array([1.1, -2.3, 1.7, -0.4]), np.array([0.9, 0.8, 0.7, 1.3])
    planned = tj.jit(lambda a, b: jnp.sum(a * b) * 1e3)
    for size in (1.0, 3e-4, 2e-4):
        a, b = np.float16(w * size), np.float16(u * size)
        want = 1e3 * np.sum(np.float64(a) * np.float64(b))
        np.testing.assert_allclose(planned(jnp.asarray(a), jnp.asarray(b)), want, rtol=2e-2)


def test_a_row_that_a_caller_chooses_may_be_the_smallest():
    planned = tj.jit(lambda i, a, x: (a[i] @ x) * 1e20)
    a, x = np.float32([[1, 2], [3e-24, 1e-24]]), np.float32([1e-15, -4e-15])
    for i in (0, 1):
        want = (np.float64(a[i]) @ np.float64(x)) * 1e20
        np.testing.assert_allclose(planned(jnp.int32(i), a, x), want, rtol=1e-5)


def test_entries_that_a_caller_masks_may_be_the_smallest():
    planned = tj.jit(lambda m, x: jnp.sum(jnp.where(m, x * x * jnp.sign(x), 0)) * 1e30)
    x = np.float32([1, -2, 1e-20, -3e-20])
    for mask in ([True] * 4, [False, False, True, True]):
        want = np.sum(np.float64(x) * np.abs(np.float64(x)) * mask) * 1e30
        np.testing.assert_allclose(planned(np.array(mask), x), want, rtol=1e-5)


PICKS = {
    "index": (lambda i, y: y[i], np.int32(0), np.int32(1)),
    "indices": (lambda i, y: jnp.take(y, i), np.array([0, 1]), np.array([1, 1])),
    "dynamic slice": (lambda i, y: lax.dynamic_slice(y, (i,), (1,)), np.int32(0), np.int32(1)),
    "mask": (lambda m, y: jnp.where(m, y, 0 * y), np.array([True, False]), np.array([False, True])),
    "mask of numbers": (lambda m, y: m.astype(y.dtype) * y, np.float32([1, 0]), np.float32([0, 1])),
    "mask of rows": (
        lambda m, y: m.astype(y.dtype)[:, None] * y[:, None],
        np.float32([1, 0]),
        np.float32([0, 1]),
    ),
    "one-hot row": (lambda m, y: m.astype(y.dtype) @ y, np.float32([1, 0]), np.float32([0, 1])),
    "one-hot of an index": (
        lambda i, y: jax.nn.one_hot(i, 2, dtype=y.dtype) @ y,
        np.int32(0),
        np.int32(1),
    ),
    "branch": (lambda i, y: lax.cond(i > 0, lambda y: y[1], lambda y: y[0], y), 0, 1),
    "entry set to zero": (lambda i, y: y.at[i].set(0), np.int32(1), np.int32(0)),
    "step of a loop": (lambda i, y: lax.scan(lambda c, r: (c, r), 0, y)[1][i], 0, 1),
    "largest of a row": (lambda i, y: jnp.max(y[:, None], 1)[i], np.int32(0), np.int32(1)),
    "function of entries": (lambda i, y: jnp.sin(y)[i], np.int32(0), np.int32(1)),
}


@pytest.mark.parametrize("name", PICKS)
def test_the_smallest_of_some_sums_is_right_where_a_caller_picks_it(name):
    """In the first call what vanishes is below the rounding of the largest sum, which is picked."""
    pick, *choices = PICKS[name]
    planned = tj.jit(lambda i, a, b: pick(i, a @ b) * 1e20)
    a, b = np.float32([[1, 2], [3e-24, 1e-24]]), np.float32([1e-15, -2e-15])
    for choice in choices:
        with jax.enable_x64(True):
            want = pick(choice, jnp.asarray(np.float64(a) @ np.float64(b))) * 1e20
        np.testing.assert_allclose(planned(choice, a, b), want, rtol=1e-5)


def test_the_smaller_part_of_complex_products_is_right_or_warned_of():
    planned = tj.jit(lambda z, w: jnp.imag(z * w) * 1e15)
    w = np.complex64(1e-15)
    near, far = np.complex64([1 + 1e-3j, 2 + 1j]), np.complex64([1 + 1e-28j, 1 + 1e-29j])
    for z in (near, far):
        np.testing.assert_allclose(planned(z, w), z.imag, rtol=1e-5)
    planned(near[0], w)
    with pytest.warns(tj.errors.ScaleWarning, match="wrong"):
        planned(far[0], w)
    planned = tj.jit(lambda z, w: jnp.imag(jnp.vdot(w, z)) * 1e15)
    both = np.complex64([1e-15, 2e-15])
    planned(near, both * (1 + 1j))
    with pytest.warns(tj.errors.ScaleWarning, match="wrong"):
        planned(far, both)


Z = np.array([1 + 0.6j, 0.9 + 0.5j])
OF_COMPLEX = {
    "normalised": lambda z: z / jnp.sqrt(jnp.sum(z * z)),
    "modulus of a square": lambda z: jnp.abs(z * z) * 1e20,
    "angle": lambda z: jnp.angle(z * (0.9 + 0.5j)),
    "square": lambda z: z**2 * 1e20,
    "cube": lambda z: z**3 * 1e30,
    "imaginary part": lambda z: jnp.imag(z) ** 2 * 1e25,
}


@pytest.mark.parametrize("name", OF_COMPLEX)
def test_products_of_complex_numbers_keep_both_parts(name):
    planned = tj.jit(OF_COMPLEX[name])
    for z in (Z, Z * 1e-15, Z * 2e-19, Z.real + 1e-20j, Z * 1.2e-19):
        z = np.complex64(z)
        with jax.enable_x64(True):
            want = np.asarray(OF_COMPLEX[name](jnp.asarray(z, jnp.complex128)))
        np.testing.assert_allclose(planned(z), want, rtol=2e-5, atol=1e-37)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("program", [lambda q: q**2, lambda q: q * q, lambda q: (3 * q) * (q / 7)])
def test_a_result_that_is_a_quantity_keeps_the_digits_that_a_fresh_call_gives(program, dtype):
    """It has an exponent of its own: what a plain array would flush is no rounding of it."""
    info, planned = jnp.finfo(dtype), tj.jit(program)
    lengths = lambda *numbers: tj.Quantity(jnp.asarray(numbers, dtype), "m")
    small = float(info.smallest_normal) ** 0.5
    for numbers in ([1.0], [small], [small / 8], [1.0, small / 8], [small, small / 64]):
        got, fresh = planned(lengths(*numbers)), tj.jit(program)(lengths(*numbers))
        both = [np.asarray(y.stored, np.float64) * 2.0**y.scale for y in (got, fresh)]
        np.testing.assert_allclose(*both, rtol=4 * float(info.eps))
        assert all(y.all() for y in both)


@pytest.mark.parametrize(("far", "small", "large"), [(1e-30, 1e-10, 1e30), (1e-25, 1e-18, 1e22)])
def test_a_quantity_too_wide_for_any_exponent_keeps_what_plain_jax_has_right(far, small, large):
    """The first result is [0, 1e60] m2. What plain JAX has beside 1e60 m2, a warning says."""
    square, program = tj.jit(lambda q: q * q), jax.jit(lambda q: q * q)
    lengths = lambda *numbers: tj.Quantity(jnp.float32(numbers), "m")
    square(lengths(far, large))
    q = lengths(small, large)
    with pytest.warns(tj.errors.ScaleWarning, match="1 entries of the results are wrong"):
        got = square(q)
    assert float(got.stored[0]) * 2.0**got.scale == float(program(q).stored[0])
