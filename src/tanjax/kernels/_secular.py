r"""The roots of $1 + \sum_j \omega_j / (\delta_j - x)$ with weights $\omega_j > 0$, all at once.

One root lies to the right of every pole. The result is the nearer pole and an offset from it. Only
this form keeps the last digits of the differences from all poles, which make the eigenvectors.

A step ("the middle way") solves a rational function. At the point, this function has the sums over
the poles to the left and to the right, and their slopes. A step bisects if the solution leaves the
interval that holds the root. The slowest of all roots takes about seven steps.

**References:** Bunch, Nielsen and Sorensen 1978; Li 1993.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, PyTree

from tanjax import _compat
from tanjax._typing import DenseArray, Natural

# More steps than any root has needed: at most 20, if every other step bisects.
_STEPS = 100


class Poles(NamedTuple):
    """The first `count` of `n` poles, ascending, and their weights; the others have weight zero."""

    at: Float[DenseArray, " n"]
    weights: Float[DenseArray, " n"]
    active: Bool[DenseArray, " n"]


class Sums(NamedTuple):
    """The function, the sum of the sizes of its terms, and the slopes of its two halves."""

    value: Natural
    size: Natural
    slope_left: Natural
    slope_right: Natural


class Interval(NamedTuple):
    """The bounds of the offset of a root, and the offsets of the two poles beside it."""

    low: Natural
    high: Natural
    left: Natural
    right: Natural


def sums_at(poles: Poles, origin: Natural, offset: Natural) -> Sums:
    """Sum over the poles in one pass of vectors over the roots, without a matrix of differences."""

    def add(sums: PyTree, pole: PyTree) -> PyTree:
        at, weight = pole
        inverse = 1 / ((at - origin) - offset)
        size = jnp.abs(inverse)
        terms = inverse, size, inverse * size, inverse * inverse
        return tuple(s + weight * t for s, t in zip(sums, terms, strict=True)), None

    zero = _compat.align((jnp.zeros_like(offset),) * 4, poles)
    far = jnp.where(poles.active, poles.at, 64)
    value, size, signed, slope = lax.scan(add, zero, (far, poles.weights))[0]
    return Sums(1 + value, 1 + size, (slope - signed) / 2, (slope + signed) / 2)


def roots(poles: Poles) -> tuple[Natural, Natural]:
    """Return for every pole the root to its right: the pole nearest to it, and the offset."""
    at, weights, active = poles
    last = active & ~jnp.roll(active, -1).at[-1].set(False)
    right = jnp.where(last, at + jnp.sum(weights), jnp.roll(at, -1))
    half = jnp.where(active, (right - at) / 2, 1)
    middle = sums_at(poles, jnp.where(active, at, 0), half).value
    is_left = middle >= 0
    from_left = is_left | last  # beyond the last root there is no pole
    origin = jnp.where(active, jnp.where(from_left, at, right), 0)
    start = jnp.where(from_left, half, -half)
    zero = jnp.zeros_like(half)
    low = jnp.where(is_left, zero, jnp.where(last, half, -half))
    high = jnp.where(is_left, half, jnp.where(last, 2 * half, zero))
    interval = Interval(low, high, at - origin, right - origin)
    guess = start + _two_poles_exact(middle, start, interval, weights, last)
    guess = jnp.where(active, _inside(guess, interval), 1)
    return origin, _refined(poles, origin, guess, interval, last)


def _refined(
    poles: Poles, origin: Natural, guess: Natural, interval: Interval, last: Natural
) -> Natural:
    """Iterate until the function or the step is a rounding error at every root."""
    eps = float(jnp.finfo(guess.dtype).eps)

    def step(state: PyTree) -> PyTree:
        count, x, low, high, done = state
        sums = sums_at(poles, origin, x)
        done = done | (jnp.abs(sums.value) <= 8 * eps * sums.size)
        low = jnp.where(~done & (sums.value < 0), x, low)
        high = jnp.where(~done & (sums.value >= 0), x, high)
        around = interval._replace(low=low, high=high)
        move = _middle_way(sums, x, around, last)
        done = done | (jnp.abs(move) <= 2 * eps * jnp.abs(x))
        slow = (count > 8) & (count % 2 == 0)
        moved = _inside(jnp.where(slow, jnp.nan, x + move), around)
        done = done | (jnp.abs(moved - x) <= eps * jnp.abs(x))
        return count + 1, jnp.where(done, x, moved), low, high, done

    going = lambda state: (state[0] < _STEPS) & jnp.any(~state[4])
    state = _compat.align((guess, interval.low, interval.high, ~poles.active), poles)
    return lax.while_loop(going, step, (0, *state))[1]


def _middle_way(sums: Sums, x: Natural, interval: Interval, last: Natural) -> Natural:
    """Return the step to the root of the function that interpolates the sums of either side."""
    left, right = interval.left - x, interval.right - x
    one = sums.value - left * sums.slope_left
    alone = left * sums.value / _safe(one)
    slope = sums.slope_left + sums.slope_right
    linear = (left + right) * sums.value - left * right * slope
    both = _root(one - right * sums.slope_right, linear, left * right * sums.value)
    return jnp.where(last, alone, both)


def _two_poles_exact(
    value: Natural, x: Natural, interval: Interval, weights: Natural, last: Natural
) -> Natural:
    """Return the step to the root of the function with constant terms of all but two poles.

    These two poles are beside the root.
    """
    left, right = interval.left - x, interval.right - x
    beside = jnp.where(last, 0, jnp.roll(weights, -1))
    rest = value - weights / _safe(left) - beside / _safe(right)
    alone = left + weights / _safe(rest)
    linear = rest * (left + right) + weights + beside
    return jnp.where(last, alone, _root(rest, linear, left * right * value))


def _root(square: Natural, linear: Natural, constant: Natural) -> Natural:
    """Return the root of `square x² - linear x + constant` between the poles, uncancelled."""
    root = jnp.sqrt(jnp.maximum(linear * linear - 4 * square * constant, 0))
    one = (linear - root) / _safe(2 * square)
    return jnp.where(linear <= 0, one, 2 * constant / _safe(linear + root))


def _inside(x: Natural, interval: Interval) -> Natural:
    """Return `x` if it is inside, else the mean of the ends; geometric if their signs agree."""
    low, high = interval.low, interval.high
    mean = jnp.sign(low) * jnp.sqrt(jnp.abs(low)) * jnp.sqrt(jnp.abs(high))
    middle = jnp.where(low * high > 0, mean, (low + high) / 2)
    return jnp.where((x > low) & (x < high), x, middle)


def _safe(x: Natural) -> Natural:
    return jnp.where(x == 0, jnp.ones_like(x), x)
