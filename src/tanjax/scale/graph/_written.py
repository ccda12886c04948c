"""Guess from the code of a function if its trace may hold constants that look crushed.

A watched trace takes up to four times as long as another (`_casts.py`), and most programs hold no
constant that looks crushed. So this module reads the numbers written in a function, and in the
functions that it names or closes over: about 1 us for each name.

    may_be_crushed(lambda x: 2.0 * x)  # False
    may_be_crushed(lambda x: 6.6e-34**2 * x)  # True

Sharp edges. This is a guess. The jaxpr shows if False was wrong, and the program is then traced
again. But JAX caches its casts of NumPy's arrays, and a second trace sees only the cached casts.
So the answer is True for everything that may hold an array of NumPy: arrays, objects with
attributes, more functions than `_MOST`. The integer `0` does not count: most often it is an axis or
an index.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

_FOREIGN = tuple(str(Path(str(x.__file__)).parent) for x in (jax, np))
_HARMLESS = (bool, int, str, bytes, type, type(None), type(...), slice, range, np.dtype, jax.Array)
_Jitted: Any = type(jax.jit(lambda: None))
_MADE_OF_ZEROS = frozenset({"zeros", "zeros_like"})
_LEAST, _LARGEST = 2.0**-126, 2.0**128  # the range of float32 without subnormals
_MOST = 200  # objects to examine


def may_be_crushed(fun: object) -> bool:
    """True if a function may contain a written zero, or a number out of the range of float32.

    **Cost:** about 1 us for each name in it.
    """
    found, seen = [fun], set[int]()
    for x in found:  # grows while it is walked
        if isinstance(x, _HARMLESS) or id(x) in seen:
            continue
        seen.add(id(x))
        if len(seen) > _MOST:
            return True
        if isinstance(x, float):
            if not _LEAST <= abs(x) < _LARGEST:
                return True
        elif isinstance(x, tuple | list | frozenset | dict):
            found += x.values() if isinstance(x, dict) else x
        elif isinstance(x, functools.partial):
            found += [x.func, *x.args, *x.keywords.values()]
        elif isinstance(x, types.FunctionType):
            if not _is_foreign(x):
                if not _MADE_OF_ZEROS.isdisjoint(_names(x.__code__)):
                    return True
                found += _parts(x)
        elif isinstance(x, jax.custom_jvp | jax.custom_vjp):
            found += [f for f in vars(x).values() if callable(f)]
        elif isinstance(x, _Jitted):
            found.append(x.__wrapped__)
        elif not isinstance(x, types.ModuleType | types.BuiltinFunctionType | np.ufunc):
            return True
    return False


def _is_foreign(fun: types.FunctionType) -> bool:
    return bool(fun.__code__.co_filename.startswith(_FOREIGN)) and not hasattr(fun, "__wrapped__")


def _is_library(module: types.ModuleType) -> bool:
    """True if a module is JAX's, NumPy's or written in C."""
    return str(getattr(module, "__file__", _FOREIGN[0])).startswith(_FOREIGN)


def _parts(fun: types.FunctionType) -> Iterator[object]:
    """Yield the parts of a function: its numbers, names, wrapped functions, closures, defaults."""
    yield from (getattr(fun, "__wrapped__", None), fun.__defaults__, fun.__kwdefaults__)
    for cell in fun.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the cell is empty: its function is not defined yet
            continue
    names = _names(fun.__code__)
    for name in names:
        x = fun.__globals__.get(name)
        yield x
        if isinstance(x, types.ModuleType) and not _is_library(x):
            yield from (vars(x)[other] for other in names if other in vars(x))
    for code in _codes(fun.__code__):
        yield from (c for c in code.co_consts if isinstance(c, float | tuple | frozenset))


def _names(code: types.CodeType) -> set[str]:
    return {name for part in _codes(code) for name in part.co_names}


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function, and of the functions written in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)
