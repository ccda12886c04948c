"""Watching JAX round constants: `1.112e-68 * k` is `0 * k` in float32 before there is a graph.

JAX casts a Python number to the dtype of its partner while it traces. While a trace is watched, a
cast that would crush its number (to 0, inf or a subnormal) is not done at once: it stays in the
jaxpr as an equation `convert_element_type 1.112e-68`, which any compiler turns into the same 0, and
from which the scale graph reads the number as it was written. Casts that NumPy does on its own (of
arrays and NumPy scalars) are noticed by its floating-point flags.

    with Watch() as watch:
        closed = jax.make_jaxpr(f)(x)
    watch.places  # where something was crushed all the same

Sharp edges. Only what is traced in this thread while it is watched is kept; JAX remembers the
traces of helpers, see `_literals.trace`. What nothing is known of is `is_unknown`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import _compat

from ._graph import is_inexact

_JAX = str(Path(jax.__file__).parent)
_NOT_THE_USERS = (_JAX, str(Path(np.__file__).parent), str(Path(__file__).parent.parent))

_local = threading.local()
_lock = threading.Lock()
_open = 0  # watches of all threads
_restore: Callable[[], None] = lambda: None

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
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Watch:
        self._stack.enter_context(_watching())
        self._stack.enter_context(np.errstate(over="call", under="call", call=self._note))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def _note(self, *_: Any) -> None:
        """NumPy raised a flag: it counts if JAX was casting, and not the user's own arithmetic."""
        frame: Any = sys._getframe(1)
        if not frame.f_code.co_filename.startswith(_JAX):
            return
        for value in frame.f_locals.values():
            parts = value if isinstance(value, tuple | list) else [value]
            self._arrays += [x for x in parts if isinstance(x, np.ndarray | np.floating)]
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


@contextlib.contextmanager
def _watching() -> Iterator[None]:
    global _open, _restore
    with _lock:
        if not _open:
            _restore = _compat.replace_casts(_fold, _cast)
        _open += 1
    _local.depth = getattr(_local, "depth", 0) + 1
    try:
        yield
    finally:
        _local.depth -= 1
        with _lock:
            _open -= 1
            if not _open:
                _restore()


def _fold(original: Any, consts: Any, params: Any, out_avals: Any) -> Any:
    """JAX's rule that casts scalar constants; `None`: the cast stays an equation."""
    if not getattr(_local, "depth", 0) or not is_inexact(params["new_dtype"]):
        return original(consts, params, out_avals)
    if _is_kept(consts[0], params["new_dtype"]):
        return None
    out = original(consts, params, out_avals)
    if out is not None and isinstance(consts[0], int | float | complex):
        _note_exact(out[0], consts[0])
    return out


def _cast(convert: Any, stage: Any, operand: Any, dtype: Any) -> Any:
    """JAX's function that casts anything to a dtype: `convert` of one argument."""
    watched = getattr(_local, "depth", 0) and type(operand) in (int, float, complex)
    if not watched or not is_inexact(dtype):
        return convert(operand)
    if _is_kept(operand, dtype):
        staged = stage(operand)
        if isinstance(staged, jax.core.Tracer):
            return convert(staged)
    out = convert(operand)
    _note_exact(getattr(getattr(out, "val", None), "val", None), operand)
    return out


def _is_kept(number: Any, dtype: Any) -> bool:
    """Whether a cast crushes a number that would survive in the jaxpr as it is."""
    if np.ndim(number) or isinstance(number, int | np.integer | np.bool_):
        return False
    return bool(is_crushed(number, dtype))


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


def _note_exact(array: Any, number: Any) -> None:
    """Learn that a constant that looks crushed is what was written, if it is."""
    is_suspect = isinstance(array, np.ndarray) and looks_crushed(array, array.dtype).any()
    if is_suspect and not is_crushed(number, array.dtype):
        learn(array, None)


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
