"""Derivatives of functions of Refs, by `tj.grad`, `vjp`, `jvp` and the others.

tanjax differentiates a function of Refs as a pure function: from their contents before to its
output and their contents afterwards. Cotangents and tangents of a Ref are those of the array in it,
natural. The contents afterwards are written once the derivative is computed. The layer above
(`tanjax.mutation`) makes the function pure.

Sharp edges. A tangent in Refs is structural, like that of `tj.tangents.zero_tangent(ref)`. As in
`jax.jvp`, the tangent of the state afterwards overwrites it.
"""

from __future__ import annotations

import functools

import jax
from jaxtyping import PyTree

from tanjax._errors import CotangentError, describe, message
from tanjax._typing import Function, Structural

from ._ref_functions import Contents


def with_aux(call: Contents, has_aux: bool) -> Function:
    """Return the function to differentiate: its other results are in its aux value."""

    @functools.wraps(call.f)
    def run(*args: PyTree, **kwargs: PyTree) -> PyTree:
        out, after = call(*args, **kwargs)
        out, aux = out if has_aux else (out, None)
        return out, (aux, after)

    return run


def with_state(call: Contents, has_aux: bool) -> Function:
    """Return the function to push forward: the state afterwards has a tangent, too."""

    @functools.wraps(call.f)
    def run(*args: PyTree, **kwargs: PyTree) -> PyTree:
        out, after = call(*args, **kwargs)
        return ((out[0], after), out[1]) if has_aux else (out, after)

    return run


# -- tangents in Refs ------------------------------------------------------------------------------


def is_memory(tangent: PyTree) -> bool:
    """True if a tangent is in Refs."""
    return any(isinstance(x, jax.Ref) for x in jax.tree.leaves(tangent))


def in_fields(where: str, x: PyTree, tangent: PyTree) -> Structural:
    """Return the contents of the Refs of a tangent as the structural tangent of an array.

    **Raises:** `CotangentError` if shapes or dtypes differ from those of the fields of `x`.
    """
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
                hint="`tj.tangents.zero_tangent(ref)` makes one; a natural tangent is an array.",
            )
        )
    return tree.unflatten(got)
