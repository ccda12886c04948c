"""What the range of its types has cost a program, entry by entry.

A simulated run differs from the reference only where something became infinite or was flushed to
zero. Most of that is harmless: exp(-1000) is zero in a softmax, and no scale would change it. Some
is fatal: an inf, or a relative error of one. An output entry is lost if it differs

* from the reference by more than a quarter of a unit in its last place, and
* from the reference as the output's own type holds it (what overflows by itself is no loss), and
* by more than what rounding alone would do. A difference of nearly equal numbers is mostly noise
  at the precision of the type; terms flushed far below that noise are not missed. Rounding is
  measured, not guessed: the program is run again with every result rounded to its mantissa, in
  the wide range, but only if something finite looks lost.

    losses(graph, evaluate(graph, args), evaluate(graph, args, simulate=True))

Sharp edges: of what happens inside one equation, only sums whose parts are too large are seen. With
a sampled loop, only zeros and infinities count as losses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._graph import ScaleGraph
from ._wide import Wide, align, clamp_to, limits, magnitude_of

# Rounding errors may happen to be small in the one run that measures them.
_NOISE = 8.0


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
    reference: Any,
    simulated: Any,
    *,
    free: Sequence[bool] | None = None,
) -> list[Loss]:
    """The outputs that a simulated run gets wrong because of its range; unknown ones are left out.

    **Arguments:** `free`: per output, whether it may leave at an exponent of its own, as quantities
    may. That its numbers do not fit at exponent 0 then excuses nothing; but what is lost beside a
    largest entry that does fit is no loss.
    **Cost:** one pass over the outputs; one more run if something finite looks lost,
    which is kept in the reference.
    """
    if not simulated.events:  # nothing was clamped: the runs are the same
        return []
    with np.errstate(all="ignore"):
        found = _compare(graph, reference, simulated, None, free)
        if found:
            if "precision" not in reference.again:
                from ._evaluate import _evaluate  # it imports this module

                run = graph, reference.arguments, reference.budget
                reference.again["precision"] = _evaluate(*run, "precision")
            rounded = reference.again["precision"]
            found = _compare(graph, reference, simulated, rounded, free)
    return found


def _compare(
    graph: ScaleGraph,
    reference: Any,
    simulated: Any,
    rounded: Any,
    free: Sequence[bool] | None,
) -> list[Loss]:
    found = []
    for i, use in enumerate(graph.outputs):
        true, got = reference.outputs[i], simulated.outputs[i]
        if true is None or got is None:
            continue
        noisy = None if rounded is None else rounded.outputs[i]
        dtype, exponent = use.value.aval.dtype, 0 if simulated.plain else use.exponent
        if free is not None and free[i] and simulated.plain:
            exponent = _own_exponent(true, dtype)
        lost, error = _lost(true, got, noisy, dtype, exponent)
        if reference.estimated or simulated.estimated:  # numbers of sampled loops are approximate
            lost = lost & np.atleast_1d(_gone(got))
        if entries := int(np.count_nonzero(lost)):
            found.append(Loss(i, entries, float(np.max(error[lost]))))
    return found


def _gone(x: Wide) -> Any:
    """Which entries are zero or not finite, in the order in which they are compared."""
    if x.array.dtype.kind not in "fc":
        return False
    parts = _parts(x.array)
    return (parts == 0) | ~np.isfinite(parts)


def _own_exponent(x: Wide, dtype: Any) -> int:
    """An exponent at which the largest entry is stored, 0 if it will do."""
    largest = magnitude_of(x).high
    if x.array.dtype.kind not in "fc" or math.isinf(largest):
        return 0
    room = limits(dtype)
    inside = math.log2(room.least) <= largest <= math.log2(room.largest)
    return 0 if inside else math.floor(largest)


def _lost(true: Wide, got: Wide, noisy: Wide | None, dtype: Any, exponent: int) -> tuple[Any, Any]:
    """Which entries are lost, and all relative errors."""
    if true.array.dtype.kind not in "fc":
        lost = np.atleast_1d(true.array != got.array)
        if noisy is not None:
            lost &= np.atleast_1d(true.array == noisy.array)
        return lost, np.where(lost, np.inf, 0.0)
    held = clamp_to(true, dtype, exponent).value
    parts = [_parts(a) for a in align([true, got, held] + ([] if noisy is None else [noisy]))[0]]
    reference, result, kept = parts[:3]
    same = (result == kept) | (result == reference) | (np.isnan(result) & np.isnan(kept))
    difference = np.abs(result - reference)
    finite = np.isfinite(result) & np.isfinite(reference)
    difference = np.where(finite, difference, np.inf)
    error = np.where(same, 0.0, difference / np.abs(reference))
    error = np.where(np.isnan(error) | ~(finite | same), np.inf, error)
    # Below 2^-44 the two runs may differ by the order of float64 operations.
    lost = ~same & (error > max(2.0 ** -(limits(dtype).bits + 2), 2.0**-44))
    if noisy is not None:
        noise = np.abs(parts[3] - reference)
        lost &= ~(finite & np.isfinite(noise) & (difference <= _NOISE * noise))
    return lost, error


def _parts(a: Any) -> Any:
    """Real numbers: a complex one as two."""
    a = np.ascontiguousarray(a).reshape(-1)
    return a.view(np.float64) if a.dtype.kind == "c" else a
