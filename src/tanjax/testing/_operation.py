"""Check an operation on given arguments: its value, its rule, and all that JAX does with them.

Three judges that do not know the rule: AD of the definition on dense arrays, AD of the
undecorated implementation (for losses that read the fields of a structured output), and finite
differences in stored coordinates. A forward mode that is derived from a pullback agrees with it by
construction, so the two modes are never compared with each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import arrays, registry

from ._coordinates import (
    canonical,
    require_double,
    single_precision,
    wide_leaves,
)
from ._derivatives import Problem, first_order, higher_order, outer_probe, reference
from ._finite_differences import jacobian
from ._generic import require_generic
from ._modes import COMPILER, choose
from ._record import CheckResult, Recorder
from ._units import check_units

OPERATION_MODES = (
    "value",
    "vjp",
    "jvp",
    "finite differences",
    "linearize",
    "rule",
    "fields",
    "natural",
    "hessian",
    "vmap",
    "one argument",
    "checkpoint",
    "scan",
    "public lowering",
    "dtype",
    "units",
)


def check_operation(
    op: registry.Operation,
    *args: Any,
    modes: tuple[str, ...] | None = None,
    skip: tuple[str, ...] = (),
    zero: tuple[str, ...] = (),
    generic: bool = True,
    tolerance: float = 1e-8,
    reference: Callable[..., Any] | None = None,
    **static: Any,
) -> CheckResult:
    """Check an operation on these arguments, in float64, under everything that JAX can do.

    **Arguments:** `modes`: the stages to run, all by default; one that is left out must be named
    in `skip`. `zero`: names of arguments on which the output does not depend to first order.
    `generic=False` admits special values. `tolerance`: relative, per leaf of an argument (finite
    differences: 1e-6). `reference`: the definition on dense arguments, where the generic
    implementation of `op` is not one. Everything else is a static argument of `op`.

    **Returns:** the stages with counts and errors. **Raises:** `CheckFailure`.
    """
    chosen = choose("check_operation", OPERATION_MODES, modes, skip)
    if not isinstance(op, registry.Operation):
        raise TypeError(f"check_operation: {op!r} is not an operation (see `tj.operation`).")
    require_double(op.name, args)
    with arrays.densify("allow"):
        if generic:
            for name, a in zip(op.names_for(len(args)), args, strict=True):
                require_generic(f"{op.name}: {name}", a)
        checker = _Checker(Problem(op, args, static, reference), chosen, zero, tolerance)
        return checker.run()


check_rule = check_operation


class _Checker:
    """The stages of one check."""

    def __init__(self, problem: Problem, chosen: Any, zero: Any, tolerance: float) -> None:
        self.problem, self.chosen, self.tolerance = problem, chosen, tolerance
        op, args = problem.op, problem.args
        self.recorder = Recorder(f"{op.name}({', '.join(map(type_name, args))})")
        self.names = op.names_for(len(args))
        unknown = set(zero) - set(self.names)
        if unknown:
            raise ValueError(f"{op.name}: `zero` names no argument: {sorted(unknown)}.")
        self.zero = zero
        self.blocks = self._blocks()

    def _blocks(self) -> list[tuple[str, str, slice]]:
        """Every leaf of every argument: the argument's name, the leaf's, its coordinates."""
        blocks = []
        for name, c, start in zip(
            self.names, self.problem.inputs, self.problem.ends[:-1], strict=True
        ):
            for b in c.blocks:
                if b is not None and b.where.stop > b.where.start:
                    where = slice(int(start) + b.where.start, int(start) + b.where.stop)
                    blocks.append((name, f"{name}{b.name}", where))
        return blocks

    def run(self) -> CheckResult:
        result = self.recorder.result
        p = self.problem
        result.derivative = how_differentiated(p)
        result.skipped = tuple(m for m in OPERATION_MODES if m not in self.chosen)
        self.want = self._reference()
        self._check_value()
        if p.size and p.out_dense.size:
            self._require_sensitive_inputs()
            self._check_first_order()
            self._check_higher_order()
            if "finite differences" in self.chosen:
                self._check_finite_differences()
            if "public lowering" in self.chosen:
                self._check_public_lowering()
        else:
            result.notes.append("nothing to differentiate")
        if "dtype" in self.chosen:
            self._check_dtype()
        if "units" in self.chosen:
            check_units(self.recorder, p, self.tolerance)
        return self.recorder.finish()

    def _compiled(self, stage: str, f: Callable[..., Any], *args: Any) -> Any:
        try:
            out = jax.jit(f, compiler_options=COMPILER)(*args)
        except Exception as error:
            raise self.recorder.fail(
                stage, "it raised.", f"{type(error).__name__}: {error}"
            ) from error
        return jax.tree.map(np.asarray, out)

    def _reference(self) -> dict[str, Any]:
        p = self.problem
        run = lambda point, points: reference(p, point, points)
        try:
            want = jax.tree.map(
                np.asarray, jax.jit(run, compiler_options=COMPILER)(p.point, p.points)
            )
        except Exception as error:
            raise self.recorder.fail(
                "reference", "the definition does not run on dense arguments.",
                f"{type(error).__name__}: {error}",
                hint="pass `reference=`, a function of the dense arguments.",
            ) from error  # fmt: skip
        j, v, y = want["jacobian"], np.asarray(p.direction), np.asarray(p.probe)
        want |= {"pushed": j @ v, "pulled": y @ j, "pulled again": y @ j}
        want["stored jacobian forward"] = want.get("stored jacobian")
        for name in ("forward over reverse", "reverse over reverse", "reverse over forward"):
            want[name] = want["hessian"]
        for i in p.moving:
            part = slice(int(p.ends[i]), int(p.ends[i + 1]))
            want[f"gradient {i}"] = want["gradient"][part]
            want[f"one batched {i}"] = None
        return want

    # -- stages -----------------------------------------------------------------------------

    def _check_value(self) -> None:
        p, want = self.problem, self.want
        if "value" not in self.chosen:
            return
        for how, got in (
            ("", p.out_dense.vector(jax.tree.map(jnp.asarray, _dense(p.out)))),
            (" under jit", self._compiled("value", p.array, p.point)),
        ):
            self.recorder.compare("value", f"the value{how}", got, want["value"], self.tolerance)

    def _require_sensitive_inputs(self) -> None:
        """Every argument must matter, and no square one only in a transposition-blind way."""
        p, j, others = self.problem, self.want["jacobian"], self.want["jacobians"]
        for name, leaf, where in self.blocks:
            block = j[:, where]
            if not np.any(block) and name not in self.zero and _any(others[..., where]):
                raise self.recorder.fail(
                    "inputs", f"the derivative with respect to {leaf} vanishes here only.",
                    hint="choose other inputs.",
                )  # fmt: skip
        for i in p.moving:
            declared = self.names[i] in self.zero
            part = j[:, int(p.ends[i]) : int(p.ends[i + 1])]
            if declared == bool(np.any(part)):
                raise self.recorder.fail(
                    "inputs",
                    f"the derivative with respect to {self.names[i]} "
                    + ("is not zero, as declared." if declared else "is zero."),
                    hint="a zero derivative checks nothing; declare it with `zero=(name,)`.",
                )
        for c, start in zip(p.inputs, p.ends, strict=False):
            for b in c.blocks:
                if b is not None and len(b.shape) == 2 and b.shape[0] == b.shape[1] > 1:
                    self._require_seen_transposition(b, int(start))

    def _require_seen_transposition(self, b: Any, start: int) -> None:
        where = slice(start + b.where.start, start + b.where.stop)
        order = np.arange(where.stop - where.start).reshape(-1, *b.shape)
        flipped = order.swapaxes(1, 2).ravel()
        here, there = self.want["jacobian"][:, where], self.want["jacobians"][..., where]
        same = lambda j: np.max(np.abs(j - j[..., flipped])) <= self.tolerance * np.max(np.abs(j))
        if np.any(here) and same(here) and not same(there):
            raise self.recorder.fail(
                "inputs", f"the check is insensitive: it passes when {b.name} is transposed.",
                hint="choose inputs without accidental symmetry.",
            )  # fmt: skip

    def _by_leaf(self, stage: str, what: str, got: Any, want: Any, tolerance: float) -> None:
        """Compare derivatives leaf by leaf: a small one must not hide behind a large one."""
        got, want = np.asarray(got), np.asarray(want)
        if got.shape != want.shape:
            self.recorder.compare(stage, what, got, want, tolerance)
        for name, leaf, where in self.blocks:
            may_vanish = name in self.zero or not np.any(self.want["jacobian"][:, where])
            self.recorder.compare(
                stage, f"{what} with respect to {leaf}", got[..., where], want[..., where],
                tolerance, zero=may_vanish or stage == "hessian",
            )  # fmt: skip

    def _check_first_order(self) -> None:
        p, want = self.problem, self.want
        run = lambda point: first_order(p, point, self.chosen)
        got = self._compiled("first order", run, p.point)
        order = lambda item: OPERATION_MODES.index(item[0][0])  # jit sorts by name
        for (stage, name), value in sorted(got.items(), key=order):
            if name.startswith("paired"):
                self._check_pairing(stage, name, value)
            elif value.ndim and name != "stored" and value.shape[-1] == p.size and name != "pushed":
                self._by_leaf(stage, name, value, want[name], self.tolerance)
            else:
                self.recorder.compare(stage, name, value, want[name], self.tolerance)
        if "rule" in self.chosen:
            same = np.array_equal(got["rule", "pulled"], got["rule", "pulled again"])
            self.recorder.holds("rule", "two calls give different cotangents.", same)

    def _check_pairing(self, stage: str, name: str, value: Any) -> None:
        p = self.problem
        y = outer_probe(p) if name == "paired outer" else p.probe
        bars = np.asarray(y) @ self.want["jacobian"] * np.asarray(p.direction)
        want = np.array([bars[p.ends[i] : p.ends[i + 1]].sum() for i in p.moving])
        self.recorder.compare(stage, f"⟨natural(w̄), J ẇ⟩ ({name})", value, want, self.tolerance)

    def _check_higher_order(self) -> None:
        p, want = self.problem, self.want
        run = lambda point, points: higher_order(p, point, points, self.chosen)
        for (stage, name), value in self._compiled("higher order", run, p.point, p.points).items():
            if name.startswith("one batched"):
                self._check_one_batched(stage, name, value)
            elif name == "values" or name.startswith("gradient "):
                self.recorder.compare(
                    stage, name, value, want[name], self.tolerance, zero=self._may_vanish(name)
                )
            else:
                factor = 2 if (stage, name) == ("scan", "gradient") else 1
                self._by_leaf(stage, name, value, factor * want[name], self.tolerance)

    def _may_vanish(self, name: str) -> bool:
        if name == "values":  # they vanish where the value does, as in a product with zero
            return not np.any(self.want["value"])
        return self.names[int(name.split()[-1])] in self.zero

    def _check_one_batched(self, stage: str, name: str, value: Any) -> None:
        """One argument batched, the others not: against the definition, point by point."""
        p, i = self.problem, int(name.split()[-1])
        rows = []
        for row in p.points:
            parts = p.parts(p.point)
            parts[i] = p.parts(row)[i]
            rows.append(jnp.concatenate(parts))
        losses = jax.jit(p.loss(p.defined))
        want = jnp.stack([losses(row) for row in rows])
        self.recorder.compare(stage, f"only {self.names[i]} batched", value, want, self.tolerance)

    def _check_finite_differences(self) -> None:
        p = self.problem
        run = jax.jit(
            lambda v: p.out_dense.vector(_dense(p.call(*map(canonical, p.unpack(v))))),
            compiler_options=COMPILER,
        )
        slope = jacobian(run, p.point)
        got = self._compiled("finite differences", jax.jacrev(p.array), p.point)
        self._by_leaf("finite differences", "the Jacobian", got, slope, 1e-6)

    def _check_public_lowering(self) -> None:
        p, want = self.problem, self.want

        def run(point: Any) -> Any:
            gradient = jax.grad(p.loss(p.array))
            return (
                jax.vjp(p.array, point)[1](p.probe)[0],
                jax.jvp(p.array, (point,), (p.direction,))[1],
                jax.jvp(gradient, (point,), (p.direction,))[1],
            )

        with registry.lowering("public"):
            pulled, pushed, hessian = self._compiled("public lowering", run, p.point)
        self._by_leaf("public lowering", "pulled", pulled, want["pulled"], self.tolerance)
        self.recorder.compare("public lowering", "pushed", pushed, want["pushed"], self.tolerance)
        self.recorder.compare(
            "public lowering", "hessian", hessian, want["hessian"], self.tolerance, zero=True
        )

    def _check_dtype(self) -> None:
        """Single precision in, single precision out, for the value and both derivatives."""
        p = self.problem
        args = tuple(single_precision(a) for a in p.args)
        free = [i for i, a in enumerate(args) if i in p.moving]

        def run(*some: Any) -> Any:
            full = list(args)
            for i, a in zip(free, some, strict=True):
                full[i] = a
            f = lambda *moving: p.call(*_put(full, free, moving))
            out, pull = jax.vjp(f, *some)
            bars = pull(jax.tree.map(_unit, out)) if some else ()
            return out, bars

        try:
            wide = wide_leaves(jax.eval_shape(run, *(args[i] for i in free)))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise self.recorder.fail("dtype", "it raised in single precision.", reason) from error
        self.recorder.holds("dtype", "single precision became double.", not wide, *wide)


def _put(full: list[Any], places: list[int], values: Any) -> list[Any]:
    full = list(full)
    for i, value in zip(places, values, strict=True):
        full[i] = value
    return full


def _unit(leaf: Any) -> Any:
    if arrays.is_inexact(leaf):
        return jnp.ones_like(leaf)
    return np.zeros(np.shape(leaf), jax.dtypes.float0)


def _dense(tree: Any) -> Any:
    form = lambda x: arrays.destructure(x) if arrays.is_structured(x) else x
    return jax.tree.map(form, tree, is_leaf=arrays.is_structured)


def _any(values: np.ndarray) -> bool:
    return bool(np.any(values))


def type_name(x: Any) -> str:
    """The type of an argument, as signatures name it."""
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
    """Who differentiates this call: a rule, a pushforward, or AD of the implementation."""
    plan = p.op.plan(p.args, p.static)
    rule = plan.rule or plan.push
    structured = [x for x in jax.tree.leaves(p.out, is_leaf=arrays.is_structured)
                  if arrays.is_structured(x)]  # fmt: skip
    hidden = not all(_injective(x) for x in structured)
    if rule is None or (hidden and rule.hidden == "ad"):
        return "AD"
    return rule.convention.name


def _injective(x: Any) -> bool:
    kind: Any = arrays.array_type(x)
    return bool(kind.is_injective(x))
