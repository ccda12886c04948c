"""Operations on numbers too far apart for one exponent: each entry has its own.

A block with exp(1000) cannot hold ordinary numbers, and a plan made without them would lose them. A
spread `Wide` has two arrays, fractions and exponents. An operation that only moves entries moves
both alike. A sum is aligned entry by entry, by the largest of *its* parts, so that a row of small
numbers beside a row of huge ones keeps its sum. An operation that depends on order alone works on
the ranks of the numbers, which are integers.

    >>> small, huge = Wide(np.array([1.0, 3.0])), Wide(np.ones(2), np.array([0, 5000]))
    >>> plus(small, huge).exponent
    array([   2, 5001])

Sharp edges: spread numbers are ten times slower than blocks, so `normalised` returns to blocks
where it can. A sum whose largest terms cancel has lost the terms 2^1000 below these.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from tanjax._typing import Axis

from ._wide import Apart, Exponent, Numbers, Wide, align, is_number, normalised, scaled, split

# The exponent of zeros and infinities in a search for the largest exponent.
NONE = -(2**60)
_LONGEST = 4000  # the most steps of 2^1000 in a remainder

Parts: TypeAlias = tuple[Numbers, np.ndarray]  # fractions, and an exponent of each


def is_spread(x: Wide) -> bool:
    return type(x.exponent) is not int


def parts_of(x: Wide) -> Parts:
    """Return fractions and exponents of the numbers of a `Wide` of either form."""
    if is_spread(x) and x.extent is not None:
        return x.array, x.exponent
    fraction, powers = split(x.array)
    return fraction, powers + np.where(is_number(fraction), x.exponent, 0)


def _largest(powers: np.ndarray, counts: np.ndarray, axes: Axis = None) -> np.ndarray:
    """Return the largest exponents of counting entries along axes, which are kept; 0 if none."""
    top = np.where(counts, powers, NONE)
    if axes is not None:
        top = np.max(top, axes, keepdims=True, initial=NONE)
    return np.where(top == NONE, 0, top)


def common(xs: list[Wide]) -> tuple[list[Numbers], np.ndarray]:
    """Return the arrays of several Wides at one exponent per entry, that of the largest."""
    pairs = [parts_of(x) for x in xs]
    top: int | np.ndarray = NONE
    for fraction, powers in pairs:
        top = np.maximum(top, np.where(is_number(fraction), powers, NONE))
    top = np.where(top == NONE, 0, top)
    return [scaled(fraction, powers - top) for fraction, powers in pairs], top


def at_largest(x: Wide, axes: tuple[int, ...]) -> tuple[Numbers, np.ndarray]:
    """Return the numbers at the exponents of the largest along some axes, which are kept.

    Numbers below 2^-1000 of the largest may vanish. This is harmless where all of them are added
    up, or where a factorisation makes rounding errors as large.
    """
    fraction, powers = parts_of(x)
    top = _largest(powers, is_number(fraction), axes)
    return scaled(fraction, powers - top), top


def plus(x: Wide, y: Wide) -> Wide:
    """Return `x + y` for blocks and spread numbers."""
    power: Exponent
    try:
        (a, b), power = align([x, y])
    except Apart:
        (a, b), power = common([x, y])
    return normalised(Wide(a + b, power))


def times(x: Wide, y: Wide) -> Wide:
    """Return `x * y` for blocks and spread numbers."""
    return normalised(Wide(x.array * y.array, x.exponent + y.exponent))


def choose(which: np.ndarray, *cases: Wide) -> Wide:
    """Choose one of several Wides, entry by entry."""
    pairs = [parts_of(x) for x in cases]
    shape = np.broadcast_shapes(np.shape(which), *(np.shape(f) for f, _ in pairs))
    which = np.broadcast_to(np.asarray(which).astype(np.int64), shape)
    fractions, powers = (
        np.choose(which, [np.broadcast_to(a, shape) for a in arrays], mode="clip")
        for arrays in zip(*pairs, strict=True)
    )
    return normalised(Wide(fractions, powers))


def larger(x: Wide, y: Wide, sign: int = 1) -> Wide:
    """Return the larger of two numbers, the smaller if `sign` is -1; NaN if either is NaN."""
    (a, b), _ = common([x, y])
    return choose(((a >= b) if sign > 0 else (a <= b)) | np.isnan(a), y, x)


def remainder_of(x: Wide, y: Wide) -> Wide:
    """Return `fmod` of numbers far apart; it is exact, because each step is."""
    (a, p), (b, q) = parts_of(x), parts_of(y)
    a, p, b, q = np.broadcast_arrays(a, p, b, q)
    left = np.where(is_number(a) & is_number(b), np.maximum(p - q, 0), 0)
    if left.max(initial=0) > 1000 * _LONGEST:
        raise Apart
    rest = a
    while np.any(left > 0):
        step = np.minimum(left, 1000)
        rest, left = np.fmod(scaled(rest, step), b), left - step
    done = np.where(p >= q, np.fmod(rest, b), np.where(np.isfinite(a) & ~np.isnan(b), a, np.nan))
    done = np.where((b == 0) | ~np.isfinite(a) | np.isnan(b), np.fmod(a, b), done)
    return normalised(Wide(done, np.where((p >= q) & is_number(b), q, p)))


# -- sums -----------------------------------------------------------------------------------------


def sum_over(fraction: Numbers, powers: np.ndarray, axes: tuple[int, ...]) -> Wide:
    """Return sums along some axes, each aligned by the largest of its own terms."""
    top = _largest(powers, is_number(fraction), axes)
    total = np.add.reduce(scaled(fraction, powers - top), axes)
    return Wide(total, np.squeeze(top, axes))


def running_sum(fraction: Numbers, powers: np.ndarray, axis: int) -> Wide:
    """Return cumulative sums along an axis."""
    rows = list(zip(np.moveaxis(fraction, axis, 0), np.moveaxis(powers, axis, 0), strict=True))
    sums = rows[:1]
    for row in rows[1:]:
        (a, b), top = common([Wide(f, np.asarray(p)) for f, p in (sums[-1], row)])
        sums.append(parts_of(Wide(a + b, top)))
    out, kept = np.array(fraction), np.array(powers)
    for i, (f, p) in enumerate(sums):
        np.moveaxis(out, axis, 0)[i], np.moveaxis(kept, axis, 0)[i] = f, p
    return Wide(out, kept)


def add_at(x: Wide, index: tuple[np.ndarray, ...], updates: Wide, sign: int = 1) -> Wide:
    """Add updates to entries (subtract if `sign` is -1), also several to the same entry."""
    (fraction, powers), (more, its) = parts_of(x), parts_of(updates)
    top = np.where(is_number(fraction), powers, NONE)
    np.maximum.at(top, index, np.where(is_number(more), its, NONE))
    top = np.where(top == NONE, 0, top)
    out = np.array(scaled(fraction, powers - top))
    (np.add if sign > 0 else np.subtract).at(out, index, scaled(more, its - top[index]))
    return Wide(out, top)


def multiply_matrices(x: Parts, y: Parts) -> Wide:
    """Return `(batch, left, k) @ (batch, k, right)`, each entry aligned by its own terms."""
    (a, p), (b, q) = x, y
    rows, columns = _largest(p, is_number(a), 2), _largest(q, is_number(b), 1)
    near = np.where(is_number(a), p - rows, 0), np.where(is_number(b), q - columns, 0)
    if near[0].min(initial=0) + near[1].min(initial=0) > -900:
        return Wide(scaled(a, near[0]) @ scaled(b, near[1]), rows + columns)
    out = np.zeros((a.shape[0], a.shape[1], b.shape[2]), np.result_type(a, b))
    powers = np.zeros(out.shape, np.int64)
    for i in range(a.shape[1]):  # row by row, as a program's matrix may be large
        total = sum_over(a[:, i, :, None] * b, p[:, i, :, None] + q, (1,))
        out[:, i], powers[:, i] = total.array, total.exponent
    return Wide(out, powers)


def product_over(fraction: Numbers, powers: np.ndarray, axes: tuple[int, ...]) -> Wide:
    """Return products along some axes."""
    rest = tuple(i for i in range(fraction.ndim) if i not in axes)
    shape = [fraction.shape[i] for i in rest]
    rows = np.transpose(fraction, (*rest, *axes)).reshape(*shape, -1)
    total = np.ones(shape, rows.dtype)
    powers = np.asarray(np.add.reduce(powers, axes))
    for i in range(0, rows.shape[-1], 256):  # a product of 256 fractions is at least 2^-256
        part = np.multiply.reduce(rows[..., i : i + 256], -1)
        total, more = split(total * part)
        powers = powers + more
    return Wide(total, powers)


# -- order ----------------------------------------------------------------------------------------


def ranks(xs: list[Wide], nan: int) -> tuple[list[np.ndarray], Wide]:
    """Return integers in the order of real numbers, and the numbers by rank.

    **Arguments:** `nan`: 1 if NaN is above all numbers, -1 if below.
    """
    pairs = [parts_of(x) for x in xs]
    if any(np.iscomplexobj(f) for f, _ in pairs):
        raise Apart
    fraction = np.concatenate([np.ravel(f) for f, _ in pairs])
    powers = np.concatenate([np.ravel(p) for _, p in pairs])
    level = np.sign(fraction) * (powers + 2.0**52)
    level = np.where(np.isinf(fraction), fraction, level)
    # lexsort: NaN is above infinity, or has -inf and is put below by a key of its own
    order = np.lexsort((fraction, level, np.isnan(fraction) * nan))
    f, p = fraction[order], powers[order]
    new = np.ones(len(f), np.int64)
    same = (f[1:] == f[:-1]) & (p[1:] == p[:-1]) | (np.isnan(f[1:]) & np.isnan(f[:-1]))
    new[1:] = ~same
    place = np.empty(len(f), np.int64)
    place[order] = np.cumsum(new) - 1
    table = Wide(f[new > 0], p[new > 0])
    ends = np.cumsum([math.prod(np.shape(g)) for g, _ in pairs])[:-1]
    shapes = [np.shape(g) for g, _ in pairs]
    return [r.reshape(s) for r, s in zip(np.split(place, ends), shapes, strict=True)], table


def by_rank(place: np.ndarray, table: Wide) -> Wide:
    """Return numbers by their ranks; ranks beyond all are infinities."""
    place = np.asarray(place)
    inside = np.clip(place, 0, len(table.array) - 1)
    ends = np.where(place < 0, -np.inf, np.inf)
    out = np.where(place == inside, table.array[inside], ends)
    return normalised(Wide(out, table.exponent[inside]))
