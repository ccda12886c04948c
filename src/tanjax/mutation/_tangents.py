"""Tangents in two parts: memory that grows in place, and values that are returned.

The tangent of a Ref is a Ref, the tangent of an array an array. A reverse pass adds to the first in
place (*fdata*, which belongs to memory of the forward pass). It returns the second (*rdata*, which
the reverse pass computes). A tangent of a tree of both splits into two trees with `None` in the
places of the other part. `combine` joins them.

    t = tj.tangents.zero_tangent((ref, x))    # (Ref, zeros)
    tj.refs.fdata(t), tj.refs.rdata(t)         # (Ref, None), (None, zeros)
    t = tj.refs.increment(t, u)              # adds to the Ref in place

One primal type has one tangent type, also with Refs and quantities in it. The same Ref in two
places of a primal has the same Ref in both places of its tangent. So each function here keeps a
table of the Refs that it met, and changes each of them once.

Sharp edges. Integers and flags have no tangents: `float0` in rdata, also for a Ref of integers,
whose tangent needs no memory. Identity of Refs is that of Python objects; under a transformation
JAX may show one Ref as two.

**References:** the two parts and the invariant on aliases are those of Mooncake.jl (Tapir.jl).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.tree_util import KeyPath
from jaxtyping import PyTree

from tanjax._errors import AliasError, CotangentError, describe, message
from tanjax._typing import Structural
from tanjax.arrays import TangentType, is_inexact, tangent_type

from ._jax_refs import is_ref

_is_none: Callable[[PyTree], bool] = lambda x: x is None


# -- types -----------------------------------------------------------------------------------------


def fdata_type(x: PyTree) -> TangentType:
    """Return the type of the memory part of a tangent of `x`; `None` where `x` has no Ref."""
    return _part(tangent_type(x), memory=True)


def rdata_type(x: PyTree) -> TangentType:
    """Return the type of the returned part of a tangent of `x`; `None` where `x` has a Ref."""
    return _part(tangent_type(x), memory=False)


def _part(kind: TangentType, *, memory: bool) -> TangentType:
    kept = [i for i in range(len(kind.leaves)) if (i in kind.refs) is memory]
    marks = [i if i in kept else None for i in range(len(kind.leaves))]
    tree = jax.tree.structure(jax.tree.unflatten(kind.tree, marks))
    refs = tuple(range(len(kept))) if memory else ()
    return dataclasses.replace(
        kind, tree=tree, leaves=tuple(kind.leaves[i] for i in kept), refs=refs
    )


# -- parts -----------------------------------------------------------------------------------------


def fdata(t: Structural) -> PyTree:
    """Return the Refs of a tangent, the same objects, and `None` elsewhere."""
    return jax.tree.map(lambda leaf: leaf if is_ref(leaf) else None, t)


def rdata(t: Structural) -> PyTree:
    """Return the arrays of a tangent, and `None` where it has Refs."""
    return jax.tree.map(lambda leaf: None if is_ref(leaf) else leaf, t)


def combine(f: PyTree, r: PyTree) -> Structural:
    """Join two parts of a tangent: `combine(fdata(t), rdata(t))` has the very leaves of `t`.

    **Arguments:** `f`: Refs, and `None`; `r`: arrays, and `None`; trees of one structure.
    **Raises:** `CotangentError` if the trees differ, or both have a value in one place.
    """
    if jax.tree.structure(f, is_leaf=_is_none) != jax.tree.structure(r, is_leaf=_is_none):
        raise _unlike("combine", "fdata", f, "rdata", r)

    def join(path: KeyPath, a: PyTree, b: PyTree) -> PyTree:
        if (a is not None and b is not None) or is_ref(b) or not (a is None or is_ref(a)):
            raise CotangentError(
                message(
                    f"combine: the two parts do not fit at `t{jax.tree_util.keystr(path)}`.",
                    f"fdata: {describe(a)}",
                    f"rdata: {describe(b)}",
                    hint="fdata has the Refs, rdata the arrays, and each `None` for the others.",
                )
            )
        return b if a is None else a

    return jax.tree_util.tree_map_with_path(join, f, r, is_leaf=_is_none)


# -- in place --------------------------------------------------------------------------------------


def increment(t: Structural, u: Structural) -> Structural:
    """Add a tangent to another one of the same primal: Refs in place, arrays by value.

    **Arguments:** `t`, structural; `u`, of the same type, and with the aliases of `t`.
    **Returns:** `t` with sums instead of its arrays; its Refs are the same objects. A Ref that
    occurs several times is incremented once.
    **Raises:** `CotangentError` if the types differ; `AliasError` if one Ref of `t` would get two
    increments. Nothing is added then. **Cost:** one addition per number.
    """
    if tangent_type(t) != tangent_type(u):
        raise _unlike("increment", "t", tangent_type(t), "u", tangent_type(u))
    leaves, tree = jax.tree.flatten(t)
    pairs = list(zip(leaves, jax.tree.leaves(u), strict=True))
    steps: dict[int, tuple[PyTree, PyTree]] = {}
    for ref, step in pairs:
        if not (is_ref(ref) and is_inexact(ref)):
            continue
        if steps.setdefault(id(ref), (ref, step))[1] is not step:
            raise AliasError(
                message(
                    "increment: one Ref of the tangent would get two increments.",
                    f"Ref: {describe(ref)}",
                    "why: the primal has one memory in two places, and so has each tangent of it.",
                    hint="make tangents by `tj.tangents.zero_tangent(x)`, which keeps aliases.",
                )
            )
    read = [(ref, step[...]) for ref, step in steps.values()]  # all of them before the first write
    for ref, value in read:
        ref[...] = ref[...] + value
    added = [a if is_ref(a) or not is_inexact(a) else a + b for a, b in pairs]
    return jax.tree.unflatten(tree, added)


def set_to_zero(t: Structural) -> Structural:
    """Clear a tangent: its Refs in place, its arrays replaced by zeros.

    **Returns:** `t` with zeros instead of its arrays; its Refs are the same objects.
    """
    cleared: set[int] = set()

    def clear(leaf: PyTree) -> PyTree:
        if not is_ref(leaf):
            return jnp.zeros_like(leaf) if is_inexact(leaf) else leaf
        if id(leaf) not in cleared and is_inexact(leaf):
            leaf[...] = jnp.zeros(leaf.shape, leaf.dtype)
        cleared.add(id(leaf))
        return leaf

    return jax.tree.map(clear, t)


def _unlike(where: str, first: str, a: PyTree, second: str, b: PyTree) -> CotangentError:
    show = lambda x: x if isinstance(x, TangentType) else jax.tree.structure(x, is_leaf=_is_none)
    return CotangentError(
        message(
            f"{where}: the two trees are not of one type.",
            f"{first}: {show(a)}",
            f"{second}: {show(b)}",
            hint="both belong to one primal: `tj.tangents.tangent_type(x)` says what its tangents "
            "are.",
        )
    )
