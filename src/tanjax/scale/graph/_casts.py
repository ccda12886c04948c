"""Watch JAX round constants: `1.112e-68 * k` is `0 * k` in float32 before there is a graph.

While JAX traces, it casts a Python number to the dtype of its partner, with NumPy. A `Watch`
recognises a function of JAX that casts by two signs. The first is NumPy's floating-point flags. The
second is the return of `np.asarray` or `np.array`, which lose a Python number without a flag;
Python reports it (`_events.py`). The watch replaces nothing of JAX. When the casting function
returns, its local variables hold both the new array and the original number. The watch remembers
the two together.

    with Watch() as watch:
        closed = jax.make_jaxpr(f)(x)
    known_as(closed.eqns[0].invars[0].val)  # 1.112e-68
    watch.places  # the user's lines where a flag was raised

Sharp edges. A watch sees only the traces of its own thread. JAX caches the traces of helpers, see
`_literals.trace`. `is_unknown` is true of a constant that no watch has seen. Before Python 3.12 a
profiler in C (`cProfile`) leaves no room for ours: `is_blind`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from tanjax._typing import AnyArray, DType

from ._events import Events, listen
from ._graph import is_inexact

_JAX = str(Path(jax.__file__).parent)
_NOT_THE_USERS = (_JAX, str(Path(np.__file__).parent), str(Path(__file__).parent.parent))

_NUMBERS = (np.ndarray, np.floating, float, complex, int)
Number: TypeAlias = np.ndarray | np.floating | float | complex | int
Locals: TypeAlias = list[object]  # the values of a frame's local variables

# The original numbers of constants that look crushed, by the `id` of an array that lives as long as
# the entry. None: the constant equals the written number.
_known: dict[int, tuple[weakref.ref[AnyArray], Written | None]] = {}


class Lost:
    """Stands for the original number of a crushed constant if that number is unknown."""


# The original number of a constant, as written; or the class `Lost`.
Written: TypeAlias = AnyArray


class Watch:
    """A context that observes how JAX casts numbers.

    `places`: the user's lines where a number overflowed or underflowed; `is_blind`: the watch sees
    only flags, because a profiler that is not written in Python has the place of ours.

    **Arguments:** `thorough`: note the arrays given to any function of JAX, not only to functions
    that cast. JAX caches the cast of a NumPy array with the array, and returns it again.
    `flags_only`: see only NumPy's flags, which costs nothing.
    """

    def __init__(self, *, thorough: bool = False, flags_only: bool = False) -> None:
        self.is_blind, self._is_thorough = flags_only, thorough
        self.places: list[str] = []
        # Frames by `id`, and the values of their local variables when arrays were made.
        self._casting: dict[int, tuple[FrameType, list[Locals]]] = {}
        self._exact: set[int] = set()  # arrays that were made of arrays as they are
        self._given: dict[int, np.ndarray | np.floating] = {}  # the user's arrays, by `id`
        self._flags: Any = None
        self._events: Events | None = None

    def __enter__(self) -> Watch:
        self._flags = np.errstate(over="call", under="call", call=self._note)
        self._flags.__enter__()
        if not self.is_blind:
            self._events = listen(self._made, self._left, everything=self._is_thorough)
            self.is_blind = self._events.is_deaf
        return self

    def __exit__(self, *error: object) -> None:
        if self._events is not None:
            self._events.stop()
        self._casting.clear()
        self._flags.__exit__(*error)

    def _note(self, *_: object) -> None:
        """Handle a flag of NumPy: it counts if JAX was casting, not in the user's arithmetic."""
        frame: Any = sys._getframe(1)
        if not frame.f_code.co_filename.startswith(_JAX):
            return
        self._seen(frame)
        while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            frame = frame.f_back
        if frame is not None:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            if place not in self.places:
                self.places.append(place)

    def _made(self, frame: FrameType) -> None:
        """Handle an array that NumPy made for a function."""
        if frame.f_code.co_filename.startswith(_JAX):
            with contextlib.suppress(Exception):  # locals that cannot be read stay unknown
                for caller, seen in [*self._casting.values()]:  # these may pass their arrays on
                    if caller is not frame:
                        self._settle(seen, [*caller.f_locals.values()])
                self._seen(frame)

    def _left(self, frame: FrameType, value: object) -> None:
        """Handle the return of a function."""
        _, seen = self._casting.pop(id(frame), (None, []))
        if seen or self._is_thorough:
            with contextlib.suppress(Exception):
                values = [*frame.f_locals.values(), value]
                self._settle(seen, values)
                if self._is_thorough and frame.f_code.co_filename.startswith(_JAX):
                    self._given |= {id(x): x for x in _parts(values) if _is_numpys(x)}

    def _seen(self, frame: FrameType) -> None:
        """Keep the local variables of a casting frame until it returns."""
        if self._events is not None and not self.is_blind:
            found = [[*x] if type(x) is list else x for x in frame.f_locals.values()]
            self._casting.setdefault(id(frame), (frame, []))[1].append(found)
            self._events.follow(frame)

    def _settle(self, seen: list[Locals], values: Locals) -> None:
        """Learn the original numbers of the arrays that a function of JAX made.

        An array that the function received may itself be the cast of a number. Therefore a constant
        that looks exact here is checked again when the caller returns.
        """
        suspects = [x for x in _parts(values) if seen and _may_be_crushed(x)]
        if not suspects:
            return
        numbers = [x for found in seen for value in found for x in _numbers_in(value)]
        before = {id(_owner(x)) for x in numbers}
        for made in suspects:
            if id(_owner(made)) in before or not looks_crushed(made, made.dtype).any():
                continue
            if is_unknown(made) or (id(_owner(made)) in self._exact and known_as(made) is None):
                wide = _origin(made, numbers)
                if wide is not None:
                    learn(made, wide if is_crushed(wide, made.dtype) else None)
                    self._exact.add(id(_owner(made)))

    def recognise(self, constant: AnyArray) -> None:
        """Learn the numbers of an array that JAX did not make now: the user's, or a cached cast."""
        given = self._given.values()
        if id(_owner(constant)) in self._given:
            learn(constant, None)
        elif isinstance(constant, np.ndarray) and (alike := _alike(constant, list(given))):
            is_one = all((x == alike[0]).all() for x in alike)
            crushed = is_crushed(alike[0], constant.dtype)
            learn(constant, (alike[0] if crushed else None) if is_one else Lost)


def _may_be_crushed(x: object) -> TypeGuard[np.ndarray]:
    """True if an array may hold crushed numbers: a fast check that never misses one.

    Nearly all arrays of a trace are scalars, for which it takes 0.3 us.
    """
    if not isinstance(x, np.ndarray):
        return False
    if x.ndim == 0 and x.dtype.kind == "f":
        return not _smallest_normal(x.dtype) <= abs(x.item()) < math.inf
    return bool(is_inexact(x.dtype))


@functools.cache
def _smallest_normal(dtype: DType) -> float:
    return float(jnp.finfo(dtype).smallest_normal)


def _parts(values: Locals) -> Locals:
    return [x for v in values for x in (v if isinstance(v, tuple | list) else [v])]


def _is_numpys(x: object) -> TypeGuard[np.ndarray | np.floating]:
    """True if JAX received the array: JAX's own arrays are of a subclass."""
    return type(x) is np.ndarray or isinstance(x, np.floating)


def _numbers_in(value: object) -> list[Number]:
    """Return the numbers that a local variable may give to a cast: itself, or a list's entries."""
    if isinstance(value, tuple | list):
        whole = [np.asarray(value)] if value and _is_numbers(value) else []
        return whole + [x for x in value if isinstance(x, _NUMBERS)]
    return [value] if isinstance(value, _NUMBERS) and type(value) is not bool else []


def _is_numbers(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_numbers, value))
    return isinstance(value, np.number | float | complex | int)


def _origin(made: np.ndarray, numbers: list[Number]) -> np.ndarray | None:
    """Return the one number that a cast turned into an array; None if several or none match."""
    alike = _alike(made, [x for x in numbers if not isinstance(x, int)])
    alike = alike or _alike(made, [x for x in numbers if isinstance(x, int)])
    return alike[0] if alike and all((x == alike[0]).all() for x in alike) else None


def _alike(made: np.ndarray, numbers: Sequence[Number]) -> list[np.ndarray]:
    """Return the numbers, as they were written, that a cast turns into an array."""
    narrow, found = np.asarray(made), []
    for x in numbers:
        number = np.asarray(x if known_as(x) is None else known_as(x))
        if number.shape != narrow.shape or number.dtype.kind in "OUSM":
            continue
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # casts from complex to real warn
            is_alike = (number.astype(made.dtype) == narrow).all()
        if is_alike and _is_a_remnant(x):
            return []
        if is_alike:
            found.append(number)
    return found


def _is_a_remnant(x: AnyArray) -> bool:
    """True if JAX may have rounded the array in a trace without a watch."""
    is_jaxs = isinstance(x, np.ndarray) and type(x) is not np.ndarray
    is_inexact_jaxs = is_jaxs and is_inexact(x.dtype)
    return is_inexact_jaxs and is_unknown(x) and bool(looks_crushed(x, x.dtype).any())


def is_crushed(number: AnyArray, dtype: DType) -> bool:
    """True if a cast turns a number into 0, inf or an inexact subnormal."""
    wide = np.asarray(number)
    if not is_inexact(wide.dtype):
        wide = wide.astype(np.float64)
    with np.errstate(all="ignore"):
        narrow = wide.astype(dtype).astype(np.complex128)
        wide = wide.astype(np.complex128)
    suspect = looks_crushed(narrow, dtype)
    return bool((suspect & (narrow != wide) & np.isfinite(wide)).any())


def looks_crushed(array: AnyArray, dtype: DType) -> np.ndarray:
    """Return the mask of numbers that are 0, infinite or subnormal in a dtype.

    A complex number is judged as a whole.
    """
    tiny = _smallest_normal(dtype)
    whole = np.asarray(array)
    if whole.dtype.kind not in "fc":  # bfloat16
        whole = whole.astype(np.float32 if is_inexact(whole.dtype) else np.float64)
    small = np.abs(whole.real) < tiny
    if whole.dtype.kind == "c":
        small &= np.abs(whole.imag) < tiny
    return small | np.isinf(whole)


def learn(array: AnyArray, wide: Written | None) -> None:
    """Remember the original number of a constant that looks crushed; `None`: it is unchanged."""
    array = _owner(array)
    key = id(array)
    with contextlib.suppress(TypeError):  # without a weak reference it is checked again
        _known[key] = weakref.ref(array, lambda _: _known.pop(key, None)), wide


def is_unknown(array: AnyArray) -> bool:
    array = _owner(array)
    entry = _known.get(id(array))
    return entry is None or entry[0]() is not array


def known_as(array: AnyArray) -> Written | None:
    """Return the number that a cast crushed to this constant; None if there is none."""
    array = _owner(array)
    entry = _known.get(id(array))
    return entry[1] if entry is not None and entry[0]() is array else None


def _owner(array: AnyArray) -> AnyArray:
    """Return the array that owns the numbers: JAX wraps arrays of NumPy as views of them."""
    base = getattr(array, "base", None)
    same = isinstance(base, np.ndarray) and (base.shape, base.dtype) == (array.shape, array.dtype)
    return base if same else array
