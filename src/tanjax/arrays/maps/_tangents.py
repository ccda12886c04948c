"""The tangent type of a value, and the vector space that its tangents form.

Every primal type has one structural tangent type: the same pytree, whose inexact leaves keep
their dtype and whose integer and boolean leaves are `float0`. JAX knows this space only leaf by
leaf; here it is one object with a zero, a sum and an inner product.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax._errors import CotangentError, describe, message
from tanjax._typing import Arraylike, DType, Natural, Scalar, Shape, Structural

from .._leaves import is_inexact


@dataclasses.dataclass(frozen=True)
class TangentType:
    """The structural tangent type of a value: its tree, and shape and dtype of every leaf."""

    tree: PyTreeDef
    leaves: tuple[tuple[Shape, DType], ...]

    def __repr__(self) -> str:
        parts = [f"{dtype}[{','.join(map(str, shape))}]" for shape, dtype in self.leaves]
        return f"TangentType({jax.tree.unflatten(self.tree, parts)})"

    @property
    def dimension(self) -> int:
        """The number of real coordinates."""
        kinds = [(int(np.prod(s)), d) for s, d in self.leaves if d != jax.dtypes.float0]
        return sum(n * (2 if jnp.issubdtype(d, jnp.complexfloating) else 1) for n, d in kinds)


def tangent_type(x: PyTree) -> TangentType:
    """The one structural tangent type of `x`. Equal for equal trees, shapes and dtypes."""
    leaves, tree = jax.tree.flatten(x)
    kinds = (jnp.result_type(p) if is_inexact(p) else np.dtype(jax.dtypes.float0) for p in leaves)
    return TangentType(tree, tuple((np.shape(p), k) for p, k in zip(leaves, kinds, strict=True)))


def zero_tangent(x: PyTree) -> Structural:
    """The zero structural tangent of `x`: zeros, and `float0` at integer and boolean leaves."""
    return jax.tree.map(zero_leaf, x)


def zero_leaf(p: Arraylike) -> Natural:
    """The zero tangent of one leaf."""
    return (
        jnp.zeros_like(jnp.asarray(p))
        if is_inexact(p)
        else np.zeros(np.shape(p), jax.dtypes.float0)
    )


def add_tangents(a: Structural, b: Structural) -> Structural:
    """The sum of two structural tangents of one primal.

    **Raises:** `CotangentError` if their trees or shapes differ, as those of a natural and a
    structural (co)tangent do.
    """
    expected, got = jax.tree.structure(a), jax.tree.structure(b)
    shapes = [tuple(map(np.shape, jax.tree.leaves(t))) for t in (a, b)]
    if expected != got or shapes[0] != shapes[1]:
        raise CotangentError(
            message(
                "add_tangents: the two tangents are not of one type.",
                f"left:  {expected} {shapes[0]}",
                f"right: {got} {shapes[1]}",
                hint="only tangents of one kind add; convert with `tj.natural` or `tj.structural`.",
            )
        )
    return jax.tree.map(lambda x, y: x if jnp.result_type(x) == jax.dtypes.float0 else x + y, a, b)


def inner_product(cotangent: Structural, tangent: Structural) -> Scalar:
    """JAX's pairing `Re Σ c t` of a structural cotangent with a structural tangent, as a scalar."""
    expected, got = jax.tree.structure(cotangent), jax.tree.structure(tangent)
    if expected != got:
        raise CotangentError(
            message("inner_product: the two trees differ.", f"left:  {expected}", f"right: {got}")
        )
    pairs = zip(jax.tree.leaves(cotangent), jax.tree.leaves(tangent), strict=True)
    terms = [jnp.real(jnp.sum(c * t)) for c, t in pairs if is_inexact(c) and is_inexact(t)]
    return sum(terms[1:], terms[0]) if terms else jnp.zeros(())


def fit_leaf(where: str, p: Arraylike, t: Natural) -> Natural:
    """One cotangent leaf in the dtype of its primal: the transpose of JAX's conversions.

    A wider float is rounded, a complex number gives its real part to a real primal. A narrower
    float raises: the precision is already gone, and JAX would pass it on in silence.
    """
    if not is_inexact(p):
        return np.zeros(np.shape(p), jax.dtypes.float0)
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
