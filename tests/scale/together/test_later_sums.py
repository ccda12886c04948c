"""Sums of both signs whose later numbers are small, although each argument is in its window.

In a first call, what vanishes is below the rounding of a sum. In a later one it is all of it: large
factors no longer meet, terms cancel, tails and divisors grow, or a caller's numbers pick what is
small. Each call is compared with float64; a warning would be an error.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj

pytestmark = pytest.mark.core

MEETING = [[0.01, -1e-37], [0.02, 1e-37]], [[0.01, -1e-37], [1e-37, 0.03]]
SUMS = {
    "product of vectors": lambda a, b: a @ b,
    "last of partial sums": lambda a, b: jnp.cumsum(a * b)[-1],
    "scan": lambda a, b: lax.scan(lambda c, x: (c + x[0] * x[1], None), 0 * a[0], (a, b))[0],
    "convolution": lambda a, b: jnp.convolve(a, b[::-1], mode="valid"),
    "mean": lambda a, b: jnp.mean(a * b),
    "inner product of a nested function": lambda a, b: jax.jit(jnp.vdot)(a, b),
}

SIGNS, TERMS = [1.0, -0.5, 1.5], [1e-15, 1e-15, 1e-25]
ROWS, SMALL = [[1, 2], [3e-24, 1e-24]], [1e-15, -2e-15]
ONE, TWO, THREE = [1.0, -1e-20, 1e-20], [1e-20, 1.0, 1e-20], [2e-20, 1e-20, 1.0]
LATER = {
    "three factors": (lambda a, b, c: jnp.sum(a * b * c) * 1e5,
        [ONE, ONE, ONE], [ONE, TWO, THREE]),
    "a difference": (lambda x, y, z: ((x - y) + z * z) * 1e30, [2, 1, 1e-20], [1, 1, 1e-20]),
    "charges": (lambda a, b: (a @ b) * 1e30, [[1, -2, 1e-14], TERMS], [[1, -1, 1e-14], TERMS]),
    "Fermi weights": (lambda y, x: jnp.sum(y / (1 + jnp.exp(x))) * 1e30,
        [SIGNS, [1, 2, 3]], [SIGNS, [87.5, 88, 88.2]]),
    "hyperbolic cosines": (lambda y, x: jnp.sum(y / jnp.cosh(x)) * 1e30,
        [SIGNS, [1, 80, 90]], [SIGNS, [90, 90.5, 91]]),
    "differences of tails": (lambda x: jnp.diff(1 / (1 + jnp.exp(x))) * 1e30,
        [[1, 2, 3]], [[87.5, 88, 88.2]]),
    "powers of a divisor": (lambda y, x: jnp.sum(y / (x * x + 1) ** 8) * 1e25,
        [SIGNS, [1, 2, 3]], [SIGNS, [300, 600, 900]]),
    "a tail times a cube": (lambda x, a: jnp.exp(-x) * a**3 * 1e-20, [60, 1], [95, 5e11]),
    "a tail times three": (lambda x, a, b, c: 0.01 + jnp.exp(-x) * (a * b * c),
        [60, 1, 1, 1], [88, 8e11, 8e11, 8e11]),
    "the place of the largest": (lambda k, a, b: (a @ b)[jnp.argmax(k)] * 1e20,
        [[2, 1], ROWS, SMALL], [[1, 2], ROWS, SMALL]),
    "the first by a key": (lambda k, a, b: lax.sort((k, a @ b), num_keys=1)[1][0] * 1e20,
        [[1, 2], ROWS, SMALL], [[2, 1], ROWS, SMALL]),
    "where another is positive": (lambda k, a, b: jnp.sum(jnp.where(k > 0, a @ b, 0.0 * k)) * 1e20,
        [[1, 2], ROWS, SMALL], [[-2, 2], ROWS, SMALL]),
    "a mask of zeros": (lambda m, a, b: m * (a @ b) * 1e20,
        [[0, 0], ROWS, SMALL], [[0, 1], ROWS, SMALL]),
    "a gate": (lambda g, a, b: jnp.stack([1 - g, g]) @ (a @ b) * 1e20,
        [0, ROWS, SMALL], [1, ROWS, SMALL]),
    "weights": (lambda m, x: jnp.sum(m * x * x) * 1e30,
        [[1, 2, 3, 4], [1, -2, 1e-20, -3e-20]], [[0, 0, 1, 1], [1, -2, 1e-20, -3e-20]]),
    "the smallest": (lambda a, b: jnp.min(jnp.abs(a @ b)) * 1e20,
        [[[1, 3e-24], [1, 1e-24]], SMALL], [ROWS, SMALL]),
}  # fmt: skip


def assert_right(program, *calls):
    planned = tj.jit(program)
    for call in calls:
        args = [np.float32(x) for x in call]
        with jax.enable_x64(True):
            true = program(*(jnp.asarray(x, jnp.float64) for x in args))
        np.testing.assert_allclose(planned(*args), true, rtol=2e-5, atol=1e-37)


@pytest.mark.parametrize("name", SUMS)
def test_sums_whose_large_factors_no_longer_meet_are_right(name):
    assert_right(lambda a, b: SUMS[name](a, b) * 1e20, *MEETING)


@pytest.mark.parametrize("name", LATER)
def test_sums_that_are_small_in_a_later_call_are_right(name):
    program, *calls = LATER[name]
    assert_right(program, *calls)


def test_sums_in_a_loop_that_begins_with_zeros_are_in_their_windows():
    """The sums of the first step are zero in every call, which is no reason to look at it."""

    def last(w, xs):
        return lax.scan(lambda h, x: (jnp.tanh(w @ h + x), None), 0 * xs[0], xs)[0]

    rng = np.random.default_rng(0)
    planned, w = tj.jit(last), rng.normal(size=(8, 8)).astype(np.float32)
    for _ in range(4):
        planned(w, rng.normal(size=(5, 8)).astype(np.float32))
    assert [p.looks for p in planned.plans] == [1]


@pytest.mark.parametrize("nested", [jax.jit, tj.jit, jax.checkpoint])
def test_the_window_of_an_argument_of_a_nested_function_is_checked(nested):
    def program(x):
        return nested(lambda x: jnp.abs((1e10 / x) * (1e10 / x)) ** (1 / 6))(x)

    planned = tj.jit(program)
    for x in (1000.0, 1.0, 700.0):
        want = (1e10 / x) ** (1 / 3)
        np.testing.assert_allclose(planned(jnp.float16(x)), want, rtol=2e-3)


def test_a_sum_of_zeros_is_in_its_window():
    planned, b = tj.jit(lambda a, b: jnp.maximum(a, 0) @ b), np.float32([1.0, -1e-20, 0.5])
    for a in ([0.3, 1e-20, -0.2], [-0.3, -1e-20, -0.2], [0.2, 1e-20, 0.7]):
        planned(np.float32(a), b)
    assert [(p.grade, p.looks) for p in planned.plans] == [("flagged", 1)]


def test_the_sums_of_a_branch_that_a_loop_no_longer_takes_are_in_their_windows():
    def step(total, x):
        branches = lambda x: x @ jnp.roll(x, 1), lambda x: x @ jnp.flip(x)
        return total + lax.cond(x[0] > 0, *branches, x), None

    planned = tj.jit(lambda xs: lax.scan(step, 0 * xs[0, 0], xs)[0])
    rows = np.random.default_rng(0).uniform(0.2, 1.0, (6, 4)).astype(np.float32)
    rows *= np.float32([1, -1, 1e-20, 1e-20])
    for signs in ([1, 1, -1, 1, -1, 1], [1] * 6, [-1] * 6):
        planned(rows * np.float32(signs)[:, None])
    assert [p.looks for p in planned.plans] == [1]
