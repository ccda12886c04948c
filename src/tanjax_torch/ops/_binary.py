"""Pointwise functions of two tensors or a tensor and a number.

Both operands take the dtype of torch's result first (`promoted`). Integer division raises for a
known divisor of 0; under a trace it cannot.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tanjax_torch._typing import Number
from tanjax_torch.arguments._promotion import (
    KINDS,
    category,
    is_number,
    jax_dtype,
    needs,
    no_meaning,
    promoted,
    result_dtype,
)
from tanjax_torch.table._registry import implements

from ._special import add_exponents, igamma, igammac, zeta
from ._ternary import is_mask, product
from ._tools import aten, number_kind, operations, prims, register, same_dtype, size

Binary = Callable[[jax.Array, jax.Array], jax.Array]
Powers = tuple[jax.Array, jax.Array, jax.Array]


# Sums and products.
def _scaled(name: str, other: jax.Array, alpha: Number) -> jax.Array:
    """`alpha * other`; raises for an `alpha` of a kind that torch refuses for this dtype."""
    kind, own = number_kind(alpha), category(other.dtype)
    if kind > max(own, 1) or (kind == 0 and own):
        raise no_meaning(f"{name} with an alpha that is {KINDS[kind]}", other.dtype)
    known_one = isinstance(alpha, int) and alpha == 1
    return other if known_one else other * jnp.asarray(alpha, other.dtype)


@implements(*operations("add"))
def add(self: Number, other: Number, *, alpha: Number = 1) -> jax.Array:
    self, other = promoted(self, other)
    return self + _scaled("add", other, alpha)


@implements(*operations("sub"))
def sub(self: Number, other: Number, *, alpha: Number = 1) -> jax.Array:
    needs("sub", (1, 2, 3), self, other)
    self, other = promoted(self, other)
    return self - _scaled("sub", other, alpha)


@implements(aten.rsub)
def rsub(self: Number, other: Number, *, alpha: Number = 1) -> jax.Array:
    return sub(other, self, alpha=alpha)


@implements(*operations("mul"))
def mul(self: Number, other: Number) -> jax.Array:
    return product(self, other)


# Quotients.
@implements(aten.div.Tensor, aten.div.Scalar)
def div(self: Number, other: Number) -> jax.Array:
    mask = self
    self, other = promoted(self, other, floating=True)
    return jnp.where(mask, 1 / other, 0 / other) if is_mask(mask) else self / other


@implements(prims.div)
def quotient(self: jax.Array, other: jax.Array) -> jax.Array:
    """The quotient of prims: of integers, towards 0."""
    return self / other if category(self.dtype) > 1 else jax.lax.div(self, other)


def floored(self: jax.Array, other: jax.Array) -> jax.Array:
    """The quotient towards -∞. Of floats from the exact remainder, which `floor(a / b)` rounds."""
    if category(self.dtype) < 2:
        return jnp.floor_divide(self, other)
    rest = jax.lax.rem(self, other)
    whole = (self - rest) / other
    whole = jnp.where((rest != 0) & ((other < 0) != (rest < 0)), whole - 1, whole)
    below = jnp.floor(whole)
    near = jnp.where(whole - below > 0.5, below + 1, below)
    near = jnp.where(whole == 0, jnp.copysign(jnp.zeros_like(whole), self / other), near)
    return jnp.where(other == 0, self / other, near)


def _truncated(self: jax.Array, other: jax.Array) -> jax.Array:
    if category(self.dtype) < 2:
        return jax.lax.div(self, other)
    return jnp.trunc(self / other)


def _remainder(self: jax.Array, other: jax.Array) -> jax.Array:
    rest = jax.lax.rem(self, other)
    return jnp.where((rest != 0) & ((rest < 0) != (other < 0)), rest + other, rest)


def _checked(name: str, function: Binary) -> Callable[[Number, Number], jax.Array]:
    """Return a quotient that raises for an integer divisor of 0."""
    inner = jax.jit(lambda a, b: function(*jnp.broadcast_arrays(*promoted(a, b))))

    def entry(self: Number, other: Number) -> jax.Array:
        kind = category(result_dtype(self, other))
        if kind not in (1, 2):
            raise no_meaning(name, KINDS[kind])
        whole = all(number_kind(x) < 2 for x in (self, other))
        if whole and not isinstance(other, jax.core.Tracer) and not np.all(np.asarray(other)):
            raise RuntimeError("ZeroDivisionError: division of integers by 0.")
        return inner(self, other)

    return entry


def _constant(function: Binary) -> Binary:
    """Return a step function whose derivative is 0, also at the steps."""
    return lambda a, b: jax.lax.stop_gradient(function(a, b))


floor_divide = _checked("floor_divide", _constant(floored))
trunc_divide = _checked("div", _constant(_truncated))
remainder = _checked("remainder", _remainder)
fmod = _checked("fmod", jax.lax.rem)
implements(aten.floor_divide, eager=True)(floor_divide)
implements(*operations("remainder"), eager=True)(remainder)
implements(*operations("fmod"), eager=True)(fmod)


@implements(aten.div.Tensor_mode, aten.div.Scalar_mode, eager=True)
def div_mode(self: Number, other: Number, *, rounding_mode: str | None) -> jax.Array:
    if rounding_mode is None:
        return div(self, other)
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            f"'{rounding_mode}'"
        )
    return (trunc_divide if rounding_mode == "trunc" else floor_divide)(self, other)


# Powers.
@implements(*operations("pow"), static=("exponent",))
def pow_(self: Number, exponent: Number) -> jax.Array:
    """`self ** exponent`; a known exponent is a product or a root, exact as in torch."""
    if isinstance(exponent, int) and exponent < 0 and _is_whole(self):
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    base, power = promoted(self, exponent)
    if base.dtype == jnp.bool_:
        if not isinstance(exponent, bool):
            raise no_meaning("pow", base.dtype)
        return base if exponent else jnp.ones_like(base)
    if category(base.dtype) < 2:
        return _integer_power(base, power)
    if is_number(exponent) and not isinstance(exponent, (jax.core.Tracer, complex)):
        known = float(exponent)
        if known == 0.5:
            return jnp.sqrt(base)
        if known == -0.5:
            return 1 / jnp.sqrt(base)
        if known.is_integer() and abs(known) <= 4:
            return jax.lax.integer_pow(base, int(known))
    if category(base.dtype) < 3:
        if not is_number(exponent):  # by the base, the derivative of x**0 is 0 at 0, too
            base = jnp.where((base == 0) & (power == 0), 1, base)
        return jnp.power(base, power)
    vanishes = (base == 0) & (power.real > 0)
    return jnp.where(vanishes, 0, jnp.power(jnp.where(vanishes, 1, base), power))


def _is_whole(x: Number) -> bool:
    return number_kind(x) < 2


def _integer_power(base: jax.Array, power: jax.Array) -> jax.Array:
    """The power of integers by squaring; a negative power gives 1, -1 or 0."""
    result = _by_squaring(base, power if power.dtype.kind == "u" else jnp.maximum(power, 0))
    if power.dtype.kind == "u":
        return result
    odd = power % 2 != 0
    small = jnp.where(base == 1, 1, jnp.where(base == -1, jnp.where(odd, -1, 1), 0))
    return jnp.where(power < 0, small.astype(result.dtype), result)


@implements(aten.float_power, static=("exponent",))
def float_power(self: Number, exponent: Number) -> jax.Array:
    """The power in float64 or complex128, for operands of any dtype."""
    kind = max(number_kind(self), number_kind(exponent))
    wide = jax_dtype(torch.complex128 if kind == 3 else torch.float64)
    return pow_(jnp.asarray(self, wide), jnp.asarray(exponent, wide))


def _by_squaring(base: jax.Array, power: jax.Array) -> jax.Array:
    """The power of integers; overflow wraps as in torch, modulo 2 to the number of bits."""

    def step(state: Powers) -> Powers:
        base, power, result = state
        factor = jnp.where(power % 2 != 0, base, jnp.ones_like(base))
        return base * base, power // 2, result * factor

    base, power = jnp.broadcast_arrays(base, power)
    start = (base, power, jnp.ones_like(base))
    return jax.lax.while_loop(lambda s: (s[1] != 0).any(), step, start)[2]


# Comparisons.
def _comparison(kinds: tuple[int, ...]) -> Callable[[str, Binary], Callable[..., jax.Array]]:
    def make(name: str, function: Binary) -> Callable[..., jax.Array]:
        def entry(self: Number, other: Number) -> jax.Array:
            needs(name, kinds, self, other)
            return function(*promoted(self, other))

        return entry

    return make


register({"eq": jnp.equal, "ne": jnp.not_equal}, _comparison((0, 1, 2, 3)))
register(
    {"ge": jnp.greater_equal, "gt": jnp.greater, "le": jnp.less_equal, "lt": jnp.less},
    _comparison((0, 1, 2)),
)
register({"maximum": jnp.maximum, "minimum": jnp.minimum}, _comparison((0, 1, 2)))
# Of equal numbers the first, which has the derivative.
register(
    {
        "fmax": lambda x, y: jnp.where((x >= y) | (y != y), x, y),
        "fmin": lambda x, y: jnp.where((x <= y) | (y != y), x, y),
    },
    _comparison((0, 1, 2)),
)


def _logical(name: str, function: Binary) -> Callable[..., jax.Array]:
    def entry(self: Number, other: Number) -> jax.Array:
        return function(*(jnp.asarray(x).astype(jnp.bool_) for x in (self, other)))

    return entry


register(
    {
        "logical_and": jnp.logical_and,
        "logical_or": jnp.logical_or,
        "logical_xor": jnp.logical_xor,
    },
    _logical,
)


# Bits.
def _bitwise(kinds: tuple[int, ...]) -> Callable[[str, Binary], Callable[..., jax.Array]]:
    def make(name: str, function: Binary) -> Callable[..., jax.Array]:
        def entry(self: Number, other: Number) -> jax.Array:
            self, other = promoted(self, other)
            needs(name, kinds, self)
            return function(self, other)

        return entry

    return make


def _shift(function: Binary, left: bool) -> Binary:
    """A shift by more bits than there are, or by fewer than none, moves all of them out."""

    def shift(a: jax.Array, b: jax.Array) -> jax.Array:
        bits = jnp.iinfo(a.dtype).bits
        beyond = (b < 0) | (b >= bits)
        if left or a.dtype.kind == "u":
            return jnp.where(beyond, 0, function(a, jnp.where(beyond, 0, b)))
        return function(a, jnp.where(beyond, bits - 1, b))

    return shift


_SHL = _shift(jnp.left_shift, True)
_SHR = _shift(jnp.right_shift, False)
register(
    {"bitwise_and": jnp.bitwise_and, "bitwise_or": jnp.bitwise_or, "bitwise_xor": jnp.bitwise_xor},
    _bitwise((0, 1)),
)
register(
    {
        "bitwise_left_shift": _SHL,
        "bitwise_right_shift": _SHR,
        "__lshift__": _SHL,
        "__rshift__": _SHR,
        "shift_left": _SHL,
        "shift_right_arithmetic": _SHR,
    },
    _bitwise((1,)),
)
register({"gcd": jnp.gcd, "lcm": jnp.lcm}, _bitwise((1,)))


# Functions of two floats.
def _of_floats(integers: bool) -> Callable[[str, Binary], Callable[..., jax.Array]]:
    """Return a maker of functions of floats; integers become floats if `integers`, else raise."""

    def make(name: str, function: Binary) -> Callable[..., jax.Array]:
        def entry(self: Number, other: Number) -> jax.Array:
            self, other = promoted(self, other, floating=integers)
            needs(name, (2,), self)
            return function(self, other)

        return entry

    return make


def _atan2(y: jax.Array, x: jax.Array) -> jax.Array:
    """The angle; its derivative at the origin is 0."""
    origin = (y == 0) & (x == 0)
    angle = jnp.arctan2(jnp.where(origin, 0, y), jnp.where(origin, 1, x))
    return jnp.where(origin, jax.lax.stop_gradient(jnp.arctan2(y, x)), angle)


def _copysign(x: jax.Array, y: jax.Array) -> jax.Array:
    """The size of one and the sign of the other; the derivative of 0 is 0."""
    return size(x) * jnp.where(jnp.signbit(y), -1, 1).astype(x.dtype)


def xlogy(x: jax.Array, y: jax.Array) -> jax.Array:
    """`x log y`, 0 where `x` is 0, NaN where `y` is."""
    product = x * jnp.log(jnp.where((x == 0) & ~((y > 0) & (y < jnp.inf)), 1, y))
    return jnp.where(jnp.isnan(y), y, product)


def _xlog1py(x: jax.Array, y: jax.Array) -> jax.Array:
    product = x * jnp.log1p(jnp.where((x == 0) & ~((y > -1) & (y < jnp.inf)), 0, y))
    return jnp.where(jnp.isnan(y), y, product)


register(
    {
        "atan2": _atan2,
        "copysign": _copysign,
        "xlogy": xlogy,
        "special_xlog1py": _xlog1py,
        "special_zeta": zeta,
        "zeta": zeta,
    },
    _of_floats(True),
)
register(
    {
        "hypot": jnp.hypot,
        "igamma": igamma,
        "igammac": igammac,
        "logaddexp2": jnp.logaddexp2,
        "nextafter": jnp.nextafter,
    },
    _of_floats(False),
)


@implements(aten.logaddexp)
def logaddexp(self: Number, other: Number) -> jax.Array:
    self, other = promoted(self, other)
    needs("logaddexp", (2, 3), self)
    if category(self.dtype) == 2:
        return jnp.logaddexp(self, other)
    return add_exponents(self, other)


@implements(aten.heaviside)
def heaviside(self: jax.Array, values: jax.Array) -> jax.Array:
    """0, `values` or 1: below, at, and above 0."""
    same_dtype("heaviside", self, values)
    needs("heaviside", (0, 1, 2), self)
    zero = jnp.zeros((), self.dtype)
    return jnp.where(self == zero, values, (self > zero).astype(self.dtype))
