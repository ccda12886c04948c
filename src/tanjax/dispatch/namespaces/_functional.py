"""Functions of functions: what is called sees quantities, what JAX sees is plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax.arrays import Unitful, convert
from tanjax.registry._careful import labelled as quantity
from tanjax.registry._front import unit_of
from tanjax.units.signatures import Role, bind

from ._handler import special, split
from ._numpy import common


@special("numpy.apply_along_axis")
def apply_along_axis(raw: Any, func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """The function gets one-dimensional quantities."""
    if type(arr) is not Unitful:
        return raw(lambda v: func1d(v, *args, **kwargs), axis, arr)
    return raw(lambda v: func1d(quantity(v, arr.label), *args, **kwargs), axis, arr.stored)


@special("numpy.apply_over_axes")
def apply_over_axes(raw: Any, func: Any, a: Any, axes: Any) -> Any:
    """The function is called once per axis, and may change the unit."""
    value, unit = split(a)
    units = [unit]

    def numbers(x: Any, axis: int) -> Any:
        out, new = split(func(quantity(x, units[-1]), axis))
        units.append(new)
        return out

    out = raw(numbers, value, axes)
    return quantity(out, units[-1])


@special("numpy.piecewise")
def piecewise(raw: Any, x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """Functions get quantities; what they return, and the constants, must share a unit."""
    value, unit = split(x)
    labelled = (lambda v: quantity(v, unit)) if type(x) is Unitful else (lambda v: v)
    # the unit of a result is known from its trace
    probes = [
        jax.eval_shape(lambda v, f=f: f(labelled(v), *args, **kw), value) if callable(f) else f
        for f in funclist
    ]
    role = Role.parse("u")
    operands = [(role, unit_of(p), f"funclist[{i}]") for i, p in enumerate(probes)]
    target = bind("piecewise", operands).get("u")
    out = raw(value, condlist, [_piece(f, labelled, target, args, kw) for f in funclist])
    return out if target is None else quantity(out, target)


def _piece(f: Any, labelled: Any, target: Any, args: Any, kw: Any) -> Any:
    """A piece on numbers: a constant, or a function of numbers."""
    if not callable(f):
        return convert(f.stored, f.label, target) if type(f) is Unitful else f

    def number(v: Any) -> Any:
        out = f(labelled(v), *args, **kw)
        return convert(out.stored, out.label, target) if type(out) is Unitful else out

    return number


@special("numpy.vectorize", always=True)
def vectorize(raw: Any, pyfunc: Any, *, excluded: Any = frozenset(), signature: Any = None) -> Any:
    """A vectorised function of quantities; excluded arguments are left alone."""

    def vectorized(*args: Any, **kwargs: Any) -> Any:
        units = [
            a.label if type(a) is Unitful and i not in excluded else None
            for i, a in enumerate(args)
        ]
        outs: list[Any] = []

        def numbers(*values: Any, **kw: Any) -> Any:
            given = [v if u is None else quantity(v, u) for v, u in zip(values, units, strict=True)]
            out = pyfunc(*given, **kw)
            leaves, treedef = jax.tree.flatten(out, is_leaf=lambda x: type(x) is Unitful)
            outs[:] = [treedef, [x.label if type(x) is Unitful else None for x in leaves]]
            plain = tuple(x.stored if type(x) is Unitful else x for x in leaves)
            return plain if len(plain) > 1 else plain[0]

        plain = [a.stored if u is not None else a for a, u in zip(args, units, strict=True)]
        result = raw(numbers, excluded=excluded, signature=signature)(*plain, **kwargs)
        leaves = result if isinstance(result, tuple) else (result,)
        treedef, labels = outs
        return treedef.unflatten(
            [x if u is None else quantity(x, u) for x, u in zip(leaves, labels, strict=True)]
        )

    vectorized.__name__ = getattr(pyfunc, "__name__", "vectorized")
    return vectorized


# -- jax.lax: every leaf of a tree comes back as it came -------------------------------------------


def _as_it_is(raw: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return raw(*args, **kwargs)


def _trees(names: str) -> None:
    special(*(f"lax.{name}" for name in names.split()))(_as_it_is)


_trees("stop_gradient optimization_barrier with_sharding_constraint dce_sink")
_trees("all_gather all_to_all pshuffle pswapaxes pbroadcast pcast pmax pmin pmean")
_trees("scan while_loop fori_loop cond switch map associative_scan")
_trees("custom_root custom_linear_solve platform_dependent composite")


@special("lax.stage")
def stage(raw: Any, x: Any) -> Unitful:
    """The number, lifted into the trace."""
    return quantity(raw(x.stored), x.label)


@special("lax.psum", "lax.psum_scatter", "lax.ppermute")
def linear_collective(raw: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Sums, and zeros where nothing arrives: not of points of a scale."""
    for leaf in jax.tree.leaves(x, is_leaf=lambda v: type(v) is Unitful):
        bind(raw.__name__, [(Role.parse("u"), split(leaf)[1], "x")])
    return raw(x, *args, **kwargs)


@special("lax.reduce_prod")
def reduce_prod(raw: Any, operand: Any, axes: Any) -> Unitful:
    """The unit to the power of the number of factors."""
    value, unit = split(operand)
    count = int(np.prod([jnp.shape(value)[a] for a in axes], dtype=int))
    return quantity(raw(value, axes), unit**count)


_KEEP_UNIT = (jax.lax.add, jax.lax.max, jax.lax.min, jnp.add, jnp.maximum, jnp.minimum)


@special("lax.reduce", "lax.reduce_window")
def reduce(raw: Any, operand: Any, init: Any, computation: Any, *args: Any, **kwargs: Any) -> Any:
    """The computation gets quantities, and returns them in the operand's unit."""
    unit, (value, first) = common(raw.__name__, "u", operand, init)
    if computation in _KEEP_UNIT:  # JAX recognises these, and has faster programs for them
        return quantity(raw(value, first, computation, *args, **kwargs), unit)

    def numbers(a: Any, b: Any) -> Any:
        out = computation(quantity(a, unit), quantity(b, unit))
        return common(raw.__name__, "u", quantity(a, unit), out)[1][1]

    return quantity(raw(value, first, numbers, *args, **kwargs), unit)


@special("lax.scatter_apply")
def scatter_apply(raw: Any, operand: Any, indices: Any, func: Any, *args: Any, **kw: Any) -> Any:
    """The function gets quantities, and returns them in the operand's unit."""
    value, unit = split(operand)

    def numbers(v: Any) -> Any:
        return common("scatter_apply", "u", quantity(v, unit), func(quantity(v, unit)))[1][1]

    return quantity(raw(value, indices, numbers, *args, **kw), unit)
