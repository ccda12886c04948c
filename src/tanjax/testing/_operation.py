"""Check an operation on given arguments: its value, its rule, and all transformations of JAX.

Three judges are independent of the rule: AD of the definition on dense arrays, AD of the
undecorated implementation (for losses that read the fields of a structured output), and finite
differences in stored coordinates. A forward mode derived from a pullback agrees with it by
construction, so the two modes are never compared with each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax import arrays, registry
from tanjax._errors import CheckFailure
from tanjax._typing import Function

from . import _derivatives as derivatives
from ._coordinates import require_double
from ._derivatives import Probe
from ._finite_differences import jacobian
from ._generic import require_generic
from ._modes import choose, compiled
from ._mutants import check_sensitivity
from ._places import place, raised
from ._problem import Problem, reference_answers
from ._promises import check_promises, check_scratch
from ._record import CheckResult, Recorder
from ._single import check_single_precision
from ._units import check_units
from ._variants import check_variants

OPERATION_MODES = (
    "value",
    "rule",
    "vjp",
    "jvp",
    "finite differences",
    "linearize",
    "fields",
    "natural",
    "hessian",
    "vmap",
    "one argument",
    "checkpoint",
    "scan",
    "public lowering",
    "sensitivity",
    "promises",
    "memory",
    "variants",
    "dtype",
    "units",
)


def check_operation(
    op: registry.Operation,
    *args: PyTree,
    modes: tuple[str, ...] | None = None,
    skip: tuple[str, ...] = (),
    zero: tuple[str, ...] = (),
    generic: bool = True,
    tolerance: float = 1e-8,
    reference: Function | None = None,
    **static: PyTree,
) -> CheckResult:
    """Check an operation on these arguments, in float64, under all transformations of JAX.

    **Arguments:** `modes`: the stages to run, all by default; name every omitted stage in `skip`.
    `zero`: names of arguments on which the output does not depend to first order.
    `generic=False` admits special values. `tolerance`: relative, per leaf of an argument (finite
    differences: 1e-6, single precision: 1e-4). `reference`: the definition on dense arguments, if
    the generic implementation of `op` is not a definition; it is given the static arguments that
    it takes. All other arguments are those of `op`. Optional arguments may be omitted.

    **Returns:** the stages with counts and errors. **Raises:** `CheckFailure`.
    """
    chosen = choose("check_operation", OPERATION_MODES, modes, skip)
    if not isinstance(op, registry.Operation):
        raise TypeError(f"check_operation: {op!r} is not an operation (see `tj.operation`).")
    require_double(op.name, args)
    with arrays.densify("allow"):
        checker = _OperationCheck(_problem(op, args, static, reference), chosen, zero, tolerance)
        if generic:
            for name, a in zip(checker.problem.names, checker.problem.args, strict=True):
                require_generic(f"{op.name}: {name}", a)
        return checker.run()


check_rule = check_operation


def _problem(
    op: registry.Operation, args: Sequence[PyTree], static: PyTree, reference: Function | None
) -> Problem:
    try:
        return Problem(op, args, static, reference)
    except jax.errors.JAXTypeError as error:  # it branches on traced numbers
        reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        raise Recorder(op.name).fail("value", "it raised under jit.", reason) from error


class _OperationCheck:
    """The stages of one check."""

    def __init__(self, problem: Problem, chosen: PyTree, zero: PyTree, tolerance: float) -> None:
        self.problem, self.chosen, self.tolerance = problem, chosen, tolerance
        op, args = problem.op, problem.args
        subject = f"{op.name}({', '.join(type_name(a) for a in args if a is not None)})"
        self.recorder = Recorder(subject, lambda _: who(problem))
        self.names = problem.names
        unknown = set(zero) - set(self.names)
        if unknown:
            raise ValueError(f"{op.name}: `zero` names no argument: {sorted(unknown)}.")
        self.zero = zero
        self.blocks = problem.blocks()

    def run(self) -> CheckResult:
        result = self.recorder.result
        p, chosen = self.problem, self.chosen
        result.derivative = how_differentiated(p)
        result.skipped = tuple(m for m in OPERATION_MODES if m not in chosen)
        self.points = p.nearby(2)
        self.want = self._reference()
        run = self._check_value()
        if p.size and p.out_dense.size:
            self._check_derivatives(run)
        else:
            result.notes.append("nothing to differentiate")
        if "promises" in chosen:
            check_promises(self.recorder, p, self.points)
        if "dtype" in chosen:
            check_single_precision(self.recorder, p, self.want)
        if "units" in chosen:
            check_units(self.recorder, p, self.tolerance)
        return self.recorder.finish()

    def _check_derivatives(self, run: Function) -> None:
        p, chosen, recorder = self.problem, self.chosen, self.recorder
        self._require_sensitive_inputs()
        first = lambda point: derivatives.first_order(p, point, chosen)
        self._judge(self._measure("first order", first, p.point))
        higher = lambda point, points: derivatives.higher_order(p, point, points, chosen)
        self._judge(self._measure("higher order", higher, p.point, self.points))
        if "finite differences" in chosen:
            self._check_finite_differences(run)
        if "public lowering" in chosen:
            with registry.lowering("public"):
                public = lambda point: derivatives.public_lowering(p, point)
                self._judge(self._measure("public lowering", public, p.point))
        if "sensitivity" in chosen and recorder.result.derivative != "AD":
            check_sensitivity(recorder, p, p.point, self.points[0], self.zero, self.tolerance)
        if "memory" in chosen:
            check_scratch(recorder, p)
        if "variants" in chosen:
            check_variants(recorder, p, self.tolerance)

    # -- running --------------------------------------------------------------------------------

    def _compiled(self, stage: str, f: Function, *args: PyTree) -> PyTree:
        try:
            out = compiled(f)(*args)
        except CheckFailure:
            raise
        except Exception as error:
            raise self.recorder.fail(stage, "it raised.", raised(error)) from error
        return jax.tree.map(np.asarray, out)

    def _measure(self, stage: str, f: Function, *args: PyTree) -> list[PyTree]:
        """Compile a function that gives probes and values; the probes are read while tracing."""
        probes: list[Probe] = []

        def values(*args: PyTree) -> list[PyTree]:
            measured = f(*args)
            probes[:] = [probe for probe, _ in measured]
            return [value for _, value in measured]

        return list(zip(probes, self._compiled(stage, values, *args), strict=True))

    def _reference(self) -> dict[str, PyTree]:
        run = lambda f, *args: jax.tree.map(np.asarray, compiled(f)(*args))
        try:
            return reference_answers(self.problem, self.points, run)
        except Exception as error:
            raise self.recorder.fail(
                "reference", "the definition does not run on dense arguments.",
                raised(error),
                hint="pass `reference=`, a function of the dense arguments.",
            ) from error  # fmt: skip

    # -- judging --------------------------------------------------------------------------------

    def _judge(self, measured: list[PyTree]) -> None:
        """Compare the measured numbers with the reference, the values first."""
        for probe, value in sorted(measured, key=lambda m: m[0].kind not in ("value", "values")):
            what = probe.words(self.names)
            if probe.kind.startswith("paired"):
                want: PyTree = self._pairing(probe)
            else:
                want = self.want[probe.key]
            if probe.by_leaf:
                self._by_leaf(probe.stage, what, value, want, self.tolerance)
            else:
                zero = probe.argument is None or self._may_vanish(probe.argument)
                self.recorder.compare(probe.stage, what, value, want, self.tolerance, zero=zero)

    def _pairing(self, probe: Probe) -> PyTree:
        p = self.problem
        y = derivatives.outer_probe(p) if probe.kind == "paired outer" else p.probe
        bars = np.asarray(y) @ self.want["jacobian"] * np.asarray(p.direction)
        return np.array([bars[p.part(i)].sum() for i in p.moving])

    def _by_leaf(self, stage: str, what: str, got: PyTree, want: PyTree, tolerance: float) -> None:
        """Compare derivatives leaf by leaf: a small one must not hide behind a large one."""
        got, want = np.asarray(got), np.asarray(want)
        if got.shape != want.shape:
            self.recorder.compare(stage, what, got, want, tolerance)
        for name, leaf, where in self.blocks:
            may_vanish = name in self.zero or not np.any(self.want["jacobian"][:, where])
            self.recorder.compare(
                stage, f"{what} with respect to {leaf}", got[..., where], want[..., where],
                tolerance, zero=may_vanish or "hessian" in what,
            )  # fmt: skip

    def _may_vanish(self, i: int) -> bool:
        return self.names[i] in self.zero or not np.any(self.want["values"])

    # -- stages ---------------------------------------------------------------------------------

    def _check_value(self) -> PyTree:
        """Check the eager and the compiled value; **returns** the compiled function."""
        p = self.problem
        run = compiled(p.kept)
        if "value" in self.chosen:
            try:
                got = (("", p.read(p.call(*p.args))), (" under jit", run(p.point)))
            except Exception as error:
                raise self.recorder.fail("value", "it raised.", raised(error)) from error
            for how, value in got:
                self.recorder.compare(
                    "value", f"the value{how}", value, self.want["value"], self.tolerance
                )
        return run

    def _require_sensitive_inputs(self) -> None:
        """Require that every argument matters, and a square one not only up to transposition."""
        p, j, others = self.problem, self.want["jacobian"], self.want["jacobians"]
        for name, leaf, where in self.blocks:
            if not np.any(j[:, where]) and name not in self.zero and np.any(others[..., where]):
                raise self.recorder.fail(
                    "inputs", f"the derivative with respect to {leaf} vanishes here only.",
                    hint="choose other inputs.",
                )  # fmt: skip
        for i in p.moving:
            declared = self.names[i] in self.zero
            if declared == bool(np.any(j[:, p.part(i)])):
                raise self.recorder.fail(
                    "inputs",
                    f"the derivative with respect to {self.names[i]} "
                    + ("is not zero, as declared." if declared else "is zero."),
                    hint="a zero derivative checks nothing; declare it with `zero=(name,)`.",
                )

    def _check_finite_differences(self, run: Function) -> None:
        slope = jacobian(run, self.problem.point)
        # Where the derivative is declared zero, differences of rounding errors are noise.
        quiet = ~np.any(self.want["jacobian"], axis=0)
        size = max(1.0, float(np.max(np.abs(self.want["value"]), initial=0.0)))
        slope[:, quiet & (np.max(np.abs(slope), axis=0, initial=0.0) <= 1e-6 * size)] = 0
        stage = "finite differences"
        self._by_leaf(stage, "the Jacobian", self.want["jacobian"], slope, 1e-6)


# -- names -----------------------------------------------------------------------------------------


def type_name(x: PyTree) -> str:
    """Return the type of an argument, as signatures name it."""
    if arrays.is_structured(x):
        return type(x).__name__
    if callable(x):
        return getattr(x, "__name__", "callable")
    try:
        ndim, kind = np.ndim(x), np.asarray(x).dtype.kind
    except TypeError:
        return type(x).__name__
    if kind in "iub":
        return "integers"
    return (
        {0: "scalar", 1: "vector", 2: "Dense"}.get(ndim, f"Dense{ndim}d")
        if kind in "fc"
        else (type(x).__name__)
    )


def how_differentiated(p: Problem) -> str:
    """Return how this call is differentiated: by a rule, a pushforward, or AD of the code."""
    resolution = p.op.resolve(p.args, p.static)
    rule = resolution.rule or resolution.push
    if rule is None or not resolution.handles(p.structured_outputs):
        return "AD"
    return rule.convention.name


def who(p: Problem) -> tuple[str, ...]:
    """Describe for failures the functions that compute and differentiate this call."""
    resolution = p.op.resolve(p.args, p.static)
    made = resolution.implementation.function if resolution.implementation else p.op.generic
    lines = [f"implementation: {place(made)}"] if made is not None else []
    rule = resolution.rule or resolution.push
    if how_differentiated(p) == "AD" or rule is None:
        return (*lines, "derivative: AD of the implementation")
    return (*lines, f"rule: {place(rule.function)}, from {resolution.origin}")
