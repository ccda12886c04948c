"""Whether a planned program has kept its numbers in range, told by the program itself.

To run a program on its numbers in a wide range may take a hundred times as long as the program. But
what goes wrong leaves a trace where it happens: a number that is not finite, or one that is zero or
subnormal though it is a product of numbers that are not zero. If there is no such trace, every
number was stored with all its digits, and the results are right up to rounding, whatever the
magnitudes. So a flag rides inside the compiled program, and is read before its results are used.

    run = flagged(graph, exponents)  # None if a flag would not tell
    raised, results = jax.jit(run)(arguments)

Sharp edges. A raised flag proves nothing: `exp(-200)` may vanish without harm. Programs with loops,
branches, transforms, factorisations other than LU and Cholesky, saturated numbers or complex ones
have no flags.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tanjax._dtype_range import limits, normal_range
from tanjax._typing import Shape

from ..graph._graph import Exponents, Magnitude, Node, ScaleGraph
from ._replay import NESTED, Array, Arrays, run_watched
from ._rewrites import guarded

# Nothing is computed: what comes out is what went in.
_MOVED = frozenset(
    """abs argmax argmin broadcast_in_dim ceil clamp concatenate copy copy_p dynamic_slice
    dynamic_update_slice eq expand_dims floor gather ge gt iota is_finite le lt max min ne neg
    optimization_barrier pad reduce_max reduce_min reshape rev round scatter select_n sign slice
    sort split squeeze stop_gradient transpose""".split()  # noqa: SIM905
)
# Zero only if the first operand is.
_LIKE_FIRST = frozenset(
    """asin asinh atan cbrt convert_element_type div erf expm1 integer_pow log1p pow rsqrt sin sinh
    sqrt square tan tanh""".split()  # noqa: SIM905
)
# Too coarse to be small, unless they are zero.
_FINITE = frozenset(("cos", "log", "one_minus_square"))
_REDUCTIONS = frozenset(("cumsum", "reduce_sum", "scatter-add"))
_SUMS = frozenset(("add", "add_any", "sub", *_REDUCTIONS))
_SMALL = frozenset(("erfc", "exp", "exp2", "logistic"))
_PRODUCTS = frozenset(("conv_general_dilated", "dot_general"))
# What underflows inside is less than the rounding of an operand that is not small itself.
_FACTORED = frozenset(("cholesky", "lu", "tanjax_lu"))
_FAR = 0.125  # what a cancellation makes of rounding may be more: it raises a flag, no more
_ELEMENTWISE = (_FINITE | _LIKE_FIRST | _SUMS | _SMALL | {"mul"}) - _REDUCTIONS
_KNOWN = _ELEMENTWISE | _REDUCTIONS | _PRODUCTS | _FACTORED | {"triangular_solve"}

# Whether a number may have left its range, and the results.
Told: TypeAlias = tuple[jax.Array, Arrays]


def flagged(graph: ScaleGraph, e: Exponents) -> Callable[[Sequence[Array]], Told] | None:
    """The program of `replay`, and whether a number may have left its range; None if unknown."""
    if e.saturated or not all(map(_is_known, graph.walk())):
        return None
    hidden = e._replace(guarded=e.guarded | guarded(graph, _anything(graph, e), e))
    infinite = any(
        v.kind == "constant" and v.is_floating and not np.isfinite(np.asarray(v.constant)).all()
        for v in graph.values
    )

    def run(arguments: Sequence[Array]) -> Told:
        watch = _Watch(infinite)
        for value, x in zip(graph.inputs, arguments, strict=True):
            if value.is_floating:
                watch.note(~jnp.isfinite(x) | _is_flushed(x))
        results = run_watched(graph, arguments, hidden, watch)
        return watch.raised(), results

    return run


def differ(results: Sequence[jax.Array], hidden: Sequence[jax.Array]) -> jax.Array:
    """Whether results differ from those of a run that is hidden from XLA, by more than rounding.

    XLA makes `x / (y * z)` of `x / y / z`, which is zero or infinite where no number of the hidden
    run has left its range.
    """
    pairs = zip(results, hidden, strict=True)
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.extended)
    found = [jnp.any(_differs(x, y)) for x, y in pairs if not is_key(x)]
    return functools.reduce(lax.bitwise_or, found, jnp.array(False))


def _differs(x: jax.Array, y: jax.Array) -> jax.Array:
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return x != y
    return (x != y) & ~(jnp.abs(x - y) <= _FAR * jnp.abs(y)) & ((x == x) | (y == y))


def _is_known(node: Node) -> bool:
    if node.graphs:
        return node.primitive not in NESTED
    floating = [x for x in (*node.outputs, *(u.value for u in node.uses)) if x.is_floating]
    if any(x.aval.dtype.kind == "c" for x in floating):
        return False
    if not floating or node.primitive in _MOVED:
        return True
    if node.primitive == "convert_element_type":
        return node.outputs[0].is_floating
    return node.primitive in _KNOWN


def _anything(graph: ScaleGraph, e: Exponents) -> list[Magnitude | None]:
    """Magnitudes of all that may be stored: what XLA could join to a number out of range."""
    found: list[Magnitude | None] = []
    for value in graph.values:
        if not value.is_floating:
            found.append(None)
            continue
        low, high = normal_range(value.aval.dtype)
        found.append(Magnitude(low + e.of(value), high + e.of(value)))
    return found


class _Watch:
    """Collects what may have gone wrong: by shape, so that few reductions are left.

    **Arguments:** `infinite`: whether constants are, with which a program may compute as it likes.
    """

    def __init__(self, infinite: bool) -> None:
        self._infinite = infinite
        self._bad: dict[Shape, jax.Array] = {}

    def note(self, bad: jax.Array) -> None:
        before = self._bad.get(bad.shape)
        self._bad[bad.shape] = bad if before is None else before | bad

    def raised(self) -> jax.Array:
        return functools.reduce(lax.bitwise_or, map(jnp.any, self._bad.values()), jnp.array(False))

    def converted(self, before: jax.Array, after: jax.Array) -> None:
        """A number was multiplied by a power of two."""
        self.note(_is_lost(after) | (_is_tiny(after) & (before != 0)))

    def computed(self, node: Node, operands: Arrays, results: Arrays) -> None:
        """An equation was run."""
        if node.graphs or node.primitive in _MOVED:
            return
        floating = [y for use, y in zip(node.uses, operands, strict=True) if use.value.is_floating]
        for value, x in zip(node.outputs, results, strict=True):
            if value.is_floating:
                small = _too_small(node.primitive, floating, x) if floating else ()
                for bad in (_is_lost(x), *small):
                    if self._infinite and floating and node.primitive in _ELEMENTWISE:
                        bad &= functools.reduce(lax.bitwise_and, map(jnp.isfinite, floating))
                    self.note(bad)


def _too_small(name: str, operands: Arrays, x: jax.Array) -> Iterator[Array]:
    """Where a result has lost digits, or is zero and should not be."""
    room = limits(x.dtype)
    coarse = 0.0 if room.step and name in _SUMS else room.normal * 2.0 ** (room.bits + 1)
    if name in _SUMS | _FACTORED:
        # What a cancellation leaves is a multiple of the last digit of an operand.
        for y in operands:
            yield (y != 0) & (jnp.abs(y) < coarse)
    elif name == "triangular_solve":
        diagonal = jnp.abs(jnp.diagonal(operands[0], axis1=-2, axis2=-1))
        yield _is_tiny(x)
        yield jnp.min(diagonal, initial=jnp.inf) * jnp.min(jnp.abs(x), initial=jnp.inf) < coarse
    elif name in _PRODUCTS:
        # Not `promote_types`, which `jax_numpy_dtype_promotion="strict"` forbids.
        summed = np.dtype(np.float32) if x.dtype.itemsize < 4 else x.dtype
        least = [jnp.min(jnp.abs(y), initial=jnp.inf, where=y != 0) for y in operands]
        yield math.prod(y.astype(summed) for y in least) < limits(summed).normal
        if x.dtype != summed:
            yield _is_tiny(x)
    elif name == "mul":
        yield _is_tiny(x) & (operands[0] != 0) & (operands[1] != 0)
    elif name in _SMALL:
        yield _is_tiny(x)
    elif name not in _FINITE:
        yield _is_tiny(x) & (operands[0] != 0)


def _is_flushed(x: jax.Array) -> jax.Array:
    """Which arguments are subnormal, by their bits: XLA takes them for zeros."""
    if limits(x.dtype).step:
        return jnp.array(False)
    bits = lax.bitcast_convert_type(x, f"i{x.dtype.itemsize}")
    size = bits & np.array(np.iinfo(bits.dtype).max, bits.dtype)
    normal = np.array(limits(x.dtype).normal, x.dtype).view(bits.dtype)
    return (size > 0) & (size < normal)


def _is_lost(x: jax.Array) -> jax.Array:
    return ~(jnp.abs(x) <= limits(x.dtype).largest)


def _is_tiny(x: jax.Array) -> jax.Array:
    return jnp.abs(x) < limits(x.dtype).normal
