"""Random bits: those of JAX's default generator in NumPy, others by JAX itself.

Without a law, all values of a program behind its first draw would be unknown, and running the
generator with JAX compiles. The generator is a counter-based hash of few lines (Threefry-2x32,
20 rounds), so this module computes its bits exactly. A key is one 64-bit integer, and an array of
keys an ordinary array of them.

References: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
Sharp edge: JAX compiles other generators, and the older order of counters
(`jax_threefry_partitionable` off), for 50 ms each.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import jax
import numpy as np

from ..graph._graph import Node
from ..numbers._interval_record import INFINITY, Records, span
from ..numbers._wide import Numbers, Wide
from . import _rows as rows
from ._by_jax import by_jax
from ._forms import dtype_of, joins, shape_of
from ._integers import PLAIN
from ._law import Evaluate, law

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_COST = 60.0  # about five operations in each of 20 rounds

Words: TypeAlias = tuple[np.ndarray, np.ndarray]  # of 32 bits, the upper ones first


def threefry(key: Words, count: Words) -> Words:
    """Return the hash of two counters under a key, all of them uint32 arrays."""
    keys = [np.asarray(k, np.uint32) for k in key]
    keys.append(keys[0] ^ keys[1] ^ _PARITY)
    x, y = (np.asarray(c, np.uint32) + k for c, k in zip(count, keys, strict=False))
    for i in range(5):
        for turn in _ROTATIONS[i % 2]:
            x = x + y
            y = (y << np.uint32(turn)) | (y >> np.uint32(32 - turn))
            y = x ^ y
        x = x + keys[(i + 1) % 3]
        y = y + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x, y


def _halves(keys: Numbers) -> Words:
    return (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)


def _joined(high: Numbers, low: Numbers) -> np.ndarray:
    return (np.asarray(high, np.uint64) << np.uint64(32)) | np.asarray(low, np.uint64)


def _drawn(rule: Evaluate) -> Evaluate:
    """Return a rule for keys of the default generator, in the present order of its counters."""

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        values = [*(use.value for use in node.uses), *node.outputs]
        types = [str(v.aval.dtype) for v in values if str(v.aval.dtype).startswith("key<")]
        known = getattr(jax.config, "jax_threefry_partitionable", True)
        return (rule if known and {*types} <= {"key<fry>"} else by_jax)(node, xs)

    return run


def _counters(shape: tuple[int, ...]) -> Words:
    return _halves(np.arange(math.prod(shape), dtype=np.uint64).reshape(shape))


def _hashed(keys: Numbers, shape: tuple[int, ...]) -> Words:
    """Return the hashes of the counters of a shape under each key."""
    spread = keys.reshape((*keys.shape, *(1 for _ in shape)))
    return threefry(_halves(spread), _counters(shape))


@law("threefry2x32", PLAIN, work=_COST)
def threefry2x32(node: Node, xs: list[Wide]) -> list[Wide]:
    first, second, x, y = (x.array for x in xs)
    return [Wide(out) for out in threefry((first, second), (x, y))]


@law("random_bits", PLAIN, work=_COST)
@_drawn
def random_bits(node: Node, xs: list[Wide]) -> list[Wide]:
    width = node.params["bit_width"]
    high, low = _hashed(np.asarray(xs[0].array), tuple(node.params["shape"]))
    bits = _joined(high, low) if width == 64 else high ^ low
    return [Wide(bits.astype(dtype_of(node)))]


@law("random_split", PLAIN, work=_COST)
@_drawn
def random_split(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(_joined(*_hashed(np.asarray(xs[0].array), tuple(node.params["shape"]))))]


@law("random_fold_in", PLAIN, work=_COST)
@_drawn
def random_fold_in(node: Node, xs: list[Wide]) -> list[Wide]:
    keys, data = (np.asarray(x.array) for x in xs)
    data = data.astype(np.uint32)
    return [Wide(_joined(*threefry(_halves(keys), (np.zeros_like(data), data))))]


@law("random_seed", PLAIN)
@_drawn
def random_seed(node: Node, xs: list[Wide]) -> list[Wide]:
    seeds = np.asarray(xs[0].array)
    return [Wide(seeds.view(f"u{seeds.dtype.itemsize}").astype(np.uint64))]


@law("random_wrap", PLAIN)
@_drawn
def random_wrap(node: Node, xs: list[Wide]) -> list[Wide]:
    words = np.asarray(xs[0].array)
    return [Wide(_joined(words[..., 0], words[..., 1]))]


@law("random_unwrap", PLAIN)
@_drawn
def random_unwrap(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(np.stack(_halves(np.asarray(xs[0].array)), -1))]


law("random_clone", PLAIN, evaluate=lambda node, xs: list(xs))
law("rng_bit_generator", PLAIN, work=_COST, evaluate=by_jax)


def _gamma_bound(node: Node, records: Records) -> Records:
    """Bound a draw by twice the parameter plus 2^7, a logarithm by that of `u**(1/a)`, u > 2^-64.

    Six standard deviations above `a` give (1 + 2/√a)^3 · a, which is less.
    """
    a = records[1]
    if a is None:
        return [None]
    if node.params["log_space"]:
        return [span(-INFINITY, 7.0 + max(0.0, -a.low, math.log2(max(a.high, 1.0))))]
    return [span(-INFINITY, max(a.high + 1.0, 7.0) + 1.0)]


law("random_gamma", PLAIN, work=_COST, bound=_gamma_bound, evaluate=by_jax, spread=True)
law("rng_uniform", "*x: U -> u", rows=rows.at_zero, bound=joins())


@law("iota_2x32_shape", PLAIN)
def iota_2x32(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(part) for part in _counters(shape_of(node))]
