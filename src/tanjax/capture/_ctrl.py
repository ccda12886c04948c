"""Controlled functions and matrices: they act on one of the states that some bits select."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._errors import CaptureError, ShapeError, describe, message
from tanjax._typing import Function, Matrix
from tanjax.arrays import BlockDiagonal, Identity, is_structured
from tanjax.quantities import is_quantity

from ._higher_order import higher_order, require_function


@higher_order(curried=True, name="ctrl")
def _ctrl(
    f: Function, control: tuple[int, ...], wires: tuple[PyTree, ...] | None = None
) -> Function:
    def controlled(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if wires is not None:
            out = f(*args, **kwargs)
            if jax.tree.leaves(out):
                raise CaptureError(
                    message(
                        "ctrl: with `wires` it takes a function that returns nothing.",
                        f"got: {', '.join(describe(x) for x in jax.tree.leaves(out))}",
                        "why: `wires` is where an interpreter controls the gates that the "
                        "function makes.",
                        hint="leave `wires` out for a function of stacked states.",
                    )
                )
            return out
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


def ctrl(f: PyTree, control: Sequence[int] = (1,), wires: PyTree = None) -> PyTree:
    """Return a controlled matrix, which is block-diagonal, or a function that acts on one row.

    **Arguments:** `f`: a square matrix of any type, or a function `f(*parameters, state)`.
    `control`: the values of the controls at which it acts, the first the most significant bit.
    `wires`: the places of the controls, one for each, which an interpreter reads; only for a
    function that returns nothing and makes instances of `tj.programs.CaptureMeta` classes.
    **Returns:** `BlockDiagonal` with identities and the matrix at the block that `control` spells;
    or a function of states stacked along a leading axis of `2 ** len(control)`. Under `tj.capture`
    that is an equation that carries the program of `f`.
    **Raises:** `ShapeError` if the number of states differs or the matrix is not square;
    `UnitError` if the matrix has a dimension; `ValueError` for controls other than 0 and 1, or
    if `control` and `wires` differ in length; `CaptureError` if there are `wires` and a result.
    **Cost:** that of `f` on one state, and a copy of the other states.
    **Derivative:** both modes.

    >>> import jax.numpy as jnp, tanjax as tj
    >>> tj.programs.ctrl(lambda x: 2 * x, (1,))(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array([[1., 2.],
           [6., 8.]], dtype=float32)
    """
    control = tuple(int(c) for c in control)
    if not control or not set(control) <= {0, 1}:
        raise ValueError(f"ctrl: `control` is made of zeros and ones, got {control}.")
    if wires is not None and len(wires) != len(control):
        raise ValueError(f"ctrl: {len(control)} controls, and {len(wires)} wires for them.")
    if is_structured(f) or isinstance(f, jax.Array | np.ndarray):
        matrix: Matrix = f.plain("ctrl: matrix") if is_quantity(f) else f
        matrix = matrix if is_structured(matrix) else jnp.asarray(matrix)
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ShapeError(
                message(
                    "ctrl: it takes a square matrix, or a function of a state.",
                    f"got: {describe(f)}",
                    hint="map over a batch of matrices with `tj.vmap`.",
                )
            )
        blocks: list[Matrix] = [Identity(matrix.shape[0], matrix.dtype)] * 2 ** len(control)
        blocks[_row(control)] = matrix
        return BlockDiagonal(*blocks)
    require_function("ctrl", f)
    return _ctrl(f, control, None if wires is None else tuple(wires))


ctrl.equation = _ctrl  # type: ignore[attr-defined]


def _row(control: Sequence[int]) -> int:
    return int("".join(str(int(c)) for c in control), 2)
