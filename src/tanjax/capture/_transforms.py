"""The higher-order functions of tanjax as equations: loops, branches, derivatives, maps.

Each line here wraps a function of `tanjax.transforms`. `for_loop` is new; see `_adjoint`, `_ctrl`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import PyTree

from tanjax import transforms
from tanjax._typing import Function

from ._higher_order import higher_order, in_place_of, require_function

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


@in_place_of(transforms.jit)
def jit(fun: Function | None = None, /, **options: Any) -> Any:
    if fun is None:
        return lambda f: jit(f, **options)
    compiled = transforms.jit(fun, **options)
    of_jax = {k: v for k, v in options.items() if k not in ("scale", "check", "passes")}
    compiled.captured = _jit(compiled.__wrapped__, **of_jax)  # rewritten by the passes
    return compiled


_jit = higher_order(curried=True, name="jit")(lambda fun, **options: jax.jit(fun, **options))


@higher_order(name="for_loop")
def _for_loop(body: Function, start: int, stop: int, step: int, *state: PyTree) -> PyTree:
    count = -((start - stop) // step)
    count = max(0, count) if isinstance(count, int) else jnp.maximum(0, count)

    def once(k: Array, state: PyTree) -> PyTree:
        out = body(start + k * step, *state)
        return (out,) if len(state) == 1 else tuple(out if state or out is not None else ())

    out = transforms.fori_loop(0, count, once, state)
    return out[0] if len(state) == 1 else out


def for_loop(start: int, stop: int, step: int = 1) -> Function:
    """Make a loop as a decorator: `for_loop(0, n)(body)(*state)`, one equation `for_loop`.

    **Arguments:** `start`, `stop`, `step`: as of `range`; traced bounds make a loop that has no
    reverse mode. Then `body(i, *state)`, which returns the new state: one value if the state has
    one, otherwise a tuple, or `None` for no state. Then the initial state.
    **Returns:** the final state; the initial state if there are no trips.
    **Raises:** `ValueError` if `step` is 0; `UnitError` if a dimension changes in the body.
    **Derivative:** both modes for static bounds; for traced ones forward mode, and
    `tj.programs.adjoint`.
    **Cost:** that of `jax.lax.fori_loop`.

    >>> import tanjax as tj
    >>> tj.programs.for_loop(0, 3)(lambda i, x: x + i)(1.0)
    Array(4., dtype=float32, weak_type=True)
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


for_loop.equation = _for_loop  # type: ignore[attr-defined]  # read by `tj.programs.handles`
