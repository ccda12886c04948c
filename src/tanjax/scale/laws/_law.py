"""One law per primitive: all its facts for the scale graph and `tj.lift`.

A product treats powers of two as it treats units; its functions on numbers and on bounds belong
beside that. So each primitive has one `Law` in `LAWS`, written in the module of its family.

    @law("mul", "a: u, b: v -> u*v", bound=known(multiply), spread=True)
    def multiplied(node, xs):
        x, y = xs
        return [Wide(x.array * y.array, x.exponent + y.exponent)]

    LAWS["mul"].signature  # 'a: u, b: v -> u*v'

The estimate of magnitudes runs the traced program in a range where nothing overflows. Running it
with JAX would compile every primitive (10 ms each) and could not leave the range of float64. So a
law has a function `(node, operands) -> results` on NumPy arrays with an exponent (`Wide`), and
another one on bounds (`Record`), for arrays that are too large to run.

Sharp edges. `evaluate` is called under `np.errstate(all="ignore")`, on normalised operands; its
results need not be normalised. It is for blocks, which have one exponent, unless `spread` allows
more. It raises `Apart` if it finds that no block holds the numbers.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from jax import Array

from tanjax._jaxpr_types import JaxEquation

from ..graph._graph import Exponents, Magnitudes, Node, Use, Value
from ..numbers._interval_record import Record, Records
from ..numbers._wide import Apart, Numbers, Wide
from ._vanish import HARMFUL, Divides, Vanish

Thing: TypeAlias = Use | Value  # a thing with an exponent
Term = tuple[int, Thing]
Row = tuple[Term, ...]
RowLaw = Callable[[Node, Magnitudes], Iterable[Row]]
Evaluate = Callable[[Node, list[Wide]], list[Wide]]
Bound = Callable[[Node, Records], Records]
Work = float | Callable[[Node, list[Wide]], float]
Replay = Callable[[Node, list[Array], Exponents], list[Array]]
Units = str | Callable[[JaxEquation], str]
F = TypeVar("F", bound=Evaluate)

Numeric: TypeAlias = Callable[..., Numbers]  # a function of NumPy's, or of SciPy's
ToWide: TypeAlias = Callable[..., Wide]  # a function whose result no plain array holds
LARGEST, SMALLEST = 1, -1  # ends of the numbers of a value


class Many(enum.Enum):
    """The way in which many numbers become one entry; partial results may leave the range."""

    TERMS = "added up, one after the other"
    PRODUCTS = "multiplied in pairs, which are added up"
    UPDATES = "added to an entry in the dtype of the result"
    FACTORS = "multiplied, one after the other"
    SOLVED = "multiplied by the results, and subtracted from an operand"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The facts about a primitive; a field that is left out is unknown.

    **Fields:** `signature`: its units (`tanjax.units`), operand by operand, or a function from the
    equation to that; exponents and units of `tj.lift` follow. `each`: the signature is that of one
    operand and its result, and each operand has a result. `rows`: `(node, magnitudes) -> rows`,
    if exponents do not follow from the signature.

    `evaluate`: the primitive on wide numbers; `spread`: the same where each entry has an exponent;
    `work`: its elementary operations per element, or a function `(node, operands)` that returns
    their number. `bound`: the records of the results; `real_only`: neither bounds nor `replay` are
    for complex numbers. `replay`: the primitive at any exponents, if conversions do not suffice.

    `vanish`: its treatment of numbers that are too small (`_vanish.py`). `many`: the way in which
    many numbers become one entry; `products`: the values whose products make a result and must
    keep their digits; `eigenvalues`: the first result is garbled if the operand is large or small.
    `tails`: the number of operands whose infinities mean large numbers. `end`: the end of the
    operands that counts; `inverts`: whether an operand counts at its other end, if `vanish` does
    not tell. `fold`: the primitive on single numbers that are known at planning time.
    """

    signature: Units = ""
    each: bool = False
    rows: RowLaw | None = None
    evaluate: Evaluate | None = None
    spread: Evaluate | None = None
    work: Work = 1.0
    bound: Bound | None = None
    real_only: bool = False
    replay: Replay | None = None
    vanish: Vanish = HARMFUL
    many: Many | None = None
    products: Callable[[Value], Sequence[Value]] | None = None
    eigenvalues: bool = False
    tails: int = 0
    end: int = 0
    inverts: Divides | None = None
    fold: Numeric | None = None

    def units(self, equation: JaxEquation) -> str:
        """Return the signature of an equation; empty if there is none."""
        text = self.signature
        return text if isinstance(text, str) else text(equation)


LAWS: dict[str, Law] = {}
UNKNOWN = Law()


def law(
    names: str,
    signature: Units,
    *,
    spread: bool | Callable[[Evaluate], Evaluate] = False,
    **fields: Any,
) -> Callable[[F], F]:
    """Write the law of some primitives, named with spaces between; decorates `evaluate`.

    **Arguments:** `spread`: True if `evaluate` also handles spread operands, or a function that
    turns it into one that does; others: as in `Law`.
    """

    def evaluated(function: F) -> F:
        form = function if spread is True else spread(function) if spread else None
        write(names, Law(signature=signature, evaluate=function, spread=form, **fields))
        return function

    if "evaluate" in fields:
        return evaluated(fields.pop("evaluate"))  # type: ignore[no-any-return]
    write(names, Law(signature=signature, **fields))
    return evaluated


def write(names: str, new: Law) -> None:
    LAWS.update(dict.fromkeys(names.split(), new))


def spread_form(names: str) -> Callable[[F], F]:
    """Register the form of some laws for numbers that blocks do not hold."""

    def register(function: F) -> F:
        for name in names.split():
            LAWS[name] = dataclasses.replace(LAWS[name], spread=function)
        return function

    return register


def applied(node: Node, law: Law, xs: list[Wide]) -> list[Wide]:
    """Return the results of a law, or of its spread form if blocks do not hold the numbers."""
    try:
        for x in xs:
            if type(x.exponent) is not int:
                break
        else:
            return law.evaluate(node, xs)  # type: ignore[misc]
    except Apart:
        pass
    if law.spread is None:
        raise Apart
    return law.spread(node, xs)


def work_of(node: Node, law: Law, xs: list[Any]) -> float:
    """Return about how many elementary operations a law takes on these operands."""
    work = law.work
    if callable(work):
        return work(node, xs)
    size = 0
    for value in node.outputs:
        size += math.prod(value.aval.shape)
    for x in xs:
        size += x.array.size
    return work * size / 2


def law_of(node: Node | None) -> Law:
    """Return the law of the primitive of a node."""
    return UNKNOWN if node is None else LAWS.get(node.primitive, UNKNOWN)


def vanish_of(node: Node) -> Vanish:
    """Return how the primitive of a node treats numbers too small for their dtype."""
    return law_of(node).vanish


def known(function: Callable[..., Record | None]) -> Bound:
    """Return a bound from `(node, *records) -> record`: None if an operand is unknown."""

    def bound(node: Node, records: Records) -> Records:
        return [None if None in records else function(node, *records)]

    return bound
