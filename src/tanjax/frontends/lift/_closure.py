"""The values that a function reads besides its arguments.

`lift` caches the units that it inferred for a function, but each call runs the function again.
Meanwhile the function may have changed: a length that it closes over is now a time, or a global
exponent differs. Tracing it in every call would cost a millisecond; checking the values that it
reads costs a few microseconds.

Sharp edge. A value that can change without changing its identity (a list, an object that is not
frozen, a module of the user) makes the answer "unknown". The function is then traced every time.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Iterator
from fractions import Fraction

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax._typing import Function
from tanjax.arrays import is_structured
from tanjax.units import Unit

_MOST = 200  # values to check; beyond this a trace is no more expensive
_FIXED = (int, float, complex, str, bytes, type(None), Fraction, Unit, np.generic, np.dtype, type)
_LIBRARIES = frozenset(
    {
        "builtins",
        "functools",
        "itertools",
        "jax",
        "math",
        "numpy",
        "operator",
        "tanjax",
        "tanjax_torch",
    }
)


class _Unknown(Exception):
    """A value could change undetected."""


def closure_fingerprint(f: Function) -> list[PyTree] | None:
    """Return the values that `f` reads besides its arguments, by identity; `None` if unknown."""
    found: list[PyTree] = []
    try:
        _look(f, found)
    except _Unknown:
        return None
    return found


def unchanged(old: list[PyTree] | None, new: list[PyTree] | None) -> bool:
    """True if two fingerprints are known and the same."""
    if old is None or new is None or len(old) != len(new):
        return False
    return all(a is b for a, b in zip(old, new, strict=True))


def _look(x: PyTree, found: list[PyTree]) -> None:
    if any(x is seen for seen in found):
        return
    found.append(x)
    if len(found) > _MOST:
        raise _Unknown
    for part in _parts(x):
        _look(part, found)


def _parts(x: PyTree) -> Iterator[PyTree]:
    """Yield the parts that may change. **Raises:** `_Unknown` if they cannot be determined."""
    if isinstance(x, _FIXED) or is_structured(x) or isinstance(x, jax.Array):
        return
    if _home(x) in _LIBRARIES and not _holds(x):
        return
    if isinstance(x, types.FunctionType):
        yield from _read_by(x, x.__code__)
        yield from (c.cell_contents for c in x.__closure__ or () if _is_filled(c))
        yield from (*(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values())
    elif isinstance(x, types.MethodType):
        yield from (x.__func__, x.__self__)
    elif isinstance(x, types.BuiltinFunctionType):
        yield x.__self__  # a module, or the object of a bound method
    elif isinstance(x, functools.partial):
        yield from (x.func, *x.args, *x.keywords.values())
    elif isinstance(x, tuple):
        yield from x
    elif dataclasses.is_dataclass(x) and getattr(x, "__dataclass_params__").frozen:  # noqa: B009
        yield type(x).__call__ if callable(x) else None
        yield from (getattr(x, f.name, None) for f in dataclasses.fields(x))
    elif callable(getattr(x, "__wrapped__", None)):
        yield x.__wrapped__
    else:
        raise _Unknown


def _home(x: PyTree) -> str | None:
    """Return the package that an object comes from; `None` for containers, which change."""
    if isinstance(x, types.ModuleType):
        return x.__name__.partition(".")[0]
    name = getattr(x, "__module__", None) or type(x).__module__
    return name.partition(".")[0] if name != "builtins" else None


def _holds(x: PyTree) -> bool:
    """True if a library object holds code of the user: a compiled function, a `partial`."""
    return hasattr(x, "__wrapped__") or isinstance(x, functools.partial)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _read_by(f: types.FunctionType, code: types.CodeType) -> Iterator[PyTree]:
    """Yield the globals that code reads, also in code inside it."""
    for name in code.co_names:
        if name in f.__globals__:
            yield f.__globals__[name]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _read_by(f, constant)
