"""Special functions that JAX lacks, or lacks on a part of torch's domain."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from jax.scipy import special

from tanjax_torch.arguments._promotion import floating, needs
from tanjax_torch.table._registry import implements

from ._tools import aten, size


def erfcx(x: jax.Array) -> jax.Array:
    """`exp(x²) erfc(x)`; from 5 on by the continued fraction, before the factors overflow."""
    near = jnp.where(x < 5, x, 0)
    far = jnp.where(x < 5, 5, x)
    fraction = jnp.zeros_like(x)
    for k in range(60, 0, -1):
        fraction = (k / 2) / (far + fraction)
    tail = 1 / ((far + fraction) * jnp.asarray(jnp.sqrt(jnp.pi), x.dtype))
    return jnp.where(x < 5, jnp.exp(near * near) * special.erfc(near), tail)


def add_exponents(a: jax.Array, b: jax.Array) -> jax.Array:
    """`log(exp(a) + exp(b))` of complex numbers; imaginary parts may leave ±π."""
    above = a.real >= b.real
    most, least = jnp.where(above, a, b), jnp.where(above, b, a)
    apart = jnp.where(least.real == -jnp.inf, -jnp.inf, least - most)
    return most + jnp.log1p(jnp.exp(apart))


def zeta(x: jax.Array, q: jax.Array) -> jax.Array:
    """Hurwitz' zeta; shifts negative `q` right for whole `x`, since other terms are not real."""
    x, q = jnp.broadcast_arrays(x, q)
    moved = (q < 0) & (q != jnp.floor(q)) & (x == jnp.floor(x)) & (x > 1)

    def unfinished(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        return (moved & (state[0] < 0)).any()

    def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        at, total = state
        below = moved & (at < 0)
        term = jnp.where(below, jnp.where(below, at, 1) ** -x, 0)
        return at + below.astype(at.dtype), total + term

    right, head = jax.lax.while_loop(unfinished, step, (q, jnp.zeros_like(q)))
    value = head + special.zeta(x, jnp.where(right <= 0, 1, right))
    value = jnp.where((q <= 0) & ~moved, jnp.where(q == jnp.floor(q), jnp.inf, jnp.nan), value)
    value = jnp.where((x == jnp.inf) & (q == 1), 1, value)
    value = jnp.where((x == 1) | ((x == jnp.inf) & (q < 1)), jnp.inf, value)
    return jnp.where(x < 1, jnp.nan, value)


def digamma(x: jax.Array) -> jax.Array:
    """The digamma function; infinite at 0, by the sign of the zero."""
    pole = jnp.copysign(jnp.asarray(jnp.inf, x.dtype), -x)
    return jnp.where(x == 0, pole, special.digamma(jnp.where(x == 0, 1, x)))


def i0(x: jax.Array) -> jax.Array:
    """The modified Bessel function of order 0."""
    return jnp.exp(size(x)) * special.i0e(x)


def igamma(a: jax.Array, x: jax.Array) -> jax.Array:
    """The lower incomplete gamma function, 1 from `a = 0` on and 0 up to `a = inf`."""
    return _limits(a, x, special.gammainc(a, x), 1, 0)


def igammac(a: jax.Array, x: jax.Array) -> jax.Array:
    """The upper incomplete gamma function."""
    return _limits(a, x, special.gammaincc(a, x), 0, 1)


def _limits(a: jax.Array, x: jax.Array, value: jax.Array, low: int, high: int) -> jax.Array:
    value = jnp.where((a == 0) & (x > 0), low, value)
    at_end = jnp.where(x == jnp.inf, jnp.nan, high)
    return jnp.where((a == jnp.inf) & (x >= 0), at_end, value).astype(x.dtype)


@implements(aten.polygamma)
def polygamma(n: int, self: jax.Array) -> jax.Array:
    """The `n`-th derivative of digamma."""
    needs("polygamma", (0, 1, 2), self)
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return _polygamma(n, floating(self))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _polygamma(n: int, x: jax.Array) -> jax.Array:
    if n == 0:
        return digamma(x)
    if n > 1:
        return (-1) ** (n + 1) * math.factorial(n) * zeta(jnp.full_like(x, n + 1), x)
    # By reflection on the left half.
    left = x <= 0
    right = special.polygamma(1, jnp.where(left, 1 - x, x))
    turn = jnp.pi / jnp.sin(jnp.pi * (x - jnp.round(x)))
    return jnp.where(left, turn * turn - right, right)


@_polygamma.defjvp
def _polygamma_slope(
    n: int, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    return _polygamma(n, *primals), _polygamma(n + 1, *primals) * tangents[0]
