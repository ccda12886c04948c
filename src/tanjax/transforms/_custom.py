"""User rules whose backward pass uses natural cotangents, in true units.

`jax.custom_vjp` demands cotangents with the pytree of the primal, so a rule for a quantity in
metres would have to call its cotangent metres. Here the backward pass receives and returns natural
cotangents. The cotangent of a quantity in `u` is in `1/u`, that of a structured array is an array
like its matrix.

    @tj.custom_vjp
    def area(x):
        return x * x

    area.defvjp(lambda x: (area(x), x), lambda x, y_bar: (2.0 * x * y_bar,))

Sharp edge. Like `jax.custom_vjp` it serves reverse mode only; a `tj.operation` with a natural rule
serves both modes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
from jaxtyping import PyTree

from tanjax._errors import RegistrationError
from tanjax._typing import Function
from tanjax.registry import wrap_natural_pullback


class custom_vjp:
    """A function with a reverse rule in natural cotangents: `jax.custom_vjp` with true units.

    **Arguments:** `fun`; `nondiff_argnums`, positions of arguments that are not differentiated.
    Then `defvjp(fwd, bwd)`: `fwd(*args) -> (out, residuals)` and
    `bwd(*nondiff_args, residuals, out_bar) -> tuple` of one natural cotangent per other argument
    (`None` for no dependence).

    **Raises:** `UnitError` naming the rule and the argument if a cotangent has another dimension
    than `1/[argument]`; `CotangentError` for a wrong count, tree, shape or dtype.
    """

    def __init__(self, fun: Function, nondiff_argnums: Sequence[int] = ()) -> None:
        functools.update_wrapper(self, fun)
        self._nondiff = tuple(nondiff_argnums)
        self._rule = jax.custom_vjp(fun, nondiff_argnums=self._nondiff)
        self._defined = False

    def defvjp(self, fwd: Function, bwd: Function) -> None:
        """Give the rule: the forward pass and the backward pass."""
        name = getattr(bwd, "__name__", "bwd")

        def structural_fwd(*args: PyTree) -> PyTree:
            out, residuals = fwd(*args)
            moving = tuple(a for i, a in enumerate(args) if i not in self._nondiff)
            return out, (residuals, out, moving)

        def structural_bwd(*given: PyTree) -> PyTree:
            *fixed, (residuals, out, moving), out_bar = given
            pullback = functools.partial(bwd, *fixed, residuals)
            pullback.__qualname__ = name  # type: ignore[attr-defined]
            return wrap_natural_pullback(pullback, out, *moving)(out_bar)

        self._rule.defvjp(structural_fwd, structural_bwd)
        self._defined = True

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        if not self._defined:
            raise RegistrationError(
                f"{self.__name__}: give its rule first, `{self.__name__}.defvjp(fwd, bwd)`."  # type: ignore[attr-defined]
            )
        return self._rule(*args, **kwargs)
