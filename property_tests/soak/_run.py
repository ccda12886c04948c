"""A run of one program: its sequence of calls, with a verdict on every entry of every result.

Plain JAX runs beside `tj.jit`, because the promises compare the two:

- `worse`: an entry that plain JAX has right is wrong.
- `lost`: an entry that plain JAX loses is wrong, too, and no `ScaleWarning` of this or an earlier
  call of the same function says so.
- `history`: a failing call is right in a fresh `tj.jit`, with or without a warning.
- `beyond`: a result beyond the dtype is neither infinite nor warned of.

If a nan is right and plain JAX has a number, that number is no loss. Neither are the remainders
that rounding leaves of an exact zero in plain JAX. A program on quantities outside of `tj.jit` must
be right or warn in the same call.

    for failure in run(program):
        print(failure.promise, failure.call)

Sharp edges. Plain JAX's own results depend on the machine. Many runs of the reference must confirm
a suspicion before it counts.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax import transforms
from tanjax._errors import ScaleWarning
from tanjax._typing import Function
from tanjax.quantities import is_quantity

from ._judge import Band, Reference
from ._primitives import Unusable
from ._programs import DTYPES, Program
from ._wide import Wide

PROMISES = ("worse", "lost", "history", "crash", "beyond")
_CONFIRM = 60  # runs of the reference before an entry counts as wrong
_AGAIN = 3  # fresh plans that must be right before a warning is no excuse


@dataclasses.dataclass(frozen=True)
class Failure:
    """A broken promise, at the first call of a program that breaks one."""

    program: Program
    promise: str
    call: int
    warned: bool
    got: list[PyTree]
    fresh: list[PyTree] | None
    plain: list[PyTree] | None
    want: list[PyTree]
    message: str = ""

    @property
    def looks(self) -> str:
        """Return the kinds of the wrong entries: `inf`, `nan`, `0`, or `finite`."""
        if self.promise == "crash":
            return self.message.split(":")[0]
        kinds = set()
        for y, want in zip(self.got, self.want, strict=True):
            y, want = np.broadcast_arrays(np.asarray(y, float), np.asarray(want, float))
            with np.errstate(all="ignore"):
                off = ~(np.isclose(y, want, rtol=0.2, atol=0) | (np.isnan(y) & np.isnan(want)))
            kinds |= {_kind(bad) for bad in y[off].ravel()}
        return "+".join(sorted(kinds)) or "digits"


def _kind(y: float) -> str:
    if not np.isfinite(y):
        return "nan" if np.isnan(y) else "inf"
    return "0" if y == 0 else "finite"


@dataclasses.dataclass
class Tally:
    """Counts of the entries and calls that were judged."""

    calls: int = 0
    entries: int = 0
    sharp: int = 0
    found: int = 0  # right in tj.jit, wrong in plain JAX
    excused: int = 0  # wrong in both, with a warning
    unusable: int = 0

    def add(self, other: Tally) -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def leaves(out: PyTree) -> list[PyTree]:
    """Return results as NumPy arrays, wide enough for every dtype and every power of two."""
    return [_number_of(x) for x in _results(out)]


def _results(out: PyTree) -> list[PyTree]:
    return jax.tree.leaves(out, is_leaf=is_quantity)


def _number_of(x: PyTree) -> np.ndarray:
    if is_quantity(x):
        return np.ldexp(np.asarray(x.stored).astype(np.float64).astype(Wide), x.scale)
    x = np.asarray(x)
    return x if x.dtype.kind in "biu" else x.astype(np.float64)


def _warned(function: Function, args: Sequence[PyTree]) -> tuple[PyTree, bool]:
    """Return the result, and True if there was a `ScaleWarning`."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        out = jax.block_until_ready(function(*args))
    return out, any(issubclass(w.category, ScaleWarning) for w in seen)


def _plainly(program: Program, plain: PyTree, args: Sequence[PyTree]) -> list[PyTree] | None:
    """Return plain JAX's results; `None` if it rejects quantities (it cannot choose scales)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return leaves(plain(*args))
    except Exception:
        if program.units:
            return None
        raise


def _fresh(program: Program, args: Sequence[PyTree]) -> list[PyTree] | None:
    if program.eager:
        return None
    try:
        return leaves(_warned(transforms.jit(program.build(DTYPES[program.dtype])), args)[0])
    except Exception:
        return None


def run(program: Program, tally: Tally | None = None, *, last_only: bool = False) -> Failure | None:
    """Run a program and return the first broken promise, if any.

    **Arguments:** `tally`: counts to add to; `last_only`: judge only the last call.
    """
    tally = tally if tally is not None else Tally()
    try:
        reference = Reference(program)
        reference.bands(program.calls[0], 1)
    except Unusable:
        tally.unusable += 1
        return None
    dtype = DTYPES[program.dtype]
    function = program.build(dtype)
    plain = jax.jit(function if program.traced else program.build(dtype))
    compiled, warned = function if program.eager else transforms.jit(function), False
    for i, args in enumerate(program.arrays()):
        by_plain = None if program.eager else _plainly(program, plain, args)
        try:
            out, now = _warned(compiled, args)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            return Failure(program, "crash", i, warned, [], None, by_plain, [], text)
        warned = now or (warned and not program.eager)
        if last_only and i < len(program.calls) - 1:
            continue
        tally.calls += 1
        failure = _judged(program, reference, i, args, out, by_plain, warned, tally)
        if failure is not None:
            return failure
    return None


def _judged(
    program: Program,
    reference: Reference,
    i: int,
    args: Sequence[PyTree],
    out: PyTree,
    plain: list[PyTree] | None,
    warned: bool,
    tally: Tally,
) -> Failure | None:
    call, got = program.calls[i], leaves(out)
    free = [is_quantity(x) for x in _results(out)]
    try:
        bands = reference.bands(call, free=free)
    except Unusable:
        tally.unusable += 1
        return None
    _count(tally, bands, got, plain)
    if not any(band.wrong(y).any() for band, y in zip(bands, got, strict=True)):
        return None
    bands = reference.bands(call, _CONFIRM, free)
    wrong = [band.wrong(y) for band, y in zip(bands, got, strict=True)]
    if plain is not None:
        wrong = [w & ~_as_plain(*x) for w, *x in zip(wrong, bands, got, plain, strict=True)]
    if not any(w.any() for w in wrong):
        return None
    fine = [w & False for w in wrong]
    if plain is not None:
        fine = [band.right(y) for band, y in zip(bands, plain, strict=True)]
    worse = any((w & f).any() for w, f in zip(wrong, fine, strict=True))
    fresh = _fresh(program, args)
    history = _is_right(fresh, wrong, bands)
    if history and warned:  # the exponents found in time depend on the machine
        again = (_fresh(program, args) for _ in range(_AGAIN - 1))
        history = all(_is_right(y, wrong, bands) for y in again)
    if warned and not worse and not history:
        tally.excused += sum(int(w.sum()) for w in wrong)
        return None
    beyond = all((band.beyond | ~w).all() for w, band in zip(wrong, bands, strict=True))
    promise = "history" if history else "worse" if worse else "beyond" if beyond else "lost"
    want = [_number(band) for band in bands]
    return Failure(program, promise, i, warned, got, fresh, plain, want)


def _is_right(fresh: list[PyTree] | None, wrong: list[PyTree], bands: list[Band]) -> bool:
    """True if a fresh plan is right where that of the calls is wrong."""
    if fresh is None:
        return False
    return not any((w & b.wrong(y)).any() for w, b, y in zip(wrong, bands, fresh, strict=True))


def _as_plain(band: Band, got: PyTree, plain: PyTree) -> PyTree:
    """Mark numbers of plain JAX where no number is right, or where only rounding avoids zero.

    XLA turns a nan into a number in any dtype: it replaces `inf * mask` by a select. Rounding
    leaves noise of some size of an exact zero (the page of limits says so).
    """
    if band.runs.dtype.kind != "f":
        return np.zeros(np.shape(got), bool)
    return (np.isnan(band.exact) | band.is_rounding(got)) & (got == plain)


def _number(band: Band) -> PyTree:
    exact = np.asarray(band.exact)
    with np.errstate(all="ignore"):
        narrow = exact if exact.dtype.kind != "f" else exact.astype(np.float64)
        return exact if np.isinf(narrow).any() and band.free else narrow


def _count(tally: Tally, bands: list[Band], got: list[PyTree], plain: list[PyTree] | None) -> None:
    for band, y, p in zip(bands, got, plain or [np.nan] * len(got), strict=True):
        tally.entries += int(np.size(y))
        tally.sharp += int(np.sum(band.sharp))
        tally.found += int(np.sum(band.right(y) & band.wrong(p) & band.judged))


def expected(program: Program) -> list[PyTree]:
    """Return the right results of every call, for a script."""
    reference = Reference(program)
    out = []
    for call in program.calls:
        values = [_number(band).tolist() for band in reference.bands(call, 1)]
        out.append(values[0] if len(values) == 1 else values)
    return out
