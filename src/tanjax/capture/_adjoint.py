"""Adjoints of matrices and of linear functions, under `<f*(y), x> = <y, f(x)>`.

JAX transposes functions of stored numbers, under the inner product of stored numbers. Here the
inner product is that of the arrays: a stored number that stands in two places of a matrix counts
twice. So a value of the output goes to stored coordinates as a natural cotangent does, through the
transpose, and comes back as a natural cotangent. Plain arrays need no conversion.

    adjoint(lambda theta, x: rotate(theta) @ x)(theta, y)

Sharp edges. `f` maps a space into itself: its result has the type and shape of its argument, and
only the unit may differ. `f` must be linear: a constant that it adds is ignored without an error.
Inside of `jax.shard_map` JAX refuses loops of values that vary over devices: take the adjoint of
the mapped function. A solver that iterates to a tolerance is not a linear program, and is refused.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import _compat, transforms
from tanjax._errors import CaptureError, ShapeError, message
from tanjax._jaxpr_types import Readable
from tanjax._typing import AnyArray, Function
from tanjax.arrays import is_inexact, is_structured
from tanjax.operations import transpose
from tanjax.quantities import is_quantity, stored_of, unitful

from ._higher_order import higher_order, require_function
from ._transposes import linear_transpose
from ._types import CapturedClass, is_typed, type_text


@higher_order(curried=True, name="adjoint")
def _adjoint(f: Function) -> Function:
    def adjoint_of(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if not args:
            return f(**kwargs)
        *fixed, y = args
        space = Space(y)
        closed, out = space.trace(lambda x: f(*fixed, x, **kwargs))
        # Only interpreters know the adjoint of nothing, or of what classes make.
        leaves = jax.tree.leaves(out, is_leaf=is_typed)
        if not leaves or any(isinstance(type(x), CapturedClass) for x in leaves):
            return f(*args, **kwargs) if jax.tree.leaves(out) else out
        pull, like = functools.partial(space.pull, linear_transpose(closed)), space.like(out)
        try:
            (bar,) = transforms.natural_pullback((space.y,), like, pull, _conj(space.y))
        except CaptureError:
            raise
        except Exception as error:
            error.add_note("adjoint: the function must be linear in its last argument.")
            raise
        return _conj(bar)

    return adjoint_of


def adjoint(f: PyTree) -> PyTree:
    """Return the adjoint: the conjugate transpose of an array or of a linear function.

    **Arguments:** `f`: a matrix of any type, or a function `f(*parameters, x)` that is linear in
    `x` and returns a value like `x`, possibly in another unit.
    **Returns:** the matrix, `conj(A).mT` in its structure; or a function `(*parameters, y)` with
    `<f*(y), x> = <y, f(x)>`. Under `tj.capture` that is an equation that carries the program of
    `f`: interpreters may give it another meaning. A function that returns nothing, or
    constructions of `tj.programs.CaptureMeta` classes, has no other meaning: it is called.
    **Raises:** `ShapeError` if the result of `f` is not like `x`; `CaptureError` if the number of
    trips of a loop or the choice of a branch depends on `x`; JAX's error, with the line, for other
    functions that are not linear.
    **Derivative:** that of the transposed program, both modes; with loops of traced bounds forward
    mode in the parameters, and adjoints again.
    **Cost:** that of `f`. States of loops with traced bounds are recomputed, each from the start
    unless it is a counter or constant.

    >>> import jax.numpy as jnp, tanjax as tj
    >>> shift = lambda n, x: tj.fori_loop(0, n, lambda i, x: jnp.roll(x, 1), x)
    >>> tj.jit(tj.programs.adjoint(shift))(2, jnp.arange(4.0))
    Array([2., 3., 0., 1.], dtype=float32)
    """
    if is_structured(f) or isinstance(f, jax.Array | np.ndarray):
        return transpose(f.conj() if is_structured(f) else jnp.conj(f))
    require_function("adjoint", f)
    return _adjoint(f)


adjoint.equation = _adjoint  # type: ignore[attr-defined]  # read by `tj.programs.handles`


class Space:
    """The space of a value: its stored numbers, and how to rebuild the value from them."""

    def __init__(self, y: PyTree) -> None:
        self.y = y = jax.tree.map(lambda x: jnp.asarray(x) if is_inexact(x) else x, y)
        self.leaves, self.tree = jax.tree.flatten(y)
        self.moves = [is_inexact(x) for x in self.leaves]

    def trace(self, f: Function) -> tuple[Readable, PyTree]:
        """Trace the function to a jaxpr of inexact leaves; return it with its result as avals."""
        found: list[PyTree] = []

        def flat(*moving: AnyArray) -> list[AnyArray]:
            rest = iter(moving)
            pairs = zip(self.leaves, self.moves, strict=True)
            out = f(jax.tree.unflatten(self.tree, [next(rest) if m else x for x, m in pairs]))
            found[:] = [jax.tree.map(_aval, out)]
            return [x for x in jax.tree.leaves(out) if is_inexact(x)]

        moving = [x for x, m in zip(self.leaves, self.moves, strict=True) if m]
        return jax.make_jaxpr(flat)(*map(_aval, moving)), found[0]

    def like(self, out: PyTree) -> PyTree:
        """Return the value of this space in the units of a result.

        **Raises:** `ShapeError` if the result is not in this space.
        """
        wanted, tree = jax.tree.flatten(self.y, is_leaf=is_structured)
        try:
            given = tree.flatten_up_to(out)
        except ValueError:
            given = []
        if len(given) != len(wanted) or not all(map(_is_like, given, wanted)):
            raise ShapeError(
                message(
                    "adjoint: the function must return a value like its last argument.",
                    f"last argument: {_types(self.y)}",
                    f"result:        {_types(out)}",
                    hint="between two spaces use `tj.vjp(f, x)[1]`, or `jax.linear_transpose`.",
                )
            )
        pairs = ((g, stored_of(w)) for g, w in zip(given, wanted, strict=True))
        values = [unitful(w, g.label) if is_quantity(g) else w for g, w in pairs]
        return jax.tree.unflatten(tree, values)

    def pull(self, transposed: Function, bars: PyTree) -> tuple[PyTree]:
        """Map structural cotangents of the result to those of the argument."""
        given = [b for b, m in zip(jax.tree.leaves(bars), self.moves, strict=True) if m]
        found = iter(transposed(given))
        pairs = zip(self.leaves, self.moves, strict=True)
        full = [next(found) if m else _compat.no_tangent(x) for x, m in pairs]
        return (jax.tree.unflatten(self.tree, full),)


def _aval(x: PyTree) -> PyTree:
    """Return the abstract value of a number, and everything else unchanged."""
    is_number = is_inexact(x) or isinstance(x, jax.Array | np.ndarray)
    return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)) if is_number else x


def _is_like(given: PyTree, wanted: PyTree) -> bool:
    given, wanted = stored_of(given), jax.tree.map(_aval, stored_of(wanted))
    same = jax.tree.structure(given) == jax.tree.structure(wanted)
    return same and jax.tree.leaves(given) == jax.tree.leaves(wanted)


def _types(tree: PyTree) -> str:
    return ", ".join(map(_type, jax.tree.leaves(tree, is_leaf=is_structured))) or "nothing"


def _type(x: PyTree) -> str:
    """Return the type of a value, or of a value made of avals, as text."""
    return type_text(jax.tree.map(_Leaf, jax.tree.map(_aval, x)))


class _Leaf:
    """The type of a number in the form that `type_text` reads."""

    def __init__(self, aval: jax.ShapeDtypeStruct) -> None:
        self.aval = aval


def _conj(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.conj(x) if jnp.iscomplexobj(x) else x, tree)
