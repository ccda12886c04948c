"""NumPy's functions on quantities and structured arrays, through `tanjax.numpy`.

NumPy passes a call on as written, but its conventions are not JAX's. It accepts lists as arrays,
names or orders some parameters differently, and writes into `out` arrays. This module converts a
call to the form that JAX's function of the same name expects.

    np.percentile(q, [25, 75]), np.histogram(q, 2, None, True)

Sharp edges. A NumPy array cannot store a unit, so only pure numbers can be written into one
(`array += q`). A ufunc that NumPy does not ship has no unit signature and is refused.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._errors import UnitError, message
from tanjax._typing import Function
from tanjax.quantities import is_quantity, label_of

from .namespaces import function, holds_quantity
from .signatures import TABLES

_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
_ACCUMULATIONS = {"add": "cumsum", "multiply": "cumprod"}
_MODULES = {"numpy": "numpy", "numpy.linalg": "linalg", "numpy.fft": "fft"}
_CLIP = {"a_min": "min", "a_max": "max"}  # NumPy's names and JAX's

# The array parameters of NumPy's functions: lists elsewhere (an axis, a shape, a sequence of
# arrays) stay lists.
_ARRAYS = frozenset(
    name
    for names in (
        "a a1 a2 append ar1 ar2 arr array ary b condition element f filt fp indices m obj p",
        "prepend q repeats test_elements v val values vals varargs weights where x x1 x2 xp y",
    )
    for name in names.split()
)
_ONE_AXIS = frozenset({"digitize", "histogram", "histogram_bin_edges"})  # `bins` is one array
_READ_ONE_TRIANGLE = frozenset({"eigh", "eigvalsh", "cholesky"})


def ufunc_on_quantities(
    ufunc: np.ufunc, method: str, inputs: PyTree, kwargs: dict[str, PyTree]
) -> PyTree:
    """Call the function of a ufunc's name on quantities, in or out of `jit`."""
    result = ufunc_by_name(ufunc, method, inputs, kwargs)
    if result is NotImplemented:
        raise _unknown(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}")
    return result


def ufunc_by_name(
    ufunc: np.ufunc, method: str, inputs: PyTree, kwargs: dict[str, PyTree]
) -> PyTree:
    """Call the function of `tanjax.numpy` with a ufunc's name, or return `NotImplemented`."""
    inputs = [function("numpy", "asarray")(x) if type(x) in (list, tuple) else x for x in inputs]
    out = kwargs.pop("out", None)
    if out is not None:
        return _written(ufunc, method, inputs, kwargs, out)
    if method == "outer":
        first, second = (x if hasattr(x, "ndim") else np.asarray(x) for x in inputs)
        return ufunc(first.reshape(first.shape + (1,) * second.ndim), second)
    names = {"reduce": _REDUCTIONS, "accumulate": _ACCUMULATIONS}
    called: str = ufunc.__name__
    # its name is not enough: one of `np.frompyfunc` may have the name `add`
    if method == "__call__":
        name = called if getattr(np, called, None) is ufunc else None
    else:
        name = names.get(method, {}).get(called)
    if name is None or not hasattr(jnp, name):
        return NotImplemented
    if method == "reduce":
        kwargs.setdefault("axis", 0)
    return function("numpy", name)(*inputs, **kwargs)


def _written(
    ufunc: np.ufunc, method: str, inputs: PyTree, kwargs: dict[str, PyTree], out: PyTree
) -> PyTree:
    """Write a result into the given NumPy arrays, as `array += q` does."""
    result = ufunc_by_name(ufunc, method, inputs, kwargs)
    if result is NotImplemented:
        return result
    results = result if isinstance(result, tuple) else (result,)
    for target, value in zip(out, results, strict=True):
        unit = label_of(value)
        if not isinstance(target, np.ndarray) or (unit and not unit.is_dimensionless):
            raise UnitError(
                message(
                    f"{ufunc.__name__}: a {type(target).__name__} cannot take a result in {unit}.",
                    "why: NumPy's arrays have no unit, and those of JAX do not change.",
                    hint="make a new quantity: `a = a + q` instead of `a += q` or `out=a`.",
                )
            )
        np.copyto(target, np.asarray(value), casting="same_kind")
    return out if isinstance(result, tuple) else out[0]


def _unknown(name: str) -> UnitError:
    return UnitError(
        message(
            f"{name}: this function of NumPy says nothing about units.",
            hint="`tanjax.numpy.vectorize(f)` calls a function on quantities; others take numbers, "
            "`f(q.to_value(unit))`.",
        )
    )


def function_on_quantities(
    numpy_function: Function, args: Sequence[PyTree], kwargs: dict[str, PyTree]
) -> PyTree:
    """Call one of NumPy's other functions on quantities, by module and name."""
    place = _MODULES.get(numpy_function.__module__, "")
    is_plain = bool(place) and TABLES[place].get(numpy_function.__name__) == "plain"
    refused = is_plain and numpy_function is not np.can_cast
    result = NotImplemented if refused else function_by_name(numpy_function, args, kwargs)
    if result is NotImplemented:
        raise _unknown(numpy_function.__name__)
    return result


def function_by_name(
    numpy_function: Function, args: Sequence[PyTree], kwargs: dict[str, PyTree]
) -> PyTree:
    """Call the function of `tanjax` with the module and name of NumPy's, or `NotImplemented`."""
    place = _MODULES.get(numpy_function.__module__, "")
    name = numpy_function.__name__
    if numpy_function is np.can_cast:
        plain: list[PyTree] = [a.dtype if is_quantity(a) else a for a in args]
        return np.can_cast(*plain, **kwargs)
    try:
        found = function(place, name) if place else None
    except AttributeError:
        found = None
    if found is None:
        return NotImplemented
    if numpy_function is np.clip:
        args = (*args, *((kwargs.pop("a"),) if "a" in kwargs else ()))
        kwargs = {_CLIP.get(k, k): v for k, v in kwargs.items()}
    arrays, moved = _conventions(numpy_function, place)
    kwargs = {k: _as_array(v) if k in _ARRAYS else v for k, v in kwargs.items()}
    kwargs |= {moved[i]: a for i, a in enumerate(args) if i in moved}
    last = len(arrays) - 1
    args = [
        _as_array(a) if last >= 0 and arrays[min(i, last)] else a
        for i, a in enumerate(args)
        if i not in moved
    ]
    if place == "linalg" and name in _READ_ONE_TRIANGLE:
        kwargs.setdefault("symmetrize_input", False)  # JAX takes the mean of both
    return found(*args, **kwargs)


@functools.cache
def _conventions(numpy_function: Function, place: str) -> tuple[list[bool], dict[int, str]]:
    """Return which positions are arrays, and the names of parameters that JAX has elsewhere."""
    module = importlib.import_module({"numpy": "jax.numpy"}.get(place, f"jax.numpy.{place}"))
    theirs = _positional(numpy_function)
    ours = _positional(getattr(module, numpy_function.__name__))
    moved = {
        i: p.name
        for i, p in enumerate(theirs)
        if p in ours and ours.index(p) != i and p.kind is p.POSITIONAL_OR_KEYWORD
    }
    known = _ARRAYS | {"bins"} if numpy_function.__name__ in _ONE_AXIS else _ARRAYS
    return [p.name in known for p in theirs or ours], moved


def _positional(f: Function) -> list[inspect.Parameter]:
    """Return the positional parameters, without defaults and annotations."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return []
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    return [inspect.Parameter(p.name, p.kind) for p in parameters if p.kind not in by_name]


def _as_array(x: PyTree) -> PyTree:
    """Convert a list of numbers to an array; quantities in a list may each have their own unit."""
    return np.asarray(x) if type(x) in (list, tuple) and not holds_quantity(x) else x
