"""A loop over programs until the time is over; it sorts failures into families.

A hunt that stops at its first failure finds only one fault. One that prints every failure buries
the second fault under the first. So each failure is shrunk and sorted by the promise, the kind of
the wrong entries, the transformation, and the operations.

    for outcome in hunt("float32", seeds=range(100)):
        if outcome.failure is not None: print(report(outcome.failure))

Sharp edges. Two families may have one cause, and one family two causes.
"""

from __future__ import annotations

import dataclasses
import json
import traceback
from collections.abc import Iterable, Iterator

import jax
import numpy as np
from jaxtyping import PyTree

from ._generate import generate
from ._programs import Program
from ._quantities import generate_quantities
from ._run import Failure, Tally, expected, run
from ._shrink import shrink

_FORGET = 40  # programs after which JAX's compiled programs are dropped: each takes some megabytes


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of one seed; `error` is a fault of the hunt itself, or of plain JAX."""

    seed: int
    dtype: str
    tally: Tally
    failure: Failure | None = None
    error: str | None = None


def hunt(
    dtypes: Iterable[str], seeds: Iterable[int], *, seconds: float = 15.0, eager: bool = False
) -> Iterator[Outcome]:
    """Yield the outcomes of these seeds in each dtype.

    **Arguments:** `seconds`: for shrinking each failure; `eager`: outside of `tj.jit`.
    """
    dtypes = tuple(dtypes)
    for count, seed in enumerate(seeds):
        if count % _FORGET == _FORGET - 1:
            jax.clear_caches()
        for dtype in dtypes:
            yield one(seed, dtype, seconds, eager)


def program_of(seed: int, dtype: str, eager: bool = False) -> Program:
    """Return the program of a seed: every fifth is on quantities, and all outside of `tj.jit`."""
    if eager:
        return generate_quantities(seed, dtype, eager)
    return generate_quantities(seed, dtype) if seed % 5 == 4 else generate(seed, dtype)


def one(seed: int, dtype: str, seconds: float = 0.0, eager: bool = False) -> Outcome:
    """Return the outcome of one seed."""
    tally = Tally()
    try:
        failure = run(program_of(seed, dtype, eager), tally)
        if failure is not None and seconds:
            failure = shrink(failure, seconds)
    except Exception:
        return Outcome(seed, dtype, tally, error=traceback.format_exc(limit=-6))
    return Outcome(seed, dtype, tally, failure)


def family(failure: Failure) -> str:
    """Return the properties that failures of one cause mostly share."""
    ops = sorted({step.op for step in failure.program.live()})
    later = "later call" if failure.call else "first call"
    where = failure.program.wrap
    return f"{failure.promise}, {failure.looks}, {where}, {later}: {', '.join(ops)}"


def report(failure: Failure) -> str:
    """Return a failure in words and as a script."""
    program = failure.program
    lines = [
        f"promise broken: {failure.promise} ({failure.looks}), {program.dtype}, call {failure.call}"
        f" of {len(program.calls)}, {'after a' if failure.warned else 'without'} ScaleWarning",
        f"reproduce: python -m property_tests.soak --seed {program.seed} "
        f"--programs 1 --dtype {program.dtype}{' --eager' if program.eager else ''}",
    ]
    if failure.message:
        lines.append(failure.message)
    for name in ("got", "fresh", "plain", "want"):
        values = getattr(failure, name)
        lines.append(f"  {name:6s} {_short(values)}")
    return "\n".join([*lines, "", _script(program)])


def _script(program: Program) -> str:
    try:
        return program.script(expected(program))
    except Exception:  # the reference may have failed
        return program.script([None] * len(program.calls))


def _short(values: PyTree) -> str:
    if values is None:
        return "an exception"
    with np.printoptions(threshold=12, precision=8):
        return ", ".join(str(np.asarray(v)).replace("\n", "") for v in values)


def entry(outcome: Outcome) -> str:
    """Return an outcome as one line of JSON."""
    row: dict[str, PyTree] = {
        "seed": outcome.seed,
        "dtype": outcome.dtype,
        **dataclasses.asdict(outcome.tally),
    }
    if outcome.error:
        row["error"] = outcome.error
    if outcome.failure is not None:
        row |= {
            "promise": outcome.failure.promise,
            "family": family(outcome.failure),
            "report": report(outcome.failure),
        }
    return json.dumps(row)
