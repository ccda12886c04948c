"""Where a tensor reads and writes: a memory of its own, or a part of another's.

A torch tensor shares memory with its views, and an in-place operation on one is seen by all. JAX's
arrays never change, so the memory is a `Root`, which holds an array and can be given another one. A
`View` is two functions on its parent's array: `get` reads the part, `put` gives the parent with the
part replaced. Chains of views, and a base that changed after a view was taken, need nothing more.

`get` is the view operation itself. `put` is made from it: applied to the numbers of the places it
says where each entry came from, whatever the operation was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tanjax._errors import AliasError, message

from ._static import thawed


class Root:
    """A memory: the payload of a tensor and of all its views."""

    __slots__ = ("_value", "fixed", "version")

    def __init__(self, value: Any, fixed: str = "") -> None:
        self._value, self.version, self.fixed = value, 0, fixed

    @property
    def root(self) -> Root:
        """Itself: where a chain of views ends."""
        return self

    def read(self) -> Any:
        return self._value

    def write(self, value: Any) -> None:
        if self.fixed:
            raise AliasError(message(f"cannot write in place: {self.fixed}", hint="clone first."))
        self._value = value
        self.version += 1


class View:
    """A part of a parent's payload: read by `get`, written by `put`."""

    __slots__ = ("_get", "_parent", "_put", "_seen", "_value", "root")

    def __init__(
        self,
        parent: Root | View,
        get: Callable[[Any], Any],
        put: Callable[[Any, Any], Any],
        value: Any,
    ) -> None:
        self._parent, self._get, self._put, self._value = parent, get, put, value
        self.root: Root = parent.root
        self._seen = self.root.version

    def read(self) -> Any:
        if self._seen != self.root.version:
            self._value = self._get(self._parent.read())
            self._seen = self.root.version
        return self._value

    def write(self, value: Any) -> None:
        self._parent.write(self._put(self._parent.read(), value))
        self._value, self._seen = value, self.root.version


Place = Root | View


class Geometry(NamedTuple):
    """Sizes and strides as torch's own kernels give them."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype


@functools.lru_cache(8192)
def geometry(op: Any, base: Geometry, args: Any, kwargs: Any) -> Geometry | tuple[Geometry, ...]:
    """Sizes and strides of a view, asked of torch once; torch's own errors for bad arguments."""
    extent = base.offset + 1 + sum((n - 1) * s for n, s in zip(base.size, base.stride, strict=True))
    with torch.utils._python_dispatch._disable_current_modes():
        memory = torch.empty(max(extent, 0), dtype=base.dtype, device="meta")
        view = op(
            memory.as_strided(base.size, base.stride, base.offset),
            *thawed(args),
            **dict(thawed(kwargs)),
        )
    several = isinstance(view, (list, tuple))
    found = tuple(
        Geometry(tuple(v.shape), v.stride(), v.storage_offset(), v.dtype)
        for v in (view if several else (view,))
    )
    return found if several else found[0]


_PLACES: dict[Any, Any] = {}


def places(get: Callable[[Any], Any], key: Any, shape: tuple[int, ...]) -> jax.Array:
    """Where in the whole each entry of a part lies, for a `get` that only moves entries.

    **Raises:** `AliasError` where several entries of the part are one of the whole.
    """
    found = _PLACES.get((key, shape))
    if found is None:
        with jax.ensure_compile_time_eval():
            found = get(jnp.arange(int(np.prod(shape))).reshape(shape)).ravel()
        if len(np.unique(found)) < found.size:
            raise AliasError(
                message(
                    "cannot write in place: several entries of this view are one of its base.",
                    hint="clone the expanded tensor before the write.",
                )
            )
        _PLACES[key, shape] = found
    return found


@jax.jit
def scatter(base: jax.Array, part: jax.Array, index: jax.Array) -> jax.Array:
    """The whole, with a part of it replaced."""
    flat = base.ravel().at[index].set(part.ravel().astype(base.dtype), unique_indices=True)
    return flat.reshape(base.shape)
