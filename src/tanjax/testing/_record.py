"""The record of a check: its stages, the numbers that it compared, and their errors.

A check that compares nothing passes, and so does a check with a vanishing reference. So every
comparison is counted, and its reference must not vanish unless that is declared. `_mutants` tests
that the comparisons notice a wrong rule.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import PyTree

from tanjax._errors import CheckFailure, message
from tanjax._typing import Function
from tanjax.units import Unit

from ._coordinates import Coordinates


@dataclasses.dataclass
class Stage:
    """One kind of comparison: the number of scalars, and the worst relative error."""

    name: str
    scalars: int = 0
    error: float = 0.0
    tolerance: float = 0.0


@dataclasses.dataclass
class CheckResult:
    """A passed check: its comparisons, and their errors.

    `notes` say which checks were impossible, `warnings` what an author should add.
    """

    subject: str
    derivative: str = ""
    stages: dict[str, Stage] = dataclasses.field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    notes: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    @property
    def scalars(self) -> int:
        """The number of scalars compared."""
        return sum(stage.scalars for stage in self.stages.values())

    @property
    def worst_error(self) -> float:
        """The largest error of any stage in double precision, relative to its tolerance's kind."""
        errors = [s.error for s in self.stages.values() if s.tolerance < SINGLE]
        return max(errors, default=0.0)

    def __str__(self) -> str:
        return (
            f"{self.subject}: {len(self.stages)} stages, {self.scalars} scalars, "
            f"worst error {self.worst_error:.1e}"
        )


SINGLE = 1e-4  # relative, in single precision, for well-conditioned cases; half has 5e-4


class Recorder:
    """Collects comparisons into a result; the first that fails raises `CheckFailure`."""

    def __init__(self, subject: str, context: Callable[[str], Sequence[str]] | None = None) -> None:
        self.result = CheckResult(subject)
        self.context = context  # the functions that run and differentiate, with their authors
        self._started = time.perf_counter()

    def finish(self) -> CheckResult:
        """Return the result, with the time of the check."""
        self.result.seconds = time.perf_counter() - self._started
        return self.result

    def fail(self, stage: str, what: str, *details: str, hint: str = "") -> CheckFailure:
        """Return the error for a fault in a stage."""
        where = f"{self.result.subject}: {stage}: {what}"
        context = self.context(what) if self.context else ()
        return CheckFailure(message(where, *details, *context, hint=hint))

    def holds(self, stage: str, what: str, truth: bool, *details: str, hint: str = "") -> None:
        """Count one fact, or fail."""
        self._stage(stage, 0.0).scalars += 1
        if not truth:
            raise self.fail(stage, what, *details, hint=hint)

    def compare(
        self,
        stage: str,
        what: str,
        got: PyTree,
        want: PyTree,
        tolerance: float,
        *,
        zero: bool = True,
        scale: float = 0.0,
    ) -> None:
        """Compare two arrays relative to the largest entry of the reference, or fail.

        **Arguments:** `zero`: whether the reference may vanish; `scale`: the size of the terms of
        which the reference is the sum: if they cancel, their rounding errors remain.
        """
        got, want = np.asarray(got), np.asarray(want)
        if got.shape != want.shape:
            raise self.fail(
                stage, f"{what} has the wrong shape.", f"expected: {want.shape}",
                f"got: {got.shape}",
            )  # fmt: skip
        error = relative_error(got, want, scale)
        record = self._stage(stage, tolerance)
        record.scalars += want.size
        if not error <= tolerance:
            # The first wrong entry, and both arrays if they are small.
            with np.errstate(invalid="ignore"):
                gap = np.nan_to_num(np.abs(got - want), nan=np.inf)
            wrong = gap > tolerance * float(np.max(np.abs(want)))
            index = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), want.shape))
            lines = [f"first at {index}: expected {want[index]}, got {got[index]}"]
            if want.size <= 12:
                lines += [f"expected: {want.tolist()}", f"got: {got.tolist()}"]
            raise self.fail(stage, f"{what} is wrong.", *lines,
                            f"relative error: {error:.1e}, tolerance: {tolerance:.1e}")  # fmt: skip
        record.error = max(record.error, error)
        if want.size and not np.any(want) and not zero:
            raise self.fail(
                stage, f"{what} is zero: the check could not have failed.",
                hint="choose other inputs, or declare it: `zero=(name of the argument,)`.",
            )  # fmt: skip

    def _stage(self, name: str, tolerance: float) -> Stage:
        stage = self.result.stages.setdefault(name, Stage(name))
        stage.tolerance = max(stage.tolerance, tolerance)
        return stage


def relative_error(got: np.ndarray, want: np.ndarray, scale: float = 0.0) -> float:
    """Return the largest difference over the largest entry of the reference; `nan` never passes."""
    if want.size == 0:
        return 0.0
    scale = max(scale, float(np.max(np.abs(want))))
    return float(np.max(np.abs(got - want))) / (scale or 1.0)


@runtime_checkable
class Checker(Protocol):
    """The numbers of one value of an array type, which the stages of its check compare."""

    x: PyTree
    tolerance: float
    generic: bool
    kind: Any  # the array type: of the library, or registered for another class
    recorder: Recorder
    fields: Coordinates
    point: PyTree
    formed: PyTree
    out: Coordinates
    bar_unit: Unit | None
    dot_unit: Unit | None
    run: Function
    jacobian: np.ndarray
    inverse: np.ndarray
    dense_vector: PyTree
    field_vector: PyTree

    def form_at(self, vector: PyTree) -> PyTree: ...
    def dense(self, vector: PyTree) -> PyTree: ...
    def run_stage(self, name: str) -> None: ...
