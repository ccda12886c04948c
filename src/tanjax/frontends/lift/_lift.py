"""`lift(f)`: unmodified JAX code on quantities and structured arrays.

Code that calls `jnp.sin` and `lax.scan` does not handle our types. `lift` traces it once on plain
arrays. The units of its results follow from its jaxpr (`_units`). Its values are those that the
code itself computes on numbers in fitting units: every inner `jit`, loop and custom rule stays. If
an argument is a structured array, `lift` interprets the jaxpr equation by equation. It uses our
operations if they keep structure, and otherwise densifies with a warning.

    speed = tj.lift(lambda g, h: jnp.sqrt(2 * g * h))
    speed(9.8 * metre / second**2, 3.0 * km)

Sharp edges. Constants in the code are plain numbers. Quantities that the code closes over take part
in its arithmetic, but `jnp` functions do not accept them: pass them as arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax import units
from tanjax._errors import UnitError
from tanjax._jaxpr_types import Readable
from tanjax._typing import Function
from tanjax.arrays import is_structured
from tanjax.quantities import (
    Quantity,
    convert,
    is_quantity,
    label_of,
    lifting,
    number_in,
    stored_of,
    taken_apart,
    unitful,
)
from tanjax.units import Unit
from tanjax.units.signatures import AnyUnit, Signature

from ..signatures import TABLES
from ._closure import closure_fingerprint, unchanged
from ._control import TAG, TAGGED, infer
from ._structure import interpret
from ._units import REGISTERED, NeedsCoherent, NeedsRoot, apply_signature

_EntryUnit = Callable[[Unit], Unit]  # maps a quantity's unit to the unit in the code
# The tree of the results; their tracked units, and those that they carry; the unit of an argument
# in the code; its jaxpr.
_Traced = tuple[PyTreeDef, list[tuple[Unit | None, Unit | None]], _EntryUnit, Readable]
_MOST_ROOTS = 10**6  # no terminating code takes as many roots of roots


def lift(f: Function) -> Function:
    """Make plain JAX code accept quantities and structured arrays.

    **Arguments:** `f`, a function of arrays (in any pytrees) that JAX can trace.
    **Returns:** a function of the same arguments. Each may be a quantity or a structured array;
    results carry their units. If all units of one dimension agree, `f` gets the numbers
    unchanged; otherwise every quantity in coherent SI units.
    **Raises:** `UnitError` naming the primitive and the line of `f` if units do not fit.
    **Cost:** the first call for given shapes and units traces `f` once more, without computing.
    """
    inferred: dict[Hashable, tuple[PyTree, _Traced]] = {}

    @functools.wraps(f)
    def lifted(*args: PyTree, **kwargs: PyTree) -> PyTree:
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=is_structured)
        if not any(map(is_structured, leaves)):
            return f(*args, **kwargs)
        call = _OfLeaves(f, tree)
        found = [label_of(x) for x in leaves]
        values = [stored_of(x) for x in leaves]
        moving = [i for i, v in enumerate(values) if _is_array(v)]
        avals = [_aval(values[i]) for i in moving]
        fixed = {i: v for i, v in enumerate(values) if i not in moving}
        kinds = tuple((a.shape, a.dtype, a.weak_type) for a in avals)
        key = (tree, tuple(found), kinds, tuple(fixed.items()))
        seen, result = inferred.get(key, (None, None))
        around = closure_fingerprint(f)
        if result is None or not unchanged(seen, around):
            result = _infer(call, avals, [found[i] for i in moving], fixed)
            if not any(isinstance(c, jax.core.Tracer) for c in result[3].consts):
                # code that closes over tracers differs in every call
                inferred[key] = around, result
        out_tree, out_units, entry_unit, closed = result
        numbers = [_in_code(entry_unit, v, u) for v, u in zip(values, found, strict=True)]
        if any(map(is_structured, numbers)):
            results = interpret(closed, [numbers[i] for i in moving])
        else:
            with lifting(functools.partial(_number, entry_unit)):
                out = call(numbers)
            results = jax.tree.leaves(out, is_leaf=is_structured)
        labelled = [
            r if u is None else _labelled(r, u, own)
            for r, (u, own) in zip(results, out_units, strict=True)
        ]
        return jax.tree.unflatten(out_tree, labelled)

    return lifted


def _in_code(entry_unit: _EntryUnit, value: PyTree, unit: Unit | None) -> PyTree:
    """Convert an argument to the trace's form: a quantity becomes an array in a unit."""
    if unit is None:
        return value
    value = _number_at_entry(entry_unit, value, unit)
    return jnp.asarray(value) if isinstance(value, int | float | complex) else value


def register(primitive: str, signature: str) -> None:
    """Declare the effect of a primitive on units, operand by operand: `"a: u, b: v -> u*v"`.

    **Raises:** `RegistrationError` if the signature cannot be read.
    """
    Signature.parse(signature)
    REGISTERED[primitive] = signature


lift.register = register  # type: ignore[attr-defined]


class _OfLeaves:
    """A function of the leaves of the arguments of `f`."""

    def __init__(self, f: Function, tree: PyTree) -> None:
        self.f, self.tree = f, tree

    def __call__(self, leaves: list[PyTree]) -> PyTree:
        args, kwargs = jax.tree.unflatten(self.tree, leaves)
        return self.f(*args, **kwargs)


def _is_array(x: PyTree) -> bool:
    return is_structured(x) or isinstance(
        x, jax.Array | np.ndarray | np.generic | int | float | complex
    )


def _aval(x: PyTree) -> jax.ShapeDtypeStruct:
    if is_structured(x):
        return jax.ShapeDtypeStruct(x.shape, x.dtype)
    aval = jax.typeof(x)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _infer(
    call: _OfLeaves,
    avals: list[jax.ShapeDtypeStruct],
    given: list[PyTree],
    fixed: dict[int, PyTree],
) -> _Traced:
    """Return the units of the results, the units in which the code must run, and its jaxpr."""
    entry_unit, root = _as_given, 1
    while True:
        try:
            units_in = [None if u is None else entry_unit(u) for u in given]
            return _traced(call, avals, units_in, fixed, entry_unit)
        except NeedsCoherent:
            entry_unit = _coherent
        except NeedsRoot as needed:
            # A root of a root needs the product of both, in any order.
            root *= needed.root
            if root > _MOST_ROOTS:
                raise UnitError(f"lift: no power of two has all of these roots: {root}.") from None
            entry_unit = functools.partial(_divisible, root)


def _as_given(unit: Unit) -> Unit:
    return unit


def _coherent(unit: Unit) -> Unit:
    degree, radian = units.unit("deg"), units.unit("rad")  # code may contain degrees
    return radian if unit == degree else units.coherent(unit)


def _divisible(root: int, unit: Unit) -> Unit:
    return unit.divisible(root)


def _traced(
    call: _OfLeaves,
    avals: list[jax.ShapeDtypeStruct],
    given: PyTree,
    fixed: dict[int, PyTree],
    entry_unit: _EntryUnit,
) -> _Traced:
    count = len(avals) + len(fixed)
    results: list[PyTree] = []

    def on_moving(*moving: PyTree) -> PyTree:
        rest = iter(moving)
        with lifting(functools.partial(_tagged, entry_unit)):
            out = call([fixed[i] if i in fixed else next(rest) for i in range(count)])
        numbers, labels, tree = taken_apart(out)
        results[:] = [tree, labels]
        return numbers

    closed = jax.make_jaxpr(on_moving)(*avals)
    tree, own = results
    outs = infer(closed, given)
    outs = _of_forgotten(call.f, outs, given)
    labels = [(_product(u, o), o) for u, o in zip(outs, own, strict=True)]
    return tree, labels, entry_unit, closed


def _of_forgotten(f: Function, outs: list[PyTree], given: list[PyTree]) -> list[PyTree]:
    """Find units of zeros without a history: `jnp.imag` of a real array, `zeros_like` of any.

    If `f` is JAX's own function, the table of `tanjax.numpy` gives the unit.
    """
    name = getattr(f, "__name__", "")
    text = TABLES["numpy"].get(name, "") if getattr(jnp, name, None) is f else ""
    if "->" not in text or not any(type(u) is AnyUnit for u in outs):
        return outs
    signature = Signature.parse(text)
    if len(signature.roles_of(len(given))) != len(given):
        return outs
    known = apply_signature(name, signature, given, len(outs))
    return [k if type(u) is AnyUnit else u for u, k in zip(outs, known, strict=True)]


def _labelled(result: PyTree, unit: Unit, own: PyTree) -> PyTree:
    """Label a result of the code; `own` is the unit that it carried when it was traced.

    Outside of a trace, a quantity that the code closes over may have another exponent.
    """
    if not is_quantity(result):
        return unitful(result, unit)
    return unitful(result.stored, unit.scaled(result.label.scale - (own.scale if own else 0)))


def _product(inferred: PyTree, own: PyTree) -> PyTree:
    """Return the unit of a result: the tracked unit times the unit that it carries."""
    if type(inferred) is AnyUnit:
        inferred = None
    if inferred is None or own is None:
        return own if inferred is None else inferred
    return inferred * own


def _tagged(entry_unit: _EntryUnit, q: Quantity) -> PyTree:
    """Turn a quantity from outside into a number in the code, marked with its unit for `infer`."""
    unit = entry_unit(q.label)
    mark = lambda value: value
    mark.__name__ = f"{TAG}{unit!r}"
    TAGGED[mark.__name__] = unit
    return jax.jit(mark)(q.stored)


def _number(entry_unit: _EntryUnit, q: Quantity) -> PyTree:
    """Turn a quantity from outside into a number in the code."""
    return _number_at_entry(entry_unit, q.stored, q.label)


def _number_at_entry(entry_unit: _EntryUnit, value: PyTree, unit: Unit) -> PyTree:
    """Convert a number to a unit. **Raises:** `ScaleError` if it leaves the range at exponent 0.

    Code in coherent units runs at exponent 0, because it may add any two numbers.
    """
    target = entry_unit(unit)
    if entry_unit is _coherent and unit.scale:
        return number_in(unitful(value, unit), target)
    return convert(value, unit, target)
