"""Trees of structured arrays, between structural and natural.

`jax.grad` returns structural cotangents: the gradient of a `Kronecker` is a pair of factor
cotangents in the primal's class. An optimiser can use it, but it is not the gradient matrix.
`tj.grad` returns natural cotangents. These functions convert whole trees, and leave integer leaves
out (their gradient is `None`).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import _compat, arrays
from tanjax._errors import CotangentError, describe, message
from tanjax._typing import Arraylike
from tanjax.arrays import is_inexact, is_structured
from tanjax.quantities import is_quantity, unitful


def natural_tree(primal: PyTree, cotangent: PyTree, batch: int = 0) -> PyTree:
    """Return a tree of natural cotangents from structural cotangents or `None`.

    Both have `batch` leading axes.
    """

    def convert(x: PyTree, c: PyTree) -> PyTree:
        if not is_structured(x):
            return c if is_inexact(x) else None
        if c is None:
            return None
        if is_quantity(x) and not is_structured(x.stored):
            return unitful(c.stored, x.label.inverse) if is_inexact(x.stored) else None
        if batch == 0:
            arrays.warn_if_hidden(x, c)
        pull = functools.partial(_natural, x)
        for _ in range(batch):
            pull = jax.vmap(pull)
        return pull(c)

    return jax.tree.map(convert, primal, cotangent, is_leaf=is_structured)


# Compiled: the default J⁺ᵀ is a loop, which an eager call would trace again every time (0.3 s).
_natural = jax.jit(arrays.natural)


def structural_cotangent(x: PyTree, natural: Arraylike | None) -> PyTree:
    """Return the structural cotangent of one output array, from its natural cotangent or `None`."""
    if natural is None or not (is_structured(x) or is_inexact(x)):
        return arrays.zero_tangent(x)
    return arrays.pullback_of_destructure(x)(natural)


def structural_tangent(where: str, x: PyTree, natural: Arraylike | None) -> PyTree:
    """Return the structural tangent of one input array, from its natural tangent or `None`."""
    if natural is None or not (is_structured(x) or is_inexact(x)):
        return arrays.zero_tangent(x)
    return _structural_tangent(where, x, natural)


def _structural_tangent(where: str, x: PyTree, n: Arraylike) -> PyTree:
    kind = arrays.array_type(x)
    same = jax.tree.structure(n) == jax.tree.structure(x)  # it could hold tangents of the fields
    if kind is not None and same and not kind.is_linear(x):
        raise CotangentError(
            message(
                f"{where}: a tangent of {describe(x)} cannot be another {type(x).__name__}.",
                "why: the type is not a linear space: are fields or arrays meant?",
                hint="pass a dense or `tj.Outer` tangent; `jax.jvp` takes tangents of the fields.",
            )
        )
    t = arrays.pushforward_of_restructure(x)(n)
    _check_in_tangent_space(where, x, n, t)
    return t


def _check_in_tangent_space(where: str, x: PyTree, n: Arraylike, t: PyTree) -> None:
    """Raise if a concrete natural tangent has a part that the type cannot express."""
    if not is_structured(x) or any(isinstance(v, _compat.Tracer) for v in jax.tree.leaves((x, n))):
        return
    back = arrays.pushforward_of_destructure(x)(t)
    whole, missing = _probed(n), _probed(arrays.add(n, arrays.scaled(back, -1.0)))
    if isinstance(missing, _compat.Tracer):  # constants under `jit`
        return
    eps = float(jnp.finfo(whole.dtype).eps)
    if float(jnp.linalg.norm(missing)) > eps**0.5 * float(jnp.linalg.norm(whole)):
        raise CotangentError(
            message(
                f"{where}: the tangent is not tangent to {describe(x)}.",
                "why: it has entries where the structure has none.",
                hint="project it with `tj.tangents.project(x, tangent)` if that is meant.",
            )
        )


def _probed(n: Arraylike) -> PyTree:
    """Return a few random products, all zero only if the tangent is: never form its n-by-n."""
    if not is_structured(n) or len(n.shape) != 2:
        return arrays.destructure(n)
    columns = np.random.default_rng(0).normal(size=(n.shape[1], 3))
    return arrays.apply(n, jnp.asarray(columns, n.dtype))


def destructured_tree(out: PyTree) -> PyTree:
    """Replace every structured array of a tree by its dense array."""
    return jax.tree.map(
        lambda x: arrays.destructure(x) if is_structured(x) else x, out, is_leaf=is_structured
    )
