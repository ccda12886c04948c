"""Single precision: no result widens, and the numbers are those of double precision.

A rule that is right in float64 may still be wrong in float32: a constant that underflows, a cast to
integers, a branch on `finfo`. Cases are well conditioned, so three digits suffice.
"""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import PyTree

from ._coordinates import Coordinates, single_precision, wide_leaves
from ._modes import compiled
from ._places import raised
from ._problem import Problem
from ._record import SINGLE, Recorder

STAGE = "dtype"


def check_single_precision(recorder: Recorder, p: Problem, want: dict[str, PyTree]) -> None:
    """Compare value and pullback in float32 or complex64 with those in double precision."""
    args = tuple(single_precision(a) for a in p.args)
    differentiable = bool(p.size and p.out_dense.size)

    def run(*some: PyTree) -> PyTree:
        if not differentiable:
            return p.call(*_put(args, p.moving, some)), ()
        out, pull = jax.vjp(lambda *moving: p.call(*_put(args, p.moving, moving)), *some)
        y, back = jax.vjp(p.read, out)
        return (out, y), pull(back(p.probe.astype(y.dtype))[0])

    try:
        run_all = compiled(run)
        out, bars = run_all(*(args[i] for i in p.moving))
    except Exception as error:
        raise recorder.fail(STAGE, "it raised in single precision.", raised(error)) from error
    wide = wide_leaves((out[0] if differentiable else out, bars))
    recorder.holds(STAGE, "single precision became double.", not wide, *wide)
    if not differentiable:
        return
    recorder.compare(STAGE, "the value in single precision", out[1], want["value"], SINGLE)
    for i, bar in zip(p.moving, bars, strict=True):
        got = np.asarray(Coordinates(args[i]).dual(bar))
        name, right = p.names[i], want["pulled"][p.part(i)]
        recorder.compare(STAGE, f"the cotangent of {name} in single precision", got, right, SINGLE)


def _put(args: tuple[PyTree, ...], places: list[int], values: PyTree) -> list[PyTree]:
    full = list(args)
    for i, value in zip(places, values, strict=True):
        full[i] = value
    return full
