"""Compiled functions that write to Refs, planned as the pure functions that they are.

The contents of a Ref have no place in a graph of values. But a function that makes Refs inside, and
writes them, is a pure function of its arguments. A function of Refs is a pure function, too: it
maps their contents to the output and to the contents afterwards. tanjax plans that pure function.
While it needs no exponents, JAX's own program runs on the Refs.

The layer above (`tanjax.mutation`) makes functions pure (`_ref_functions.py`).

Sharp edges. A look at a Ref copies its contents. A planned program returns new arrays, which
tanjax writes into the Refs: it saves no memory.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import jax
from jax.stages import Traced
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._typing import Function

from ._packing import unpack
from ._ref_functions import ref_functions

if TYPE_CHECKING:
    from tanjax.scale import Plan

# The options of `jax.jit` that mean the same for the pure function.
KEPT = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "keep_unused")
WITH_OPTIONS = (
    "with Refs among its arguments and the options {} it is not planned: its numbers may leave "
    "their range unseen. Leave the options out, or pass `scale=False`."
)


class UsesRefs(Exception):
    """Raised if a traced function makes Refs, or closes over Refs."""


def without_memory(traced: Traced) -> Traced:
    """Return a trace that has no Refs. **Raises:** `UsesRefs` if it has some."""
    closed = traced.jaxpr
    over = any(isinstance(c, jax.Ref) for c in closed.consts)
    if over or ref_functions().makes_refs(closed.jaxpr):
        raise UsesRefs
    return traced


def without_refs(fun: Function) -> Function:
    """Return the pure function of the same arguments."""
    return ref_functions().discharge(fun)


def are_memory(leaves: Sequence[PyTree]) -> bool:
    """True if some arguments are Refs, and no argument is a tracer."""
    some = any([isinstance(x, jax.Ref) for x in leaves])
    return some and not any([isinstance(x, _compat.Tracer) for x in leaves])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Held:
    """The contents of a Ref, in its place."""

    value: PyTree


def held(tree: PyTree) -> PyTree:
    """Replace the Refs of arguments by their contents."""
    return jax.tree.map(lambda x: _Held(x[...]) if isinstance(x, jax.Ref) else x, tree)


def write(tree: PyTree, values: Sequence[PyTree]) -> None:
    """Write new contents into the Refs of arguments."""
    refs = [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Ref)]
    for ref, value in zip(refs, values, strict=True):
        ref[...] = value


def on_held(fun: Function) -> Function:
    """Return the function from the contents of Refs to the output and the contents afterwards."""

    @functools.wraps(fun)
    def transition(*args: PyTree, **kwargs: PyTree) -> PyTree:
        refs: list[PyTree] = []

        def fresh(x: PyTree) -> PyTree:
            if type(x) is not _Held:
                return x
            refs.append(jax.new_ref(x.value))
            return refs[-1]

        is_held = lambda x: type(x) is _Held
        args, kwargs = jax.tree.map(fresh, (args, kwargs), is_leaf=is_held)
        out = unpack(fun(*args, **kwargs))  # so that a quantity may get an exponent
        return out, [jax.freeze(ref) for ref in refs]

    return without_refs(transition)


@runtime_checkable
class Planned(Protocol):
    """A `PlannedFunction`, as calls with Refs use it."""

    jitted: Function

    @property
    def plans(self) -> list[Plan]: ...
    def __call__(self, /, *args: PyTree, **kwargs: PyTree) -> PyTree: ...
    def is_plain(self, args: PyTree, kwargs: PyTree) -> bool: ...
    def of_contents(self) -> Planned | None: ...


class OnMemory:
    """The calls of a planned function in which arguments are Refs."""

    def __init__(self) -> None:
        self._pure: Planned | None = None

    @property
    def plans(self) -> list[Plan]:
        """The plans made so far."""
        return [] if self._pure is None else self._pure.plans

    def __call__(self, planned: Planned, args: PyTree, kwargs: PyTree) -> PyTree:
        """Run the planned program if the contents of the Refs need it, otherwise JAX's own."""
        pure = self._pure = self._pure or planned.of_contents()
        if pure is None:
            return planned.jitted(*args, **kwargs)
        given, named = held((args, kwargs))
        if pure.is_plain(given, named):
            return planned.jitted(*args, **kwargs)
        out, values = pure(*given, **named)
        write((args, kwargs), values)
        return out
