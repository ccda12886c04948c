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
