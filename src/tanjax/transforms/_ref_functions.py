"""The functions of `tanjax.mutation` that transformations call for functions of Refs.

A derivative, or a plan, of a function that uses Refs needs the function as a pure one. The layer
above knows how to make it. It calls `register_ref_functions` once, when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from jaxtyping import PyTree

from tanjax._jaxpr_types import Steps
from tanjax._typing import Function, Pullback, Scalar
from tanjax.units import Unit

from ._chosen import Argnums

State: TypeAlias = dict[int, PyTree]  # the contents of the Refs that are written, by their number


@runtime_checkable
class Contents(Protocol):
    """A call of `f` as a function of the contents of its Refs, which are in `args`, `kwargs`."""

    f: Function
    args: tuple[PyTree, ...]
    kwargs: dict[str, PyTree]

    def __call__(self, /, *args: PyTree, **kwargs: PyTree) -> tuple[PyTree, State]: ...
    def write(self, after: State) -> None:
        """Write the contents after the call into the Refs."""

    def write_tangents(self, tangents: PyTree, after: State) -> None:
        """Write the tangents of the contents after the call into the tangents that are Refs."""


@runtime_checkable
class Buffers(Protocol):
    """Buffers that match the arguments of one call."""

    def add(self, pullback: Pullback, loss: Scalar, unit: Unit | None) -> None:
        """Pull back from a loss in a unit, and add the cotangents to the buffers.

        `pullback` is that of `jax.vjp` for the list of the moving leaves.
        """


class RefFunctions(NamedTuple):
    """The functions that `tanjax.mutation` registers.

    **Fields:** `contents(where, f, args, kwargs, chosen, buffers)`: the call of `f` that is
    differentiated by `chosen` of its arguments, `None` without a Ref. `match_buffers(into, args,
    kwargs, argnums)`: the buffers of these arguments. `discharge(f)`: the pure function.
    `makes_refs(jaxpr)`: true if a program makes Refs.
    """

    contents: Callable[..., Contents | None]
    match_buffers: Callable[[PyTree, Sequence[PyTree], PyTree, Argnums], Buffers]
    discharge: Callable[[Function], Function]
    makes_refs: Callable[[Steps], bool]


_REGISTERED: list[RefFunctions] = []


def register_ref_functions(functions: RefFunctions) -> None:
    """Set the functions that transformations call; `tanjax.mutation` does so."""
    _REGISTERED[:] = [functions]


def ref_functions() -> RefFunctions:
    """Return the registered functions."""
    return _REGISTERED[0]
