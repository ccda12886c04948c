"""Derivatives outside of a compiled function that left the range of their dtype.

`tj.grad(f)(x)` without `tj.jit` runs through JAX's tracers, which do not show their numbers. The
kinetic energy of a star overflows on the way, and its gradient is inf or nan although the compiled
gradient is right. tanjax can measure the arguments and the results only. It plans the derivative as
`tj.jit` would do if a result is not finite or all zero, or if few numbers are near the ends of the
range. If plain JAX loses something, it returns the result of `tj.jit`.

    result = planned_if_lost("grad", f, derivative, args, kwargs, derivative(*args, **kwargs))

Sharp edges. Some losses do not show from outside. Numbers that leave the range on the way and come
back, and entries of large arrays that underflow, need `tj.jit`. Code that cannot be compiled (it
branches on numbers) keeps the first result, with a `ScaleWarning` if it is not finite. Calls with
tracers are not checked, nor calls with Refs, because a second run would write them again.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Hashable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax._dtype_range import range_of
from tanjax._errors import ScaleWarning, message, outside
from tanjax._typing import Function
from tanjax.arrays import is_inexact
from tanjax.quantities import NOTHING, is_quantity, measure

from ._scale_graph import scale_graph

_FEW = 10_000  # numbers that are run in a wide range in a few milliseconds
_KEPT = 64
# By function, the arguments (their shapes and magnitudes) for which plain JAX is right. A function
# without a derivative gives inf in every call, and need not be planned each time.
_right: weakref.WeakKeyDictionary[Function, set[Hashable]] = weakref.WeakKeyDictionary()


def planned_if_lost(
    name: str,
    f: Function,
    derivative: Function,
    args: Sequence[PyTree],
    kwargs: dict[str, PyTree],
    result: PyTree,
) -> PyTree:
    """Return `result`, or the result of `tj.jit(derivative)` if plain JAX has lost something."""
    given, found = _leaves((args, kwargs)), _leaves(result)
    if given is None or not found or (given and not bool(_all_finite(given))):
        return result
    is_broken = not bool(_all_finite(found))
    if not (is_broken or _is_suspicious((args, kwargs), given, found)):
        return result
    key = name, is_broken, *((jnp.result_type(x), jnp.shape(x), measure(x)) for x in given)
    try:
        known = _right.setdefault(f, set())
    except TypeError:  # it can be neither hashed nor referred to
        known = set()
    if key in known:
        return result
    from ._jit import jit

    try:
        plan = scale_graph(derivative)(*args, **kwargs).plan
        if not plan.identity:
            return jit(derivative)(*args, **kwargs)
    except Exception:  # code that cannot be traced may raise anything, and has a result already
        plan = None
    if is_broken and plan is None:
        _warn(name)
    if len(known) < _KEPT:
        known.add(key)
    return result


def _warn(name: str) -> None:
    warnings.warn(
        message(
            f"{name}: the result is not finite, and its exponents could not be planned.",
            "why: numbers left the range of their dtype, or the value does not exist; "
            "the function cannot be compiled, so tanjax cannot find out.",
            hint=f"write it for tj.jit(tj.{name}(f)), take a wider dtype, or units nearer to "
            "the values.",
        ),
        ScaleWarning,
        stacklevel=outside(),
    )


@jax.jit
def _all_finite(leaves: list[PyTree]) -> PyTree:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in leaves]))


def _leaves(tree: PyTree) -> list[PyTree] | None:
    """Return the floating arrays of a tree; `None` if there is a tracer or a Ref."""
    leaves = jax.tree.leaves(tree)
    if any(isinstance(x, jax.core.Tracer | jax.Ref) for x in leaves):
        return None
    return [x for x in leaves if is_inexact(x)]


def _is_suspicious(arguments: PyTree, given: list[PyTree], found: list[PyTree]) -> bool:
    """True if a finite derivative may have lost something: 5 us for some small arrays."""
    if sum(map(jnp.size, (*given, *found))) > _FEW:
        return False
    if any(measure(x) == NOTHING and jnp.size(x) for x in found):
        return True
    scaled = jax.tree.leaves(arguments, is_leaf=is_quantity)
    return any(is_quantity(q) and q.label.scale for q in scaled) or any(map(_is_far, given + found))


def _is_far(x: PyTree) -> bool:
    """True if a product of three numbers of this size may overflow or underflow."""
    bits, span = measure(x), range_of(jnp.result_type(x))
    return bool(bits and span and max(-bits[0], bits[1]) > span.highest // 3)
