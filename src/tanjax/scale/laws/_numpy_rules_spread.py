"""What the rules for blocks give way to, where numbers are too far apart for one exponent.

Four kinds cover most primitives. Rules that *move* entries are run twice, on the fractions and on
the exponents; what goes by *order* is run on ranks, which are integers; *sums* are aligned by their
own terms; *comparisons* and the like are made at an exponent per entry.

    _by_moving("reshape", "transpose")  # twice the rule for blocks
    _by_order("reduce_max", nan=1)      # once, on integers

Rules for functions are for both forms and stand elsewhere. Sharp edge: linear algebra, transforms
and rules of users have no such form: what depends on them is unknown for such numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph._graph import Node
from ..numbers._spread import (
    add_at,
    by_rank,
    common,
    larger,
    parts_of,
    plus,
    product_over,
    ranks,
    remainder_of,
    running_sum,
    sum_over,
)
from ..numbers._wide import Apart, Wide, complex_of, is_number, settle
from . import (
    _numpy_rules_index as _index,
    _numpy_rules_reduce as _reduce,
    _numpy_rules_shape as _shape,
    _numpy_rules_window as _window,
)
from ._numpy_rules import COMPARISONS, RULES, SPREAD, Rule, is_float, spread_rule, total_order_key

# -- movements ------------------------------------------------------------------------------------


def _by_moving(*names: str) -> None:
    for name in names:
        SPREAD[RULES[name]] = _moving(RULES[name])


def _moving(rule: Rule) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        pairs = [parts_of(x) if is_float(x) else (x.array, x.array) for x in xs]
        fractions = rule(node, [Wide(f) for f, _ in pairs])
        powers = rule(node, [Wide(np.asarray(p)) for _, p in pairs])
        return [
            Wide(f.array, np.asarray(p.array)) if is_float(f) else f
            for f, p in zip(fractions, powers, strict=True)
        ]

    return run


_by_moving(
    *("reshape", "transpose", "rev", "broadcast_in_dim", "broadcast_to", "tile", "slice"),
    *("concatenate", "stack", "unstack", "split", "pad", "dynamic_slice", "dynamic_update_slice"),
    *("select_n", "scatter"),
)


# -- order ----------------------------------------------------------------------------------------


def _by_order(*names: str, nan: int) -> None:
    for name in names:
        SPREAD[RULES[name]] = _ordered(RULES[name], nan)


def _ordered(rule: Rule, nan: int) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        places, table = ranks([x for x in xs if is_float(x)], nan)
        places.reverse()
        out = rule(node, [Wide(places.pop()) if is_float(x) else x for x in xs])
        return [
            by_rank(x.array, table) if value.is_floating else x
            for value, x in zip(node.outputs, out, strict=True)
        ]

    return run


_by_order("sort", "top_k", "reduce_max", "argmax", "cummax", "scatter-max", nan=1)
_by_order("reduce_window_max", nan=1)
_by_order("reduce_min", "argmin", "cummin", "scatter-min", "reduce_window_min", nan=-1)


# -- entry by entry -------------------------------------------------------------------------------


@spread_rule(RULES["add"])
def add(node: Node, xs: list[Wide]) -> list[Wide]:
    arrays, power = common(xs)
    return [Wide(arrays[0] + arrays[1], power)]


@spread_rule(RULES["sub"])
def subtract(node: Node, xs: list[Wide]) -> list[Wide]:
    arrays, power = common(xs)
    return [Wide(arrays[0] - arrays[1], power)]


@spread_rule(RULES["max"])
def maximum(node: Node, xs: list[Wide]) -> list[Wide]:
    return [larger(xs[0], xs[1])]


@spread_rule(RULES["min"])
def minimum(node: Node, xs: list[Wide]) -> list[Wide]:
    return [larger(xs[0], xs[1], -1)]


@spread_rule(RULES["clamp"])
def clamp(node: Node, xs: list[Wide]) -> list[Wide]:
    low, x, high = xs
    return [larger(larger(x, low), high, -1)]


@spread_rule(RULES["rem"])
def remainder(node: Node, xs: list[Wide]) -> list[Wide]:
    return [remainder_of(*xs)]


@spread_rule(RULES["complex"])
def complex_(node: Node, xs: list[Wide]) -> list[Wide]:
    """A complex number has one exponent, which may be too far from one of its parts."""
    arrays, power = common(xs)
    for x, array in zip(xs, arrays, strict=True):
        if np.any(is_number(x.array) & ~is_number(array)):
            raise Apart
    return [Wide(complex_of(*arrays), power)]


def _comparison(function: Any, key: Any = None) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        arrays, _ = common(xs)
        return [Wide(function(*(arrays if key is None else map(key, arrays))))]

    return run


for _name, _function in COMPARISONS.items():
    SPREAD[RULES[_name]] = _comparison(_function)
for _name, _function in {"eq_to": np.equal, "lt_to": np.less, "le_to": np.less_equal}.items():
    SPREAD[RULES[_name]] = _comparison(_function, total_order_key)


# -- sums and products ----------------------------------------------------------------------------


@spread_rule(RULES["reduce_sum"])
def reduce_sum(node: Node, xs: list[Wide]) -> list[Wide]:
    return [sum_over(*parts_of(xs[0]), _reduce.axes_of(node))]


@spread_rule(RULES["cumsum"])
def cumsum(node: Node, xs: list[Wide]) -> list[Wide]:
    fraction, powers = parts_of(xs[0])
    axis = node.params["axis"]
    if not node.params["reverse"]:
        return [running_sum(fraction, powers, axis)]
    out = running_sum(np.flip(fraction, axis), np.flip(powers, axis), axis)
    return [Wide(np.flip(out.array, axis), np.flip(out.exponent, axis))]


@spread_rule(RULES["reduce_window_sum"])
def reduce_window_sum(node: Node, xs: list[Wide]) -> list[Wide]:
    fraction, powers = (_window.windows_of(node, a, 0) for a in parts_of(xs[0]))
    return [sum_over(fraction, powers, _window.inner_axes(xs[0].array))]


@spread_rule(RULES["reduce"], RULES["reduce_window"])
def reduce(node: Node, xs: list[Wide]) -> list[Wide]:
    function, neutral = _window.function_of(node)
    x, start = xs
    if function in (np.maximum, np.minimum):
        rule, nan = RULES[node.primitive], 1 if function is np.maximum else -1
        return _ordered(rule, nan)(node, xs)
    pair = parts_of(x)
    axes = node.params.get("dimensions")
    if node.primitive == "reduce_window":
        fill = int(neutral(np.dtype(int)))
        pair = tuple(_window.windows_of(node, a, f) for a, f in zip(pair, (fill, 0), strict=True))
        axes = _window.inner_axes(x.array)
    if function is np.add:
        return [plus(settle(sum_over(*pair, tuple(axes))), start)]
    total = settle(product_over(*pair, tuple(axes)))
    return [Wide(total.array * start.array, total.exponent + start.exponent)]


def _scatter_add(sign: int) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        x, where, updates = xs
        index, kept = _index.places_of_updates(node, x.array.shape, where.array, updates.array)
        fraction, powers = parts_of(updates)
        more = Wide(fraction[kept], powers[kept])
        return [add_at(x, index, more, sign)]

    return run


SPREAD[RULES["scatter-add"]], SPREAD[RULES["scatter-sub"]] = _scatter_add(1), _scatter_add(-1)


@spread_rule(RULES["scatter-mul"])
def scatter_multiply(node: Node, xs: list[Wide]) -> list[Wide]:
    x, where, updates = xs
    index, kept = _index.places_of_updates(node, x.array.shape, where.array, updates.array)
    (fraction, powers), (more, its) = parts_of(x), parts_of(updates)
    counts = np.zeros(np.shape(fraction), np.int64)
    np.add.at(counts, index, 1)
    if counts.max(initial=0) > 900:  # fractions of 0.5 and more
        raise NotImplementedError("more than 900 factors for one entry")
    fraction, powers = np.array(fraction), np.array(powers)
    np.multiply.at(fraction, index, more[kept])
    np.add.at(powers, index, its[kept])
    return [Wide(fraction, powers)]


@spread_rule(RULES["select_and_scatter_add"])
def select_and_scatter_add(node: Node, xs: list[Wide]) -> list[Wide]:
    (place,), _ = ranks([xs[1]], 1)
    index, full = _window.selected(node, place)
    zeros = Wide(np.zeros(full.size), 0)
    fraction, powers = map(np.ravel, parts_of(xs[0]))
    out = add_at(zeros, (index.reshape(-1),), Wide(fraction, powers))
    config = [(-int(lo), -int(hi), 0) for lo, hi in node.params["padding"]]
    array, powers = (
        _shape.padded(a.reshape(full.shape), 0, config) for a in (out.array, out.exponent)
    )
    return [Wide(array, powers)]


@spread_rule(RULES["select_and_gather_add"])
def select_and_gather_add(node: Node, xs: list[Wide]) -> list[Wide]:
    (place,), _ = ranks([xs[1]], 1)
    rule = RULES["select_and_gather_add"]
    pair = [rule(node, [Wide(a), Wide(place)])[0].array for a in parts_of(xs[0])]
    return [Wide(*pair)]


@spread_rule(RULES["conv_general_dilated"])
def convolution(node: Node, xs: list[Wide]) -> list[Wide]:
    return [_window.convolved(node, *(parts_of(x) for x in xs))]
