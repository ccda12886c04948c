"""Exponents that keep the numbers of a value in the normal range of its dtype.

Subnormal numbers count as lost: XLA flushes those of float32 to zero on CPU, and those of float16
have fewer digits.
"""

from __future__ import annotations

import functools
import math

import jax.numpy as jnp
import numpy as np

from tanjax._dtype_range import normal_range
from tanjax._typing import DType

from ..graph._graph import Magnitude, Magnitudes, Node, Value
from ._law import Many, law_of
from ._vanish import terms

ANY = 10**6  # the bound on exponents where there is none


def is_reciprocal(value: Value) -> bool:
    """True if a value is computed as `1 / x**n` or `1 / (1 + exp(-x))`: denominators must fit."""
    node = value.node
    if node is None or node.primitive != "integer_pow":
        return node is not None and node.primitive == "logistic"
    return bool(node.params["y"] < 0)


def range_of(value: Value, dtype: DType | None = None) -> tuple[float, float]:
    """Return log2 of the least and the largest number that a value may be stored as."""
    smallest, largest = normal_range(value.aval.dtype if dtype is None else dtype)
    if is_reciprocal(value):
        return max(smallest, -largest), min(largest, -smallest)
    return smallest + room_of_partial_sums(value), largest


def needed_by_parts(value: Value, m: Magnitudes) -> float:
    """Return a bound on the least exponent at which no partial sum overflows, in any order."""
    node, many = value.node, law_of(value.node).many
    if node is None or many in (None, Many.FACTORS) or not value.is_floating:
        return -math.inf
    if many is Many.UPDATES:
        return _needed_by_updates(node, m)
    if value.aval.dtype.itemsize == 2:  # summed up in float32
        return -math.inf
    operands = [use.value for use in node.uses[:2] if use.value.is_floating]
    if many is Many.SOLVED:
        if node.params["unit_diagonal"]:  # the factor below another one, with numbers up to 1
            return -math.inf
        operands[1] = value
    found = [m[v.index] for v in operands]
    if any(x is None or x.is_zero for x in found):
        return -math.inf
    top = sum(x.high for x in found if x) + math.log2(max(2, operands[0].size))
    return top - normal_range(value.aval.dtype)[1]


def room_of_partial_sums(value: Value) -> float:
    """Return by how many bits a sum must exceed the smallest normal number, for partial sums.

    `[2, -1.5, 1]` times the smallest number adds up to 1.5 times it; its partial sum 0.5 is
    flushed. Two terms have no partial sum, and half precision is added up in float32.
    """
    node = value.node
    if law_of(node).many not in (Many.TERMS, Many.PRODUCTS) or not value.is_floating:
        return 0.0
    if node is None or value.aval.dtype.itemsize == 2 or (count := terms(node)) < 3:
        return 0.0
    return math.log2(count)


def _needed_by_updates(node: Node, m: Magnitudes) -> float:
    """Return the same for a scatter, which adds up the updates of an entry in its own dtype."""
    into, updates = node.uses[0].value, node.uses[2].value
    found = [m[into.index], m[updates.index]]
    if node.params["unique_indices"] or None in found:
        return -math.inf
    top = max(-math.inf if x is None or x.is_zero else x.high for x in found)
    return top + math.log2(1 + max(1, updates.size)) - normal_range(into.aval.dtype)[1]


def parts_may_leave(value: Value, m: Magnitudes) -> bool:
    """True if some of the factors of a product of many may leave the range together."""
    node = value.node
    if node is None or law_of(node).many is not Many.FACTORS or not value.is_floating:
        return False
    factors, found = node.uses[0].value, m[node.uses[0].value.index]
    if found is None or found.is_zero:
        return found is None
    smallest, largest = normal_range(value.aval.dtype)
    low, high = min(found.low, 0.0) * factors.size, max(found.high, 0.0) * factors.size
    return not (smallest <= low and high <= largest)


def vanishes(value: Value, m: Magnitudes, exponent: float) -> bool:
    """True if the products that a contraction adds up are too small.

    They are rounded in the dtype of the result, or flushed one by one; so are those that a
    factorisation subtracts.
    """
    room = _room_of_products(value, m)
    return room is not None and exponent > room


def _room_of_products(value: Value, m: Magnitudes) -> float | None:
    """Return the largest exponent at which the largest of these products has all its digits."""
    products = law_of(value.node).products
    if products is None or value.aval.dtype.itemsize == 2:  # accumulated in float32
        return None
    factors = products(value)
    found = [m[v.index] for v in factors]
    if not found or any(x is None or x.is_zero for x in found):
        return None
    smallest, _ = normal_range(value.aval.dtype)
    top = sum(x.high for x in found if x)
    return (top - smallest - jnp.finfo(value.aval.dtype).nmant) / max(1, factors.count(value))


def is_garbled(value: Value, m: Magnitudes, exponent: float) -> bool:
    """True if LAPACK gets eigenvalues of a general matrix wrong, because it is large or small."""
    room = _room_of_eigenvalues(value, m)
    return room is not None and not room[0] <= exponent <= room[1]


def _room_of_eigenvalues(value: Value, m: Magnitudes) -> tuple[int, int] | None:
    """Return the exponents at which LAPACK need not scale a matrix by itself."""
    node = value.node
    if node is None or not law_of(node).eigenvalues or value is not node.outputs[0]:
        return None
    found = m[node.uses[0].value.index]
    if found is None or found.is_zero or found.high > ANY or not _forgets_scale():
        return None
    info = jnp.finfo(value.aval.dtype)
    room = -info.minexp // 2 - info.nmant - 1
    return math.ceil(found.high - room), math.floor(found.high + room)


@functools.cache
def _forgets_scale() -> bool:
    """True if `geev` scales a matrix beyond these bounds and not back, as that of SciPy 1.17."""
    from scipy.linalg import lapack

    return bool(lapack.sgeev(np.diag(np.full(2, 2.0**60, np.float32)))[0][0] != 2.0**60)


def exponents(value: Value, m: Magnitudes) -> tuple[int, int]:
    """Return the least and the largest exponent at which the numbers of a value are normal.

    If no exponent holds both the smallest and the largest, these exponents hold the largest with
    all their digits. If nothing is known, the pair is (0, 0): plain floating point. Every exponent
    holds zeros.
    """
    magnitude = m[value.index]
    if magnitude is None or _says_nothing(magnitude):
        return 0, 0
    smallest, largest = range_of(value)
    if magnitude.is_zero:
        return int(smallest), int(largest)
    low = -ANY if magnitude.high == -math.inf else math.ceil(magnitude.high - largest)
    high = ANY if magnitude.low == -math.inf else math.floor(magnitude.low - smallest)
    products = _room_of_products(value, m)
    if products is not None:
        high = max(low, min(high, math.floor(products)))
    if eigenvalues := _room_of_eigenvalues(value, m):
        low, high = max(low, eigenvalues[0]), min(high, eigenvalues[1])
    if low > high:
        digits = jnp.finfo(value.aval.dtype).nmant + 1
        high = math.floor(magnitude.high - smallest) - digits
    return low, high


def _says_nothing(m: Magnitude) -> bool:
    """True if bounds are too far away; the least of measured numbers may be exp(-1e8)."""
    least = m.high if m.exact else m.low
    return m.high > ANY or -math.inf < least < -ANY


def holds_together(value: Value, magnitudes: Magnitudes) -> bool:
    """True if some exponent holds both the smallest and the largest number of a value."""
    m = magnitudes[value.index]
    if m is None or m.is_zero or not value.is_floating:
        return True
    smallest, largest = range_of(value)
    return m.low == -math.inf or math.ceil(m.high - largest) <= math.floor(m.low - smallest)


def is_normal(value: Value, magnitudes: Magnitudes) -> bool:
    """True if every number of a value is normal in plain floating point, or is unknown."""
    m = magnitudes[value.index]
    if m is None or m.is_zero or not value.is_floating:
        return True
    smallest, largest = range_of(value)
    return smallest <= m.low and m.high <= largest


def fits_at_zero(value: Value, m: Magnitudes) -> bool:
    """True if no other exponent holds more: all numbers, or else the largest."""
    if not value.is_floating:
        return True
    magnitude, law = m[value.index], law_of(value.node)
    if magnitude and not (law.products or law.eigenvalues):  # 0.5 us instead of 2
        smallest, largest = range_of(value)
        if smallest <= magnitude.low and magnitude.high <= largest:
            return True
    low, high = exponents(value, m)
    return low <= 0 <= high


def is_held(value: Value, m: Magnitudes) -> bool:
    """True if every number is normal as it is, including intermediate products of a primitive."""
    held = is_normal(value, m) and fits_at_zero(value, m)
    return held and not parts_may_leave(value, m)


def is_alarming(value: Value, magnitudes: Magnitudes) -> bool:
    """True if all numbers of a value may leave the range, or some of them overflow."""
    m = magnitudes[value.index]
    if m is None or m.is_zero or not value.is_floating:
        return False
    smallest, largest = normal_range(value.aval.dtype)
    return m.high > largest or m.high < smallest
