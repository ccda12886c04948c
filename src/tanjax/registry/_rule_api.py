"""Functions for rule authors and tests: run a rule, align mesh axes, make constants."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax import _compat, _jaxprs, arrays
from tanjax._typing import Function

from ._batched import is_batched
from ._operation import Operation


def rrule(
    f: Function, *args: PyTree, **kwargs: PyTree
) -> tuple[PyTree, Callable[[PyTree], tuple[PyTree, ...]]]:
    """Return the value of `f` and its pullback on structural cotangents.

    **Arguments:** an operation (its registered rule runs, or AD of the implementation where none
    applies) or any JAX function.

    **Returns:** `(out, pullback)`; `pullback(out_bar)` gives one structural cotangent per
    positional array argument.
    """
    if not isinstance(f, Operation) or f.strips(args) or is_batched(f, args):
        return jax.vjp(lambda *a: f(*a, **kwargs), *args)
    args, statics = f._bind(args, kwargs)
    resolution = f.resolve(args, statics)
    if resolution.rule is not None:
        out, pullback = resolution.structural_rule(*args)
        if resolution.handles(out):
            return out, pullback
    return jax.vjp(resolution.differentiable(), *args)


def frule(
    f: Function, primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...], **kwargs: PyTree
) -> tuple[PyTree, PyTree]:
    """Return the value of `f` and its pushforward of structural tangents: `(out, out_dot)`.

    **Arguments:** an operation (its natural pushforward runs, or forward mode as JAX derives it) or
    any JAX function; `primals` and `tangents`, tuples of one length. Keywords are static.
    """
    if isinstance(f, Operation) and not (f.strips(primals) or is_batched(f, primals)):
        primals, statics = f._bind(primals, kwargs)
        resolution = f.resolve(primals, statics)
        if resolution.push is not None:
            out, pushforward = resolution.structural_push(*primals)
            if resolution.handles(out, resolution.push):
                return out, pushforward(*tangents)
        return jax.jvp(resolution.differentiable(), primals, tangents)
    return jax.jvp(lambda *a: f(*a, **kwargs), primals, tangents)


def as_custom_vjp(op: Operation, **kwargs: PyTree) -> Function:
    """Return the operation as a plain `jax.custom_vjp` function: reverse mode only.

    For rules with side effects, and for comparison. Forward mode raises, as `custom_vjp` does.
    """

    @jax.custom_vjp
    def f(*args: PyTree) -> PyTree:
        return op.primal(*args, **kwargs)

    def forward(*args: PyTree) -> PyTree:
        out, pullback = rrule(op, *args, **kwargs)
        leaves, tree = jax.tree.flatten(out)
        places = [i for i, o in enumerate(leaves) if arrays.is_inexact(o)]

        def pull(*cts: PyTree) -> list[PyTree]:
            full = [arrays.zero_leaf(o) for o in leaves]
            for i, c in zip(places, cts, strict=True):
                full[i] = c
            flat = jax.tree.leaves(pullback(jax.tree.unflatten(tree, full)))
            return [c for c in flat if c.dtype != _compat.float0]

        converted, residuals = _jaxprs.convert_closure(pull, *(leaves[i] for i in places))
        run = jax.tree_util.Partial(lambda values, *cts: converted(values, *cts))
        return out, (run, residuals, args)

    def backward(saved: PyTree, out_bar: PyTree) -> PyTree:
        run, residuals, args = saved
        cts = [c for c in jax.tree.leaves(out_bar) if c.dtype != _compat.float0]
        rest = iter(run(residuals, *cts))
        fill = lambda p: next(rest) if arrays.is_inexact(p) else arrays.zero_leaf(p)
        return tuple(jax.tree.map(fill, args))

    f.defvjp(forward, backward)
    return f


def align(tree: PyTree, *like: PyTree) -> PyTree:
    """Make arrays vary over the same mesh axes of `shard_map`: those of any of them.

    JAX does this itself in arithmetic. It requires aligned axes in the initial carry of a loop, in
    a tangent of a `custom_jvp`, and in the matrix and right-hand side of a `custom_linear_solve`.
    Operands of a rule are aligned already; zeros that the rule makes are not.

    **Arguments:** `tree`: a pytree of arrays. `like`: further arrays; only their axes count.
    **Returns:** the arrays of `tree`, cast; outside of `shard_map` the tree as it is.
    **Derivative:** the sum over the axes that an array lacked.
    """
    return _compat.align(tree, *like)


def constant(values: np.ndarray, dtype: DTypeLike) -> Array:
    """Return NumPy's numbers as an array that the program makes, for a branch of `jax.lax.cond`.

    Inside of `shard_map`, `jax.vmap` lets the values that a branch closes over, also constants,
    vary over the mesh. They then no longer agree with values made inside the branch, and JAX
    raises.
    """
    return _compat.constant(np.asarray(values, dtype))
