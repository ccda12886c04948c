"""Walk a captured program with your own meaning for some of its equations.

A pass over programs is a class with one method for each kind of equation that it changes. Equations
without a handler run as before, on the values that arrive: operations are dispatched again, so that
a handler may return another array type. Inner programs are walked too.

    class Half(tj.programs.Interpreter):
        @tj.programs.handles(tj.solve)
        def solve(self, equation, a, b):
            return tj.solve(a, b) / 2

    Half()(f)(x)                 # run so
    Half().rewrite(program)      # the program that this runs

Sharp edges. A carry of a loop keeps its type: a handler that changes it in the body must also
change the initial value. Bodies of `jax.custom_jvp`, `jax.custom_vjp` and `shard_map` are not
walked: their derivatives and layouts are their own. If a handler would apply there, a
`CaptureWarning` is raised.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from jaxtyping import PyTree

from tanjax._errors import RegistrationError
from tanjax._typing import Function

from ._program import Program, capture
from ._walk import Walk

F = TypeVar("F", bound=Function)
_KEPT = ("class",)  # equations that stay even if no equation uses their result


def handles(*what: object) -> Callable[[F], F]:
    """Make a method of a `tj.programs.Interpreter` the meaning of some equations.

    **Arguments:** operations (`tj.solve`), classes (`tj.Diagonal`, or one made by
    `tj.programs.CaptureMeta`, with its subclasses), functions made by `tj.programs.higher_order`
    (`tj.scan`), or names as a program prints them (`"sin"`, `"scan"`).
    **Returns:** a decorator of a method `(self, equation, *args, **kwargs)`, which gets the values
    of the call of the equation and returns its result.
    **Raises:** `RegistrationError` if there is nothing to handle.

    >>> import jax.numpy as jnp, tanjax as tj
    >>> class Show(tj.programs.Interpreter):
    ...     @tj.programs.handles("sin", tj.scan)
    ...     def show(self, equation, *args, **kwargs):
    ...         print(equation)
    ...         return self.default(equation, *args, **kwargs)
    >>> f = lambda x: tj.scan(lambda c, _: (jnp.sin(c), None), x, length=2)[0]
    >>> y = Show()(f)(1.0)
    <higher_order scan: f32[] -> f32[]>
    <primitive sin: f32[] -> f32[]>
    """
    if not what or not all(callable(w) or isinstance(w, str) for w in what):
        raise RegistrationError(
            f"handles: name operations, classes or names of equations, got {what}."
        )

    def mark(method: F) -> F:
        method.handled = [getattr(w, "equation", w) for w in what]  # type: ignore[attr-defined]
        return method

    return mark


class Interpreter(Walk):
    """Run captured programs; methods of subclasses define some equations by `handles`.

    A subclass that overrides a method with `tj.programs.handles` replaces its handler. A handler
    for a class also handles its subclasses; of several, the nearest to the constructed class wins.

    >>> import jax.numpy as jnp, tanjax as tj
    >>> class Half(tj.programs.Interpreter):
    ...     @tj.programs.handles(tj.solve)
    ...     def solve(self, equation, a, b):
    ...         return tj.solve(a, b) / 2
    >>> f = lambda d, x: tj.solve(tj.Diagonal(d), x)
    >>> Half()(f)(jnp.array([1.0, 2.0]), jnp.array([2.0, 2.0]))
    Array([1. , 0.5], dtype=float32)
    """

    def __call__(self, f: Callable[..., PyTree] | Program) -> Callable[..., PyTree]:
        """Return a function that runs `f`, or a program, with these meanings."""

        @functools.wraps(Interpreter.run if isinstance(f, Program) or not callable(f) else f)
        def interpreted(*args: PyTree, **kwargs: PyTree) -> PyTree:
            if not isinstance(f, Program):
                return self.run(capture(f)(*args, **kwargs), args, kwargs)
            f.check(args, kwargs)
            return self.run(f, args, kwargs)

        return interpreted

    def rewrite(self, program: Program) -> Program:
        """Return the program that this interpreter runs, without unused equations.

        Effects and constructions of `tj.programs.CaptureMeta` classes stay.
        """
        walk = lambda *args, **kwargs: self.run(program, args, kwargs)
        walk.__name__ = program.name
        args, kwargs = program.example()
        return capture(walk)(*args, **kwargs).pruned(_KEPT)
