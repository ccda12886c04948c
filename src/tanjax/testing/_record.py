"""What a check did: its stages, how many numbers it compared, how well they agreed.

A check that compares nothing passes, and so does one whose reference vanishes. Therefore every
comparison is counted, and its reference must not vanish unless that is declared. Whether a
comparison would notice a wrong rule is asked of the rule itself (see `_mutants`).
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
    """One kind of comparison: how many scalars, and the worst relative error."""

    name: str
    scalars: int = 0
    error: float = 0.0
    tolerance: float = 0.0


@dataclasses.dataclass
class CheckResult:
    """A check that passed: what was compared, and how well it agreed.

    `notes` say what could not be checked, `warnings` what an author should add.
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


SINGLE = 1e-4  # relative, in single precision, of well-conditioned cases; half has 5e-4


class Recorder:
    """Collects comparisons into a result; the first that fails raises `CheckFailure`."""

    def __init__(self, subject: str, context: Callable[[str], Sequence[str]] | None = None) -> None:
        self.result = CheckResult(subject)
        self.context = context  # of what is wrong: who wrote what runs and what differentiates
        self._started = time.perf_counter()

    def finish(self) -> CheckResult:
        """The result, with the time that the check took."""
        self.result.seconds = time.perf_counter() - self._started
        return self.result

    def fail(self, stage: str, what: str, *details: str, hint: str = "") -> CheckFailure:
        """The error for a fault found in a stage."""
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

        **Arguments:** `zero`: whether the reference may vanish; `scale`: the size of the numbers
        that it is a sum of, if that is larger: where they cancel, their rounding is left.
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
            raise self.fail(stage, f"{what} is wrong.", *_excerpt(got, want, tolerance),
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
    """The largest difference over the largest entry of the reference; `nan` never passes."""
    if want.size == 0:
        return 0.0
    scale = max(scale, float(np.max(np.abs(want))))
    return float(np.max(np.abs(got - want))) / (scale or 1.0)


def _excerpt(got: np.ndarray, want: np.ndarray, tolerance: float) -> list[str]:
    """The first wrong entry, and both arrays if they are small."""
    with np.errstate(invalid="ignore"):
        gap = np.nan_to_num(np.abs(got - want), nan=np.inf)
    wrong = gap > tolerance * float(np.max(np.abs(want)))
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), want.shape))
    lines = [f"first at {index}: expected {want[index]}, got {got[index]}"]
    if want.size <= 12:
        lines += [f"expected: {want.tolist()}", f"got: {got.tolist()}"]
    return lines


@runtime_checkable
class Checker(Protocol):
    """The numbers of one value of an array type, which the stages of its check compare."""

    x: PyTree
    tolerance: float
    generic: bool
    kind: Any  # the array type: that of the library, or what was registered for another class
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
