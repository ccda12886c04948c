"""The tangent type of a value, and the vector space that its tangents form.

Every primal type has one structural tangent type. It is the same pytree: inexact leaves keep their
dtype, and integer and boolean leaves are `float0`. JAX treats this space leaf by leaf; here it is
one object with a zero, a sum and an inner product.

The tangent of memory, a `jax.Ref`, is memory: a Ref of the same shape and dtype. Two places of a
primal with the same Ref have one tangent, and count once.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax._compat import no_tangent
from tanjax._errors import CotangentError, describe, message
from tanjax._typing import Arraylike, DType, Natural, Scalar, Shape, Structural

from .._leaves import is_inexact


@dataclasses.dataclass(frozen=True)
class TangentType:
    """The structural tangent type of a value: its tree, and shape and dtype of every leaf.

    `refs`: the indices of the leaves that are a `jax.Ref`.
    """

    tree: PyTreeDef
    leaves: tuple[tuple[Shape, DType], ...]
    refs: tuple[int, ...] = ()

    def __repr__(self) -> str:
        parts = [f"{dtype}[{','.join(map(str, shape))}]" for shape, dtype in self.leaves]
        for i in self.refs:
            parts[i] = f"Ref{{{parts[i]}}}"
        return f"TangentType({jax.tree.unflatten(self.tree, parts)})"

    @property
    def dimension(self) -> int:
        """The number of real coordinates."""
        kinds = [(math.prod(s), d) for s, d in self.leaves if d != jax.dtypes.float0]
        return sum(n * (2 if jnp.issubdtype(d, jnp.complexfloating) else 1) for n, d in kinds)


def tangent_type(x: PyTree) -> TangentType:
    """Return the structural tangent type of `x`; equal for equal trees, shapes and dtypes."""
    leaves, tree = jax.tree.flatten(x)
    kinds = (jnp.result_type(p) if is_inexact(p) else np.dtype(jax.dtypes.float0) for p in leaves)
    refs = tuple(i for i, p in enumerate(leaves) if isinstance(p, jax.Ref) and is_inexact(p))
    pairs = zip(leaves, kinds, strict=True)
    return TangentType(tree, tuple((np.shape(p), k) for p, k in pairs), refs)


def zero_tangent(x: PyTree) -> Structural:
    """Return the zero structural tangent of `x`: zeros, and `float0` at integer, boolean leaves.

    A `jax.Ref` gives a new Ref of zeros with the same sharding. Places with the same Ref share the
    new one.
    """
    made: dict[int, PyTree] = {}

    def zero(p: PyTree) -> PyTree:
        if not isinstance(p, jax.Ref) or not is_inexact(p):
            return zero_leaf(p)
        if id(p) not in made:
            made[id(p)] = jax.new_ref(jnp.zeros_like(p[...]))  # on the same devices
        return made[id(p)]

    return jax.tree.map(zero, x)


def zero_leaf(p: Arraylike) -> Natural:
    """Return the zero tangent of one leaf."""
    return jnp.zeros_like(jnp.asarray(p)) if is_inexact(p) else no_tangent(p)


def add_tangents(a: Structural, b: Structural) -> Structural:
    """Return the sum of two structural tangents of one primal.

    **Raises:** `CotangentError` if their trees or shapes differ, as for a natural and a structural
    (co)tangent. It also raises for Refs, which have no sum: `tj.refs.increment` adds in place.
    """
    if any(isinstance(leaf, jax.Ref) for leaf in jax.tree.leaves((a, b))):
        raise CotangentError(
            message(
                "add_tangents: a tangent in a Ref has no sum.",
                hint="`tj.refs.increment(t, u)` adds in place; `ref[...]` is what a Ref holds.",
            )
        )
    expected, got = jax.tree.structure(a), jax.tree.structure(b)
    shapes = [tuple(map(np.shape, jax.tree.leaves(t))) for t in (a, b)]
    if expected != got or shapes[0] != shapes[1]:
        raise CotangentError(
            message(
                "add_tangents: the two tangents are not of one type.",
                f"left:  {expected} {shapes[0]}",
                f"right: {got} {shapes[1]}",
                hint="only tangents of one kind add; convert with `natural` or `structural` of "
                "`tj.tangents`.",
            )
        )
    return jax.tree.map(lambda x, y: x if jnp.result_type(x) == jax.dtypes.float0 else x + y, a, b)


def inner_product(cotangent: Structural, tangent: Structural) -> Scalar:
    """Return JAX's pairing `Re Σ c t` of a structural cotangent and a structural tangent.

    The result is a scalar. A Ref counts with its values, and once if both trees repeat it.
    **Raises:** `CotangentError` if the two trees differ.
    """
    expected, got = jax.tree.structure(cotangent), jax.tree.structure(tangent)
    if expected != got:
        raise CotangentError(
            message("inner_product: the two trees differ.", f"left:  {expected}", f"right: {got}")
        )
    pairs = list(zip(jax.tree.leaves(cotangent), jax.tree.leaves(tangent), strict=True))
    memory = lambda c, t: isinstance(c, jax.Ref) and isinstance(t, jax.Ref)
    keys = [(id(c), id(t)) if memory(c, t) else i for i, (c, t) in enumerate(pairs)]
    once = dict(zip(keys, pairs, strict=True)).values()
    read = lambda x: x[...] if isinstance(x, jax.Ref) else x
    moving = [(read(c), read(t)) for c, t in once if is_inexact(c) and is_inexact(t)]
    terms = [jnp.real(jnp.sum(c * t)) for c, t in moving]
    return sum(terms[1:], terms[0]) if terms else jnp.zeros(())


def fit_leaf(where: str, p: Arraylike, t: Natural) -> Natural:
    """Cast one cotangent leaf to the dtype of its primal: the transpose of JAX's conversions.

    A wider float is rounded; a complex number gives its real part to a real primal. A narrower
    float raises: its precision is lost already, and JAX would accept it silently.
    """
    if not is_inexact(p):
        return no_tangent(p)
    expected, got = jnp.result_type(p), jnp.result_type(t)
    if got == expected:
        return t
    bits = jnp.finfo(got).nmant if jnp.issubdtype(got, jnp.inexact) else -1
    if bits < jnp.finfo(expected).nmant:
        raise CotangentError(
            message(
                f"{where}: the (co)tangent has the wrong dtype.",
                f"expected: {expected}",
                f"got: {describe(t)}",
                hint=f"compute it in {expected}, or convert it with `.astype` if that is meant.",
            )
        )
    if jnp.issubdtype(got, jnp.complexfloating) and not jnp.issubdtype(
        expected, jnp.complexfloating
    ):
        t = jnp.real(t)
    return t.astype(expected)
