"""Arrays of which each process holds only a part, and their magnitudes.

Processes that run one program on many hosts must take the same decisions (`scale/_agreed.py`). So
nothing is decided by what one process can see: each argument is summed up by a reduction over all
of it, whose result every process holds.

    x = jax.make_array_from_process_local_data(sharding, local)  # 1 here, 1e25 on another host
    [seen] = looked_at([x])
    seen.magnitude  # Magnitude(low=0.0, high=83.05, exact=True), in every process

Sharp edges. All arguments of a call are looked at by one program, whatever is decided afterwards.
The numbers of small arrays are gathered when a plan is made; of larger ones only bounds are known.
Python numbers, NumPy arrays and arrays of one process are taken to be the same in every process,
as JAX asks. A process without any of the devices cannot look, and need not: it computes nothing.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import TypeAlias, TypeGuard, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.typing import ArrayLike, DTypeLike

from tanjax._typing import DType

from ..graph._graph import ZERO, Magnitude
from ._extremes import (
    ANYWHERE,
    extremes,
    inside_on_device,
    inside_on_host,
    is_on_host,
    magnitude_of,
    measure_on_device,
)

GATHERED = 1 << 18  # entries of all arguments whose numbers travel when a plan is made: 1 MB
_ASKED = ANYWHERE._replace(finite=True), ANYWHERE._replace(nonzero=True)


class Spread:
    """An array of several processes, as each of them knows it.

    **Fields:** `array`; `local`: all of it, if this process has a copy; `magnitude`, `is_finite`,
    `is_nonzero`: of all of it; `aval`, `dtype`, `size`, `nbytes`: as of the array.
    """

    __slots__ = (
        "array", "aval", "dtype", "is_finite", "is_nonzero", "local", "magnitude", "nbytes", "size",
    )  # fmt: skip

    def __init__(
        self, array: jax.Array, magnitude: Magnitude, is_finite: bool, is_nonzero: bool
    ) -> None:
        self.array, self.aval, self.dtype = array, array.aval, array.dtype
        self.size, self.nbytes = array.size, array.nbytes
        self.magnitude, self.is_finite, self.is_nonzero = magnitude, is_finite, is_nonzero
        self.local = array.addressable_data(0) if array.is_fully_replicated else None


# An argument of a function, or what is known of one.
Argument: TypeAlias = ArrayLike | Spread | Magnitude | jax.ShapeDtypeStruct | None
T = TypeVar("T")


def is_spread(x: object) -> TypeGuard[jax.Array]:
    """Whether an argument lies on devices of several processes."""
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return not x.is_fully_addressable


def looked_at(leaves: Sequence[T]) -> list[T | Spread] | None:
    """The arguments, with a `Spread` for each array of several processes.

    One program looks at all of them. None if this process has none of the devices, or if JAX
    cannot have these arrays in one program.
    """
    spread = [x for x in leaves if is_spread(x)]
    if not all(x.sharding.addressable_devices for x in spread):
        return None
    new = []
    for x in spread:
        if _is_key(x):
            _keep(x, ZERO, True, True)
        elif x.is_fully_replicated:
            _keep(x, *_of_copy(x.addressable_data(0)))
        elif id(x) not in _seen:
            new.append(x)
    try:
        _look(new)
    except ValueError:  # they lie on different devices: JAX says so when the program is run
        return None
    return [Spread(x, *_seen[id(x)][1:]) if is_spread(x) else x for x in leaves]


# By the id of an array that was looked at: the same array is given to many calls. All processes
# find the same ones here, because an array that is given to a call is alive, and so is its entry.
_seen: dict[int, tuple[weakref.ref[jax.Array], Magnitude, bool, bool]] = {}


def _keep(x: jax.Array, magnitude: Magnitude, is_finite: bool, is_nonzero: bool) -> None:
    key = id(x)
    forget = lambda _: _seen.pop(key, None)
    _seen[key] = weakref.ref(x, forget), magnitude, is_finite, is_nonzero


def _of_copy(local: jax.Array) -> tuple[Magnitude, bool, bool]:
    """Of an array that this process holds: its magnitude, whether it is finite, and nonzero."""
    if not is_on_host(local):
        is_finite, is_nonzero = [inside_on_device(local, w) for w in _ASKED]
        return measure_on_device(local), is_finite, is_nonzero
    numbers = np.asarray(local)
    is_finite, is_nonzero = [inside_on_host(numbers, w) for w in _ASKED]
    return magnitude_of(*extremes(numbers)), is_finite, is_nonzero


def _look(arrays: Sequence[jax.Array]) -> None:
    """Look at arrays, of which some may be the same, by one program."""
    arrays = list({id(x): x for x in arrays}.values())
    if not arrays:
        return
    words = np.asarray(_reduced(*arrays))
    for x in arrays:
        kind = _float_of(x.dtype)
        count = _WORDS[kind.itemsize]
        bits, flags, words = words[:count], words[count : count + 2], words[count + 2 :]
        if kind.itemsize == 2:
            bits = bits.astype(np.uint16)
        least, largest = bits.view(kind).astype(np.float64)
        magnitude = ZERO
        if 0.0 < least <= largest < math.inf:
            # The larger part of a complex number is up to half a bit below the absolute value.
            half = 0.5 if np.dtype(x.dtype).kind == "c" else 0.0
            magnitude = Magnitude(math.log2(least), math.log2(largest) + half, True)
        _keep(x, magnitude, *map(bool, flags))


def numbers_of(x: Spread) -> jax.Array | np.ndarray:
    """All of an array, in every process."""
    if x.local is not None:
        return x.local
    if not _is_key(x.array):
        return multihost_utils.process_allgather(x.array, tiled=True)
    words = multihost_utils.process_allgather(jax.random.key_data(x.array), tiled=True)
    return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(x.array))


def known_numbers(arguments: Sequence[Argument]) -> Sequence[Argument]:
    """The arguments as they are planned with: numbers, or the magnitudes of what is too large.

    Of many random keys nothing is known, nor of what is abstract: None.
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
        given[i] = numbers_of(x) if fits else None if _is_key(x.array) else x.magnitude
    return given


def _is_key(x: jax.Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.extended))


_UNSIGNED = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}
_WORDS = {2: 2, 4: 2, 8: 4}  # of 32 bits, for two numbers


def _float_of(dtype: DTypeLike) -> DType:
    """The dtype in which the magnitudes of an array are compared: of complex ones the parts'."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    wide = jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize > 1
    return dtype if wide else np.dtype(np.float32)


@jax.jit
def _reduced(*arrays: jax.Array) -> jax.Array:
    """Of each array the least and the largest finite nonzero size, as bits, and two flags.

    Whether all is finite, and whether all is nonzero.

    Bits, because XLA takes subnormal numbers for zeros when it compares them; in one array of
    words, because each result takes a transfer of its own.
    """
    return jnp.concatenate([_words(x) for ends in map(_ends, arrays) for x in ends])


def _words(x: jax.Array) -> jax.Array:
    if x.dtype == jnp.uint64:
        return jax.lax.bitcast_convert_type(x, jnp.uint32)
    return x.astype(jnp.uint32)[None]


def _ends(x: jax.Array) -> tuple[jax.Array, ...]:
    kind = _float_of(x.dtype)
    unsigned = _UNSIGNED[kind.itemsize]
    is_complex = jnp.issubdtype(x.dtype, jnp.complexfloating)
    parts = [x.real, x.imag] if is_complex else [x.astype(kind)]
    bits = [jax.lax.bitcast_convert_type(p, unsigned) & unsigned(_mask(kind)) for p in parts]
    size = jnp.maximum(*bits) if is_complex else bits[0]
    infinite = unsigned(_bits_of_infinity(kind))
    counts = (size > 0) & (size < infinite)
    least = jnp.min(jnp.where(counts, size, infinite), initial=infinite)
    largest = jnp.max(jnp.where(counts, size, unsigned(0)), initial=unsigned(0))
    return least, largest, jnp.all(size < infinite), jnp.all(size > 0)


def _mask(kind: DType) -> int:
    """All bits but that of the sign."""
    return (1 << (8 * kind.itemsize - 1)) - 1  # type: ignore[no-any-return]


def _bits_of_infinity(kind: DType) -> int:
    return int(np.full(1, math.inf).astype(kind).view(f"u{kind.itemsize}")[0])
