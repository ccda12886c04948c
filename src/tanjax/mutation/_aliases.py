"""Checks that the arguments of a call are Refs, and that no two share memory.

A transition has one state for each memory. The same Ref in two places, or a Ref and a view of it,
would be two states, and one of them would be lost. So tanjax raises if either is written. Two views
are separate memories if their places in one axis of the Ref have no entry in common.

Sharp edge. Under a transformation JAX may show one Ref as two traced values; then only JAX's own
checks can find it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax._errors import AliasError, MutationError, describe, message

from ._jax_refs import is_ref, is_view, places_of, root


def with_paths(name: str, tree: PyTree) -> Iterator[tuple[str, PyTree]]:
    """Yield the leaves of an argument, each with its expression in user code: `x['w']`."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_view)[0]:
        yield f"{name}{jax.tree_util.keystr(path)}", leaf


def check_refs(function: str, given: Mapping[str, PyTree], mutates: Sequence[str]) -> None:
    """Raise `MutationError` for an array instead of a Ref, `AliasError` for shared memory."""
    seen: dict[int, list[tuple[str, PyTree, bool]]] = {}
    for name, tree in given.items():
        for place, leaf in with_paths(name, tree):
            if not (is_ref(leaf) or is_view(leaf)):
                if name in mutates and (hasattr(leaf, "dtype") or isinstance(leaf, int | float)):
                    raise MutationError(
                        message(
                            f"{function}: `{place}` is an array, and the function mutates it.",
                            f"got: {describe(leaf)}",
                            "why: its mutation would be lost, as arrays of JAX do not change.",
                            hint=f"pass a Ref, `tj.new_ref({place})`, or call "
                            f"`{function}.transition`, which takes arrays and returns their new "
                            "values.",
                        )
                    )
                continue
            written = name in mutates
            same = seen.setdefault(id(root(leaf)), [])
            for first, old, is_written in same:
                if (written or is_written) and not _are_disjoint(old, leaf):
                    raise _aliased(function, first, old, place, leaf)
            same.append((place, leaf, written))


def _are_disjoint(a: PyTree, b: PyTree) -> bool:
    """True if two views of one Ref are known to have no entry in common."""
    pairs = zip(places_of(a), places_of(b), strict=False)  # empty for a Ref itself
    return any(i is not None and j is not None and not np.intersect1d(i, j).size for i, j in pairs)


def _aliased(function: str, first: str, a: PyTree, second: str, b: PyTree) -> AliasError:
    views = [place for place, leaf in ((first, a), (second, b)) if is_view(leaf)]
    how = (
        f"{' and '.join(f'`{v}`' for v in views)} {'is a view' if len(views) == 1 else 'are views'}"
    )
    return AliasError(
        message(
            f"{function}: `{first}` and `{second}` are the same memory, and it is written.",
            *([f"{how} of it."] if views else []),
            "why: each memory has one state after the call, and one cotangent.",
            hint="pass a copy, `tj.new_ref(ref[...])`, or one Ref in one place"
            + (
                "; views by slices that do not overlap are two memories, integers are traced."
                if len(views) == 2
                else "."
            ),
        )
    )
