"""Functions of functions: the called function gets quantities, JAX gets plain numbers."""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet

import jax
from jaxtyping import PyTree

from tanjax._typing import Function
from tanjax.quantities import (
    convert,
    is_quantity,
    label_of,
    labelled,
    split_unit,
    stored_of,
    unit_of,
)
from tanjax.units.signatures import Role, bind

from ._handler import unit_handler


@unit_handler("numpy.apply_along_axis")
def apply_along_axis(
    raw: Function, func1d: Function, axis: int, arr: PyTree, *args: PyTree, **kwargs: PyTree
) -> PyTree:
    """Apply a function that gets one-dimensional quantities."""
    if not is_quantity(arr):
        return raw(lambda v: func1d(v, *args, **kwargs), axis, arr)
    return raw(lambda v: func1d(labelled(v, arr.label), *args, **kwargs), axis, arr.stored)


@unit_handler("numpy.apply_over_axes")
def apply_over_axes(raw: Function, func: Function, a: PyTree, axes: int | Sequence[int]) -> PyTree:
    """Call the function once per axis; it may change the unit."""
    value, unit = split_unit(a)
    units = [unit]

    def numbers(x: PyTree, axis: int) -> PyTree:
        out, new = split_unit(func(labelled(x, units[-1]), axis))
        units.append(new)
        return out

    out = raw(numbers, value, axes)
    return labelled(out, units[-1])


@unit_handler("numpy.piecewise")
def piecewise(
    raw: Function,
    x: PyTree,
    condlist: PyTree,
    funclist: Sequence[PyTree],
    *args: PyTree,
    **kw: PyTree,
) -> PyTree:
    """Call functions on quantities; their results and the constants must share a unit."""
    value, unit = split_unit(x)
    as_given = (lambda v: labelled(v, unit)) if is_quantity(x) else (lambda v: v)
    # the trace gives the unit of a result
    probes = [
        jax.eval_shape(lambda v, f=f: f(as_given(v), *args, **kw), value) if callable(f) else f
        for f in funclist
    ]
    role = Role.parse("u")
    operands = [(role, unit_of(p), f"funclist[{i}]") for i, p in enumerate(probes)]
    target = bind("piecewise", operands).get("u")
    out = raw(value, condlist, [_piece(f, as_given, target, args, kw) for f in funclist])
    return out if target is None else labelled(out, target)


def _piece(
    f: PyTree, as_given: PyTree, target: PyTree, args: Sequence[PyTree], kw: PyTree
) -> PyTree:
    """Return a piece as a function of numbers, or as a constant."""
    if not callable(f):
        return convert(f.stored, f.label, target) if is_quantity(f) else f

    def number(v: PyTree) -> PyTree:
        out = f(as_given(v), *args, **kw)
        return convert(out.stored, out.label, target) if is_quantity(out) else out

    return number


@unit_handler("numpy.vectorize", always=True)
def vectorize(
    raw: Function,
    pyfunc: Function,
    *,
    excluded: AbstractSet[int | str] = frozenset(),
    signature: str | None = None,
) -> PyTree:
    """Return a vectorised function of quantities; excluded arguments pass unchanged."""

    def vectorized(*args: PyTree, **kwargs: PyTree) -> PyTree:
        units = [
            a.label if is_quantity(a) and i not in excluded else None for i, a in enumerate(args)
        ]
        outs: list[PyTree] = []

        def numbers(*values: PyTree, **kw: PyTree) -> PyTree:
            given = [v if u is None else labelled(v, u) for v, u in zip(values, units, strict=True)]
            out = pyfunc(*given, **kw)
            leaves, treedef = jax.tree.flatten(out, is_leaf=is_quantity)
            outs[:] = [treedef, [label_of(x) for x in leaves]]
            plain = tuple(stored_of(x) for x in leaves)
            return plain if len(plain) > 1 else plain[0]

        plain = [a.stored if u is not None else a for a, u in zip(args, units, strict=True)]
        result = raw(numbers, excluded=excluded, signature=signature)(*plain, **kwargs)
        leaves = result if isinstance(result, tuple) else (result,)
        treedef, labels = outs
        return treedef.unflatten(
            [x if u is None else labelled(x, u) for x, u in zip(leaves, labels, strict=True)]
        )

    vectorized.__name__ = getattr(pyfunc, "__name__", "vectorized")
    return vectorized
