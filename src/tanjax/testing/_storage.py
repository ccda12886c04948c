"""A mode for debugging: check that arrays in use keep the invariant of their storage.

A type that stores a number twice, or stores zeros, ensures that in its constructor, and operations
rely on it. Code that moves each stored number by itself breaks the invariant: a sampler, Newton's
method by leaves, noise from `jax.tree.map`. Products then read the stored numbers, and `to_dense`
disagrees.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._errors import CheckFailure, message, outside
from tanjax.arrays import is_inexact, is_structured
from tanjax.registry import Operation, inspecting

from ._coordinates import canonical


@contextlib.contextmanager
def check_storage() -> Iterator[None]:
    """Check the storage of every structured argument of an operation, inside of the context.

        with tj.testing.check_storage():
            sampler.run(key)

    An array passes if its fields are those of `canonical()`, up to the square root of the
    rounding of its dtype. Concrete arguments are checked in the call. Under `jax.jit` and in loops
    the numbers are checked while the program runs (`jax.debug.callback`), and the first failure is
    raised at the end. JAX's caches are cleared at both ends, so that functions compiled before are
    checked, too; for `tj.jit` call `f.clear_cache()`.

    **Raises:** `CheckFailure`, which names the operation, its argument, the line that calls it, the
    field and the entry with the largest contradiction.
    **Cost:** every operation waits for its arguments, and every function is compiled again.
    """
    found: list[str] = []

    def look(op: Operation, args: Sequence[PyTree]) -> None:
        frame = sys._getframe(outside() - 1)
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        for name, x in zip(op.names_for(len(args)), args, strict=True):
            if not any(map(is_structured, jax.tree.leaves(x, is_leaf=is_structured))):
                continue
            leaves, treedef = jax.tree.flatten(x)
            say = functools.partial(_contradiction, op.name, name, where, treedef)
            if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
                if text := say(*leaves):
                    raise CheckFailure(text)
                continue

            def later(*leaves: jax.Array, say: functools.partial[str] = say) -> None:
                if text := say(*leaves):
                    found.append(text)

            jax.debug.callback(later, *leaves)

    jax.clear_caches()
    try:
        with inspecting(look):
            yield
            jax.effects_barrier()
    finally:
        jax.clear_caches()
    if found:
        more = f"\n(and {len(found) - 1} more calls)" if found[1:] else ""
        raise CheckFailure(found[0] + more)


def _contradiction(op: str, name: str, where: str, treedef: PyTree, *leaves: jax.Array) -> str:
    """Describe the fault in the storage of an argument; return an empty text if there is none."""
    x = jax.tree.unflatten(treedef, map(jnp.asarray, leaves))
    paths, _ = jax.tree_util.tree_flatten_with_path(x)
    for (path, got), want in zip(paths, jax.tree.leaves(canonical(x)), strict=True):
        if not is_inexact(got) or not np.size(got):
            continue
        off = np.abs(np.asarray(got) - np.asarray(want))
        largest = float(np.max(np.abs(want), initial=0.0))
        if np.isfinite(largest) and np.max(off) > jnp.finfo(got.dtype).eps ** 0.5 * largest:
            place = tuple(map(int, np.unravel_index(np.argmax(off), off.shape)))
            return message(
                f"{op}: `{name}`, {type(x).__name__}{list(np.shape(x))}, stores entries that "
                "contradict each other.",
                f"at: {jax.tree_util.keystr(path)}{list(place)}, stored {got[place]}, by "
                f"`canonical()` {want[place]}",
                f"called from {where}",
                "why: something moved stored numbers one by one (a sampler, Newton, noise).",
                hint="move the vector of `tj.tangents.free_coordinates(x)`, or call `.canonical()` "
                "after.",
            )
    return ""
