"""The right results and their tolerances: bands from several runs of the reference.

Results of random programs lose digits to cancellation, and comparisons flip between neighbours. A
fixed tolerance would give false alarms, or miss faults. The reference runs once exactly and several
times with random roundings. The band of an entry is their span, a few times wider, plus some units
in the last place. Many more runs must confirm a suspicion before the entry counts as wrong.

    bands = Reference(program).bands(call, samples=5)
    bands[0].right(result), bands[0].wrong(result)

Sharp edges. Entries between `right` and `wrong` are neither. An entry is not judged if its runs
disagree about nan or infinity.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from ._interpret import evaluate, wide
from ._programs import DTYPES, Call, Program
from ._wide import Sample

_WIDER = 4.0  # the width of the band, in spans of the runs
_ULPS = 6.0
_WRONG = 3.0  # wrong entries are outside of a band this many times as wide
_OWN = 64.0  # how many of its own roundings the reference may keep


class Reference:
    """A program traced in float64, run on wide numbers."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.dtype = DTYPES[program.dtype]
        self.eps = float(jnp.finfo(self.dtype).eps)
        with jax.enable_x64(True):
            given = [
                self._aval(a.is_float, v)
                for a, v in zip(program.arguments, program.calls[0].values, strict=True)
            ]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a helper under `tj.jit` is not planned here
                self.closed = jax.make_jaxpr(program.build(jnp.float64, bare=True))(*given)

    @staticmethod
    def _aval(is_float: bool, value: PyTree) -> jax.ShapeDtypeStruct:
        value = np.asarray(value)
        return jax.ShapeDtypeStruct(value.shape, np.float64 if is_float else value.dtype)

    def run(self, call: Call, sample: Sample) -> list[PyTree]:
        """Return the results of one run."""
        return evaluate(self.closed, [wide(v) for v in call.values], sample, self.dtype)

    def bands(self, call: Call, samples: int = 5, free: Sequence[bool] | None = None) -> list[Band]:
        """Return a band for each result. `free`: True for quantities, with any power of two."""
        rounding = [Sample(self.eps, seed) for seed in (None, *range(samples - 1))]
        runs = [self.run(call, sample) for sample in rounding]
        every = [False] * len(runs[0]) if free is None else free
        replaced = any(sample.replaced for sample in rounding)
        return [
            Band(self.dtype, np.stack([np.asarray(r) for r in results]), replaced, any_scale)
            for results, any_scale in zip(zip(*runs, strict=True), every, strict=True)
        ]


def exact_results(program: Program, call: Call) -> list[PyTree]:
    """Return the results without roundings."""
    reference = Reference(program)
    return [np.asarray(r) for r in reference.run(call, Sample(reference.eps, None))]


@dataclasses.dataclass
class Band:
    """The allowed values of the entries of one result: the runs of the reference, and the dtype."""

    dtype: DTypeLike
    runs: np.ndarray
    replaced: bool = False  # True if other numbers replaced those beyond the reference
    free: bool = False  # True if a power of two belongs to the result

    def __post_init__(self) -> None:
        runs = self.runs
        self.exact = runs[0]
        info = jnp.finfo(self.dtype)
        self.eps, self.max = float(info.eps), float(info.max)
        # XLA flushes subnormal float32 and bfloat16; float16 keeps them, with few digits.
        self.floor = 2.0**-22 if self.dtype == jnp.float16 else float(info.tiny) * 1.01
        if self.free:  # the room below the largest entry, if that needs a shift
            largest = np.max(np.abs(runs[0][np.isfinite(runs[0])]), initial=0.0)
            if not float(info.tiny) <= largest <= self.max:
                # may be far below the range of float64
                self.floor = self.floor * (largest / self.max)
            self.max = np.inf
        if runs.dtype.kind != "f":
            self.judged = (runs == runs[0]).all(axis=0)
            return
        nan, inf = np.isnan(runs), np.isinf(runs)
        with np.errstate(all="ignore"):
            self.all_nan = nan.all(axis=0)
            self.all_inf = inf.all(axis=0) & (np.sign(runs) == np.sign(runs[0])).all(axis=0)
            finite = ~(nan | inf).any(axis=0)
            clean = np.where(np.isfinite(runs), runs, 0)
            self.spread = np.max(np.abs(clean - clean[0]), axis=0)
            if self.replaced:  # the runs must agree, be all tiny, or all too large
                finite &= (
                    (self.spread <= 0.01 * np.abs(clean[0]))
                    | (np.abs(runs) < self.floor).all(axis=0)
                    | (runs > self.max).all(axis=0)
                    | (runs < -self.max).all(axis=0)
                )
            # If rounding may give both infinities, it may give nan.
            finite &= ~((clean.max(axis=0) > self.max) & (clean.min(axis=0) < -self.max))
            self.judged = self.all_nan | self.all_inf | finite

    def _within(self, y: PyTree, times: float) -> PyTree:
        y = np.asarray(y)
        if self.runs.dtype.kind != "f":
            return (y == self.exact) | ~self.judged
        with np.errstate(all="ignore"):
            exact = np.where(np.isfinite(self.exact), self.exact, 0)
            tolerance = _WIDER * self.spread + _ULPS * self.eps * np.abs(exact) + self.floor
            tolerance = times * tolerance
            low, high = exact - tolerance, exact + tolerance
            edge = self.max * (1 - 2 * self.eps)
            fits = np.where(
                np.isinf(y),
                np.where(y > 0, high >= edge, low <= -edge),
                ((low <= y) & (y <= high))
                | ((high > edge) & (y >= edge))
                | ((low < -edge) & (y <= -edge)),
            )
        fits = np.where(self.all_inf, y == self.exact, np.where(self.all_nan, np.isnan(y), fits))
        return fits | ~self.judged

    def right(self, y: PyTree) -> PyTree:
        """Mark entries that are right beyond doubt, or not judged.

        An infinity is not right if its exact number fits: rounding may only excuse it.
        """
        within = self._within(y, 1.0)
        if self.runs.dtype.kind != "f":
            return within
        return within & ~(np.isinf(y) & self.judged & (np.abs(self.exact) <= self.max))

    def wrong(self, y: PyTree) -> PyTree:
        """Mark entries that are wrong beyond doubt."""
        return ~self._within(y, _WRONG)

    def is_rounding(self, y: PyTree) -> PyTree:
        """Mark entries that are zero in exact arithmetic, but not when rounded.

        The reference does not have every digit of 1/10 either, so it leaves a remainder of such a
        zero. And `min` of equal numbers selects one if rounding separates them, so the share of the
        others moves there.
        """
        own = _OWN * float(np.finfo(self.runs.dtype).eps) / self.eps
        is_left = self.judged & (np.abs(self.exact) <= own * self.spread) & (self.spread > 0)
        largest = np.max(self.spread, initial=0.0, where=is_left)
        is_zero = self.judged & (np.abs(self.exact) <= np.minimum(self.spread, own * largest))
        return is_left | (is_zero & (np.abs(np.asarray(y)) < largest))

    @property
    def beyond(self) -> PyTree:
        """Mark entries that are finite, but too large for the dtype."""
        if self.runs.dtype.kind != "f":
            return np.zeros(np.shape(self.exact), bool)
        return np.isfinite(self.exact) & (np.abs(self.exact) > self.max)

    @property
    def sharp(self) -> PyTree:
        """Mark entries whose band is narrower than themselves: a fault would show there."""
        if self.runs.dtype.kind != "f":
            return self.judged
        small = self.spread < 0.3 / _WIDER * np.abs(self.exact)
        return self.judged & (self.all_nan | self.all_inf | small | (self.exact == 0))
