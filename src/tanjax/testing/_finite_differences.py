"""Finite differences in stored coordinates: a judge independent of all rules.

Central differences at a ladder of steps, extrapolated (Richardson). One step size proves nothing:
a large step shows curvature, a small one rounding. The answer is the value on a *plateau*, two
steps in a row that agree; without a plateau the difference quotient is refused. The ladder
continues below its last step as long as its error falls.

Sharp edges: float64 only. A function that is not smooth at the point has no plateau there.
Redundant storage of a structured array is projected after each step (`canonical`), because
perturbing one half of a symmetric matrix breaks its symmetry.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax._errors import CheckFailure, message
from tanjax._typing import Function

from ._coordinates import Coordinates, canonical, require_double

STEPS = tuple(2.0**-k for k in range(5, 13))
PLATEAU = 1e-7


def finite_difference_jvp(
    f: Function, primals: Sequence[PyTree], tangents: Sequence[PyTree]
) -> PyTree:
    """Return the derivative of `f` along structural tangents, by finite differences.

    **Returns:** a structural tangent of the output, `float0` at its integer leaves.

    **Raises:** `CheckFailure` if no two steps agree, `ValueError` unless in float64.
    """
    primals, tangents = tuple(primals), tuple(tangents)
    require_double("finite_difference_jvp", primals)
    inputs = Coordinates(primals)
    outputs, along = _vector_function(f, primals)
    moved = difference(along, np.asarray(inputs.vector(primals)), inputs.vector(tangents))
    return outputs.tangent(moved)


def finite_difference_vjp(
    f: Function, primals: Sequence[PyTree], out_cotangent: PyTree
) -> tuple[PyTree, ...]:
    """Return structural cotangents of `primals` for one of the output, by finite differences.

    **Returns:** a tuple, one per primal, in JAX's pairing `Re Σ ct t` (no conjugation).
    """
    primals = tuple(primals)
    require_double("finite_difference_vjp", primals)
    inputs = Coordinates(primals)
    outputs, along = _vector_function(f, primals)
    columns = jacobian(along, np.asarray(inputs.vector(primals)))
    return inputs.cotangent(outputs.dual(out_cotangent) @ columns)


def _vector_function(f: Function, primals: tuple[PyTree, ...]) -> tuple[Coordinates, Function]:
    inputs, outputs = Coordinates(primals), Coordinates(jax.eval_shape(f, *primals))
    run = jax.jit(lambda vector: outputs.vector(f(*canonical(inputs.tree(vector)))))
    return outputs, run


def jacobian(f: Function, point: PyTree) -> np.ndarray:
    """Return the Jacobian of a function of vectors, one column per coordinate."""
    point = np.asarray(point)
    columns = [difference(f, point, unit) for unit in np.eye(point.size)]
    rows = np.size(f(point))
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))


def difference(f: Function, point: np.ndarray, direction: PyTree) -> np.ndarray:
    """Return the derivative of a function of vectors along a direction."""
    direction = np.asarray(direction)
    length = float(np.max(np.abs(direction), initial=0.0))
    if length == 0.0:
        return np.zeros_like(np.asarray(f(point)))
    unit = direction / length
    slope = lambda h: (np.asarray(f(point + h * unit)) - np.asarray(f(point - h * unit))) / (2 * h)
    steps, central = list(STEPS), [slope(h) for h in STEPS]
    smallest = np.finfo(float).eps * (float(np.max(np.abs(point))) or 1.0)
    while True:
        better = [(4 * b - a) / 3 for a, b in pairwise(central)]
        gaps = [float(np.max(np.abs(a - b), initial=0.0)) for a, b in pairwise(better)]
        gaps = [np.inf if np.isnan(gap) else gap for gap in gaps]
        if not 0 < gaps[-1] <= gaps[-2] or steps[-1] <= smallest:
            return length * _plateau(steps, better, gaps)
        steps.append(steps[-1] / 2)
        central.append(slope(steps[-1]))


def _plateau(steps: list[float], estimates: list[np.ndarray], gaps: list[float]) -> np.ndarray:
    best = int(np.argmin(gaps))
    size = max(1.0, float(np.max(np.abs(estimates[best]), initial=0.0)))
    if not gaps[best] <= PLATEAU * size:
        raise CheckFailure(
            message(
                "finite differences: no two steps agree.",
                f"steps: {[f'{h:.1e}' for h in steps]}",
                f"differences between neighbours: {[f'{g:.1e}' for g in gaps]}",
                f"tolerance: {PLATEAU * size:.1e}",
                hint="the function is not smooth here, or badly scaled: choose another point.",
            )
        )
    return estimates[best + 1]
