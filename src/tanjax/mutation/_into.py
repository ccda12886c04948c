"""Gradients into buffers: `into=` of `tj.grad` and `tj.value_and_grad`, and its helpers.

Buffers are a tree like the parameters with a `jax.Ref` for every number that moves. They hold
*structural* cotangents, the tree that JAX adds: a natural cotangent of a `Kronecker` is a sum that
grows with every term, while its two factors have a fixed size. `tj.refs.gradient` converts them to
the natural gradient with a unit at the end.

    buffers = tj.refs.zero_refs(params)
    step = tj.value_and_grad(loss, into=buffers)
    losses = jax.lax.scan(lambda _, batch: (None, step(params, batch)), None, batches)[1]
    gradient = tj.refs.gradient(params, buffers)  # of the sum of all losses

JAX does not track the unit of a loss, and numbers in joules must not be added to numbers in
calories. `tj.refs.zero_refs(params, unit="J")` makes buffers that store the unit (`GradientRefs`).
Other buffers accept only losses that are plain numbers.

Sharp edges. Scan the micro-batches: an unrolled loop saves nothing over adding trees. `into=` adds
and never clears. Added numbers cannot be checked first: if a gradient leaves the range of its
dtype, there is no second run with a plan, as in `tj.grad`. Under `vmap` JAX raises for a buffer
that is not mapped.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax import arrays, transforms, units
from tanjax.arrays import is_inexact, is_structured
from tanjax.quantities import Quantity
from tanjax.units import Unit

from ._buffers import GradientRefs, joined_dtype, matched
from ._refs import StructuredRef


def zero_refs(
    x: PyTree, *, dtype: DTypeLike | None = None, unit: Unit | str | Quantity | None = None
) -> PyTree:
    """Make buffers of zeros for the gradient with respect to `x`, for `tj.grad(f, into=buffers)`.

    **Arguments:** `x`, a tree of arrays, structured arrays and quantities; `dtype`, a wider one for
    the sums: buffers of `float32` for parameters in `bfloat16`; `unit`, that of the loss.

    **Returns:** a tree like `x` with a `jax.Ref` for every array with a tangent space, in its shape
    and sharding, and `None` for others. A structured array or quantity gives a `StructuredRef`, or
    with integer fields its type with Refs and `None`. With `unit`, the tree is in a `GradientRefs`.
    **Cost:** one copy of `x`. The backward pass adds in place, so the steps of a `scan` over
    micro-batches need no tree of gradients; buffers of a wider dtype need one as scratch.

    >>> buffer = zero_refs(jnp.ones(2))
    >>> transforms.value_and_grad(lambda x: jnp.sum(3 * x), into=buffer)(jnp.ones(2))
    Array(6., dtype=float32)
    >>> gradient(jnp.ones(2), buffer)
    Array([3., 3.], dtype=float32)
    """

    def buffer(leaf: PyTree) -> PyTree:
        if not is_inexact(leaf):
            return None
        kind = jnp.result_type(leaf)
        wide = kind if dtype is None else joined_dtype(kind, dtype)
        return jax.new_ref(jnp.zeros_like(leaf, dtype=wide))

    def buffers(a: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(a)
        refs = [buffer(leaf) for leaf in leaves]
        if is_structured(a) and all(ref is not None for ref in refs):  # a traced Ref has no `==`
            return StructuredRef(refs, treedef)
        return treedef.unflatten(refs)

    refs = jax.tree.map(buffers, x, is_leaf=is_structured)
    return refs if unit is None else GradientRefs(refs, units.unit(unit).delta)


def gradient(x: PyTree, refs: PyTree) -> PyTree:
    """Return the sums in buffers as the natural gradient that `tj.grad` gives.

    **Arguments:** `x`, the parameters, at which non-linear types are read; `refs`, their buffers.
    **Returns:** for every array its natural cotangent, in the dtype of the buffers; a quantity in
    `[loss]/[x]` if either has a unit; `None` for integers and for a buffer that is `None`.
    **Raises:** `CotangentError` if the buffers are not like `x`. Warns `HiddenCotangentWarning`,
    as `tj.grad` does. **Cost:** reads every buffer; J⁺ᵀ of every structured array.
    """
    slots, unit = matched("gradient", x, refs)
    leaves, treedef = jax.tree.flatten(x)
    rest = iter(slots)
    primals, cotangents = list(leaves), list(leaves)
    for i, leaf in enumerate(leaves):
        if is_inexact(leaf):
            cotangents[i] = next(rest).read()
            if cotangents[i] is not None:
                primals[i] = jnp.asarray(leaf).astype(cotangents[i].dtype)
        elif hasattr(leaf, "dtype"):
            cotangents[i] = arrays.zero_leaf(leaf)
    tree = treedef.unflatten(cotangents)
    if any(c is None for c in cotangents):  # all fields of a frozen array are `None`
        given = lambda c: c if jax.tree.leaves(c) else None
        tree = jax.tree.map(given, tree, is_leaf=is_structured)
    return transforms.times_unit(transforms.natural_tree(treedef.unflatten(primals), tree), unit)


def accumulate(refs: PyTree, tree: PyTree) -> None:
    """Add a tree of structural cotangents, as `jax.grad` gives them, to buffers: `refs += tree`.

    **Arguments:** `refs`, Refs in a tree; `tree`, arrays in the same tree and of the same shapes,
    in dtypes that the buffers hold and in the unit that they remember; `None` or `float0` adds
    nothing.
    **Raises:** `CotangentError` if trees, shapes or dtypes do not fit, `AliasError` for a Ref in
    two places; nothing is added then. **Cost:** one addition per number.
    """
    slots, _ = matched("accumulate", tree, refs)
    for slot in slots:
        slot.add(jnp.asarray(slot.leaf))
