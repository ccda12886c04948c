"""Numbers too small for their dtype, by primitive: errors, flags, divisions.

A number below the normal range is flushed to zero, or loses digits. Its absolute error is at most
the smallest normal number. Each primitive passes that error on: a sum adds errors, a product
multiplies them by the other factor, a quotient divides them. Followed to the results
(`scale/windows`), an error is harmless where it stays below their last digit.

    a, b = Operand(-126.0, 0.0, 3.0), Operand(-inf, -2.0, 5.0)
    PRODUCT.error(node, [a, b], 8.0)  # -121.0

All numbers are binary logarithms. `error` returns infinity where nothing is known: by default,
errors are harmful. `flag` detects inside the program that a result has lost digits, so that no
error need be followed.

**References:** errors of sums and products: Higham, *Accuracy and Stability of Numerical
Algorithms*, 2nd ed., sections 2.8 (underflow) and 3.1.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tanjax._dtype_range import limits
from tanjax._typing import AnyArray

from ..graph._graph import Node
from ..numbers._interval_record import log_add


class Operand(NamedTuple):
    """Bounds on an operand, in log2.

    **Fields:** `error`: of its entries, absolute; `low`, `high`: bounds on the entries that are not
    zero (`low` is -inf where zeros matter); `is_positive`: no entry is negative.
    """

    error: float
    low: float
    high: float
    is_positive: bool = False


Operands: TypeAlias = Sequence[Operand]
Error: TypeAlias = Callable[[Node, Operands, float], float]
Flag: TypeAlias = Callable[[Sequence[AnyArray], jax.Array], Iterator[jax.Array]]
Divides: TypeAlias = Callable[[Node, int], bool]
# If the operand at a place is infinite: the power of infinity that the result is.
Infinite: TypeAlias = Callable[[Node, int], float | None]


def _harmful(node: Node, xs: Operands, high: float) -> float:
    return math.inf


def _on_the_way(node: Node, xs: Operands, high: float) -> float:
    return math.inf


def _never(node: Node, position: int) -> bool:
    return False


def _unknown(node: Node, position: int) -> None:
    return None


class Vanish(NamedTuple):
    """The treatment of numbers that vanish by a primitive: a field of its law.

    **Fields:** `error`: of a result, given the operands and a bound on the result; `flag`:
    conditions under which a result has lost digits, None if unknown; `least`: the least
    intermediate number, infinity if the result is the only one; `moves`: results are entries of
    operands; `is_part`: results are one part of a complex number; `adds`: results are sums, whose
    largest entry counts; `equates`: results tell whether operands are equal; `divides`: whether the
    operand at a place must not be zero; `infinite`: the power of an infinite operand that the
    result is, negative where the result is zero, 0 where it stays finite, None where an infinite
    operand does harm.
    """

    error: Error = _harmful
    flag: Flag | None = None
    least: Error = _on_the_way
    moves: bool = False
    is_part: bool = False
    adds: bool = False
    equates: bool = False
    divides: Divides = _never
    infinite: Infinite = _unknown

    @property
    def falls(self) -> bool:
        """True if results may vanish though no operand is nearly zero: tails and powers."""
        return self.flag is _wherever or self in (POWER, WHOLE_POWER)

    @property
    def is_sum(self) -> bool:
        """True if results are sums of operands, not of products of operands."""
        return self.error is _sum

    @property
    def is_product(self) -> bool:
        """True if results are products of two operands, or sums of these products."""
        return self.error in (_product, _products)

    @property
    def is_monomial(self) -> bool:
        """True if results are products of operands, or moved."""
        return self.moves or self in (PRODUCT, SQUARE, WHOLE_POWER)

    @property
    def keeps_zeros(self) -> bool:
        """True if the result is zero where the first operand is, or any factor of a product."""
        return self.moves or self.flag in (_unless_zero, _of_factors)


HARMFUL = Vanish()

# -- flags ----------------------------------------------------------------------------------------


def is_tiny(x: jax.Array) -> jax.Array:
    """True where a number is below the normal range; of a complex number the larger part counts."""
    return magnitude(x) < limits(x.dtype).normal


def magnitude(x: jax.Array) -> jax.Array:
    """Return the size of each number; of a complex number that of the larger part."""
    if x.dtype.kind == "c":
        return jnp.maximum(jnp.abs(x.real), jnp.abs(x.imag))
    return jnp.abs(x)


def _coarse(x: jax.Array) -> float:
    """Return the least size of a number whose last digit is normal."""
    room = limits(x.dtype)
    return room.normal * 2.0 ** (room.bits + 1)


def _wherever(xs: Sequence[AnyArray], out: jax.Array) -> Iterator[jax.Array]:
    yield is_tiny(out)


def _is_small(x: jax.Array) -> jax.Array:
    """True where a number has vanished; of a complex number a part of it, or of its digits."""
    return magnitude(x) < _coarse(x) if x.dtype.kind == "c" else is_tiny(x)


def _room(out: jax.Array) -> float:
    """Return the least size of a product that keeps its digits, also in a difference of parts."""
    return _coarse(out) if out.dtype.kind == "c" else limits(out.dtype).normal


def _parts(x: AnyArray) -> Sequence[AnyArray]:
    return (x.real, x.imag) if x.dtype.kind == "c" else (x,)


def _least(x: AnyArray) -> jax.Array:
    """Return the least size of the nonzero numbers, or of their nonzero parts."""
    least = [jnp.min(jnp.abs(p), initial=jnp.inf, where=p != 0) for p in _parts(x)]
    return functools.reduce(jnp.minimum, least)


def _unless_zero(xs: Sequence[AnyArray], out: jax.Array) -> Iterator[jax.Array]:
    yield _is_small(out) & (xs[0] != 0)


def _of_factors(xs: Sequence[AnyArray], out: jax.Array) -> Iterator[jax.Array]:
    for a, b in itertools.product(*map(_parts, xs)):
        yield (jnp.abs(a * b) < _room(out)) & (a != 0) & (b != 0)


def _of_two_terms(xs: Sequence[AnyArray], out: jax.Array) -> Iterator[jax.Array]:
    """Flag a sum of two that is flushed; otherwise it is exact where it is small."""
    yield is_tiny(out) & (xs[0] != -xs[1])


def _of_difference(xs: Sequence[AnyArray], out: jax.Array) -> Iterator[jax.Array]:
    yield is_tiny(out) & (xs[0] != xs[1])


def _of_terms(xs: Sequence[AnyArray], out: jax.Array) -> Iterator[jax.Array]:
    """Flag small operands: a cancellation leaves a multiple of the last digit of an operand."""
    if not limits(out.dtype).step:  # sums of half precision are exact
        for x in xs:
            yield (x != 0) & (magnitude(x) < _coarse(x))


def _of_products(xs: Sequence[AnyArray], out: jax.Array) -> Iterator[jax.Array]:
    # Half precision is added up in float32. `promote_types` is forbidden by strict promotion.
    summed = np.dtype(np.float32) if out.dtype.itemsize < 4 else out.dtype
    least = [_least(x).astype(magnitude(out).dtype) for x in xs[:2]]
    if summed != out.dtype:
        least = [x.astype(summed) for x in least]
        yield is_tiny(out)
    yield least[0] * least[1] < (_room(out) if summed == out.dtype else limits(summed).normal)


def _of_factors_of_matrix(xs: Sequence[AnyArray], out: jax.Array) -> Iterator[jax.Array]:
    for x in xs:
        yield (x != 0) & (magnitude(x) < _coarse(x))


def _of_substitution(xs: Sequence[AnyArray], out: jax.Array) -> Iterator[jax.Array]:
    diagonal = magnitude(jnp.diagonal(xs[0], axis1=-2, axis2=-1))
    least = jnp.min(magnitude(out), initial=jnp.inf)
    yield is_tiny(out)
    yield jnp.min(diagonal, initial=jnp.inf) * least < _coarse(out)


def _coarse_anyway(xs: Sequence[AnyArray], out: jax.Array) -> Iterator[jax.Array]:
    """Flag nothing: a nonzero result is no smaller than the last digit of 1."""
    return iter(())


# -- errors ---------------------------------------------------------------------------------------


def worst(xs: Operands) -> float:
    """Return the largest error of some operands."""
    return max([x.error for x in xs], default=-math.inf)


def _same(node: Node, xs: Operands, high: float) -> float:
    return worst(xs)


def _growth(node: Node, count: float) -> float:
    """Return by how many bits errors of `count` terms grow; in half precision signs are mixed."""
    half = bool(limits(node.outputs[0].aval.dtype).step)
    return math.log2(max(2.0, count**0.5 if half else count))


def terms(node: Node) -> int:
    """Return at most how many numbers are added up for one entry; for a batch, some more."""
    params, shapes = node.params, [use.value.aval.shape for use in node.uses]
    sizes = [use.value.size for use in node.uses if use.value.is_floating]
    entries = max(1, node.outputs[0].size)
    match node.primitive:
        case "add" | "add_any" | "sub":
            return 2
        case "dot_general":
            return math.isqrt(math.prod(sizes) // entries)
        case "conv_general_dilated":
            results = shapes[1][params["dimension_numbers"].rhs_spec[0]]
            return math.prod(shapes[1]) // max(1, results)
        case "cumsum":
            return int(shapes[0][params["axis"]])
        case "reduce_window_sum":
            return math.prod(params["window_dimensions"])
        case "reduce_sum":
            return max(1, sum(sizes) // entries)
    return sum(sizes)


def _sum(node: Node, xs: Operands, high: float) -> float:
    return worst(xs) + _growth(node, terms(node))


def _product(node: Node, xs: Operands, high: float) -> float:
    a, b = xs
    if a.error == b.error == -math.inf:
        return -math.inf
    return log_add(a.error + b.high, b.error + a.high)


def _products(node: Node, xs: Operands, high: float) -> float:
    return _product(node, xs, high) + _growth(node, terms(node))


def _quotient(node: Node, xs: Operands, high: float) -> float:
    a, b = xs
    found = a.error - b.low
    if b.error > -math.inf:
        if not b.low > b.error + 1:
            return math.inf
        found = log_add(found, b.error + a.high - 2 * b.low + 1)
    return found


def _slope(node: Node, xs: Operands, high: float) -> float:
    """Return the error of functions whose derivative is at most 2 everywhere."""
    return worst(xs) + 1


def _exponential(node: Node, xs: Operands, high: float) -> float:
    """Return the error from `|exp(x + d) - exp(x)| <= 2 |d| exp(x)` for `|d| <= 1`."""
    error = xs[0].error
    return math.inf if error > 0 else error + max(high, 0.0) + 1


def _root(node: Node, xs: Operands, high: float) -> float:
    x = xs[0]
    known = x.error - x.low / 2 if x.low > -math.inf else math.inf
    return min(x.error / 2, known)


def _cube_root(node: Node, xs: Operands, high: float) -> float:
    return xs[0].error / 3 + 1  # on both sides of zero


def _log1p(node: Node, xs: Operands, high: float) -> float:
    return xs[0].error + 1 if xs[0].is_positive else math.inf


def _near(power: float) -> Error:
    """Return the error of `x**power`, infinite unless the operand is larger than its error."""

    def error(node: Node, xs: Operands, high: float) -> float:
        x = xs[0]
        if not x.low > x.error + 2:
            return math.inf
        return x.error + (power - 1) * x.low + 2

    return error


def _whole_power(node: Node, xs: Operands, high: float) -> float:
    y = node.params["y"]
    if y < 0:
        return _near(y)(node, xs, high) + math.log2(-y)
    return -math.inf if y == 0 else xs[0].error + (y - 1) * xs[0].high + math.log2(y)


def _square(node: Node, xs: Operands, high: float) -> float:
    return xs[0].error + xs[0].high + 1


# -- on the way -----------------------------------------------------------------------------------


def _least_product(node: Node, xs: Operands, high: float) -> float:
    return xs[0].low + xs[1].low


def _least_digit(node: Node, xs: Operands, high: float) -> float:
    """Return the last digit of an operand: a factorisation subtracts numbers down to it."""
    return min(x.low for x in xs) - limits(node.uses[0].value.aval.dtype).bits - 1


# -- divisions and infinities ---------------------------------------------------------------------


def _second(node: Node, position: int) -> bool:
    return position == 1


def _first(node: Node, position: int) -> bool:
    return position == 0


def _negative_power(node: Node, position: int) -> bool:
    return position == 0 and bool(node.params["y"] < 0)


def _passes(power: float) -> Infinite:
    return lambda node, position: power


def _divisor(node: Node, position: int) -> float | None:
    return -1.0 if position == 1 else None


def _power_of_infinity(node: Node, position: int) -> float | None:
    y = float(node.params["y"])
    return y if y < 0 else None


# -- by family ------------------------------------------------------------------------------------

MOVES = Vanish(_same, moves=True, infinite=_passes(1.0))
PART = MOVES._replace(is_part=True)
CONVERTED = Vanish(_same, _unless_zero)
SUM = Vanish(_sum, _of_terms, adds=True, infinite=_passes(1.0))
SUM_OF_TWO = SUM._replace(flag=_of_two_terms)
DIFFERENCE = SUM._replace(flag=_of_difference)
SUMS = Vanish(_sum, _of_terms, adds=True)
PRODUCT = Vanish(_product, _of_factors)
PRODUCTS = Vanish(_products, _of_products, _least_product, adds=True)
QUOTIENT = Vanish(_quotient, _unless_zero, divides=_second, infinite=_divisor)
REMAINDER = Vanish(flag=_unless_zero, divides=_second)
SQUARE = Vanish(_square, _unless_zero, infinite=_passes(2.0))
COMPLEMENT = Vanish(_square, _coarse_anyway)
WHOLE_POWER = Vanish(_whole_power, _unless_zero, divides=_negative_power,
                     infinite=_power_of_infinity)  # fmt: skip
POWER = Vanish(flag=_unless_zero, divides=_first)
ROOT = Vanish(_root, _unless_zero, infinite=_passes(0.5))
ONE_OVER_ROOT = Vanish(_near(-0.5), _unless_zero, divides=_first, infinite=_passes(-0.5))
CUBE_ROOT = Vanish(_cube_root, _unless_zero)
EXPONENTIAL = Vanish(_exponential, _wherever)
EXPONENTIAL_LESS_ONE = Vanish(_exponential, _unless_zero)
LOGARITHM = Vanish(_near(0.0), _coarse_anyway, divides=_first)
LOGARITHM_OF_ONE_AND = Vanish(_log1p, _unless_zero)
GENTLE = Vanish(_slope, _unless_zero)
COSINE = Vanish(_slope, _coarse_anyway)
TAIL = Vanish(_slope, _wherever)
BOUNDED = GENTLE._replace(infinite=_passes(0.0))
BOUNDED_TAIL = TAIL._replace(infinite=_passes(0.0))
STEEP = Vanish(flag=_unless_zero)
EQUALITY = Vanish(equates=True)
STEPS = Vanish(flag=_coarse_anyway)
FACTORS = Vanish(flag=_of_factors_of_matrix, least=_least_digit, adds=True)
SUBSTITUTION = Vanish(flag=_of_substitution, least=_least_digit, adds=True)
ANYTHING = Vanish(flag=_wherever)
