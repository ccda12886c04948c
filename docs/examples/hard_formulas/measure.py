"""Errors of a formula and its gradient, computed by `tj.jit`, by plain JAX, and in float64.

Plain JAX gets the same numbers in the same dtype. The reference takes the inputs after rounding to
the dtype, and the unrounded constants. Errors are in units in the last place of the dtype, as if
exponents had no limit.

    value, gradient = cells(FORMULAS[0], jnp.float16)
    value.error, value.is_right
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track
from rich.table import Table

import tanjax as tj
import tanjax.numpy as tnp

from .formula import NUMBERS, QUANTITIES, Formula, form

ALLOWED = 8.0  # units in the last place


class Cell(NamedTuple):
    """The value or the gradient of a formula in a dtype: a float64 array for each result."""

    dtype: Any
    reference: list[np.ndarray]
    ours: list[np.ndarray]
    plain: list[np.ndarray]

    @property
    def error(self) -> float:
        return ulps(self.ours, self.reference, self.dtype)

    @property
    def plain_error(self) -> float:
        return ulps(self.plain, self.reference, self.dtype)

    @property
    def is_right(self) -> bool:
        return self.error <= ALLOWED

    @property
    def texts(self) -> tuple[str, str]:
        """The errors of tanjax and of plain JAX as texts."""
        return f"{self.error:.1f}", outcome(self.plain, self.reference, self.dtype)


def ulps(got: list[np.ndarray], reference: list[np.ndarray], dtype: Any) -> float:
    """Return the largest error in units in the last place, as if exponents had no limit."""
    worst = 0.0
    for a, b in zip(got, reference, strict=True):
        if not np.all(np.isfinite(a)):
            return math.inf
        unit = np.ldexp(1.0, np.frexp(b)[1] - 1 - jnp.finfo(dtype).nmant)
        errors = np.where(b == 0, np.where(a == 0, 0.0, math.inf), np.abs(a - b) / unit)
        worst = max(worst, float(np.max(errors)))
    return worst


def outcome(got: list[np.ndarray], reference: list[np.ndarray], dtype: Any) -> str:
    """Return the result of plain JAX as a text: nan, inf, 0, or its error."""
    everything = np.concatenate([np.ravel(a) for a in got])
    for name, found in (("nan", np.isnan), ("inf", np.isinf), ("0", lambda a: a == 0)):
        if np.any(found(everything)):
            return name
    error = ulps(got, reference, dtype)
    return f"{error:.1f}" if error < 100 else f"{error:.0e}"


def inputs(formula: Formula, dtype: Any) -> list[Any]:
    """Return the arguments in a dtype: arrays, or quantities, with a scale if they need one."""
    arguments = formula.half if formula.half and dtype is jnp.float16 else formula.arguments
    if not formula.is_of_quantities:
        return [jnp.asarray(x, dtype) for x in arguments]
    with jax.enable_x64(True):
        wide = [tj.quantity(jnp.asarray(x, jnp.float64), unit) for x, unit in arguments]
        return [q.astype(dtype) for q in wide]


def exact(x: Any) -> np.ndarray:
    """Return a result or an argument in SI as float64."""
    if type(x) is not tj.Quantity:
        return np.asarray(x).astype(np.float64)
    if float(x.unit.factor) != 1.0:
        raise SystemExit(f"{x.unit} is not SI")
    return np.ldexp(np.asarray(x.stored).astype(np.float64), x.scale)


def bound(formula: Formula, constants: Any, *, reference: bool = False) -> Callable[..., Any]:
    """Return a formula as a function of its arguments."""
    f = formula.reference if reference and formula.reference else formula.function
    return lambda *args: f(constants, *args)


def scalar(formula: Formula, result: Any) -> Any:
    """Return the scalar to differentiate: the sum, or the first entry if the sum is constant."""
    return jnp.ravel(result)[0] if formula.of_first else tnp.sum(result)


def program(jit: Any, grad: Any, formula: Formula, f: Callable[..., Any]) -> Callable[..., Any]:
    """Compile value and gradient by all arguments: as one program, or as two if `apart`."""
    places = tuple(range(len(formula.arguments)))

    def total(*args: Any) -> tuple[Any, Any]:
        result = f(*args)
        return scalar(formula, result), result

    def together(*args: Any) -> tuple[Any, Any]:
        slope, value = grad(total, argnums=places, has_aux=True)(*args)
        return value, slope

    if not formula.apart:
        return jit(together)
    value, slope = jit(f), jit(grad(lambda *args: total(*args)[0], argnums=places))
    return lambda *args: (value(*args), slope(*args))


@functools.cache
def reference_program(formula: Formula) -> Callable[..., Any]:
    return program(jax.jit, jax.grad, formula, bound(formula, NUMBERS, reference=True))


def results(run: Callable[..., Any], args: list[Any]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    value, slope = run(*args)
    return [exact(value)], [exact(x) for x in slope]


def cells(formula: Formula, dtype: Any, *, plain: bool = True) -> tuple[Cell, Cell]:
    """Compute the value and the gradient of a formula in a dtype."""
    args = inputs(formula, dtype)
    bare = [exact(x) for x in args]
    with jax.enable_x64(True):
        true = results(reference_program(formula), [jnp.asarray(x) for x in bare])
    constants = QUANTITIES if formula.is_of_quantities else NUMBERS
    with warnings.catch_warnings():  # `exact` includes the power of a label
        warnings.filterwarnings("ignore", ".*carry a power of two", tj.errors.ScaleWarning)
        ours = results(program(tj.jit, tj.grad, formula, bound(formula, constants)), args)
    theirs: tuple[Any, Any] = ([], [])
    if plain:
        with np.errstate(all="ignore"):
            narrow = [jnp.asarray(x.astype(dtype)) for x in bare]
            theirs = results(program(jax.jit, jax.grad, formula, bound(formula, NUMBERS)), narrow)
    value, slope = (Cell(dtype, *three) for three in zip(true, ours, theirs, strict=True))
    return value, slope


def table(formulas: Iterable[Formula]) -> tuple[Table, list[str]]:
    """Return a table of the errors in every dtype, and the names of wrong formulas."""
    headings = ("formula", "of", "dtype", "value", "plain JAX", "gradient", "plain JAX")
    shown = Table(*headings, title="Errors in units in the last place")
    wrong = []
    cases = [(formula, dtype) for formula in formulas for dtype in formula.dtypes]
    for formula, dtype in track(cases, transient=True):
        value, slope = cells(formula, dtype)
        shown.add_row(formula.name, form(formula), dtype.__name__, *value.texts, *slope.texts)
        if not (value.is_right and slope.is_right):
            wrong.append(f"{formula}, {dtype.__name__}")
    return shown, wrong
