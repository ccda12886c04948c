"""Arrays of which each process holds only a part: their magnitudes, and agreement about plans.

Processes that run one program on many hosts must take the same decisions: if two of them run
different programs, each waits in a collective for the other, for ever. So nothing is decided by
what one process can see. Each argument is summed up by a reduction over all of it, whose result
every process holds; and before a plan is used, the processes compare it.

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
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ._graph import ZERO, Magnitude

GATHERED = 1 << 18  # entries of all arguments whose numbers travel when a plan is made: 1 MB


class Spread:
    """An array that no process holds as a whole, and what all of them know of it.

    **Fields:** `array`; `magnitude`, `is_finite`: of all of it; `aval`, `dtype`, `shape`, `size`,
    `nbytes`: as of the array.
    """

    __slots__ = ("_numbers", "array", "aval", "dtype", "is_finite", "magnitude")

    def __init__(self, array: Any, magnitude: Magnitude, is_finite: bool) -> None:
        self.array, self.aval, self.dtype = array, array.aval, array.dtype
        self.magnitude, self.is_finite = magnitude, is_finite
        self._numbers: Any = array.addressable_data(0) if array.is_fully_replicated else None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        return self.array.size  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        return self.array.nbytes  # type: ignore[no-any-return]

    @property
    def travels(self) -> int:
        """How many entries have to travel before the numbers are here."""
        return 0 if self._numbers is not None else self.size

    def numbers(self) -> Any:
        """All of the array, in every process. None of random keys, which cannot travel."""
        if self._numbers is None and not _is_key(self.array):
            self._numbers = multihost_utils.process_allgather(self.array, tiled=True)
        return self._numbers


def is_spread(x: Any) -> bool:
    """Whether an argument lies on devices of several processes."""
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return not x.is_fully_addressable


def looked_at(leaves: Sequence[Any]) -> list[Any] | None:
    """The arguments, with a `Spread` for each array of several processes.

    One program looks at all of them. None if this process has none of the devices, or if JAX
    cannot have these arrays in one program.
    """
    spread = [x for x in leaves if is_spread(x)]
    if not all(x.sharding.addressable_devices for x in spread):
        return None
    known = [x for x in spread if not _is_key(x)]
    try:
        found = iter(_reduced(*known) if known else ())
    except ValueError:  # they lie on different devices: JAX says so when the program is run
        return None
    return [
        x if not is_spread(x) else _summary(x, None if _is_key(x) else next(found)) for x in leaves
    ]


def known_numbers(arguments: Sequence[Any]) -> list[Any]:
    """The arguments as they are planned with: numbers, or the magnitudes of what is too large.

    Of a key whose parts are elsewhere nothing is known: None.
    """
    if not any(type(x) is Spread or is_spread(x) for x in arguments):
        return list(arguments)
    given = looked_at(arguments)
    if given is None:
        return [None if is_spread(x) else x for x in arguments]
    left = GATHERED
    for i, x in enumerate(given):
        if type(x) is not Spread:
            continue
        fits = x.travels <= left
        left -= x.travels if fits else 0
        given[i] = x.numbers() if fits or _is_key(x.array) else x.magnitude
    return given


def agreed(ask: Callable[..., Any], leaves: Sequence[Any]) -> Any:
    """A plan that all processes have made alike.

    **Arguments:** `ask`: makes a plan, given a `time_limit`. The search for exponents ends when its
    time is up, so that two processes may find different ones: then no time is given.
    **Raises:** what `ask` raises, in all processes; `RuntimeError` if they cannot agree.
    """
    array = next(x.array for x in leaves if type(x) is Spread)
    for limits in ({}, {"time_limit": 0.0}):
        plan: Any = None
        failure: Exception | None = None
        try:
            plan = ask(**limits)
        except Exception as error:  # first the others have to know, or they wait for this one
            failure = error
        if _is_common(0 if plan is None else _digest(plan), array.sharding):
            if failure is not None:
                raise failure
            return plan
    raise RuntimeError("the processes made different plans.")


def _digest(plan: Any) -> int:
    """A number that two plans share if they are the same program, used in the same way."""
    graph = plan.graph
    what = (
        (plan.identity, plan.method, plan.exponents),
        (plan.is_estimate, plan.is_confirmed, plan.expects_finite, plan.has_effects),
        [(node.primitive, node.guarded) for node in graph.walk()],
        [value.restored for value in graph.values],
    )
    return 1 + zlib.crc32(repr(what).encode()) % (2**31 - 1)


def _is_common(number: int, sharding: Any) -> bool:
    """Whether all processes that hold a part of an array come with the same number."""
    devices = sorted(sharding.device_set, key=lambda d: d.id)
    each = NamedSharding(Mesh(np.array(devices), ("all",)), PartitionSpec("all"))
    mine = np.full(1, number, np.int32)
    numbers = jax.make_array_from_callback((len(devices),), each, lambda _: mine)
    return bool(_all_equal(numbers))


@jax.jit
def _all_equal(numbers: jax.Array) -> jax.Array:
    return jnp.max(numbers) == jnp.min(numbers)


def _is_key(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.extended))


_UNSIGNED = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


def _float_of(dtype: Any) -> Any:
    """The dtype in which the magnitudes of an array are compared: of complex ones the parts'."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    wide = jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize > 1
    return dtype if wide else np.dtype(np.float32)


@jax.jit
def _reduced(*arrays: Any) -> list[tuple[Any, Any, Any]]:
    """Of each array the least and the largest finite nonzero size, as bits, and if all is finite.

    Bits, because XLA takes subnormal numbers for zeros when it compares them.
    """
    return [_ends(x) for x in arrays]


def _ends(x: Any) -> tuple[Any, Any, Any]:
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
    return least, largest, jnp.all(size < infinite)


def _mask(kind: Any) -> int:
    """All bits but that of the sign."""
    return (1 << (8 * kind.itemsize - 1)) - 1  # type: ignore[no-any-return]


def _bits_of_infinity(kind: Any) -> int:
    return int(np.full(1, math.inf).astype(kind).view(f"u{kind.itemsize}")[0])


def _summary(x: Any, found: Any) -> Spread:
    if found is None:
        return Spread(x, ZERO, True)
    ends = np.array([np.asarray(end) for end in found[:2]])
    least, largest = ends.view(_float_of(x.dtype)).astype(np.float64)
    is_finite = bool(found[2])
    if not 0.0 < least <= largest < math.inf:
        return Spread(x, ZERO, is_finite)
    # The larger part of a complex number is up to half a bit below the absolute value.
    half = 0.5 if np.dtype(x.dtype).kind == "c" else 0.0
    return Spread(x, Magnitude(math.log2(least), math.log2(largest) + half, True), is_finite)
