"""Convolutions and reductions over windows that slide over an array.

All of them look at the same thing: a view of the padded array with the window's axes at the end
(`numpy.lib.stride_tricks`), so that a convolution is a contraction over these axes and a pooling a
reduction. Holes in the array (base dilation) are padding between entries; holes in the window are
steps of the view.

    >>> windows(np.arange(4.0), (2,), (1,), ((0, 0),), (1,), (1,), 0.0).tolist()
    [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]

Sharp edge: `reduce` and `reduce_window` with a function of their own are only known where that
function is one of add, mul, max, min, and, or, xor.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..graph._graph import Node
from ..numbers._wide import Apart, Wide, align
from ._numpy_rules import Rule, dtype_of, is_float, rule
from ._numpy_rules_reduce import contract, contract_spread
from ._numpy_rules_shape import padded


def windows(
    array: Any, size: Any, strides: Any, padding: Any, base: Any, dilation: Any, fill: Any
) -> Any:
    """A view `(*places, *window)` of an array, padded with `fill`."""
    config = [(int(lo), int(hi), b - 1) for (lo, hi), b in zip(padding, base, strict=True)]
    array = padded(array, fill, config)
    reach = tuple((n - 1) * d + 1 for n, d in zip(size, dilation, strict=True))
    if any(r > n for r, n in zip(reach, array.shape, strict=True)):
        places = [max(0, n - r + 1) for r, n in zip(reach, array.shape, strict=True)]
        return np.empty((*places, *size), array.dtype)
    view = np.lib.stride_tricks.sliding_window_view(array, reach)
    steps = (*strides, *dilation)
    return view[tuple(slice(None, None, s) for s in steps)]


def windows_of(node: Node, array: Any, fill: Any) -> Any:
    """The windows of a node's operand."""
    p = node.params
    ones = (1,) * array.ndim
    return windows(
        array,
        p["window_dimensions"],
        p["window_strides"],
        p["padding"],
        p.get("base_dilation") or ones,
        p.get("window_dilation") or ones,
        fill,
    )


def inner_axes(array: Any) -> tuple[int, ...]:
    """The axes within windows, in a view of the windows of an array."""
    return tuple(range(array.ndim, 2 * array.ndim))


def _lowest(dtype: Any) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min if dtype.kind in "iu" else False


def _highest(dtype: Any) -> Any:
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max if dtype.kind in "iu" else True


def _work(node: Node, xs: list[Wide]) -> float:
    return math.prod(node.outputs[0].aval.shape) * math.prod(node.params["window_dimensions"])


def _pool(function: Any, fill: Any) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        array = np.asarray(xs[0].array)
        view = windows_of(node, array, fill(array.dtype))
        axes = inner_axes(array)
        options = {"dtype": array.dtype} if function is np.add else {}
        return [Wide(function.reduce(view, axes, **options), xs[0].exponent)]

    return run


rule("reduce_window_sum", work=_work)(_pool(np.add, lambda dtype: 0))
rule("reduce_window_max", work=_work)(_pool(np.maximum, _lowest))
rule("reduce_window_min", work=_work)(_pool(np.minimum, _highest))

# The NumPy function of a primitive, and its neutral element, with which a window is padded.
_FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "add": (np.add, lambda dtype: 0),
    "mul": (np.multiply, lambda dtype: 1),
    "max": (np.maximum, _lowest),
    "min": (np.minimum, _highest),
    "and": (np.bitwise_and, lambda dtype: np.invert(np.zeros((), dtype))),
    "or": (np.bitwise_or, lambda dtype: 0),
    "xor": (np.bitwise_xor, lambda dtype: 0),
}


def function_of(node: Node) -> tuple[Any, Any]:
    """The NumPy function that a jaxpr of one equation is, and its neutral element."""
    jaxpr = node.params["jaxpr"]
    names = [e.primitive.name for e in getattr(jaxpr, "jaxpr", jaxpr).eqns]
    if len(names) != 1 or names[0] not in _FUNCTIONS:
        raise NotImplementedError(f"{node.primitive} with a function of its own ({names})")
    return _FUNCTIONS[names[0]]


def _in_common(function: Any, xs: list[Wide]) -> tuple[list[Any], int]:
    """Operand and initial value at one exponent."""
    if function is np.multiply and is_float(xs[0]):
        raise Apart  # a product of many may be anywhere
    return align(xs)


@rule("reduce")
def reduce(node: Node, xs: list[Wide]) -> list[Wide]:
    if len(xs) != 2:
        raise NotImplementedError("reduce of several operands")
    function, _ = function_of(node)
    (array, start), power = _in_common(function, xs)
    out = function.reduce(array, tuple(node.params["dimensions"]))
    out = function(out, start)
    kept = out.dtype.kind in "fc" or node.outputs[0].is_floating  # then by rank
    return [Wide(out if kept else out.astype(dtype_of(node)), power)]


@rule("reduce_window", work=_work)
def reduce_window(node: Node, xs: list[Wide]) -> list[Wide]:
    if len(xs) != 2:
        raise NotImplementedError("reduce_window of several operands")
    function, neutral = function_of(node)
    (array, start), power = _in_common(function, xs)
    view = windows_of(node, np.asarray(array), neutral(array.dtype))
    out = function.reduce(view, inner_axes(np.asarray(array)))
    return [Wide(function(out, start).astype(view.dtype), power)]


# -- what was selected in a window ----------------------------------------------------------------


def selected(node: Node, array: Any) -> tuple[Any, Any]:
    """The index, in the padded array, of the entry that each window selects, and that array."""
    largest = node.params["select_prim"].name in ("ge", "gt")
    fill = _lowest(array.dtype) if largest else _highest(array.dtype)
    config = [(int(lo), int(hi), 0) for lo, hi in node.params["padding"]]
    full = padded(array, fill, config)
    p, ones, none = node.params, (1,) * array.ndim, ((0, 0),) * array.ndim

    def view(a: Any) -> Any:
        out = windows(a, p["window_dimensions"], p["window_strides"], none, ones, ones, 0)
        return out.reshape(*out.shape[: array.ndim], -1)

    best = (np.argmax if largest else np.argmin)(view(full), -1)
    index = np.arange(full.size).reshape(full.shape)
    return np.take_along_axis(view(index), best[..., None], -1)[..., 0], full


@rule("select_and_scatter_add", work=_work)
def select_and_scatter_add(node: Node, xs: list[Wide]) -> list[Wide]:
    source, operand = (np.asarray(x.array) for x in xs)
    index, full = selected(node, operand)
    out = np.zeros(full.size, source.dtype)
    np.add.at(out, index.reshape(-1), source.reshape(-1))
    config = [(-int(lo), -int(hi), 0) for lo, hi in node.params["padding"]]
    return [Wide(padded(out.reshape(full.shape), 0, config), xs[0].exponent)]


@rule("select_and_gather_add", work=_work)
def select_and_gather_add(node: Node, xs: list[Wide]) -> list[Wide]:
    tangents, operand = (np.asarray(x.array) for x in xs)
    index, _ = selected(node, operand)
    config = [(int(lo), int(hi), 0) for lo, hi in node.params["padding"]]
    return [Wide(padded(tangents, 0, config).reshape(-1)[index], xs[0].exponent)]


# -- convolution ----------------------------------------------------------------------------------


def _conv_work(node: Node, xs: list[Wide]) -> float:
    kernel = xs[1].array
    outputs = kernel.shape[node.params["dimension_numbers"].rhs_spec[0]]
    return math.prod(node.outputs[0].aval.shape) * kernel.size / max(outputs, 1)


@rule("conv_general_dilated", work=_conv_work)
def convolution(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    out = convolved(node, (x.array, None), (y.array, None))
    return [Wide(out.array, x.exponent + y.exponent)]


def convolved(node: Node, x: tuple[Any, Any], y: tuple[Any, Any]) -> Wide:
    """The convolution of fractions and exponents, which are None for blocks."""
    p = node.params
    numbers, parts = p["dimension_numbers"], p["batch_group_count"]

    def split(pair: tuple[Any, Any], spec: Any) -> Any:
        """In the order (batch, features, space) or (results, features, space)."""
        ordered = (None if a is None else np.transpose(a, spec) for a in pair)
        pieces = ([None] * parts if a is None else np.split(a, parts) for a in ordered)
        return zip(*pieces, strict=True)

    pairs = zip(split(x, numbers.lhs_spec), split(y, numbers.rhs_spec), strict=True)
    pieces = [_piece(a, b, p) for a, b in pairs]
    order = np.argsort(numbers.out_spec)
    array = np.transpose(np.concatenate([q.array for q in pieces], 1), order)
    if x[1] is None:
        return Wide(array)
    return Wide(array, np.transpose(np.concatenate([q.exponent for q in pieces], 1), order))


def _piece(x: tuple[Any, Any], y: tuple[Any, Any], p: Any) -> Wide:
    """The convolution of (batch, features, space) with (results, features, space)."""
    a, b = x[0], y[0]
    groups, space, kernel = p["feature_group_count"], a.ndim - 2, b.shape[2:]

    def view(a: Any) -> Any:
        out = windows(
            a,
            (1, 1, *kernel),
            (1, 1, *p["window_strides"]),
            ((0, 0), (0, 0), *p["padding"]),
            (1, 1, *p["lhs_dilation"]),
            (1, 1, *p["rhs_dilation"]),
            0,
        )
        return out.reshape(a.shape[0], groups, b.shape[1], *out.shape[2 : 2 + space], *kernel)

    def result(out: Any) -> Any:
        # (group, batch, *places, results of a group)
        out = np.moveaxis(np.moveaxis(out, -1, 1), 2, 0)
        return out.reshape(a.shape[0], -1, *out.shape[3:])

    inner = tuple(range(3 + space, 3 + 2 * space))
    numbers = ((2, *inner), tuple(range(2, 3 + space))), ((1,), (0,))
    kernels = [None if c is None else c.reshape(groups, -1, *b.shape[1:]) for c in y]
    if x[1] is None:
        return Wide(result(contract(view(a), kernels[0], numbers)))
    both = (view(a), view(x[1])), (kernels[0], kernels[1])
    out = contract_spread(*both, numbers)
    return Wide(result(out.array), result(out.exponent))
