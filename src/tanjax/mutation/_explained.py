"""JAX's errors about wrong uses of a Ref, explained and with a fix.

JAX's messages name primitives (`swap`) and avals. These errors name the function, and the argument
if it is known.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from jaxtyping import PyTree

from tanjax._errors import AliasError, MutationError, ShapeError, message

from ._aliases import with_paths


@contextlib.contextmanager
def explained(name: str, refs: Mapping[str, PyTree] = MappingProxyType({})) -> Iterator[None]:
    """Raise JAX's errors about Refs as ours, with the name of the Ref; all others pass."""
    try:
        yield
    except (ValueError, TypeError, NotImplementedError, AssertionError, AttributeError) as error:
        if isinstance(error, AliasError | MutationError | ShapeError):
            raise
        text = str(error)
        if type(error) is TypeError and "item assignment" in text:
            error.add_note(
                f"{name} writes to an array. It may write only to arguments that it names: "
                f"`mutates=({', '.join(map(repr, refs))}...)`; inside of a function, make a Ref: "
                "`jax.new_ref(x)`."
            )
        elif "Invalid shape for" in text:
            raise ShapeError(_changed(name, "shape", error, refs)) from error
        elif "Invalid dtype for" in text:
            raise MutationError(_changed(name, "dtype", error, refs)) from error
        elif "mutable array reference" in text and "cannot be returned" in text:
            raise MutationError(
                message(
                    f"{name}: a Ref is carried by a loop, or returned from a function inside.",
                    f"JAX says: {text.splitlines()[0]}",
                    hint="let the body close over the Ref and write to it; return nothing.",
                )
            ) from error
        elif "both closed over and passed" in text or "only one reference to a mut" in text:
            raise AliasError(
                message(
                    f"{name}: one memory goes into a loop or a function in two ways.",
                    f"JAX says: {text.splitlines()[0]}",
                    hint="close over the Ref, or hand it over: a `scan` over it gives its rows.",
                )
            ) from error
        elif "JaxprInputEffect" in text:
            raise MutationError(
                message(
                    f"{name}: a Ref is used inside of an operation of JAX that is no loop, such as "
                    "`lax.custom_linear_solve`.",
                    hint="let its functions close over values (`ref[...]`), and write what it "
                    "returns.",
                )
            ) from error
        elif "vmap-of-cond" in text:
            error.add_note(
                f"{name} maps a branch that uses a Ref. Discharge the function first: "
                "`jax.vmap(tj.refs.discharge(f))`."
            )
        elif _is_of_shard_map(error):
            raise MutationError(
                message(
                    f"{name}: a Ref is used inside of `shard_map`.",
                    f"JAX says: {text.splitlines()[0] if text else type(error).__name__}",
                    hint="hand its value over and write what comes back; an in-place function is "
                    "called there by its `.transition`.",
                )
            ) from error
        raise


@contextlib.contextmanager
def mapped(name: str) -> Iterator[None]:
    """Explain the error if `jax.vmap` maps a call, and not the Ref that it writes to."""
    try:
        yield
    except Exception as error:  # JAX has no class for this error
        if "unbatched array reference" in str(error):
            error.add_note(
                f"{name} would write one value for each element of the map into one Ref. Map the "
                "Ref, too (`in_axes=0`), or map `f.transition`, which returns the values."
            )
        raise


def _is_of_shard_map(error: Exception) -> bool:
    """True if an error is JAX's about a Ref in `shard_map`; JAX 0.10.2 does not say so."""
    text = str(error)
    if not ("Ref" in text or (isinstance(error, AssertionError) and not text)):
        return False
    if "manual axes" in text or "shard_map" in text or "nospec" in text:  # of a Ref's aval
        return True
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__", "").endswith("shard_map") for frame, _ in frames)


def _changed(name: str, what: str, error: Exception, refs: Mapping[str, PyTree]) -> str:
    place = _written(error, refs)
    return message(
        f"{name}: a write{place} does not have the {what} of what it replaces.",
        f"JAX says: {str(error).splitlines()[0]}",
        "why: memory keeps its shape and dtype; a Ref neither broadcasts nor casts.",
        hint=f"give the new value that {what} (`jnp.broadcast_to`, `.astype`); a "
        "`tj.refs.StructuredRef` broadcasts and casts by itself.",
    )


def _written(error: Exception, refs: Mapping[str, PyTree]) -> str:
    """Name the Ref whose write raised an error: the one that a frame of JAX holds."""
    places = {id(leaf): place for n, tree in refs.items() for place, leaf in with_paths(n, tree)}
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        found = {places[id(v)] for v in frame.f_locals.values() if id(v) in places}
        if len(found) == 1:
            return f" to `{found.pop()}`"
    return ""
