"""Properties of JAX's Refs that JAX shows by attributes and names, not by public classes.

The class of a view and of an index are not exported; this module reads both by attribute only.
`test_access.py` checks these names on both versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import jax
import numpy as np
from jax import lax
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._typing import Shape


class Step(Protocol):
    """One step of a path, JAX's or ours: an index for each axis of an array of some shape."""

    @property
    def indices(self) -> Sequence[PyTree]: ...
    @property
    def shape(self) -> Shape: ...


def is_ref(x: object) -> bool:
    """True if a value is a `jax.Ref`, concrete or traced; a view is not one."""
    return isinstance(x, jax.Ref)


def is_view(x: object) -> bool:
    """True if a value is a view `ref.at[...]` of a Ref."""
    return type(x).__name__ == "TransformedRef"


def root(x: PyTree) -> PyTree:
    """Return the Ref that a Ref or a view writes to."""
    return x.ref if is_view(x) else x


def places_of(view: PyTree) -> list[np.ndarray | None]:
    """Return, for each axis of its Ref, the places of a view, `None` if they are traced."""
    steps = view.transforms if is_view(view) else ()
    if not steps or not hasattr(steps[0], "indices"):
        return []
    found: list[np.ndarray | None] = []
    for index, n in zip(steps[0].indices, steps[0].shape, strict=True):
        numbers = (index.start, index.size, index.stride) if is_slice(index) else (index,)
        if any(isinstance(i, _compat.Tracer) for i in numbers):
            found.append(None)
        elif is_slice(index):
            found.append(np.arange(n)[index.start :: index.stride][: index.size])
        else:
            places = np.asarray(index)
            found.append(np.where(places < 0, places + n, places))
    return found


def is_slice(index: PyTree) -> bool:
    """True if an index is a slice: it has `start`, `size` and `stride`."""
    return hasattr(index, "stride")


def is_window(step: Step) -> bool:
    """True if one step of a path has only scalars and slices without a stride."""
    return all(i.stride == 1 if is_slice(i) else not np.shape(i) for i in step.indices)


def is_tracing() -> bool:
    """True if code that runs now becomes part of a jaxpr, even if it touches no traced value."""
    return isinstance(lax.full((), 0), _compat.Tracer)
