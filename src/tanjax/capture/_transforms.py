"""The higher-order functions of tanjax as equations: loops, branches, derivatives, maps.

Each is what `tanjax.transforms` defines, one line here. `for_loop`, `adjoint` and `ctrl` are new.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import transforms
from tanjax._errors import CaptureError, ShapeError, describe, message
from tanjax._marks import is_operand, join, split
from tanjax._typing import Function
from tanjax.arrays import BlockDiagonal, Identity, is_structured
from tanjax.dispatch import transpose

from ._higher_order import higher_order, require_function
from ._tracing import trace

scan = higher_order(transforms.scan)
while_loop = higher_order(transforms.while_loop)
fori_loop = higher_order(transforms.fori_loop)
cond = higher_order(transforms.cond)
switch = higher_order(transforms.switch)
map = higher_order(transforms.map)
associative_scan = higher_order(transforms.associative_scan)
jvp = higher_order(transforms.jvp)
vmap = higher_order(curried=True)(transforms.vmap)
checkpoint = higher_order(curried=True)(transforms.checkpoint)
grad = higher_order(curried=True)(transforms.grad)
value_and_grad = higher_order(curried=True)(transforms.value_and_grad)
jacrev = higher_order(curried=True)(transforms.jacrev)
jacfwd = higher_order(curried=True)(transforms.jacfwd)
jacobian = higher_order(curried=True, name="jacobian")(transforms.jacobian)
hessian = higher_order(curried=True)(transforms.hessian)


def jit(fun: Function | None = None, /, **options: Any) -> Any:
    if fun is None:
        return lambda f: jit(f, **options)
    compiled = transforms.jit(fun, **options)
    of_jax = {k: v for k, v in options.items() if k not in ("scale", "passes")}
    function = functools.reduce(lambda f, rewrite: rewrite(f), options.get("passes", ()), fun)
    compiled.captured = _jit(function, **of_jax)
    return compiled


jit.__doc__ = transforms.jit.__doc__
_jit = higher_order(curried=True, name="jit")(lambda fun, **options: jax.jit(fun, **options))


@functools.partial(higher_order, name="for_loop")
def _for_loop(body: Function, start: int, stop: int, step: int, *state: PyTree) -> PyTree:
    count = -((start - stop) // step)
    count = max(0, count) if isinstance(count, int) else jnp.maximum(0, count)

    def once(k: Any, state: PyTree) -> PyTree:
        out = body(start + k * step, *state)
        return (out,) if len(state) == 1 else tuple(out if state or out is not None else ())

    out = transforms.fori_loop(0, count, once, state)
    return out[0] if len(state) == 1 else out


def for_loop(start: int, stop: int, step: int = 1) -> Function:
    """A loop as a decorator: `tj.for_loop(0, n)(body)(*state)`, one equation `for_loop`.

    **Arguments:** `start`, `stop`, `step`: as of `range`; traced ones make a loop that has no
    reverse mode. Then `body(i, *state)`, which returns the new state: one value where the state is
    one, a tuple otherwise, or `None` where there is none. Then the initial state.
    **Returns:** the final state; the initial one if there are no trips.
    **Raises:** `ValueError` if `step` is 0; `UnitError` if a dimension changes in the body.
    **Derivative:** both modes for static bounds.
    """
    if isinstance(step, int) and step == 0:
        raise ValueError("for_loop: `step` must not be 0.")

    def decorator(body: Function) -> Function:
        require_function("for_loop", body)

        @functools.wraps(body)
        def loop(*state: PyTree) -> PyTree:
            return _for_loop(body, start, stop, step, *state)

        return loop

    return decorator


for_loop.equation = _for_loop  # type: ignore[attr-defined]  # what handlers of it handle


@functools.partial(higher_order, curried=True, name="adjoint")
def _adjoint(f: Function) -> Function:
    def adjoint_of(*args: PyTree, **kwargs: PyTree) -> PyTree:
        moving, tree, shape = split((args, kwargs), is_operand)
        traced = trace(f, tree, shape, moving)  # once, however deep adjoints are nested
        if not traced.out_tree.num_leaves:
            return join(traced.out_tree, (), ())
        *fixed, y = args
        if not all(is_operand(v) for v in jax.tree.leaves(y)):
            return adjoint_of(*fixed, jax.tree.map(jnp.asarray, y), **kwargs)
        start = len(split(fixed, is_operand)[0])

        def linear(x: PyTree) -> PyTree:
            leaves = jax.tree.leaves(x)
            operands = [*moving[:start], *leaves, *moving[start + len(leaves) :]]
            closed = traced.closed
            outs = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *operands)
            return join(traced.out_tree, traced.out_shape, outs)

        like = jax.tree.map(lambda v: jax.ShapeDtypeStruct(jnp.shape(v), jnp.result_type(v)), y)
        return _conj(jax.linear_transpose(linear, like)(_conj(y))[0])

    return adjoint_of


def adjoint(f: Any) -> Any:
    """The adjoint: of an array its conjugate transpose, of a function that of its last argument.

    **Arguments:** `f`: a matrix of any type, or a function `f(*parameters, x)` that is linear in
    `x` and returns a value like `x`; or one that returns nothing, and makes instances of
    `tj.CaptureMeta` classes, of whose adjoint only an interpreter knows.
    **Returns:** the matrix, `conj(A).mT` in its structure; or a function `(*parameters, y)` with
    `<f*(y), x> = <y, f(x)>`. Under `tj.capture` that is an equation that carries the program of
    `f`, whatever it contains: interpreters may give it another meaning.
    **Raises:** JAX's error for a function that is not linear.
    **Derivative:** that of the conjugate of `jax.linear_transpose`, both modes.
    """
    if callable(f):
        return _adjoint(f)
    return transpose(f.conj() if is_structured(f) else jnp.conj(f))


adjoint.equation = _adjoint  # type: ignore[attr-defined]


@functools.partial(higher_order, curried=True, name="ctrl")
def _ctrl(f: Function, control: tuple[int, ...], wires: Any = None) -> Function:
    def controlled(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if wires is not None:
            return _nothing(f(*args, **kwargs))
        *fixed, states = args
        row = _row(control)
        leading = {jnp.shape(x)[0] if jnp.ndim(x) else 0 for x in jax.tree.leaves(states)}
        if leading != {2 ** len(control)}:
            raise ShapeError(
                message(
                    f"ctrl: {len(control)} controls need {2 ** len(control)} stacked states.",
                    f"got: leading axes {sorted(leading)}",
                    hint="say `wires=` for a function that makes gates and returns nothing.",
                )
            )
        new = f(*fixed, jax.tree.map(lambda x: x[row], states), **kwargs)
        return jax.tree.map(lambda x, y: x.at[row].set(y), states, new)

    return controlled


def _nothing(out: PyTree) -> PyTree:
    """The result of a function that makes gates: there is none that could be controlled."""
    if jax.tree.leaves(out):
        raise CaptureError(
            message(
                "ctrl: with `wires` it takes a function that returns nothing.",
                f"got: {', '.join(describe(x) for x in jax.tree.leaves(out))}",
                "why: `wires` is where an interpreter controls the gates that the function makes.",
                hint="leave `wires` out for a function of stacked states.",
            )
        )
    return out


def ctrl(f: Any, control: Sequence[int] = (1,), wires: Any = None) -> Any:
    """Controlled: of a matrix the block-diagonal one, of a function its action on one row.

    **Arguments:** `f`: a square matrix of any type, or a function `f(*parameters, state)`.
    `control`: the values of the controls at which it acts, the first the most significant bit.
    `wires`: for a function that returns nothing and makes instances of `tj.CaptureMeta` classes:
    where its controls are, one for each, which an interpreter reads.
    **Returns:** `BlockDiagonal` with identities and the matrix at the block that `control` spells;
    or a function of states stacked along a leading axis of `2 ** len(control)`. Under `tj.capture`
    that is an equation that carries the program of `f`.
    **Raises:** `ShapeError` if the states are not that many; `ValueError` for other controls than
    0 and 1, or not as many as `wires`; `CaptureError` if there are `wires` and a result.
    """
    control = tuple(int(c) for c in control)
    if not control or not set(control) <= {0, 1}:
        raise ValueError(f"ctrl: `control` is made of zeros and ones, got {control}.")
    if wires is not None and len(wires) != len(control):
        raise ValueError(f"ctrl: {len(control)} controls, and {len(wires)} wires for them.")
    if callable(f):
        return _ctrl(f, control, None if wires is None else tuple(wires))
    n = f.shape[-1]
    blocks: list[Any] = [Identity(n, f.dtype)] * 2 ** len(control)
    blocks[_row(control)] = f
    return BlockDiagonal(*blocks)


ctrl.equation = _ctrl  # type: ignore[attr-defined]


def _row(control: Sequence[int]) -> int:
    return int("".join(str(int(c)) for c in control), 2)


def _conj(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.conj(x) if jnp.iscomplexobj(x) else x, tree)
