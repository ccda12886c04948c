"""The place where a tensor reads and writes: a memory of its own, or a part of another's.

A torch tensor shares memory with its views, and all of them see an in-place operation on one. JAX's
arrays never change, so the memory is a `Root`, which holds an array and can be given another one. A
`View` is two functions on its parent's array: `get` reads the part, `put` gives the parent with the
part replaced. Chains of views, and a base that changed after a view was taken, need nothing more.

Sharp edges. A memory belongs to the trace of JAX that made it. Written in another one, it would
keep a tracer that means nothing outside, so this raises. Read in another one, a view is computed
again and not kept.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from torch._ops import OpOverload

from tanjax._compat import get_opaque_trace_state
from tanjax._errors import AliasError, message
from tanjax.quantities import stored_of, unitful
from tanjax.units import Unit
from tanjax_torch._typing import Change, Numbers, Payload
from tanjax_torch.arguments._static import thawed
from tanjax_torch.tensor._plain import TensorError
from tanjax_torch.tensor._saving import Saved, loaded, saved

_WRITING = threading.RLock()  # two threads may write two parts of one memory


class Root:
    """A memory: the payload of a tensor and of all its views.

    `is_point`: true if it is, or was, that of a parameter, which moves in stored coordinates.
    """

    __slots__ = ("_made", "_value", "is_point", "version")

    def __init__(self, value: Payload) -> None:
        self._value, self.version, self.is_point = value, 0, False
        self._made = get_opaque_trace_state()

    depth = 0  # of the chain of views
    numbers = None

    @property
    def root(self) -> Root:
        return self

    @property
    def storage(self) -> Root:
        """The place whose array, row by row, is torch's storage."""
        return self

    def __reduce__(self) -> tuple[Callable[[Saved], Root], tuple[Saved]]:
        return memory_of, (saved(self._value),)

    def __deepcopy__(self, memo: object) -> Root:
        return Root(self._value)  # arrays never change: no numbers are copied

    def is_here(self) -> bool:
        """True if the memory was made in the trace that runs now."""
        return bool(self._made == get_opaque_trace_state())

    def read(self) -> Payload:
        return self._value

    def write(self, value: Payload) -> None:
        if not self.is_here():
            raise TensorError(
                message(
                    "a tensor made outside of a trace of JAX is written inside of it.",
                    f"value: {value}",
                    hint="return the new value, or make the tensor inside: `t = t.clone()`.",
                )
            )
        self._value = value
        self.version += 1


def memory_of(numbers: Saved) -> Root:
    """Restore a memory from its pickled form."""
    return Root(loaded(numbers))


class View:
    """A part of a parent's payload: read by `get`, written by `put`.

    `storage`: torch's strides and offset of this view count in the array of this place, row by row;
    `None` if the view changes numbers. `numbers`: for a quantity, the place of its numbers, which
    has the `storage`.
    """

    __slots__ = ("_get", "_kept", "_parent", "_put", "depth", "numbers", "root", "storage")

    def __init__(
        self,
        parent: Place,
        get: Change,
        put: Callable[[Payload, Payload], Payload],
        storage: Place | None = None,
        value: Payload | None = None,
    ) -> None:
        self._parent, self._get, self._put, self.storage = parent, get, put, storage
        self.root: Root = parent.root
        self.depth = 0
        self.numbers: Place | None = None
        self._kept = (-1 if value is None else self.root.version, value)

    def read(self) -> Payload:
        version, value = self._kept
        if version != self.root.version:
            version = self.root.version
            value = self._get(self._parent.read())
            if self.root.is_here():
                self._kept = version, value
        return value

    def write(self, value: Payload) -> None:
        with _WRITING:
            self._parent.write(self._put(self._parent.read(), value))
            self._kept = self.root.version, value


Place = Root | View


def numbers_of(quantity: Place) -> Place:
    """The place of the numbers of a dense quantity."""
    if quantity.numbers is not None:
        return quantity.numbers
    numbers = View(quantity, stored_of, lambda base, part: unitful(part, base.label))
    if isinstance(quantity, Root):
        numbers.storage = numbers
    return numbers


def labelled(numbers: Place, label: Unit) -> View:
    """The place of a quantity whose numbers are at another place."""
    quantity = View(numbers, lambda x: unitful(x, label), lambda base, part: part.stored)
    quantity.numbers = numbers
    return quantity


class Geometry(NamedTuple):
    """Sizes and strides as torch's own kernels give them."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    @property
    def extent(self) -> int:
        """The number of entries that a storage must have."""
        if 0 in self.size:
            return 0
        return (
            self.offset + 1 + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))
        )


@functools.lru_cache(8192)
def geometry(op: OpOverload, base: Geometry, args: Hashable, kwargs: Hashable) -> Any:
    """The `Geometry` of a view, or of several; torch computes it once, and raises its errors."""
    with torch.utils._python_dispatch._disable_current_modes():
        memory = torch.empty(max(base.extent, base.offset), dtype=base.dtype, device="meta")
        whole = memory.as_strided(base.size, base.stride, base.offset)
        view = op(whole, *thawed(args), **dict(thawed(kwargs)))
    several = isinstance(view, (list, tuple))
    found = tuple(
        Geometry(tuple(v.shape), v.stride(), v.storage_offset(), v.dtype)
        for v in (view if several else (view,))
    )
    return found if several else found[0]


def row_by_row(size: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous array, as torch counts them."""
    strides = [1]
    for n in reversed(size[1:]):
        strides.append(strides[-1] * max(n, 1))
    return tuple(reversed(strides)) if size else ()


def strided(storage: Place, like: Geometry, value: jax.Array | None = None) -> View:
    """The part of a storage with these sizes, strides and offset."""
    where = np.array([like.offset, *like.stride], np.int32)
    get = reading(like)
    put = functools.partial(_put_strided, like, where)
    return View(storage, get, put, storage, value)


def reading(like: Geometry) -> Change:
    """Return a function that reads the entries of a view from the array of its storage."""
    where = np.array([like.offset, *like.stride], np.int32)
    gathered = functools.partial(gather, where=where, size=like.size)
    # Axes of more than one entry, the outermost in memory first.
    axes = [axis for axis, s in enumerate(like.stride) if s and like.size[axis] > 1]
    order = sorted(axes, key=lambda axis: -like.stride[axis])
    block = tuple([like.size[axis] for axis in order])
    if 0 in like.size or tuple([like.stride[axis] for axis in order]) != row_by_row(block):
        return gathered
    count = int(np.prod(block))

    def read(base: jax.Array) -> jax.Array:
        """Read a block with permuted or repeated axes by operations that XLA finds in a product.

        Eager calls gather, which compiles once for a size.
        """
        if not isinstance(base, jax.core.Tracer):
            return gathered(base)
        part = base.ravel()[like.offset : like.offset + count].reshape(block)
        return lax.broadcast_in_dim(part.transpose(list(map(order.index, axes))), like.size, axes)

    return read


def _put_strided(
    like: Geometry, where: Numbers | jax.Array, base: jax.Array, part: jax.Array
) -> jax.Array:
    check_distinct(like)
    return scatter(base, part, where, like.size)


def put_by_places(like: Geometry, base: jax.Array, part: jax.Array) -> jax.Array:
    """Return the whole with a part replaced, at the places of `like`."""
    return _put_strided(like, np.array([like.offset, *like.stride], np.int32), base, part)


def check_distinct(like: Geometry) -> None:
    """Refuse a write if entries share a place. **Raises:** `AliasError`."""
    if not is_distinct(like):
        raise AliasError(
            message(
                "cannot write in place: several entries of this view are one of its base.",
                f"sizes {like.size} with strides {like.stride}",
                hint="clone the expanded tensor before the write.",
            )
        )


@functools.lru_cache(1024)
def is_distinct(like: Geometry) -> bool:
    """True if each entry has a place of its own."""
    steps = sorted((s, n) for n, s in zip(like.size, like.stride, strict=True) if n > 1)
    reach = 0
    for stride, n in steps:
        if stride <= reach:
            break
        reach += stride * (n - 1)
    else:
        return True
    if 0 in like.size or steps[0][0] == 0:
        return 0 in like.size
    places = functools.reduce(np.add.outer, [np.arange(n) * s for s, n in steps])
    return bool(np.unique(places).size == places.size)


def _index(where: Numbers | jax.Array, size: tuple[int, ...]) -> jax.Array:
    index = where[0]
    for axis in range(len(size)):
        index = index + where[1 + axis] * lax.broadcasted_iota(where.dtype, size, axis)
    return jnp.asarray(index)


@functools.partial(jax.jit, static_argnames=("size",), inline=True)
def gather(base: jax.Array, where: Numbers | jax.Array, size: tuple[int, ...]) -> jax.Array:
    """The part of an array, row by row, with `size` and, in `where`, an offset and strides."""
    return base.ravel().at[_index(where, size)].get(mode="promise_in_bounds")


@functools.partial(jax.jit, static_argnames=("size",), inline=True)
def scatter(
    base: jax.Array, part: jax.Array, where: Numbers | jax.Array, size: tuple[int, ...]
) -> jax.Array:
    """The whole, with a part of it replaced."""
    index = _index(where, size)
    flat = (
        base.ravel()
        .at[index]
        .set(part.astype(base.dtype), mode="promise_in_bounds", unique_indices=True)
    )
    return flat.reshape(base.shape)
