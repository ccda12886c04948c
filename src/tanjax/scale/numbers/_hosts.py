"""Arrays that several processes hold together, and their magnitudes.

Processes that run one program on many hosts must take the same decisions (`scale/_agreed.py`). So
no decision depends on the part that one process can see. A reduction over a whole argument
summarises it, and every process holds the result.

    x = jax.make_array_from_process_local_data(sharding, local)  # 1 here, 1e25 on another host
    [seen] = looked_at([x])
    seen.magnitude  # Magnitude(low=0.0, high=83.05, exact=True), in every process

Sharp edges. One program measures all arguments of a call, independent of later decisions. A plan
gathers the numbers of small arrays; of larger ones it knows only bounds. Python numbers, NumPy
arrays and arrays of one process must be the same in every process, as JAX requires. A process
without any of the devices cannot measure, and need not: it computes nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TypeAlias, TypeGuard, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.typing import ArrayLike

from ..graph._graph import ZERO, Magnitude
from ._extremes import ANYWHERE, Seen, inside_on_host, is_on_host, measure_on_host, seen_on_device

GATHERED = 1 << 18  # entries of all arguments whose numbers travel when a plan is made: 1 MB
_ASKED = ANYWHERE._replace(finite=True), ANYWHERE._replace(nonzero=True)


class Spread:
    """An array of several processes, as each of them knows it.

    **Fields:** `array`; `local`: all of it, if this process has a copy; `seen`: the facts about
    all of it; `aval`, `dtype`, `size`, `nbytes`: those of the array.
    """

    __slots__ = ("array", "aval", "dtype", "local", "nbytes", "seen", "size")

    def __init__(self, array: jax.Array, seen: Seen) -> None:
        self.array, self.aval, self.dtype = array, array.aval, array.dtype
        self.size, self.nbytes, self.seen = array.size, array.nbytes, seen
        self.local = array.addressable_data(0) if array.is_fully_replicated else None

    @property
    def is_finite(self) -> bool:
        """True if no process holds an inf or a nan of the array."""
        return self.seen.is_finite


# An argument of a function, or the known facts about it.
Argument: TypeAlias = ArrayLike | Spread | Magnitude | jax.ShapeDtypeStruct | None
T = TypeVar("T")


def is_spread(x: object) -> TypeGuard[jax.Array]:
    """True if an argument lies on devices of several processes."""
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return not x.is_fully_addressable


def looked_at(leaves: Sequence[T]) -> list[T | Spread] | None:
    """Return the arguments, with a `Spread` for each array of several processes.

    One program measures all of them. The result is None if this process has none of the devices,
    or if JAX cannot use these arrays in one program.
    """
    spread = [x for x in leaves if is_spread(x)]
    if not all(x.sharding.addressable_devices for x in spread):
        return None
    new = {}  # by id, because some arguments may be the same
    for x in spread:
        if _is_key(x):
            _keep(x, Seen(ZERO, True, True))
        elif x.is_fully_replicated:
            _keep(x, _of_copy(x.addressable_data(0)))
        elif id(x) not in _seen:
            new[id(x)] = x
    try:
        found = seen_on_device(*new.values()) if new else []
    except ValueError:  # they lie on different devices: JAX raises when the program runs
        return None
    for x, seen in zip(new.values(), found, strict=True):
        _keep(x, seen)
    return [Spread(x, _seen[id(x)][1]) if is_spread(x) else x for x in leaves]


# Measured arrays by id, because many calls get the same array. All processes find the same ones
# here, because an array that a call gets is alive, and so is its entry.
_seen: dict[int, tuple[weakref.ref[jax.Array], Seen]] = {}


def _keep(x: jax.Array, seen: Seen) -> None:
    key = id(x)
    _seen[key] = weakref.ref(x, lambda _: _seen.pop(key, None)), seen


def _of_copy(local: jax.Array) -> Seen:
    """Measure an array that this process holds."""
    if not is_on_host(local):
        return seen_on_device(local)[0]
    numbers = np.asarray(local)
    is_finite, is_nonzero = [inside_on_host(numbers, w) for w in _ASKED]
    return Seen(measure_on_host(numbers), is_finite, is_nonzero)


def numbers_of(x: Spread) -> jax.Array | np.ndarray:
    """Return all of an array, in every process."""
    if x.local is not None:
        return x.local
    if not _is_key(x.array):
        return multihost_utils.process_allgather(x.array, tiled=True)
    words = multihost_utils.process_allgather(jax.random.key_data(x.array), tiled=True)
    return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(x.array))


def known_numbers(arguments: Sequence[Argument]) -> Sequence[Argument]:
    """Return the arguments for a plan: numbers, or the magnitudes of large arrays.

    Abstract arrays and many random keys are unknown: None.
    """
    arguments = [None if isinstance(x, jax.ShapeDtypeStruct) else x for x in arguments]
    if not any(type(x) is Spread or is_spread(x) for x in arguments):
        return arguments
    given = looked_at(arguments)
    if given is None:
        return [None if is_spread(x) else x for x in arguments]
    left = GATHERED
    for i, x in enumerate(given):
        if type(x) is not Spread:
            continue
        travels = 0 if x.local is not None else x.size
        fits = travels <= left
        left -= travels if fits else 0
        given[i] = numbers_of(x) if fits else None if _is_key(x.array) else x.seen.magnitude
    return given


def _is_key(x: jax.Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.extended))
