"""JAX's namespaces, opened to quantities and structured arrays.

`tanjax.numpy` has the names of `jax.numpy`. A name with a unit signature in the tables becomes a
`UnitFunction`. A name with a handler becomes a function that calls it. Plain names are JAX's own. A
name in no table (a newer JAX) accepts everything except quantities. Each member is built at its
first use.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import PyTree

from tanjax._typing import Function
from tanjax.arrays import densified, held, holds_array, is_structured
from tanjax.operations import BY_NAME, DIFFERENTIABLE, OF_MATRICES
from tanjax.quantities import (
    UNIT_DEPENDENT,
    Quantity,
    UnitFunction,
    add,
    captured,
    centred_call,
    divide,
    fits,
    graphed,
    in_its_unit,
    multiply,
    note_unit_dependence,
    on_scale,
    refused,
    unscale,
)

from ..signatures import TABLES
from . import (
    _by_flags as _by_flags,
    _functional as _functional,
    _histograms as _histograms,
    _lax as _lax,
    _linalg as _linalg,
    _numpy as _numpy,
    _polynomials as _polynomials,
    _scipy as _scipy,
)
from ._array_api import ARRAY_API
from ._handler import ALWAYS, HANDLERS
from ._powers import DEGREES
from ._structured import LIFTED, holds_structured, of_structured

_MODULES = {"numpy": "jax.numpy", "linalg": "jax.numpy.linalg", "fft": "jax.numpy.fft"}
_TABLE_OF = {module: table for table, module in _MODULES.items()}
_IN_RANGE: dict[str, Function] = {
    "add": add,
    "subtract": add,
    "sub": add,
    "multiply": multiply,
    "mul": multiply,
    "divide": divide,
    "true_divide": divide,
    "div": divide,
}


# A member of a namespace: a function, a class, a number, a module.
Member: TypeAlias = Any


@functools.cache
def function(table: str, name: str) -> Member:
    """Return `name` of a namespace for quantities; `table` is `"numpy"`, `"linalg"`, `"lax"`.

    **Raises:** `AttributeError` if JAX has no such name.
    """
    found = _function(table, name)
    if name not in UNIT_DEPENDENT or table not in ("numpy", "lax"):
        return found

    @functools.wraps(found, updated=())
    def noting(*args: PyTree, **kwargs: PyTree) -> PyTree:
        note_unit_dependence()
        return in_its_unit(name, found, args, kwargs)

    return noting


def _function(table: str, name: str) -> Member:
    module = importlib.import_module(_MODULES.get(table, f"jax.{table}"))
    raw = getattr(module, name)
    raw = DIFFERENTIABLE.get(f"{table}.{name}", lambda raw: raw)(raw)
    entry = TABLES[table].get(name)
    if entry == "plain" or not callable(raw):
        return raw
    key = f"{table}.{name}"
    names = (BY_NAME, OF_MATRICES, ARRAY_API)
    operation = next((t[table][name] for t in names if name in t.get(table, ())), None)
    structured: Function = functools.partial(_densify_first, name, raw)
    if operation or table in ("linalg", "scipy.linalg") or name in LIFTED:
        structured = of_structured(raw, operation)
    if key in ALWAYS:
        return functools.wraps(raw)(functools.partial(HANDLERS[key], raw))
    if entry == "special" or key in HANDLERS:
        opened = _handled(name, HANDLERS[key], _either(raw, structured))
        return _opened(raw, opened, structured)
    if entry is None:
        return _opened(raw, _refuse(name, "it has no unit signature"), structured)
    if entry.startswith("refuse"):
        return _opened(raw, _refuse(name, entry.partition(":")[2].strip()), structured)
    points = on_scale if name in ("add", "subtract", "sub") else None
    near = _IN_RANGE.get(name)
    return UnitFunction(name, raw, entry, structured, on_scale=points, near_limits=near)


def _handled(name: str, handler: Function, raw: Function) -> Function:
    """Bind a handler to `raw`, through the scale graph if numbers are near the range's ends."""
    spread = not isinstance(getattr(np, name, None), np.ufunc)
    degree_of = DEGREES.get(name)
    if hasattr(handler, "checks_range"):  # it calls a `UnitFunction`
        return captured(name, functools.partial(handler, raw))

    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        degree = degree_of(*args, **kwargs) if degree_of else 2.0
        if fits((*args, *kwargs.values()), degree, spread):
            return handler(raw, *args, **kwargs)
        on_quantities = functools.partial(handler, graphed(raw, degree, spread))
        result, plain = centred_call(name, on_quantities, args, kwargs)
        return unscale(result) if plain else result

    return captured(name, call)


def _either(raw: Function, structured: Function) -> Function:
    """Return `raw`, or `structured` if there is a structured array; quantities pass unchanged."""

    @functools.wraps(raw)
    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        found = holds_structured(args) or holds_structured(kwargs.values())
        return (structured if found else raw)(*args, **kwargs)

    return call


def _densify_first(name: str, raw: Function, *args: PyTree, **kwargs: PyTree) -> PyTree:
    dense = [_densified(name, a) for a in args]
    return raw(*dense, **{k: _densified(name, v) for k, v in kwargs.items()})


def _densified(name: str, x: PyTree) -> PyTree:
    if type(x) in (list, tuple):
        return type(x)([_densified(name, item) for item in x])
    return densified(x, name, "use one of tanjax's operations") if is_structured(x) else x


def _refuse(name: str, reason: str) -> Function:
    def refuse(*args: PyTree, **kwargs: PyTree) -> PyTree:
        raise refused(name, reason)

    return refuse


def _opened(raw: Function, on_quantities: Function, structured: Function) -> Function:
    """Return `raw` with other functions for quantities and for structured arrays."""

    @functools.wraps(raw)
    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if holds_quantity(args) or holds_quantity(kwargs.values()):
            return on_quantities(*args, **kwargs)
        if holds_structured(args) or holds_structured(kwargs.values()):
            return structured(*args, **kwargs)
        if any(map(holds_array, (*args, *kwargs.values()))):
            return call(*map(held, args), **{k: held(v) for k, v in kwargs.items()})
        return raw(*args, **kwargs)

    return call


def holds_quantity(values: PyTree) -> bool:
    """True if a quantity is among values, or in a sequence or dictionary among them."""
    for value in values:
        if type(value) is Quantity:
            return True
        if type(value) in (list, tuple) and holds_quantity(value):
            return True
        if type(value) is dict and holds_quantity(value.values()):
            return True
    return False


class Namespace(types.ModuleType):
    """A module that mirrors a namespace of JAX, and its submodules."""

    def __init__(self, name: str, table: str, mirrored: str) -> None:
        super().__init__(name, f"`{mirrored}`, opened to quantities and structured arrays.")
        self._table, self._mirrored = table, mirrored

    def __getattr__(self, name: str) -> Member:
        return _member(self.__name__, self._table, self._mirrored, name)

    def __dir__(self) -> list[str]:
        return _names(self._mirrored)


def mirror(
    name: str, table: str, mirrored: str, submodules: tuple[str, ...] = ()
) -> tuple[Callable[[str], Member], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of the module `name`, which mirrors `mirrored`.

    `submodules` become importable: `import tanjax.numpy.linalg`.
    """
    for sub in submodules:
        inner = _TABLE_OF.get(f"{mirrored}.{sub}", f"{table}.{sub}")
        sys.modules[f"{name}.{sub}"] = Namespace(f"{name}.{sub}", inner, f"{mirrored}.{sub}")
    return functools.partial(_member, name, table, mirrored), functools.partial(_names, mirrored)


def _member(module: str, table: str, mirrored: str, name: str) -> Member:
    if name.startswith("__array_") and table == "numpy":  # the array API's attributes are JAX's
        return getattr(importlib.import_module(mirrored), name)
    if name.startswith("__"):
        raise AttributeError(name)
    if f"{module}.{name}" in sys.modules:
        return sys.modules[f"{module}.{name}"]
    try:
        found = function(table, name)
    except AttributeError:
        raise AttributeError(f"module `{module}` has no attribute `{name}`.") from None
    # 1 us less in every call: the module stores the name, so the next access finds it. Safe because
    # `function` is cached, so it is the same object for the life of the process.
    vars(sys.modules[module]).setdefault(name, found)
    return found


def _names(mirrored: str) -> list[str]:
    return sorted(n for n in dir(importlib.import_module(mirrored)) if not n.startswith("_"))


def scipy_modules() -> tuple[str, ...]:
    """Return the submodules of `jax.scipy` with tables, such as `"stats"` and `"stats.norm"`."""
    return tuple(t.removeprefix("scipy.") for t in TABLES if t.startswith("scipy."))


def numpy_namespace() -> types.ModuleType:
    """Return the module `tanjax.numpy`, for the array API; make one if it is not imported."""
    name = "tanjax.numpy"
    if name not in sys.modules:
        mirror(name, "numpy", "jax.numpy", ("linalg", "fft"))
        sys.modules[name] = Namespace(name, "numpy", "jax.numpy")
    return sys.modules[name]
