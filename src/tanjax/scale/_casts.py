"""Watching JAX round constants: `1.112e-68 * k` is `0 * k` in float32 before there is a graph.

JAX casts a Python number to the dtype of its partner while it traces; NumPy does it, and says by a
floating-point flag that the number did not survive. While a trace is watched, these flags are
noted, with the user's line and the numbers that were cast.

    with Watch() as watch:
        closed = jax.make_jaxpr(f)(x)
    watch.places  # where something was crushed all the same

Sharp edges. Only what is traced in this thread while it is watched is seen; JAX remembers the
traces of helpers, see `_literals.trace`. What nothing is known of is `is_unknown`.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._graph import is_inexact

_JAX = str(Path(jax.__file__).parent)
_NOT_THE_USERS = (_JAX, str(Path(np.__file__).parent), str(Path(__file__).parent.parent))

_NUMBERS = (np.ndarray, np.floating, float, complex)

# What is known of constants that look crushed: None if they are what was written, otherwise the
# number that was, by the `id` of an array that is alive as long as the entry.
_known: dict[int, tuple[weakref.ref[Any], Any]] = {}


class Lost:
    """Stands for the number of a crushed constant of which nobody knows what it was."""


class Watch:
    """A context in which constants keep their numbers. `places`: where some did not."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self._arrays: list[Any] = []  # what JAX was casting there
        self._flags: Any = None

    def __enter__(self) -> Watch:
        self._flags = np.errstate(over="call", under="call", call=self._note)
        self._flags.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._flags.__exit__(*error)

    def _note(self, *_: Any) -> None:
        """NumPy raised a flag: it counts if JAX was casting, and not the user's own arithmetic."""
        frame: Any = sys._getframe(1)
        if not frame.f_code.co_filename.startswith(_JAX):
            return
        for value in frame.f_locals.values():
            parts = value if isinstance(value, tuple | list) else [value]
            self._arrays += [x for x in parts if isinstance(x, _NUMBERS)]
        while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            frame = frame.f_back
        if frame is not None:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            if place not in self.places:
                self.places.append(place)

    def recognise(self, constant: Any) -> None:
        """Learn what a constant was if JAX was seen to cast it; `Lost` if there are several.

        JAX remembers how it cast an array, so that a trace in float64 shows no more of it.
        """
        dtype, narrow = constant.dtype, np.asarray(constant)
        with np.errstate(all="ignore"):
            alike = [
                x
                for x in map(np.asarray, self._arrays)
                if x.shape == narrow.shape and (x.astype(dtype) == narrow).all()
            ]
        crushed = [x for x in alike if is_crushed(x, dtype)]
        if crushed:
            is_one = all((x == crushed[0]).all() for x in alike)
            learn(constant, crushed[0] if is_one else Lost)


def is_crushed(number: Any, dtype: Any) -> bool:
    """Whether a cast makes 0, inf or an inexact subnormal of a number."""
    wide = np.asarray(number)
    if not is_inexact(wide.dtype):
        wide = wide.astype(np.float64)
    with np.errstate(all="ignore"):
        narrow = wide.astype(dtype).astype(np.complex128)
        wide = wide.astype(np.complex128)
    suspect = looks_crushed(narrow, dtype)
    return bool((suspect & (narrow != wide) & np.isfinite(wide)).any())


def looks_crushed(array: Any, dtype: Any) -> Any:
    """Which numbers are 0, infinite or subnormal in a dtype; of complex ones, as a whole."""
    tiny = float(jnp.finfo(dtype).smallest_normal)
    whole = np.asarray(array)
    if whole.dtype.kind not in "fc":  # bfloat16
        whole = whole.astype(np.float32 if is_inexact(whole.dtype) else np.float64)
    small = np.abs(whole.real) < tiny
    if whole.dtype.kind == "c":
        small &= np.abs(whole.imag) < tiny
    return small | np.isinf(whole)


def learn(array: Any, wide: Any) -> None:
    """Remember what a constant that looks crushed was: `None` if it was just that."""
    key = id(array)
    with contextlib.suppress(TypeError):  # what cannot be remembered is looked at again
        _known[key] = weakref.ref(array, lambda _: _known.pop(key, None)), wide


def is_unknown(array: Any) -> bool:
    entry = _known.get(id(array))
    return entry is None or entry[0]() is not array


def known_as(array: Any) -> Any:
    """The number that a constant was before it was crushed, None if there is none."""
    entry = _known.get(id(array))
    return entry[1] if entry is not None and entry[0]() is array else None
