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
from tanjax._errors import ShapeError, message
from tanjax._typing import Function
from tanjax.arrays import BlockDiagonal, Identity, is_structured
from tanjax.dispatch import transpose

from ._higher_order import higher_order, require_function

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
        return (out,) if len(state) == 1 else tuple(out)

    out = transforms.fori_loop(0, count, once, state)
    return out[0] if len(state) == 1 else out


def for_loop(start: int, stop: int, step: int = 1) -> Function:
    """A loop as a decorator: `tj.for_loop(0, n)(body)(*state)`, one equation `for_loop`.

    **Arguments:** `start`, `stop`, `step`: as of `range`; traced ones make a loop that has no
    reverse mode. Then `body(i, *state)`, which returns the new state: one value where the state is
    one, a tuple otherwise. Then the initial state.
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
    def adjoint_of(*args: PyTree) -> PyTree:
        *fixed, y = args
        like = jax.tree.map(lambda v: jax.ShapeDtypeStruct(jnp.shape(v), jnp.result_type(v)), y)
        transposed = jax.linear_transpose(lambda x: f(*fixed, x), like)
        return _conj(transposed(_conj(y))[0])

    return adjoint_of


def adjoint(f: Any) -> Any:
    """The adjoint: of an array its conjugate transpose, of a function that of its last argument.

    **Arguments:** `f`: a matrix of any type, or a function `f(*parameters, x)` that is linear in
    `x` and returns a value like `x`.
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
def _ctrl(f: Function, control: tuple[int, ...]) -> Function:
    def controlled(*args: PyTree) -> PyTree:
        *fixed, states = args
        row = _row(control)
        leading = {jnp.shape(x)[0] if jnp.ndim(x) else 0 for x in jax.tree.leaves(states)}
        if leading != {2 ** len(control)}:
            raise ShapeError(
                message(
                    f"ctrl: {len(control)} controls need {2 ** len(control)} stacked states.",
                    f"got: leading axes {sorted(leading)}",
                )
            )
        new = f(*fixed, jax.tree.map(lambda x: x[row], states))
        return jax.tree.map(lambda x, y: x.at[row].set(y), states, new)

    return controlled


def ctrl(f: Any, control: Sequence[int] = (1,)) -> Any:
    """Controlled: of a matrix the block-diagonal one, of a function its action on one row.

    **Arguments:** `f`: a square matrix of any type, or a function `f(*parameters, state)`.
    `control`: the values of the controls at which it acts, the first the most significant bit.
    **Returns:** `BlockDiagonal` with identities and the matrix at the block that `control` spells;
    or a function of states stacked along a leading axis of `2 ** len(control)`. Under `tj.capture`
    that is an equation that carries the program of `f`.
    **Raises:** `ShapeError` if the states are not that many; `ValueError` for other controls than
    0 and 1.
    """
    control = tuple(int(c) for c in control)
    if not control or not set(control) <= {0, 1}:
        raise ValueError(f"ctrl: `control` is made of zeros and ones, got {control}.")
    if callable(f):
        return _ctrl(f, control)
    n = f.shape[-1]
    blocks: list[Any] = [Identity(n, f.dtype)] * 2 ** len(control)
    blocks[_row(control)] = f
    return BlockDiagonal(*blocks)


ctrl.equation = _ctrl  # type: ignore[attr-defined]


def _row(control: Sequence[int]) -> int:
    return int("".join(str(int(c)) for c in control), 2)


def _conj(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.conj(x) if jnp.iscomplexobj(x) else x, tree)
