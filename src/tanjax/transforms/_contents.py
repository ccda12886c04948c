"""Derivatives by what Refs hold: `tj.grad`, `vjp`, `jvp` and the others, when they are given Refs.

A function of Refs is differentiated as the pure one from what they hold before to its output and to
what they hold afterwards. Cotangents and tangents of a Ref are those of the array in it, natural;
what it holds afterwards is written once the derivative is computed. How the function is made pure,
the layer above knows (`tanjax.mutation`) and registers here.

Sharp edges. A tangent that is itself in Refs is structural, as that of `tj.zero_tangent(ref)`, and
is overwritten by the tangent of the state afterwards, as by `jax.jvp`.
"""

from __future__ import annotations

import functools
from typing import Protocol, runtime_checkable

import jax
from jaxtyping import PyTree

from tanjax._errors import CotangentError, describe, message
from tanjax._typing import Function, Structural

State = dict[int, PyTree]  # what the Refs hold that are written, by their number


@runtime_checkable
class Contents(Protocol):
    """A call of a function with Refs, of `f` as one of what they hold: `args`, `kwargs`."""

    f: Function
    args: tuple[PyTree, ...]
    kwargs: dict[str, PyTree]

    def __call__(self, /, *args: PyTree, **kwargs: PyTree) -> tuple[PyTree, State]: ...
    def write(self, after: State) -> None:
        """Write what the Refs hold after the call."""

    def write_tangents(self, tangents: PyTree, after: State) -> None:
        """Write the tangents of that into those tangents which are Refs."""


_registered: dict[str, Function] = {}


def register_contents(make: Function) -> None:
    """Say how a call with Refs is made one of what they hold; asked by `mutation`."""
    _registered["make"] = make


def contents(
    where: str, f: Function, args: PyTree, kwargs: PyTree, chosen: PyTree, buffers: PyTree = None
) -> Contents | None:
    """A call that is differentiated by `chosen` among its arguments; `None` if that has no Ref."""
    found: Contents | None = _registered["make"](where, f, args, kwargs, chosen, buffers)
    return found


def with_aux(call: Contents, has_aux: bool) -> Function:
    """The function that a gradient is for: what is not differentiated is its aux value."""

    @functools.wraps(call.f)
    def run(*args: PyTree, **kwargs: PyTree) -> PyTree:
        out, after = call(*args, **kwargs)
        out, aux = out if has_aux else (out, None)
        return out, (aux, after)

    return run


def with_state(call: Contents, has_aux: bool) -> Function:
    """The function that is pushed forward: the state afterwards is moved, too."""

    @functools.wraps(call.f)
    def run(*args: PyTree, **kwargs: PyTree) -> PyTree:
        out, after = call(*args, **kwargs)
        return ((out[0], after), out[1]) if has_aux else (out, after)

    return run


# -- tangents in Refs ------------------------------------------------------------------------------


def is_memory(tangent: PyTree) -> bool:
    """Whether a tangent is in Refs."""
    return any(isinstance(x, jax.Ref) for x in jax.tree.leaves(tangent))


def in_fields(where: str, x: PyTree, tangent: PyTree) -> Structural:
    """What the Refs of a tangent hold, as the structural tangent of an array."""
    leaves, tree = jax.tree.flatten(x)
    got = jax.tree.leaves(tangent)
    zero = lambda p: getattr(p, "dtype", None) == jax.dtypes.float0
    if len(leaves) != len(got) or any(
        not zero(t) and (p.shape, p.dtype) != (t.shape, t.dtype)
        for p, t in zip(leaves, got, strict=True)
    ):
        raise CotangentError(
            message(
                f"{where}: a tangent in Refs does not have the fields of its primal.",
                f"primal: {describe(x)}",
                f"tangent: {describe(tangent)}",
                hint="`tj.zero_tangent(ref)` makes one; a natural tangent is an array.",
            )
        )
    return tree.unflatten(got)
