"""A torch function inside of JAX, with its gradient."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NoReturn, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.typing import ArrayLike

from tanjax._errors import NoRuleError, UnitError, message
from tanjax._typing import Arraylike, Function
from tanjax.arrays import is_inexact, is_structured
from tanjax.quantities import is_quantity
from tanjax_torch._typing import Numbers
from tanjax_torch.arguments._dtypes import jax_dtype

Arrays = jax.Array | tuple[jax.Array, ...]
Host: TypeAlias = "Numbers | tuple[Host, ...]"
Promise = jax.ShapeDtypeStruct | tuple[jax.ShapeDtypeStruct, ...]


def callback(function: Function, result: Promise) -> Function:
    """A function of plain torch tensors as a function of arrays, which JAX can trace.

    **Arguments:** `function`: takes plain tensors on the CPU and returns one, or a tuple of them;
    it must be pure: JAX may call it any number of times. `result`: the shape and dtype of its
    result, a `jax.ShapeDtypeStruct`, or a tuple of them.

    **Returns:** a function of dense arrays, for `jax.jit`, `jax.grad` and `jax.vmap`.
    Parameters of a module that `function` holds are constants.

    **Cost:** the numbers go to the host and back; a batch is called element by element.

    **Derivative:** torch's, in a callback of its own: reverse mode, of first order.

    **Raises:** `NoRuleError` for structured arrays, for forward mode (under `jax.jit` it is JAX's
    `TypeError`) and for derivatives of second order; `UnitError` for quantities. Errors of
    `function`, and results of other shapes than promised, come as an error of JAX's runtime.
    """

    @functools.wraps(function)
    def called(*args: Arraylike) -> Arrays:
        return _called(function, result, tuple([_checked(x) for x in args]))

    return called


def _checked(x: Arraylike) -> jax.Array:
    if is_quantity(x):
        raise UnitError(
            message(
                f"callback: torch does not know the unit of a quantity in {x.unit}.",
                hint="pass `x.to_value(unit)`, and put a unit on the result.",
            )
        )
    if is_structured(x):
        raise NoRuleError(
            message(
                f"callback: a plain torch function has no {type(x).__name__}.",
                hint="pass `x.to_dense()`.",
            )
        )
    return jnp.asarray(x)


def _called(function: Function, result: Promise, args: tuple[jax.Array, ...]) -> Arrays:
    moving = tuple([i for i, x in enumerate(args) if is_inexact(x)])

    @jax.custom_vjp
    def value(*args: jax.Array) -> Arrays:
        return _on_host(functools.partial(_forward, function), result, *args)

    def pull(args: tuple[jax.Array, ...], bars: Arrays) -> tuple[jax.Array | Numbers, ...]:
        shapes = tuple([jax.ShapeDtypeStruct(args[i].shape, args[i].dtype) for i in moving])
        flat = bars if isinstance(bars, tuple) else (bars,)
        host = functools.partial(_backward, function, moving, len(args))
        found = iter(_first_order(functools.partial(_on_host, host, shapes))(*args, *flat))
        zero = lambda x: np.zeros(x.shape, jax.dtypes.float0)
        return tuple([next(found) if i in moving else zero(x) for i, x in enumerate(args)])

    value.defvjp(lambda *args: (value(*args), args), pull)
    try:
        return value(*args)
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        raise NoRuleError(
            message(
                "callback: forward mode.",
                "why: torch's derivative runs backwards, in a callback.",
                hint="use `jax.grad` or `jax.vjp`.",
            )
        ) from error


def _on_host(host: Function, result: Promise, *args: jax.Array) -> Arrays:
    return jax.pure_callback(host, result, *args, vmap_method="sequential")


def _first_order(call: Function) -> Function:
    """Return a derivative that raises when it is differentiated again."""
    once = jax.custom_jvp(call)

    @once.defjvp
    def refuse(primals: object, tangents: object) -> NoReturn:
        raise NoRuleError(
            message(
                "callback: a derivative of second order.",
                "why: torch computes the first one in a callback, which JAX cannot look into.",
                hint="write the function in JAX, or differentiate twice in torch.",
            )
        )

    return once


# -- on the host: NumPy in, NumPy out ------------------------------------------------------------


def _plain(x: ArrayLike) -> torch.Tensor:
    return torch.from_numpy(np.array(x))


def _numbers(out: torch.Tensor | Sequence[torch.Tensor]) -> Host:
    if isinstance(out, (tuple, list)):
        return tuple([_numbers(x) for x in out])
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"callback: the function returned {type(out).__name__}, and no tensor.")
    return (
        out.detach().resolve_conj().resolve_neg().numpy().astype(jax_dtype(out.dtype), copy=False)
    )


def _forward(function: Function, *args: ArrayLike) -> Host:
    with torch.no_grad():
        return _numbers(function(*map(_plain, args)))


def _backward(function: Function, moving: Sequence[int], count: int, *args: ArrayLike) -> Host:
    tensors = [_plain(x) for x in args[:count]]
    for i in moving:
        tensors[i].requires_grad_()
    with torch.enable_grad():
        out = function(*tensors)
    outs = out if isinstance(out, (tuple, list)) else (out,)
    # A cotangent of torch is the conjugate of JAX's.
    pairs = [
        (o, _plain(np.conj(g))) for o, g in zip(outs, args[count:], strict=True) if o.requires_grad
    ]
    inputs = [tensors[i] for i in moving]
    if not pairs:
        return tuple([np.zeros(t.shape, jax_dtype(t.dtype)) for t in inputs])
    ends, bars = zip(*pairs, strict=True)
    found = torch.autograd.grad(ends, inputs, bars, allow_unused=True)
    zeros = [torch.zeros_like(t) if g is None else g for t, g in zip(inputs, found, strict=True)]
    return _numbers(tuple([g.conj() for g in zeros]))
