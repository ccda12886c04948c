"""Formulas of physics whose numbers do not fit in float32, bfloat16 or float16, and what comes out.

    python docs/examples/hard_formulas.py

Each formula is written as a scientist would write it, in SI, and is computed with its gradient by
`tj.jit`, by plain JAX, and in float64. A formula comes in one or two forms: of *quantities*, which
may hold numbers that their dtype cannot, and of *plain* arrays with Python's numbers as constants.
Plain JAX gets the same numbers in the same dtype. The reference takes the inputs exactly as they
are after rounding to the dtype, and the constants as they were written; errors are in units in the
last place of the dtype. Exits with an error if one is larger than 8.

Where a formula multiplies the relative error of its inputs (`exp(-E/kT)`: by `E/kT`), the arguments
are such that the factor is small, because the rounding of a constant such as `k` is an error too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import tanjax as tj
import tanjax.numpy as tnp

ALLOWED = 8.0  # units in the last place
DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)
_CODATA = tj.units.constants
_NAMES = ("G", "h", "hbar", "c", "k_B", "e", "m_e", "epsilon_0")
QUANTITIES = SimpleNamespace(**{name: getattr(_CODATA, name) for name in _NAMES})
NUMBERS = SimpleNamespace(**{name: getattr(_CODATA, name).value for name in _NAMES})


@dataclasses.dataclass(frozen=True, eq=False)
class Formula:
    """One formula.

    **Fields:** `name`, `text`: what people see; `function`: of constants and arguments;
    `arguments`: each a number or a list, with its unit if the formula is of quantities;
    `reference`: the same function, written so that float64 does not overflow; `half`: other
    arguments in float16; `dtypes`: those that hold the arguments.
    """

    name: str
    text: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    reference: Callable[..., Any] | None = None
    half: tuple[Any, ...] | None = None
    dtypes: tuple[Any, ...] = DTYPES

    @property
    def is_of_quantities(self) -> bool:
        return isinstance(self.arguments[0], tuple)

    def __str__(self) -> str:
        return f"{self.name}, {form(self)}"


def form(formula: Formula) -> str:
    """What a formula is of."""
    return "quantities" if formula.is_of_quantities else "plain"


# -- the formulas -----------------------------------------------------------------------------


def newton(c: Any, m1: Any, m2: Any, r: Any) -> Any:
    return c.G * m1 * m2 / r**2


def planck(c: Any, nu: Any, t: Any) -> Any:
    return 2 * c.h * nu**3 / c.c**2 / (tnp.exp(c.h * nu / (c.k_B * t)) - 1)


def planck_per_terahertz(c: Any, nu: Any, t: Any) -> Any:
    return 1e12 * planck(c, 1e12 * nu, t)


def coulomb(c: Any, r: Any) -> Any:
    return c.e**2 / (4 * math.pi * c.epsilon_0 * r**2)


def coulomb_in_femtometres(c: Any, r: Any) -> Any:
    return coulomb(c, 1e-15 * r)


def fdtd(c: Any, dt: Any, dx: Any) -> Any:
    return dt / (c.epsilon_0 * dx)


def fdtd_in_attoseconds(c: Any, dt: Any, dx: Any) -> Any:
    return fdtd(c, 1e-18 * dt, 1e-9 * dx)


def norm(c: Any, x: Any) -> Any:
    return tnp.sqrt(tnp.sum(x * x))


def chain(c: Any, x: Any) -> Any:
    for _ in range(120):
        x = x * 3.24
    for _ in range(120):
        x = x / 3.24
    return x


def power(c: Any, x: Any) -> Any:
    return x**100


def power_brought_back(c: Any, x: Any) -> Any:
    return x**100 / 3.0**99


def localisation(c: Any, m: Any) -> Any:
    return c.hbar**2 / (2 * m)


def localisation_in_electronvolts(c: Any, m: Any) -> Any:
    return c.hbar**2 / (2 * c.m_e * m) / (c.e * 1e-18)


def boltzmann(c: Any, energy: Any, t: Any) -> Any:
    return tnp.exp(-energy / (c.k_B * t))


def boltzmann_in_electronvolts(c: Any, energy: Any, t: Any) -> Any:
    return jnp.exp(-energy * c.e / (c.k_B * t))


def debye(c: Any, density: Any, t: Any) -> Any:
    return tnp.sqrt(c.epsilon_0 * c.k_B * t / (density * c.e**2))


def softmax(c: Any, x: Any) -> Any:
    e = jnp.exp(x)
    return e / jnp.sum(e)


def logsumexp(c: Any, x: Any) -> Any:
    return jnp.log(jnp.sum(jnp.exp(x)))


def layer_norm(c: Any, x: Any) -> Any:
    centred = x - jnp.mean(x)
    return centred / jnp.sqrt(jnp.mean(centred**2))


LOGITS = [996.0, 1000.0, 1000.0, 996.0]  # multiples of 4: bfloat16 holds them
ACTIVATIONS = [0.25, 1.0, -1.5, -0.5, 2.0, -2.5]
DISTANCES = [1.0, 2.0, 0.75]


def times(numbers: list[float], factor: float) -> list[float]:
    return [factor * x for x in numbers]


FORMULAS = [
    Formula(
        "Newton's force",
        "G m₁ m₂ / r², the sun and the earth",
        newton,
        ((1.988e30, "kg"), (5.972e24, "kg"), (1.496e11, "m")),
    ),
    Formula(
        "Newton's force",
        "the same numbers",
        newton,
        (1.988e30, 5.972e24, 1.496e11),
        dtypes=DTYPES[:2],  # float16 has no such numbers
    ),
    Formula(
        "Planck's law",
        "2hν³/c² / (exp(hν/kT) − 1), 170 THz, 5800 K",
        planck,
        ((170e12, "Hz"), (5800.0, "K")),
    ),
    Formula("Planck's law", "the same, ν in THz", planck_per_terahertz, (170.0, 5800.0)),
    Formula("Coulomb at 1 fm", "e² / (4π ε₀ r²)", coulomb, ((1e-15, "m"),)),
    Formula("Coulomb at 1 fm", "the same, r in fm", coulomb_in_femtometres, (1.0,)),
    Formula(
        "FDTD factor",
        "Δt / (ε₀ Δx), 17 as, 10 nm",
        fdtd,
        ((1.7e-17, "s"), (1e-8, "m")),
    ),
    Formula("FDTD factor", "the same, in as and nm", fdtd_in_attoseconds, (17.0, 10.0)),
    Formula("norm at 1e25", "√Σx²", norm, ((times(DISTANCES, 1e25), "m"),)),
    Formula(
        "norm at 1e25",
        "the same; 2e4 in float16",
        norm,
        (times(DISTANCES, 1e25),),
        half=(times(DISTANCES, 2e4),),
    ),
    Formula("grow and shrink", "120 times · 3.24, 120 times / 3.24", chain, ([1.0, 1.5],)),
    Formula("3¹⁰⁰", "10⁵ times", power, (([3.0] * 10**5, ""),)),
    Formula("3¹⁰⁰ / 3⁹⁹", "10⁵ times", power_brought_back, ([3.0] * 10**5,)),
    Formula("ħ²/2m", "of an electron", localisation, ((_CODATA.m_e.value, "kg"),)),
    Formula("ħ²/2m", "in eV nm², m in electron masses", localisation_in_electronvolts, (1.0,)),
    Formula(
        "Boltzmann factor",
        "exp(−E/kT), E/kT ≈ 3",
        boltzmann,
        ((1.25e-20, "J"), (300.0, "K")),
    ),
    Formula("Boltzmann factor", "the same, E in eV", boltzmann_in_electronvolts, (0.078, 300.0)),
    Formula(
        "Debye length",
        "√(ε₀ k T / (n e²)), of a plasma",
        debye,
        ((1e20, "1 / m3"), (1e7, "K")),
    ),
    Formula("Debye length", "the same numbers", debye, (1e20, 1e7), dtypes=DTYPES[:2]),
    Formula(
        "softmax",
        "exp(x) / Σ exp(x), logits of 1000",
        softmax,
        (LOGITS,),
        reference=lambda c, x: jax.nn.softmax(x),
    ),
    Formula(
        "softmax",
        "as `jax.nn` writes it",
        lambda c, x: jax.nn.softmax(x),
        (LOGITS,),
    ),
    Formula(
        "logsumexp",
        "log Σ exp(x), logits of 1000",
        logsumexp,
        (LOGITS,),
        reference=lambda c, x: jax.nn.logsumexp(x),
    ),
    Formula(
        "logsumexp",
        "as `jax.nn` writes it",
        lambda c, x: jax.nn.logsumexp(x),
        (LOGITS,),
    ),
    Formula(
        "layer norm",
        "(x − x̄) / √mean((x − x̄)²), x of 1e25; of 500 in float16",
        layer_norm,
        (times(ACTIVATIONS, 1e25),),
        half=(times(ACTIVATIONS, 500.0),),
    ),
]


# -- measuring them ---------------------------------------------------------------------------


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
        """Our error and that of plain JAX, as people read it."""
        return f"{self.error:.1f}", outcome(self.plain, self.reference, self.dtype)


def ulps(got: list[np.ndarray], reference: list[np.ndarray], dtype: Any) -> float:
    """The largest error in units in the last place, as if exponents had no limit."""
    worst = 0.0
    for a, b in zip(got, reference, strict=True):
        if not np.all(np.isfinite(a)):
            return math.inf
        unit = np.ldexp(1.0, np.frexp(b)[1] - 1 - jnp.finfo(dtype).nmant)
        worst = max(worst, float(np.max(np.abs(a - b) / unit)))
    return worst


def outcome(got: list[np.ndarray], reference: list[np.ndarray], dtype: Any) -> str:
    """What plain JAX computes: nan, inf, 0, or its error."""
    everything = np.concatenate([np.ravel(a) for a in got])
    for name, found in (("nan", np.isnan), ("inf", np.isinf), ("0", lambda a: a == 0)):
        if np.any(found(everything)):
            return name
    error = ulps(got, reference, dtype)
    return f"{error:.1f}" if error < 100 else f"{error:.0e}"


def inputs(formula: Formula, dtype: Any) -> list[Any]:
    """The arguments in a dtype: quantities, with a scale where they need one, or arrays."""
    if not formula.is_of_quantities:
        half = formula.half if dtype is jnp.float16 else None
        return [jnp.asarray(x, dtype) for x in half or formula.arguments]
    with jax.enable_x64(True):
        wide = [tj.quantity(jnp.asarray(x, jnp.float64), unit) for x, unit in formula.arguments]
        return [q.astype(dtype) for q in wide]


def exact(x: Any) -> np.ndarray:
    """A result or an argument in SI as float64."""
    if type(x) is not tj.Unitful:
        return np.asarray(x).astype(np.float64)
    if float(x.unit.factor) != 1.0:
        raise SystemExit(f"{x.unit} is not SI")
    return np.ldexp(np.asarray(x.stored).astype(np.float64), x.scale)


def bound(formula: Formula, constants: Any, *, reference: bool = False) -> Callable[..., Any]:
    """A formula as a function of its arguments."""
    f = formula.reference if reference and formula.reference else formula.function
    return lambda *args: f(constants, *args)


def scalar(formula: Formula, f: Callable[..., Any]) -> Callable[..., Any]:
    """What there is a gradient of: the sum, or the first entry where the sum is constant."""
    if formula.function in (softmax, layer_norm) or "jax.nn" in formula.text:
        return lambda *args: jnp.ravel(f(*args))[0]
    return lambda *args: tnp.sum(f(*args))


Programs = tuple[Callable[..., Any], Callable[..., Any]]


def programs(jit: Any, grad: Any, formula: Formula, f: Callable[..., Any]) -> Programs:
    """Value and gradient, compiled apart from each other."""
    places = tuple(range(len(formula.arguments)))
    return jit(f), jit(grad(scalar(formula, f), argnums=places))


@functools.cache
def reference_programs(formula: Formula) -> Programs:
    return programs(jax.jit, jax.grad, formula, bound(formula, NUMBERS, reference=True))


def results(both: Programs, args: list[Any]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    value, slope = both
    return [exact(value(*args))], [exact(x) for x in slope(*args)]


def cells(formula: Formula, dtype: Any, *, plain: bool = True) -> tuple[Cell, Cell]:
    """The value and the gradient of a formula in a dtype."""
    args = inputs(formula, dtype)
    bare = [exact(x) for x in args]
    with jax.enable_x64(True):
        true = results(reference_programs(formula), [jnp.asarray(x) for x in bare])
    constants = QUANTITIES if formula.is_of_quantities else NUMBERS
    ours = results(programs(tj.jit, tj.grad, formula, bound(formula, constants)), args)
    theirs: tuple[Any, Any] = ([], [])
    if plain:
        with np.errstate(all="ignore"):
            narrow = [jnp.asarray(x.astype(dtype)) for x in bare]
            theirs = results(programs(jax.jit, jax.grad, formula, bound(formula, NUMBERS)), narrow)
    value, slope = (Cell(dtype, *three) for three in zip(true, ours, theirs, strict=True))
    return value, slope


def rows(formulas: list[Formula]) -> Iterator[tuple[Formula, Any, Cell, Cell]]:
    """Every formula in every dtype."""
    for formula in formulas:
        for dtype in formula.dtypes:
            yield formula, dtype, *cells(formula, dtype)


def main() -> None:
    console = Console()
    headings = ("formula", "of", "dtype", "value", "plain JAX", "gradient", "plain JAX")
    table = Table(*headings, title="Errors in units in the last place")
    wrong = []
    for formula, dtype, value, slope in track(list(rows(FORMULAS)), console=console):
        table.add_row(formula.name, form(formula), dtype.__name__, *value.texts, *slope.texts)
        wrong += [f"{formula}, {dtype.__name__}"] * (not (value.is_right and slope.is_right))
    console.print(table)
    if wrong:
        raise SystemExit(f"more than {ALLOWED:.0f} units in the last place: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
