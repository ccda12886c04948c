"""Derivatives that were taken outside of a compiled function, and left the range of their dtype.

`tj.grad(f)(x)` without `tj.jit` runs through JAX's tracers, whose numbers nobody can look at: a
kinetic energy of a star overflows on the way, and its gradient is inf or nan where the compiled one
is right. The result itself can be looked at: if it is not finite although every argument is, the
same derivative is taken once more by `tj.jit`, which plans exponents, and that is what is returned.

    result = planned_if_lost("grad", derivative, args, kwargs, derivative(*args, **kwargs))

Sharp edges. Code that cannot be compiled (it branches on numbers) keeps the first result, and a
`ScaleWarning` says so. A zero that should not be one is finite, and is not seen: `tj.jit` sees it.
Where there is a tracer, nothing is looked at.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tanjax._errors import ScaleWarning, message, outside
from tanjax.arrays import is_inexact


def planned_if_lost(
    name: str, derivative: Callable[..., Any], args: Any, kwargs: Any, result: Any
) -> Any:
    """`result`, or what `tj.jit` of the derivative gives if it is not finite for no reason."""
    if not (_is_broken(result) and _is_finite((args, kwargs))):
        return result
    from ._jit import jit

    try:
        planned = jit(derivative)(*args, **kwargs)
    except (TypeError, ValueError, NotImplementedError, jax.errors.JAXTypeError):
        warnings.warn(
            message(
                f"{name}: the derivative is not finite, and its exponents could not be planned.",
                "why: numbers left the range of their dtype, or the derivative does not exist; "
                "the function cannot be compiled, so nobody can look.",
                hint=f"write it for tj.jit(tj.{name}(f)), take a wider dtype, or units nearer to "
                "the values.",
            ),
            ScaleWarning,
            stacklevel=outside(),
        )
        return result
    return planned


@jax.jit
def _all_finite(leaves: list[Any]) -> Any:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in leaves]))


def _leaves(tree: Any) -> list[Any] | None:
    """The floating arrays of a tree; `None` where there is a tracer."""
    leaves = jax.tree.leaves(tree)
    if any(isinstance(x, jax.core.Tracer) for x in leaves):
        return None
    return [x for x in leaves if is_inexact(x)]


def _is_broken(result: Any) -> bool:
    leaves = _leaves(result)
    return bool(leaves) and not bool(_all_finite(leaves))


def _is_finite(arguments: Any) -> bool:
    leaves = _leaves(arguments)
    return leaves is not None and (not leaves or bool(_all_finite(leaves)))
