"""The entries that a program loses to the range of its dtypes.

A simulated run differs from the reference only where a number overflowed or underflowed. Most of
these are harmless: exp(-1000) is zero in a softmax, and no scale would change it. Some are fatal:
an inf, or a relative error of one. An output entry is lost if it differs

* from the reference by more than two units in its last place, and
* from the reference as the output's own type holds it (a result that overflows by itself is no
  loss), and
* by more than the error of rounding alone. A difference of nearly equal numbers is mostly noise at
  the precision of the type; terms flushed far below that noise do not matter. A run that rounds
  every result to its mantissa, in the wide range, measures this error.

    reference = evaluate(graph, args)
    losses(graph, reference, simulate(graph, reference))

A planner needs to know the lost entries. A plan must not lose an entry that is right in plain
floating point, however many other entries it saves.

    plain, planned = (lost_errors(graph, reference, run) for run in (plain_run, planned_run))
    any(np.any(b > a) for a, b in zip(plain, planned))  # then the plan makes something worse

Numbers are compared at an exponent per entry, so any two numbers may stand in one array.

Sharp edges: inside one equation, only sums whose parts overflow or underflow are detected. With a
sampled loop, only zeros, infinities and large relative errors count as losses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tanjax._dtype_range import limits
from tanjax._typing import DType

from ..graph._graph import ScaleGraph
from ..laws._forms import is_float
from ..laws._range import holds_together
from ..numbers._spread import common, is_spread
from ..numbers._stored import clamp_to
from ..numbers._wide import Numbers, Wide, is_number, magnitude_of
from ._evaluate import rounded
from ._evaluation import Evaluation

# Allowed error relative to the measured one: rounding may happen to be exact in a single run.
_NOISE = 8.0
_OTHER = 256.0  # An entry so many times smaller than with and without rounding is no rounding.
_FAR_OFF = 0.5  # A number of a sampled loop is wrong above this relative error.

Mask: TypeAlias = Numbers  # booleans per entry


class Loss(NamedTuple):
    """Entries of an output that are wrong because of the range alone.

    **Fields:** `output`: its index; `entries`: how many; `error`: the worst relative error
    (infinite if one is not finite).
    """

    output: int
    entries: int
    error: float


def losses(
    graph: ScaleGraph,
    reference: Evaluation,
    simulated: Evaluation,
    *,
    free: Sequence[bool] | None = None,
) -> list[Loss]:
    """Return the outputs that a simulated run gets wrong because of its range; not unknown ones.

    **Arguments:** `free`: per output, True if it may leave at an exponent of its own, as quantities
    may. Numbers of a free output that overflow or underflow at exponent 0 count as lost. If no
    exponent holds all of them, numbers that underflow beside the largest entry are no loss.
    **Cost:** one pass over the outputs.
    """
    found = []
    for i, compared in enumerate(_compare(graph, reference, simulated, free)):
        if compared is not None and (entries := int(np.count_nonzero(compared.lost))):
            found.append(Loss(i, entries, float(np.max(compared.error[compared.lost]))))
    return found


def lost_errors(
    graph: ScaleGraph,
    reference: Any,
    simulated: Evaluation,
    *,
    free: Sequence[bool] | None = None,
    strict: bool = False,
) -> list[Numbers | None]:
    """Return, per output, the relative errors of the entries that are lost, and 0 elsewhere.

    **Arguments:** `free`: as for `losses`; `strict`: an entry that the exponent of its output
    cannot hold is lost, too. All other entries of the simulated run are then right.
    **Returns:** arrays of the outputs' shapes, None for an unknown output. A complex entry is lost
    if a part of it is.
    """
    errors: list[Numbers | None] = []
    compared = _compare(graph, reference, simulated, free, strict)
    for x, found in zip(reference.outputs, compared, strict=True):
        if found is None:
            errors.append(None)
            continue
        error = np.where(found.lost, found.error, 0.0)
        if x.array.dtype.kind == "c":
            error = error.reshape(-1, 2).max(1)
        errors.append(error.reshape(np.shape(x.array)))
    return errors


class _Compared(NamedTuple):
    """The lost entries of one output and their relative errors, flat, complex numbers as two."""

    lost: Mask
    error: Numbers


def _compare(
    graph: ScaleGraph,
    reference: Evaluation,
    simulated: Evaluation,
    free: Sequence[bool] | None,
    strict: bool = False,
) -> list[_Compared | None]:
    """Compare all outputs."""
    coarse = rounded(graph, reference)
    with np.errstate(all="ignore"):
        return [
            _compare_output(graph, i, reference, simulated, coarse, free, strict)
            for i in range(len(graph.outputs))
        ]


def _compare_output(
    graph: ScaleGraph,
    i: int,
    reference: Evaluation,
    simulated: Evaluation,
    coarse: Evaluation,
    free: Sequence[bool] | None,
    strict: bool,
) -> _Compared | None:
    true, got, use = reference.outputs[i], simulated.outputs[i], graph.outputs[i]
    if true is None:
        return None
    if got is None:  # the run failed in the range of its types
        size = true.array.size * (2 if true.array.dtype.kind == "c" else 1)
        return _Compared(np.ones(size, bool), np.full(size, np.inf))
    if not simulated.events and not strict:  # nothing was clamped: the runs are the same
        size = true.array.size * (2 if true.array.dtype.kind == "c" else 1)
        return _Compared(np.zeros(size, bool), np.zeros(size))
    noisy = coarse.outputs[i]
    at, dtype = simulated.exponents, use.value.aval.dtype
    exponent = 0 if at is None else at.of(use)
    held = true
    if is_float(true) and not strict:
        is_free = free is not None and free[i]
        exponent = _own_exponent(true, dtype) if is_free else exponent
        if not is_free or not holds_together(use.value, reference.magnitudes):
            held = clamp_to(true, dtype, exponent).value
    lost, error = _lost(true, got, noisy, held, dtype, exponent)
    if reference.estimated or simulated.estimated:  # numbers of sampled loops are approximate
        lost = lost & _is_far_off(got, error)
    return _Compared(lost, error)


def _is_far_off(x: Wide, error: Numbers) -> Mask:
    """Return the mask of entries that are zero, not finite or far off, flat as in `_Compared`."""
    return ~is_number(_flat(x).array) | (error > _FAR_OFF) if is_float(x) else np.zeros(1, bool)


def _own_exponent(x: Wide, dtype: DType) -> int:
    """Return the least exponent that holds the largest entry: it leaves most room for others."""
    largest = magnitude_of(x).high
    if x.array.dtype.kind not in "fc" or math.isinf(largest):
        return 0
    return math.ceil(largest - math.log2(limits(dtype).top))


def _lost(
    true: Wide, got: Wide, noisy: Wide | None, held: Wide, dtype: DType, exponent: int
) -> tuple[Mask, Numbers]:
    """Return the mask of entries that are lost, and all relative errors.

    **Arguments:** `held`: the true numbers, clamped to the type of the output; `exponent`: that of
    the stored output, or the best one for it.
    """
    if not is_float(true):
        lost = np.ravel(true.array != got.array)
        if noisy is not None:
            lost &= np.ravel(true.array == noisy.array)
        return lost, np.where(lost, np.inf, 0.0)
    reference, result, kept = together(true, got, held)
    same = (result == kept) | (result == reference) | (np.isnan(result) & np.isnan(kept))
    difference = np.abs(result - reference)
    finite = np.isfinite(result) & np.isfinite(reference)
    difference = np.where(finite, difference, np.inf)
    error = np.where(same, 0.0, difference / np.abs(reference))
    error = np.where(np.isnan(error) | ~(finite | same), np.inf, error)
    # Below 2^-44 the two runs may differ by the order of float64 operations.
    lost = ~same & (error > max(2.0 ** (1 - limits(dtype).bits), 2.0**-44))
    if (step := limits(dtype).step) and np.any(lost):  # subnormal numbers have few digits
        reference, result, one = together(true, got, Wide(np.float64(step), exponent))
        lost &= ~(np.abs(result - reference) <= one)
    if noisy is not None and np.any(lost):
        reference, result, rounded = together(true, got, noisy)
        noise = np.abs(rounded - reference)
        difference = np.abs(result - reference)
        is_noise = finite & np.isfinite(noise) & (difference <= _NOISE * noise)
        # Rounding that stops a loop one step early does not excuse a stop five steps early.
        least = np.minimum(np.abs(reference), np.abs(rounded))
        is_other = (_OTHER * np.abs(result) < least) & (2 * difference >= noise)
        lost &= ~is_noise | (is_other & (reference * rounded > 0))
    return lost, error


def together(*xs: Wide) -> list[Numbers]:
    """Return real numbers of several arrays as float64, those of one place at one exponent."""
    flat = [_flat(x) for x in xs]
    power = flat[0].exponent
    if all(type(x.exponent) is int and x.exponent == power for x in flat):
        return [x.array for x in flat]
    return common(flat)[0]


def _flat(x: Wide) -> Wide:
    """Return the numbers as one axis of real numbers, each complex number as two."""
    array = np.ascontiguousarray(x.array).reshape(-1)
    power = (
        np.broadcast_to(x.exponent, np.shape(x.array)).reshape(-1) if is_spread(x) else x.exponent
    )
    if array.dtype.kind != "c":
        return Wide(array, power)
    return Wide(array.view(np.float64), np.repeat(power, 2) if is_spread(x) else power)
