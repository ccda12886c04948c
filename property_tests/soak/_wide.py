"""Numbers of the reference: wider and finer than any program needs, with the dtype's roundings.

A reference in float64 overflows and underflows itself, and one number does not show how far a
float32 result may be off. Here a program runs in `numpy.longdouble` (exponents to ±16000) several
times:

- once exactly;
- once rounded to nearest as the dtype does: `1 + tiny` is 1, and a difference of equals 0;
- a few times with a random rounding of the dtype's size after every operation.

The differences between the results show the effect of rounding on this program and these numbers.
Half of the random runs round to one of the two neighbours in the dtype, so that exact results stay
exact. `log(x / x)` is 0 in all of them, and the rest of the program gets the same noise as beside a
0. The same method handles numbers beyond `longdouble`: in each run another random huge or tiny
number replaces them. So `1 / (1 + exp(1e30))` is 0 in all runs, while `log(exp(1e30))` differs and
is not judged.

    Sample(eps=2.0**-23, seed=None)   # exact
    Sample(eps=2.0**-23, seed=0)      # to nearest
    Sample(eps=2.0**-23, seed=1)      # one possible rounding

Sharp edges. If `longdouble` is `float64` (some platforms), fewer entries are judged, but none
wrongly.
"""

from __future__ import annotations

import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax._typing import Function

Wide = np.longdouble
_LIMIT = np.finfo(Wide).maxexp  # 16384 with 80 bits


class Sample:
    """One run: its rounding, and its replacements for numbers beyond `longdouble`.

    **Arguments:** `eps`: of the imitated dtype; `seed`: `None` for a run without roundings, 0 for
    roundings to nearest, odd for roundings to either neighbour.
    """

    def __init__(self, eps: float, seed: int | None) -> None:
        self.eps = eps
        self.exact, self.to_nearest = seed is None, seed == 0
        self.to_neighbour = seed is not None and seed % 2 == 1
        self.replaced = False  # True after a number beyond `longdouble`
        self.random = np.random.default_rng(seed)

    def noise(self, like: PyTree, amount: PyTree = 1.0) -> PyTree:
        """Return numbers around 0, at most `amount` units in the last place of 1."""
        if self.exact or self.to_nearest:
            return Wide(0)
        return self.random.uniform(-1, 1, np.shape(like)).astype(Wide) * (self.eps * amount)

    def rounded(self, x: PyTree, amount: PyTree = 1.0) -> PyTree:
        """Return a result of an operation as the dtype might have rounded it."""
        if self.to_nearest:
            fraction, power = np.frexp(x)
            return np.ldexp(np.rint(fraction / (self.eps / 2)) * (self.eps / 2), power)
        if self.to_neighbour:
            fraction, power = np.frexp(x)
            count = fraction / (self.eps / 2)
            off = np.rint(self.random.uniform(-1, 1, np.shape(x)) * (amount - 1))
            near = np.floor(count + self.random.random(np.shape(x))) + off
            return np.ldexp(np.where(count == np.rint(count), count, near) * (self.eps / 2), power)
        return x if self.exact else x * (1 + self.noise(x, amount))

    def held(self, out: PyTree, finite: PyTree, nonzero: PyTree) -> PyTree:
        """Replace infinities that should be `finite`, and zeros that should be `nonzero`."""
        if np.isfinite(out).all() and (out != 0).all():
            return out
        out = np.array(out, dtype=Wide)
        beyond, below = np.isinf(out) & finite, (out == 0) & nonzero
        for mask, sign in ((beyond, 1), (below, -1)):
            count = int(mask.sum())
            if count:
                self.replaced = True
                exponents = self.random.uniform(0.4 * _LIMIT, 0.97 * _LIMIT, count).astype(int)
                out[mask] = np.copysign(np.ldexp(Wide(1), sign * exponents), out[mask])
        return out[()]


def constant(sample: Sample, x: PyTree, dtype: DTypeLike) -> PyTree:
    """Return a constant of the program, rounded to the dtype if that does not hold it."""
    wide = np.asarray(x, Wide)
    if sample.exact or not np.isfinite(wide).all():
        return wide
    with np.errstate(all="ignore"):
        held = np.asarray(x, np.float64).astype(dtype).astype(np.float64) == x
    return np.where(held, wide, sample.rounded(wide))


def _noisy(sample: Sample, x: PyTree, noise: PyTree) -> PyTree:
    if sample.to_neighbour:
        return np.where(sample.rounded(x) == x, x, x + noise)[()]
    return sample.rounded(x) if sample.to_nearest else x + noise


# -- operations on entries --------------------------------------------------------------------


def _all(f: Function, *xs: PyTree) -> PyTree:
    mask = f(xs[0])
    for x in xs[1:]:
        mask = mask & f(x)
    return mask


def finite(*xs: PyTree) -> PyTree:
    """Mark places where all are finite."""
    return _all(np.isfinite, *xs)


def _nonzero(x: PyTree) -> PyTree:
    return (x != 0) & ~np.isnan(x)


def multiply(sample: Sample, a: PyTree, b: PyTree) -> PyTree:
    """Return a rounded product."""
    out = a * b
    return sample.rounded(sample.held(out, finite(a, b), _all(_nonzero, a, b)))


def divide(sample: Sample, a: PyTree, b: PyTree) -> PyTree:
    """Return a rounded quotient; 1/0 is infinite."""
    return sample.rounded(sample.held(a / b, finite(a, b) & (b != 0), _nonzero(a) & np.isfinite(b)))


def add(sample: Sample, a: PyTree, b: PyTree) -> PyTree:
    """Return a rounded sum."""
    return sample.rounded(sample.held(a + b, finite(a, b), False))


def subtract(sample: Sample, a: PyTree, b: PyTree) -> PyTree:
    """Return a rounded difference."""
    return add(sample, a, -b)


def integer_power(sample: Sample, x: PyTree, n: int) -> PyTree:
    """Return a power by repeated squaring: as many roundings as factors."""
    y = np.power(np.asarray(x, Wide), Wide(n))[()]
    return sample.rounded(
        sample.held(y, np.isfinite(x) & ((x != 0) | (n >= 0)), _nonzero(x) & np.isfinite(x)),
        max(1.0, abs(n) / 2),
    )


def power(sample: Sample, x: PyTree, y: PyTree) -> PyTree:
    """Return a real power; `y·log x` may round, too, as when a power of two moves through."""
    x, y = np.asarray(x, Wide), np.asarray(y, Wide)
    out = np.power(x, y)
    poles = (x != 0) | (y >= 0)
    out = sample.held(out, finite(x, y) & poles, finite(x, y) & (x != 0))
    if sample.exact:
        return out
    steps = np.abs(y * np.log2(np.abs(np.where(x == 0, 1, x))))
    amount = np.where(np.isfinite(steps), 2 + steps / 2, 2)
    return _noisy(sample, out, out * np.expm1(sample.noise(out, amount)))


def exponential(sample: Sample, x: PyTree, base: PyTree = None) -> PyTree:
    """Return `exp`, with an argument that may be off by the dtype's last place."""
    x = x * (1 + sample.noise(x, 0.5))
    out = np.exp(x) if base is None else np.exp2(x)
    return sample.rounded(sample.held(out, np.isfinite(x), np.isfinite(x)), 2)


def exponential_less_one(sample: Sample, x: PyTree) -> PyTree:
    """Return `expm1`."""
    x = x * (1 + sample.noise(x, 0.5))
    return sample.rounded(sample.held(np.expm1(x), np.isfinite(x), _nonzero(x)), 2)


def logistic(sample: Sample, x: PyTree) -> PyTree:
    """Return `1 / (1 + exp(-x))` without overflow."""
    x = x * (1 + sample.noise(x, 0.5))
    small = np.exp(-np.abs(x))
    small = sample.held(small, True, np.isfinite(x))
    return sample.rounded(np.where(x >= 0, 1 / (1 + small), small / (1 + small))[()], 2)


def function(f: Function, amount: float = 2.0) -> Function:
    """Return a function that overflows or underflows only where its argument does."""

    def rounded(sample: Sample, x: PyTree) -> PyTree:
        return sample.rounded(f(x), amount)

    return rounded


# -- reductions -------------------------------------------------------------------------------


def total(sample: Sample, x: PyTree, axes: tuple[int, ...]) -> PyTree:
    """Return a sum, whose partial sums may each be rounded."""
    out = np.sum(x, axis=axes)
    out = sample.held(out, np.isfinite(x).all(axis=axes), False)
    if sample.exact:
        return out
    return _noisy(sample, out, np.sum(np.abs(x), axis=axes) * sample.noise(out, 2))


def running_total(sample: Sample, x: PyTree, axis: int) -> PyTree:
    """Return `cumsum`."""
    out = np.cumsum(x, axis=axis)
    out = sample.held(out, np.cumsum(~np.isfinite(x), axis=axis) == 0, False)
    if sample.exact:
        return out
    return _noisy(sample, out, np.cumsum(np.abs(x), axis=axis) * sample.noise(out, 2))


def product(sample: Sample, x: PyTree, axes: tuple[int, ...]) -> PyTree:
    """Return a product of entries, one after the other."""
    for axis in sorted(axes, reverse=True):
        entries = np.moveaxis(x, axis, 0)
        x = np.ones(entries.shape[1:], Wide)[()]
        for entry in entries:
            x = multiply(sample, x, entry)
    return x


def running_product(sample: Sample, x: PyTree, axis: int) -> PyTree:
    """Return `cumprod`."""
    entries, so_far, out = np.moveaxis(x, axis, 0), None, []
    for entry in entries:
        so_far = entry if so_far is None else multiply(sample, so_far, entry)
        out.append(so_far)
    return np.moveaxis(np.array(out, Wide), 0, axis)


def contract(sample: Sample, a: PyTree, b: PyTree, dimensions: PyTree) -> PyTree:
    """Return `dot_general`, by products and a sum."""
    (ca, cb), (ba, bb) = dimensions
    rest_a = [i for i in range(a.ndim) if i not in (*ca, *ba)]
    rest_b = [i for i in range(b.ndim) if i not in (*cb, *bb)]
    a = np.transpose(a, (*ba, *rest_a, *ca))
    b = np.transpose(b, (*bb, *rest_b, *cb))
    n = len(ba)
    a = a.reshape(a.shape[: n + len(rest_a)] + (1,) * len(rest_b) + a.shape[n + len(rest_a) :])
    b = b.reshape(b.shape[:n] + (1,) * len(rest_a) + b.shape[n:])
    terms = multiply(sample, a, b)
    return total(sample, terms, tuple(range(terms.ndim - len(ca), terms.ndim)))
