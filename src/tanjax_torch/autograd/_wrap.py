"""A JAX function as a function of torch, with its gradient."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import PyTree

from tanjax._errors import message
from tanjax.arrays import densify_mode, is_structured
from tanjax_torch._typing import Argument, Function, Payload, Payloads
from tanjax_torch.arguments._static import Arguments, cut
from tanjax_torch.tensor._lift import quietly
from tanjax_torch.tensor._plain import TensorError
from tanjax_torch.tensor._tensor import Tensor

from ._natural import Built, Call, as_tensor, bottom, built

_MOST = 256  # compiled forms of one wrapped function: for its arguments that are no arrays


def wrap(function: Function) -> Function:
    """Return a JAX function as a function of torch tensors.

    **Arguments:** `function`: any function that JAX can trace, of arrays, structured arrays and
    quantities in pytrees. It may use our operations and `jax.custom_vjp`.

    **Returns:** a function of the same arguments with tensors in the places of arrays, which
    returns the same tree of tensors: plain ones if all tensors among its arguments are plain, else
    ours. Structured arrays and quantities are always ours. Floats and arrays of JAX or NumPy
    are operands too. Integers, texts, `None` and functions are static: another one compiles again.
    Compiled once for each structure, shapes and units. Numbers of plain tensors are copied, both
    ways.

    **Derivative:** JAX's, of any order: `backward`, `create_graph`, `torch.func` (`grad`, `vmap`,
    `jvp` and their products), `torch.autograd.forward_ad`. Gradients of structured tensors are
    structural, those of quantities in `[loss]/[x]`, those of plain tensors plain. Integers have
    none.

    **Raises:** `TensorError` for an argument that cannot be hashed, `DtypeError` for a plain tensor
    with numbers that JAX, as it is set up, does not hold.

    >>> from tanjax_torch import from_jax
    >>> wrap(lambda x: x**3)(from_jax(2.0))
    Tensor(8.)
    """

    @functools.lru_cache(_MOST)
    def call_for(arguments: Arguments, policy: str) -> Call:
        def run(*payloads: Payload) -> tuple[Payloads, Built]:
            args, kwargs = arguments.fill(payloads)
            out = function(*args, **kwargs)
            leaves, tree = jax.tree.flatten(out, is_leaf=is_structured)
            payloads = tuple([x if is_structured(x) else jnp.asarray(x) for x in leaves])
            return payloads, Built(lambda rest: jax.tree.unflatten(tree, list(rest)))

        return Call(run, by_matrix=False, builds=True)

    @functools.wraps(function)
    def wrapped(*args: Argument, **kwargs: Argument) -> PyTree:
        arguments, operands = cut(args, kwargs, _is_operand)
        try:
            call = call_for(arguments, densify_mode())
        except TypeError as error:
            raise TensorError(
                message(
                    f"wrap: an argument cannot be hashed: {error}.",
                    hint="pass arrays as tensors, and other data as tuples.",
                )
            ) from None
        tensors = [x for x in operands if isinstance(x, torch.Tensor)]
        plainly = bool(tensors) and not any(isinstance(bottom(t), Tensor) for t in tensors)
        with quietly():
            return built(call, [as_tensor(x) for x in operands], plainly)

    return wrapped


def make(kind: Function, *args: Argument, **kwargs: Argument) -> torch.Tensor:
    """Build a structured tensor from tensors: `tjt.make(tj.Diagonal, x)`.

    **Arguments:** `kind`: an array type, or any function that returns an array; then its arguments.
    **Returns:** a tensor. **Derivative:** gradients flow into the tensors that it is made of.
    """
    out: torch.Tensor = _maker(kind)(*args, **kwargs)
    return out


_maker = functools.lru_cache(_MOST)(wrap)


def _is_operand(x: object) -> bool:
    if isinstance(x, (torch.Tensor, jax.Array, np.ndarray, np.floating, complex)):
        return True
    return isinstance(x, float) or is_structured(x)
