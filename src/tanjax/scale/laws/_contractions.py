"""Contractions, and the Fourier transform, which is one.

A contraction adds the exponents of its operands, and its bounds are those of a sum of products.
For numbers too far apart for one exponent, it multiplies fractions and adds exponents separately.

    contract(np.ones((2, 3)), np.ones((3, 4)), (((1,), (0,)), ((), ())))  # 2 by 4, of 3.0

Sharp edge: if numbers are too far apart, a transform drops those below 2^-1000 of its largest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tanjax._typing import Shape

from ..graph._graph import Node, Value
from ..numbers._interval_record import (
    INFINITY,
    Record,
    growth,
    multiply,
    multiply_by_itself,
    span,
    sum_of,
)
from ..numbers._spread import (
    Parts,
    at_largest,
    is_spread,
    multiply_matrices,
    parts_of,
    plus,
)
from ..numbers._wide import Numbers, Wide, normalised
from . import _vanish as vanish
from ._forms import dtype_of, is_float
from ._law import LARGEST, Many, known, law, spread_form

Axes: TypeAlias = tuple[Sequence[int], Sequence[int]]  # of the left and of the right operand
Dimensions: TypeAlias = tuple[Axes, Axes]  # summed over, and of batches


def _dot_work(node: Node, xs: list[Wide]) -> float:
    (contract, _), _ = node.params["dimension_numbers"]
    inner = math.prod(xs[0].array.shape[a] for a in contract)
    return inner * math.prod(node.outputs[0].aval.shape) / 4 + xs[0].array.size + xs[1].array.size


def factors(value: Value) -> list[Value]:
    """Return the two values that a contraction multiplies."""
    return [use.value for use in value.node.uses[:2]] if value.node else []


def _dot_bound(node: Node, a: Record, b: Record) -> Record:
    (contracted, _), (batch, _) = node.params["dimension_numbers"]
    x, y = node.uses[0].value, node.uses[1].value
    count = math.prod(x.aval.shape[i] for i in contracted)
    # A vector times itself has no negative terms.
    square = x is y and len(contracted) + len(batch) == len(x.aval.shape)
    term = multiply_by_itself(a) if square else multiply(a, b)
    return sum_of(term, count)


@law("dot_general", "a: u, b: v -> u*v", work=_dot_work, bound=known(_dot_bound),
     vanish=vanish.PRODUCTS, many=Many.PRODUCTS, products=factors, end=LARGEST,
     tails=2)  # fmt: skip
def dot_general(node: Node, xs: list[Wide]) -> list[Wide]:
    (x, y), numbers = xs, node.params["dimension_numbers"]
    a, b = x.array, y.array
    if not is_float(x) or not is_float(y):
        dtype = dtype_of(node)
        work = np.float64 if np.dtype(dtype).kind not in "biu" else dtype
        a, b = np.asarray(a).astype(work), np.asarray(b).astype(work)
    return [Wide(contract(a, b, numbers), x.exponent + y.exponent)]


def contract_spread(x: Parts, y: Parts, numbers: Dimensions) -> Wide:
    """Return `contract` of fractions and exponents."""
    left, right, shape = _matrices(x[0], y[0], numbers)
    powers = _matrices(x[1], y[1], numbers)
    out = multiply_matrices((left, powers[0]), (right, powers[1]))
    return Wide(
        out.array.reshape(shape), np.broadcast_to(out.exponent, out.array.shape).reshape(shape)
    )


@spread_form("dot_general")
def dot_general_spread(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = (p if is_float(p) else Wide(np.asarray(p.array).astype(np.float64)) for p in xs)
    return [contract_spread(parts_of(x), parts_of(y), node.params["dimension_numbers"])]


def contract(a: Numbers, b: Numbers, numbers: Dimensions) -> np.ndarray:
    """Return the product of two arrays over some axes: batches first, then the rest of each."""
    (inner_a, inner_b), (batch_a, _) = numbers
    if a.ndim == b.ndim == 2 and not batch_a and (*inner_a, *inner_b) == (1, 0):
        return a @ b
    left, right, shape = _matrices(a, b, numbers)
    return np.matmul(left, right).reshape(shape)


def _matrices(a: Numbers, b: Numbers, numbers: Dimensions) -> tuple[np.ndarray, np.ndarray, Shape]:
    """Return the operands of a contraction as batches of matrices, and the result's shape."""
    (inner_a, inner_b), (batch_a, batch_b) = numbers
    free_a = [i for i in range(a.ndim) if i not in inner_a and i not in batch_a]
    free_b = [i for i in range(b.ndim) if i not in inner_b and i not in batch_b]
    batch = [a.shape[i] for i in batch_a]
    left = [a.shape[i] for i in free_a]
    right = [b.shape[i] for i in free_b]
    k = math.prod(a.shape[i] for i in inner_a)
    many = math.prod(batch)
    a = np.transpose(a, (*batch_a, *free_a, *inner_a)).reshape((many, math.prod(left), k))
    b = np.transpose(b, (*batch_b, *inner_b, *free_b)).reshape((many, k, math.prod(right)))
    return a, b, (*batch, *left, *right)


def _outer_bound(node: Node, a: Record, b: Record) -> Record:
    return sum_of(multiply(a, b), 2 * node.uses[0].value.aval.shape[-1])


law("ragged_dot_general", "a: u, b: v, *sizes: - -> u*v")
law("scaled_dot", "*x: - -> -")  # for numbers of 8 bits with their own scales


@law("tanjax_symmetric_outer", "a: u, b: v -> u*v", work=4, bound=known(_outer_bound),
     vanish=vanish.PRODUCTS)  # fmt: skip
def symmetric_outer(node: Node, xs: list[Wide]) -> list[Wide]:
    """Return `left @ right.mT + right @ left.mT`."""
    (a, i), (b, j) = (x[:2] for x in xs)
    half = a @ np.swapaxes(b, -1, -2)
    return [Wide(half + np.swapaxes(half, -1, -2), i + j)]


@spread_form("tanjax_symmetric_outer")
def symmetric_outer_spread(node: Node, xs: list[Wide]) -> list[Wide]:
    a, b = (parts_of(x) for x in xs)
    last = node.uses[0].value.aval.ndim - 1
    batch = tuple(range(last - 1))
    numbers = (((last,), (last,)), (batch, batch))
    return [
        plus(normalised(contract_spread(a, b, numbers)), normalised(contract_spread(b, a, numbers)))
    ]


# -- Fourier --------------------------------------------------------------------------------------


def _fft_bound(node: Node, a: Record) -> Record:
    count = math.prod(node.params["fft_lengths"])
    bits = growth(a, count)
    if "I" in str(node.params["fft_type"]).rsplit(".", 1)[-1].upper().replace("FFT", ""):
        # The inverse divides by the count; a real result counts all but two entries twice.
        bits += 1.0 - math.log2(max(count, 1))
    return span(-INFINITY, a.high + bits)


@law("fft", "*x: u -> u", work=32, spread=True, bound=known(_fft_bound), vanish=vanish.SUMS)
def fft(node: Node, xs: list[Wide]) -> list[Wide]:
    lengths = node.params["fft_lengths"]
    kind = getattr(node.params["fft_type"], "name", str(node.params["fft_type"])).upper()
    transform: Any = {
        "FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn,
    }[kind]  # fmt: skip
    axes = tuple(range(-len(lengths), 0))
    array, power = xs[0].array, xs[0].exponent
    if is_spread(xs[0]):  # each result is a sum of all numbers, or their difference
        array, power = at_largest(xs[0], axes)
    out = transform(array, s=lengths, axes=axes)
    return [Wide(out, np.broadcast_to(power, out.shape) if is_spread(xs[0]) else power)]
