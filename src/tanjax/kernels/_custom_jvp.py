"""`jax.custom_jvp` for functions whose body AD would differentiate wrongly.

In reverse mode through a `scan`, JAX before 0.12 keeps the body of a `custom_jvp` and drops its
rule. The next derivative is then AD of the body. If the body takes a factorisation as constant,
that derivative is silently zero. This module keeps the body inside of a primitive.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._errors import RegistrationError, message
from tanjax._typing import Function


class custom_jvp:
    """A function of arrays with floating results, and its tangent rule, as in `jax.custom_jvp`.

        @tj.rules.custom_jvp
        def logdet(matrix, factor):  # the factor is constant, the derivative is by the matrix
            return jnp.sum(jnp.log(jnp.diagonal(factor)))

        @logdet.defjvp
        def _(primals, tangents): ...

    Every order, mode and transformation of JAX applies the rule, `lax.scan` in reverse too.
    """

    def __init__(self, f: Function) -> None:
        self._f = jax.custom_jvp(f)
        self._name = getattr(f, "__name__", "custom_jvp")
        functools.update_wrapper(self, f)

    def defjvp(self, rule: Function, symbolic_zeros: bool = False) -> Function:
        """Set `rule(primals, tangents) -> (result, tangent)`, and return it.

        The rule may call the function.
        """
        self._f.defjvp(rule, symbolic_zeros=symbolic_zeros)
        return rule

    def __call__(self, *args: PyTree) -> PyTree:
        leaves, tree = jax.tree.flatten(args)
        results, structure = jax.tree.flatten(jax.eval_shape(self._f, *args))
        floating = [jnp.issubdtype(x.dtype, jnp.inexact) for x in results]
        if not any(floating):
            return self._f(*args)
        if not all(floating):
            raise RegistrationError(
                message(
                    f"{self._name}: results of a `tj.rules.custom_jvp` are floating or complex.",
                    f"got: {', '.join(str(x.dtype) for x in results)}",
                    hint="compute the integers outside, and pass them as an argument.",
                )
            )
        run = lambda *leaves: jax.tree.leaves(self._f(*jax.tree.unflatten(tree, leaves)))
        zeros = [jnp.zeros(x.shape, x.dtype) for x in results]
        like = [jax.typeof(_compat.align(zero, *leaves)) for zero in zeros]
        body = _compat.LinearMap(run, run, self._name)  # without a linear operand
        found = _compat.linear_call(body, leaves, [], like)
        return jax.tree.unflatten(structure, found)
