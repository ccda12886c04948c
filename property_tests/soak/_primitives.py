"""JAX's primitives on wide numbers: the rules of the reference.

They follow the documentation of `jax.lax`, for the primitives of random programs. A rule takes the
sample (how to round), the equation and its operands, and returns a list. A rule that only moves
numbers does not round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax._jaxpr_types import JaxEquation
from tanjax._typing import Function, Shape

from . import _wide
from ._wide import Sample, Wide

Meaning = Callable[..., list[PyTree]]
MEANINGS: dict[str, Meaning] = {}


class Unusable(Exception):
    """The reference cannot compute the results of this program."""


def rule(*names: str) -> Callable[[Function], Function]:
    """Register a function of the sample, the parameters and the operands."""

    def register(f: Function) -> Function:
        for name in names:
            MEANINGS[name] = lambda s, eqn, *xs, f=f: [f(s, eqn.params, *xs)]
        return f

    return register


def _is_float(x: PyTree) -> bool:
    return bool(np.asarray(x).dtype.kind == "f")


def _of_entries(name: str, on_floats: Function, on_integers: Function | None = None) -> None:
    def apply(sample: Sample, params: PyTree, *xs: PyTree) -> PyTree:
        if _is_float(xs[0]) or on_integers is None:
            return on_floats(sample, *xs)
        return on_integers(*xs)

    rule(name)(apply)


def _truncated_quotient(a: PyTree, b: PyTree) -> PyTree:
    return np.trunc(np.asarray(a, Wide) / b).astype(np.asarray(a).dtype)


_of_entries("add", _wide.add, np.add)
_of_entries("add_any", _wide.add, np.add)
_of_entries("sub", _wide.subtract, np.subtract)
_of_entries("mul", _wide.multiply, np.multiply)
_of_entries("div", _wide.divide, _truncated_quotient)
_of_entries("square", lambda s, x: _wide.multiply(s, x, x), np.square)
_of_entries("pow", _wide.power)
_of_entries("exp", _wide.exponential)
_of_entries("exp2", lambda s, x: _wide.exponential(s, x, 2))
_of_entries("expm1", _wide.exponential_less_one)
_of_entries("logistic", _wide.logistic)
_of_entries("rsqrt", lambda s, x: s.rounded(1 / np.sqrt(x), 2))
for _name, _f in (
    ("sqrt", np.sqrt),
    ("cbrt", np.cbrt),
    ("log", np.log),
    ("log1p", np.log1p),
    ("tanh", np.tanh),
    ("sin", np.sin),
    ("cos", np.cos),
    ("atan2", np.arctan2),
):
    _of_entries(_name, _wide.function(_f))


def _exactly(*names: str, f: Function) -> None:
    for name in names:
        rule(name)(lambda s, params, *xs, f=f: f(*xs))


def _sign(x: PyTree) -> PyTree:
    return np.where(np.isnan(x), x, np.sign(x))[()] if _is_float(x) else np.sign(x)


for _name, _g in (
    ("neg", np.negative),
    ("abs", np.abs),
    ("max", np.maximum),  # nan wins, as in JAX
    ("min", np.minimum),
    ("sign", _sign),
    ("floor", np.floor),
    ("ceil", np.ceil),
    ("lt", np.less),
    ("le", np.less_equal),
    ("gt", np.greater),
    ("ge", np.greater_equal),
    ("eq", np.equal),
    ("ne", np.not_equal),
    ("is_finite", np.isfinite),
    ("rem", np.fmod),
    ("copy", np.asarray),
    ("copy_p", np.asarray),
    ("stop_gradient", np.asarray),
    ("optimization_barrier", np.asarray),
    ("clamp", lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    ("and", np.bitwise_and),
    ("or", np.bitwise_or),
    ("xor", np.bitwise_xor),
    ("not", np.invert),
):
    _exactly(_name, f=_g)


@rule("integer_pow")
def _integer_pow(s: Sample, params: PyTree, x: PyTree) -> PyTree:
    return _wide.integer_power(s, x, params["y"]) if _is_float(x) else x ** params["y"]


@rule("round")
def _round(s: Sample, params: PyTree, x: PyTree) -> PyTree:
    if int(params["rounding_method"]) == 1:
        return np.rint(x)
    return np.copysign(np.floor(np.abs(x) + Wide(0.5)), x)


@rule("select_n")
def _select_n(s: Sample, params: PyTree, which: PyTree, *cases: PyTree) -> PyTree:
    which = np.asarray(which).astype(int)
    if which.ndim == 0:
        return cases[int(which)]
    return np.choose(which, cases)


@rule("convert_element_type")
def _convert(s: Sample, params: PyTree, x: PyTree) -> PyTree:
    kind = np.dtype(params["new_dtype"])
    if kind.kind in "biu":
        if not _is_float(x):
            return np.asarray(x).astype(kind)
        if kind.kind == "b":
            return np.asarray(x != 0)
        info = np.iinfo(kind)
        whole = np.where(np.isnan(x), 0, np.clip(np.trunc(x), info.min, info.max))
        return whole.astype(kind)
    return x if _is_float(x) else np.asarray(x).astype(Wide)


# -- reductions -------------------------------------------------------------------------------

rule("reduce_sum")(
    lambda s, p, x: _wide.total(s, x, p["axes"]) if _is_float(x) else np.sum(x, p["axes"])
)
rule("reduce_prod")(
    lambda s, p, x: _wide.product(s, x, p["axes"]) if _is_float(x) else np.prod(x, p["axes"])
)
rule("reduce_max")(lambda s, p, x: np.max(x, axis=p["axes"]))
rule("reduce_min")(lambda s, p, x: np.min(x, axis=p["axes"]))
rule("reduce_and")(lambda s, p, x: np.all(x, axis=p["axes"]))
rule("reduce_or")(lambda s, p, x: np.any(x, axis=p["axes"]))
rule("argmax")(lambda s, p, x: np.argmax(x, axis=p["axes"][0]))
rule("argmin")(lambda s, p, x: np.argmin(x, axis=p["axes"][0]))


def _running(name: str, f: Function) -> None:
    def apply(s: Sample, params: PyTree, x: PyTree) -> PyTree:
        axis = params["axis"]
        if params["reverse"]:
            return np.flip(f(s, np.flip(x, axis), axis), axis)
        return f(s, x, axis)

    rule(name)(apply)


def _running_logsumexp(s: Sample, x: PyTree, axis: int) -> PyTree:
    out = np.logaddexp.accumulate(x, axis=axis)
    return s.rounded(out, 4) + s.noise(out, 4)


_running(
    "cumsum", lambda s, x, a: _wide.running_total(s, x, a) if _is_float(x) else np.cumsum(x, a)
)
_running("cumprod", _wide.running_product)
_running("cummax", lambda s, x, axis: np.maximum.accumulate(x, axis=axis))
_running("cummin", lambda s, x, axis: np.minimum.accumulate(x, axis=axis))
_running("cumlogsumexp", _running_logsumexp)


@rule("dot_general")
def _dot_general(s: Sample, params: PyTree, a: PyTree, b: PyTree) -> PyTree:
    return _wide.contract(s, np.asarray(a), np.asarray(b), params["dimension_numbers"])


# -- movements --------------------------------------------------------------------------------

rule("reshape")(lambda s, p, x: np.reshape(x, p["new_sizes"]))
rule("squeeze")(lambda s, p, x: np.squeeze(x, axis=p["dimensions"]))
rule("expand_dims")(lambda s, p, x: np.expand_dims(x, p["dimensions"]))
rule("transpose")(lambda s, p, x: np.transpose(x, p["permutation"]))
rule("rev")(lambda s, p, x: np.flip(x, p["dimensions"]))
rule("concatenate")(lambda s, p, *xs: np.concatenate(xs, axis=p["dimension"]))


@rule("broadcast_in_dim")
def _broadcast_in_dim(s: Sample, params: PyTree, x: PyTree, *dynamic: PyTree) -> PyTree:
    shape = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], np.shape(x), strict=True):
        shape[axis] = size
    return np.broadcast_to(np.reshape(x, shape), params["shape"])


@rule("iota")
def _iota(s: Sample, params: PyTree) -> PyTree:
    shape = [1] * len(params["shape"])
    shape[params["dimension"]] = -1
    kind = np.dtype(params["dtype"])
    counts = np.arange(params["shape"][params["dimension"]])
    counts = counts.astype(kind if kind.kind in "biu" else Wide)
    return np.broadcast_to(counts.reshape(shape), params["shape"])


@rule("slice")
def _slice(s: Sample, params: PyTree, x: PyTree) -> PyTree:
    steps = params["strides"] or [1] * x.ndim
    cut = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
    return x[tuple(slice(*bounds) for bounds in cut)]


def _corner(x: PyTree, sizes: Sequence[int], starts: PyTree) -> tuple[slice, ...]:
    at = [
        int(np.clip(int(i), 0, n - k)) for i, n, k in zip(starts, np.shape(x), sizes, strict=True)
    ]
    return tuple(slice(i, i + k) for i, k in zip(at, sizes, strict=True))


@rule("dynamic_slice")
def _dynamic_slice(s: Sample, params: PyTree, x: PyTree, *starts: PyTree) -> PyTree:
    return np.asarray(x)[_corner(x, params["slice_sizes"], starts)]


@rule("dynamic_update_slice")
def _dynamic_update_slice(
    s: Sample, params: PyTree, x: PyTree, update: PyTree, *starts: PyTree
) -> PyTree:
    out = np.array(x)
    out[_corner(x, np.shape(update), starts)] = update
    return out


@rule("pad")
def _pad(s: Sample, params: PyTree, x: PyTree, fill: PyTree) -> PyTree:
    for axis, (low, high, between) in enumerate(params["padding_config"]):
        n = np.shape(x)[axis]
        size = low + high + n + max(n - 1, 0) * between
        shape = list(np.shape(x))
        shape[axis] = size
        out = np.full(shape, fill, np.asarray(x).dtype)
        places = low + np.arange(n) * (between + 1)
        kept = (places >= 0) & (places < size)
        np.moveaxis(out, axis, 0)[places[kept]] = np.moveaxis(x, axis, 0)[kept]
        x = out
    return x


@rule("gather")
def _gather(s: Sample, params: PyTree, x: PyTree, indices: PyTree) -> PyTree:
    """Gather entries by the positions that the same gather in JAX gives."""
    at = _positions(
        np.shape(x), indices, params["dimension_numbers"], params["slice_sizes"], params["mode"]
    )
    out = np.ravel(x)[np.maximum(at, 0)]
    return np.where(at < 0, np.nan, out)[()] if _is_float(x) else out


def _positions(
    shape: Shape,
    indices: PyTree,
    numbers: PyTree,
    sizes: Sequence[int],
    mode: jax.lax.GatherScatterMode,
) -> PyTree:
    every = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    return np.asarray(
        jax.lax.gather(every, np.asarray(indices), numbers, tuple(sizes), mode=mode, fill_value=-1)
    )


def _scatter(
    s: Sample, params: PyTree, x: PyTree, indices: PyTree, updates: PyTree, combine: Function
) -> PyTree:
    """Scatter entries to the places where the gather of the same shape would take them."""
    n = params["dimension_numbers"]
    numbers = jax.lax.GatherDimensionNumbers(
        n.update_window_dims,
        n.inserted_window_dims,
        n.scatter_dims_to_operand_dims,
        n.operand_batching_dims,
        n.scatter_indices_batching_dims,
    )
    alone = (*n.inserted_window_dims, *n.operand_batching_dims)
    window = iter([np.shape(updates)[i] for i in n.update_window_dims])
    sizes = [1 if i in alone else next(window) for i in range(np.ndim(x))]
    at = _positions(np.shape(x), indices, numbers, sizes, jax.lax.GatherScatterMode.FILL_OR_DROP)
    out = np.array(x).ravel()
    for place, update in zip(np.ravel(at), np.ravel(updates), strict=True):
        if place >= 0:
            out[place] = combine(s, out[place], update)
    return out.reshape(np.shape(x))


for _name, _combine in (
    ("scatter", lambda s, old, new: new),
    ("scatter-add", _wide.add),
    ("scatter_add", _wide.add),
    ("scatter-mul", _wide.multiply),
    ("scatter_mul", _wide.multiply),
):
    rule(_name)(lambda s, params, x, at, new, f=_combine: _scatter(s, params, x, at, new, f))


def _split(s: Sample, eqn: JaxEquation, x: PyTree) -> list[PyTree]:
    ends = np.cumsum(eqn.params["sizes"])[:-1]
    return list(np.split(x, ends, axis=eqn.params["axis"]))


def _sort(s: Sample, eqn: JaxEquation, *xs: PyTree) -> list[PyTree]:
    """Sort stably by the first operand; move the others along."""
    axis = eqn.params["dimension"]
    order = np.argsort(xs[0], axis=axis, kind="stable")
    return [np.take_along_axis(np.asarray(x), order, axis) for x in xs]


MEANINGS["split"] = _split
MEANINGS["sort"] = _sort
