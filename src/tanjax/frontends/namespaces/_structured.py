"""JAX's functions on structured arrays, by an operation or by `lift`.

An operation has fewer flags than the function of JAX or NumPy that it implements. A call with other
flags must neither drop them nor raise. `lift` runs JAX's own function for such a call. It keeps
structure for the flags that it supports (`upper`, `UPLO`, an offset) and densifies with a warning
for others.

    tanjax.numpy.linalg.cholesky(Symmetric(a), upper=True)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Hashable

import jax
import numpy as np
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax._typing import Function
from tanjax.arrays import is_structured
from tanjax.quantities import is_quantity

from ..lift import lift

# JAX's functions without an operation that `tj.lift` supports: elementwise functions that keep
# zeros, and the functions they consist of.
LIFTED = frozenset(
    name
    for names in (
        "abs absolute fabs sign positive conj conjugate real copy square sqrt cbrt power pow",
        "float_power integer_pow sin tan sinh tanh arcsin asin arctan atan arcsinh asinh arctanh",
        "atanh expm1 log1p floor ceil rint round erf erf_inv maximum minimum max min clip",
        "deg2rad rad2deg degrees radians neg mean diag tril triu inner stop_gradient",
        "convert_element_type",
    )
    for name in names.split()
)


def holds_structured(values: PyTree) -> bool:
    """True if a structured array that is no quantity is among values, or in a sequence of them."""
    for value in values:
        if type(value) in (list, tuple):
            if holds_structured(value):
                return True
        elif not is_quantity(value) and is_structured(value):
            return True
    return False


def of_structured(
    raw: Function, operation: Function | None = None, spelling: Function | None = None
) -> Function:
    """Return `raw`, a function of JAX's, for calls with structured arrays.

    **Arguments:** `operation`: of the same arrays in the same places; `spelling`: the function
    whose names and defaults the calls have, if that is not `raw`.
    """
    if operation is None:
        return functools.partial(_lifted, raw)
    own = _parameters(operation)
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in own.values()):
        return operation
    count = sum(p.kind is not p.KEYWORD_ONLY for p in own.values())
    theirs = _parameters(spelling or raw)
    names = [n for n, p in theirs.items() if p.kind in (p.POSITIONAL_ONLY, _EITHER)]

    @functools.wraps(operation)
    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if not kwargs and len(args) <= count:
            return operation(*args)
        named = dict(zip(names[count:], args[count:]))  # noqa: B905
        if len(named) == len(args[count:]) and not named.keys() & kwargs.keys():
            flags = {
                n: v for n, v in (named | kwargs).items() if n in own or not _left(theirs, n, v)
            }
            if flags.keys() <= own.keys():
                return operation(*args[:count], **flags)
        return _lifted(raw, *args, **kwargs)

    return call


_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _parameters(function: Function) -> dict[str, inspect.Parameter]:
    """Return the parameters by name; empty for a C function without a signature."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def _left(theirs: dict[str, inspect.Parameter], name: str, value: PyTree) -> bool:
    """True if a flag has its default value."""
    default = theirs[name].default if name in theirs else inspect.Parameter.empty
    plain = default is None or type(default) in (bool, int, str)
    return value is default or (plain and type(value) is type(default) and value == default)


def _lifted(raw: Function, *args: PyTree, **kwargs: PyTree) -> PyTree:
    """Lift JAX's function over its arrays alone; flags are not traced."""
    leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=is_structured)
    moving = tuple(
        i for i, x in enumerate(leaves) if is_structured(x) or isinstance(x, jax.Array | np.ndarray)
    )
    fixed = tuple((i, type(x), x) for i, x in enumerate(leaves) if i not in moving)
    make = _of_arrays if all(isinstance(x, Hashable) for *_, x in fixed) else _of_arrays.__wrapped__
    return make(raw, tree, moving, fixed)(*(leaves[i] for i in moving))


@functools.lru_cache(maxsize=256)
def _of_arrays(
    raw: Function,
    tree: PyTreeDef,
    moving: tuple[int, ...],
    fixed: tuple[tuple[int, type, Hashable], ...],
) -> Function:
    def on_arrays(*arrays: PyTree) -> PyTree:
        leaves = dict(zip(moving, arrays, strict=True)) | {i: x for i, _, x in fixed}
        args, kwargs = jax.tree.unflatten(tree, [leaves[i] for i in sorted(leaves)])
        return raw(*args, **kwargs)

    return lift(on_arrays)
