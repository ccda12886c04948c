"""Primitives that JAX itself runs: random draws, rare factorisations, and those without a law.

NumPy has no counterpart of them, and no other generator draws the same random bits. So tanjax
compiles the primitive by itself, once, and runs it on the operands as their dtypes hold them.

    law("rng_bit_generator", PLAIN, evaluate=by_jax)
    law("schur", "a: u -> (u, 1)", evaluate=in_double)

Sharp edges. Numbers outside the range of their dtype raise an error, and the node is skipped. An
overflow inside a primitive without a law shows only in its results. `in_range` refuses them if
one is infinite, nan or subnormal, or if zeros come from operands that have none.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import numpy as np

from tanjax import _compat
from tanjax._dtype_range import limits
from tanjax._typing import AnyArray, DType, Function

from ..graph._graph import Node
from ..numbers._wide import Numbers, Wide, in_float64, is_number, wide
from ._forms import is_float
from ._law import Evaluate, Law

# The names of JAX's generators, by the dtypes of their keys.
_GENERATORS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}


@functools.lru_cache(maxsize=64)  # the first run compiles for 50 ms, a loop runs often
def _compiled(node: Node) -> Function:
    return jax.jit(lambda *operands: _compat.bind(node.equation, operands))


def _run(node: Node, operands: Sequence[AnyArray]) -> list[Wide]:
    if node.graphs or node.equation.effects:
        raise NotImplementedError("it has effects")
    with jax.ensure_compile_time_eval():
        return list(map(wide, _compiled(node)(*operands)))


def by_jax(node: Node, xs: list[Wide]) -> list[Wide]:
    """Return the results of a primitive in its own dtypes."""
    pairs = zip(xs, node.uses, strict=True)
    return _run(node, [_stored(x, use.value.aval.dtype) for x, use in pairs])


def in_double(node: Node, xs: list[Wide]) -> list[Wide]:
    """Return the results in float64 of a primitive whose parameters name no dtype."""
    with jax.enable_x64(True):
        return _run(node, [np.asarray(in_float64(x)) if is_float(x) else x.array for x in xs])


def homogeneous(*powers: int) -> Evaluate:
    """Return `in_double` for a block; a result has its exponent times one of `powers`."""

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        results = in_double(node, [Wide(x.array) for x in xs])
        pairs = zip(results, powers, strict=False)
        return [Wide(r.array, r.exponent + power * xs[0].exponent) for r, power in pairs]

    return run


def _stored(x: Wide, dtype: DType) -> AnyArray:
    """Return the numbers, or random keys, as a dtype holds them."""
    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        if (name := _GENERATORS.get(str(dtype))) is None:
            raise NotImplementedError(f"random keys of type {dtype}")
        return jax.random.wrap_key_data(_words(x.array), impl=name)
    if not is_float(x):
        return np.asarray(x.array).astype(dtype)
    array = np.asarray(in_float64(x))
    _refuse(array, is_number(array), dtype)
    return array.astype(dtype)


def _words(keys: Numbers) -> AnyArray:
    parts = np.ascontiguousarray(keys).reshape(-1).view(np.uint32).reshape(*np.shape(keys), -1)
    return parts[..., ::-1] if keys.dtype.kind == "u" else parts  # the upper half first


def _refuse(array: Numbers, counts: np.ndarray, dtype: DType) -> None:
    """Refuse numbers that a dtype does not hold."""
    room, sizes = limits(dtype), np.abs(array[counts])
    if np.any(~(sizes <= room.largest) | (sizes < room.bottom)):
        raise NotImplementedError(f"numbers out of the range of {dtype}")


def _if_normal(node: Node, xs: list[Wide], makes_zeros: bool) -> list[Wide]:
    results = by_jax(node, xs)
    given = [x.array for x in xs if is_float(x)]
    if not all(np.all(np.isfinite(a)) for a in given):
        return results
    arrays = [a for a in given if np.ndim(a)] or given  # a number that a sum starts with may be 0
    has_zeros = makes_zeros or any(not np.all(a) for a in arrays)
    for value, found in zip(node.outputs, results, strict=True):
        if is_float(found):
            array = np.asarray(in_float64(found))
            _refuse(array, array != 0, value.aval.dtype)
            is_whole = np.any(array) if has_zeros else np.all(array)
            if array.size and not is_whole and any(map(np.any, given)):
                raise NotImplementedError("its results may have vanished")
    return results


def in_range(node: Node, xs: list[Wide]) -> list[Wide]:
    """Return the results of a primitive whose inner numbers are unknown, if all are normal."""
    return _if_normal(node, xs, makes_zeros=False)


def in_range_or_zero(node: Node, xs: list[Wide]) -> list[Wide]:
    """Return the same for a primitive that leaves some places zero, but not all of them."""
    return _if_normal(node, xs, makes_zeros=True)


WITHOUT_LAW = Law(evaluate=in_range, spread=in_range)
