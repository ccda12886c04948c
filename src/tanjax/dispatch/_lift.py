"""`lift(f)`: unmodified JAX code on quantities and structured arrays.

Code that calls `jnp.sin` and `lax.scan` knows nothing of our types. It is traced once on plain
arrays; the units of its results follow from its jaxpr (`_lift_units`), and its values are what it
computes itself on numbers in fitting units: every inner `jit`, loop and custom rule is its own.
Only where an argument is a structured array is the jaxpr interpreted, equation by equation, with
our operations where they keep structure and dense arrays, visibly, elsewhere.

    speed = tj.lift(lambda g, h: jnp.sqrt(2 * g * h))
    speed(9.8 * metre / second**2, 3.0 * km)

Sharp edges. Constants in the code are plain numbers. Quantities that the code closes over take
part in its arithmetic, but cannot be handed to `jnp` functions: pass them as arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import units
from tanjax.arrays import Unitful, convert, is_structured, number_in, quantity
from tanjax.registry import lifting
from tanjax.units._signature import ANY, Signature

from ._lift_code import surroundings, unchanged
from ._lift_control import TAG, TAGGED
from ._lift_structure import interpret
from ._lift_units import PRIMITIVES, NeedsCoherent, infer, literal_unit


def lift(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function of quantities and structured arrays from plain JAX code.

    **Arguments:** `f`, a function of arrays (in any pytrees) that JAX can trace.
    **Returns:** a function of the same arguments, any of which may be quantities or structured
    arrays; results carry their units. Where all units of one dimension agree, the numbers go in as
    they are; otherwise every quantity goes in in coherent SI units.
    **Raises:** `UnitError` naming the primitive and the line of `f` where units do not fit.
    **Cost:** the first call for given shapes and units traces `f` once more, without computing.
    """
    inferred: dict[Any, Any] = {}

    @functools.wraps(f)
    def lifted(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=is_structured)
        if not any(map(is_structured, leaves)):
            return f(*args, **kwargs)
        call = _Call(f, tree)
        found = [x.label if type(x) is Unitful else None for x in leaves]
        values = [x.stored if type(x) is Unitful else x for x in leaves]
        moving = [i for i, v in enumerate(values) if _is_array(v)]
        avals = [_aval(values[i]) for i in moving]
        fixed = {i: v for i, v in enumerate(values) if i not in moving}
        kinds = tuple((a.shape, a.dtype, a.weak_type) for a in avals)
        key = (tree, tuple(found), kinds, tuple(fixed.items()))
        seen, result = inferred.get(key, (None, None))
        around = surroundings(f)
        if not unchanged(seen, around):
            result = _infer(call, avals, [found[i] for i in moving], fixed)
            if not any(isinstance(c, jax.core.Tracer) for c in result[3].consts):
                inferred[key] = around, result  # code that closes over tracers is always another
        out_tree, out_units, coherent, closed = result
        numbers = [_in_code(coherent, v, u) for v, u in zip(values, found, strict=True)]
        if any(map(is_structured, numbers)):
            results = interpret(closed.jaxpr, closed.consts, [numbers[i] for i in moving])
        else:
            with lifting(functools.partial(_number, coherent)):
                out = call(numbers)
            results = jax.tree.leaves(out, is_leaf=is_structured)
        labelled = [
            r if u is None else quantity(r.stored if type(r) is Unitful else r, u)
            for r, u in zip(results, out_units, strict=True)
        ]
        return jax.tree.unflatten(out_tree, labelled)

    return lifted


def _in_code(coherent: bool, value: Any, unit: Any) -> Any:
    """An argument as the code saw it when it was traced: of a quantity an array in a unit."""
    if unit is None:
        return value
    if coherent:
        value = _coherent_number(value, unit)
    return jnp.asarray(value) if isinstance(value, int | float | complex) else value


def register(primitive: str, signature: str) -> None:
    """Say what a primitive does to units, operand by operand: `"a: u, b: v -> u*v"`.

    **Raises:** `RegistrationError` if the signature cannot be read.
    """
    Signature.parse(signature)
    PRIMITIVES[primitive] = signature


lift.register = register  # type: ignore[attr-defined]


class _Call:
    """`f` as a function of the leaves of its arguments."""

    def __init__(self, f: Callable[..., Any], tree: Any) -> None:
        self.f, self.tree = f, tree

    def __call__(self, leaves: list[Any]) -> Any:
        args, kwargs = jax.tree.unflatten(self.tree, leaves)
        return self.f(*args, **kwargs)


def _is_array(x: Any) -> bool:
    return is_structured(x) or isinstance(
        x, jax.Array | np.ndarray | np.generic | int | float | complex
    )


def _aval(x: Any) -> jax.ShapeDtypeStruct:
    if is_structured(x):
        return jax.ShapeDtypeStruct(x.shape, x.dtype)
    aval = jax.typeof(x)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _infer(call: _Call, avals: Any, given: list[Any], fixed: dict[int, Any]) -> Any:
    """The units of the results, whether the code must run in coherent units, and its jaxpr."""
    try:
        return _traced(call, avals, given, fixed, coherent=False)
    except NeedsCoherent:
        degree, radian = units.unit("deg"), units.unit("rad")  # code may ask for degrees
        given = [None if u is None else radian if u == degree else units.coherent(u) for u in given]
        return _traced(call, avals, given, fixed, coherent=True)


def _traced(call: _Call, avals: Any, given: Any, fixed: dict[int, Any], coherent: bool) -> Any:
    count = len(avals) + len(fixed)
    results: list[Any] = []

    def on_moving(*moving: Any) -> Any:
        rest = iter(moving)
        with lifting(functools.partial(_tagged, coherent)):
            out = call([fixed[i] if i in fixed else next(rest) for i in range(count)])
        leaves, tree = jax.tree.flatten(out, is_leaf=is_structured)
        results[:] = [tree, [x.label if type(x) is Unitful else None for x in leaves]]
        return [x.stored if type(x) is Unitful else x for x in leaves]

    closed = jax.make_jaxpr(on_moving)(*avals)
    tree, own = results
    outs = infer(closed.jaxpr, list(map(literal_unit, closed.consts)), given)
    return tree, [_product(u, o) for u, o in zip(outs, own, strict=True)], coherent, closed


def _product(inferred: Any, own: Any) -> Any:
    """The unit of a result: what the code tracked in numbers, times what it carried openly."""
    if inferred is ANY:
        inferred = None
    if inferred is None or own is None:
        return own if inferred is None else inferred
    return inferred * own


def _tagged(coherent: bool, q: Unitful) -> Any:
    """A quantity from outside as a number in the code, marked with its unit for `infer`."""
    unit = units.coherent(q.label) if coherent else q.label
    mark = lambda value: value
    mark.__name__ = f"{TAG}{unit}"
    TAGGED[mark.__name__] = unit
    return jax.jit(mark)(q.stored)


def _number(coherent: bool, q: Unitful) -> Any:
    """A quantity from outside as a number in the code."""
    return _coherent_number(q.stored, q.label) if coherent else q.stored


def _coherent_number(value: Any, unit: Any) -> Any:
    """A number in the coherent unit. **Raises:** `ScaleError` if its dtype does not hold it."""
    if unit.scale:
        return number_in(quantity(value, unit), units.coherent(unit))
    return convert(value, unit, units.coherent(unit))
