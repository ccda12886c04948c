"""The description of a formula: its text, its function, its arguments, its constants.

A formula comes in two forms: of *quantities*, which may hold numbers that their dtype cannot, and
of *plain* arrays with Python's numbers as constants. Plain arguments and results must also be in
the range of float16. So `both` writes them in units that a scientist would choose, with the factors
in the formula: `M = 1.0` solar masses instead of 1.988e30 kg.

    both("rest energy", "m c²", lambda c, m: m * c.c**2, [(1.67e-27, "kg")],
         "m in u, E in GeV", units=(1.66e-27,), per=1.6e-10)

Some formulas multiply the relative error of their inputs (`exp(-E/kT)`: by `E/kT`). Their arguments
keep this factor small, because the rounding of a constant such as `k` is an error, too.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np

import tanjax as tj

DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)
CODATA = tj.units.constants
_NAMES = ("G", "h", "hbar", "c", "k_B", "e", "m_e", "m_p", "m_n", "epsilon_0", "mu_0", "N_A")
QUANTITIES = SimpleNamespace(**{name: getattr(CODATA, name) for name in _NAMES})
NUMBERS = SimpleNamespace(**{name: getattr(CODATA, name).value for name in _NAMES})


@dataclasses.dataclass(frozen=True, eq=False)
class Formula:
    """One formula.

    **Fields:** `name`, `text`: for print; `function`: takes constants and arguments; `arguments`:
    each a number or a list, with its unit if the formula is of quantities; `reference`: the same
    function in a form that does not overflow in float64; `half`: other arguments for float16;
    `dtypes`: those that hold the arguments; `of_first`: the gradient is that of the first entry,
    because the sum of all is constant; `apart`: value and gradient are two programs, with plans of
    their own, instead of one.
    """

    name: str
    text: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    reference: Callable[..., Any] | None = None
    half: tuple[Any, ...] | None = None
    dtypes: tuple[Any, ...] = DTYPES
    of_first: bool = False
    apart: bool = False

    @property
    def is_of_quantities(self) -> bool:
        return isinstance(self.arguments[0], tuple)

    def __str__(self) -> str:
        return f"{self.name}, {form(self)}"


def form(formula: Formula) -> str:
    """Return the form of a formula: quantities or plain."""
    return "quantities" if formula.is_of_quantities else "plain"


def times(numbers: list[float], factor: float) -> list[float]:
    return [factor * x for x in numbers]


def in_units(
    function: Callable[..., Any], units: Sequence[float], per: float
) -> Callable[..., Any]:
    """Return the function of plain arguments in `units`, with its result in units of `per`."""

    def plain(c: Any, *args: Any) -> Any:
        args = tuple(x if unit == 1.0 else unit * x for x, unit in zip(args, units, strict=True))
        result = function(c, *args)
        return result if per == 1.0 else result / per

    return plain


def both(
    name: str,
    text: str,
    function: Callable[..., Any],
    arguments: Sequence[tuple[Any, str]],
    plain_text: str,
    *,
    units: Sequence[float],
    per: float = 1.0,
    reference: Callable[..., Any] | None = None,
    half: Sequence[tuple[Any, str]] | None = None,
) -> list[Formula]:
    """Return a formula of quantities, and one of plain numbers in `units`, its result in `per`."""

    def numbers(of: Sequence[tuple[Any, str]]) -> tuple[Any, ...]:
        return tuple(
            (np.asarray(x) / unit).tolist() for (x, _), unit in zip(of, units, strict=True)
        )

    rescaled = functools.partial(in_units, units=units, per=per)
    true = reference and rescaled(reference)
    return [
        Formula(name, text, function, tuple(arguments), reference, half and tuple(half)),
        Formula(
            name, plain_text, rescaled(function), numbers(arguments), true, half and numbers(half)
        ),
    ]
