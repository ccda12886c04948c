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
import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .graph._graph import ZERO, Magnitude
from .numbers._measure import ANYWHERE, Spread, inside, is_spread, measure

GATHERED = 1 << 18  # entries of all arguments whose numbers travel when a plan is made: 1 MB
_FINITE = ANYWHERE._replace(finite=True)


def looked_at(leaves: Sequence[Any]) -> list[Any] | None:
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
            _keep(x, ZERO, True)
        elif x.is_fully_replicated:
            local = x.addressable_data(0)
            _keep(x, measure(local), inside(local, _FINITE))
        elif id(x) not in _seen:
            new.append(x)
    try:
        _look(new)
    except ValueError:  # they lie on different devices: JAX says so when the program is run
        return None
    return [Spread(x, *_seen[id(x)][1:]) if is_spread(x) else x for x in leaves]


# By the id of an array that was looked at: the same array is given to many calls. All processes
# find the same ones here, because an array that is given to a call is alive, and so is its entry.
_seen: dict[int, tuple[Any, Magnitude, bool]] = {}


def _keep(x: Any, magnitude: Magnitude, is_finite: bool) -> None:
    key = id(x)
    _seen[key] = weakref.ref(x, lambda _: _seen.pop(key, None)), magnitude, is_finite


def _look(arrays: Sequence[Any]) -> None:
    """Look at arrays, of which some may be the same, by one program."""
    arrays = list({id(x): x for x in arrays}.values())
    if not arrays:
        return
    words = np.asarray(_reduced(*arrays))
    for x in arrays:
        kind = _float_of(x.dtype)
        count = _WORDS[kind.itemsize]
        bits, (is_finite,), words = words[:count], words[count : count + 1], words[count + 1 :]
        if kind.itemsize == 2:
            bits = bits.astype(np.uint16)
        least, largest = bits.view(kind).astype(np.float64)
        magnitude = ZERO
        if 0.0 < least <= largest < math.inf:
            # The larger part of a complex number is up to half a bit below the absolute value.
            half = 0.5 if np.dtype(x.dtype).kind == "c" else 0.0
            magnitude = Magnitude(math.log2(least), math.log2(largest) + half, True)
        _keep(x, magnitude, bool(is_finite))


def numbers_of(x: Spread) -> Any:
    """All of an array, in every process."""
    if x.local is not None:
        return x.local
    if not _is_key(x.array):
        return multihost_utils.process_allgather(x.array, tiled=True)
    words = multihost_utils.process_allgather(jax.random.key_data(x.array), tiled=True)
    return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(x.array))


def known_numbers(arguments: Sequence[Any]) -> list[Any]:
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
        (plan.identity, plan.method, *plan.exponents[:2]),
        [sorted(nodes) for nodes in plan.exponents[2:]],
        (plan.is_estimate, plan.is_confirmed, plan.expected, plan.has_effects),
        [node.primitive for node in graph.walk()],
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
_WORDS = {2: 2, 4: 2, 8: 4}  # of 32 bits, for two numbers


def _float_of(dtype: Any) -> Any:
    """The dtype in which the magnitudes of an array are compared: of complex ones the parts'."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    wide = jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize > 1
    return dtype if wide else np.dtype(np.float32)


@jax.jit
def _reduced(*arrays: Any) -> Any:
    """Of each array the least and the largest finite nonzero size, as bits, and if all is finite.

    Bits, because XLA takes subnormal numbers for zeros when it compares them; in one array of
    words, because each result takes a transfer of its own.
    """
    return jnp.concatenate([_words(x) for ends in map(_ends, arrays) for x in ends])


def _words(x: Any) -> Any:
    if x.dtype == jnp.uint64:
        return jax.lax.bitcast_convert_type(x, jnp.uint32)
    return x.astype(jnp.uint32)[None]


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
