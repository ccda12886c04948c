"""Equations that run jaxprs of their own: calls, loops, branches.

JAX has a primitive for each reason to call a function (`jit`, `remat`, a custom derivative), one
for branches and two for loops. Each stores its jaxprs under its own parameters and passes them
different operands. Only this module has the names of these primitives; a walker uses the `Kind`.

    KINDS["while"]  # Kind.WHILE
    nested_jaxprs(equation)  # its test and its body

Sharp edge: a jaxpr among the parameters of another primitive (the function of a reduction) is not
nested, because the primitive applies it to parts of the operands.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._jaxpr_types import JaxEquation, OpenJaxpr, Steps
from tanjax._typing import AnyArray, Function

T = TypeVar("T")


class Kind(enum.Enum):
    """The way an equation runs its jaxprs; the value of a kind is the names of its primitives.

    The jaxprs of `OPAQUE` are not functions of the operands. Every other kind up to `DEVICES` runs
    one jaxpr once.
    """

    JIT = ("jit", "pjit")
    CALL = ("closed_call", "call", "eval_jaxpr", "composite", "custom_vmap_call")
    JVP_RULE = ("custom_jvp_call",)
    VJP_RULE = ("custom_vjp_call",)
    CHECKPOINT = ("remat", "remat2", "checkpoint")
    LINEAR = ("tanjax_linear",)
    SOLVE = ("custom_linear_solve",)
    OPAQUE = ("run_state", "custom_lin")
    DEVICES = ("shard_map",)
    SCAN = ("scan",)
    WHILE = ("while",)
    BRANCH = ("cond",)


KINDS = {name: kind for kind in Kind for name in kind.value}  # by the name of a primitive
CALLS = (Kind.JIT, Kind.CALL, Kind.JVP_RULE, Kind.VJP_RULE, Kind.CHECKPOINT)  # of one function
LOOPS = (Kind.SCAN, Kind.WHILE)


def kind_of(equation: JaxEquation) -> Kind | None:
    """Return the way in which an equation runs its jaxprs; `None` if it has none."""
    return KINDS.get(equation.primitive.name)


def names_of(*kinds: Kind) -> tuple[str, ...]:
    """Return the names of the primitives of some kinds."""
    return tuple(name for kind in kinds for name in kind.value)


def opened(program: Any) -> tuple[OpenJaxpr, Sequence[AnyArray]]:
    """Return a jaxpr, open or closed, as an open one, and its constants."""
    return getattr(program, "jaxpr", program), getattr(program, "consts", ())


# The parameters that can store the jaxpr of a call.
_KEYS = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")


def nested_jaxprs(equation: JaxEquation) -> tuple[Any, ...]:
    """Return the jaxprs that an equation runs: test and body of a loop, branches, callee."""
    params, kind = equation.params, kind_of(equation)
    if kind is Kind.LINEAR:
        return (_compat.linear_jaxpr(equation),)
    if kind is Kind.WHILE:
        return params["cond_jaxpr"], params["body_jaxpr"]
    if kind is Kind.BRANCH:
        return tuple(params["branches"])
    if kind is Kind.SOLVE:
        return (params["jaxprs"].solve,)
    for key in _KEYS if kind else ():
        if isinstance(inner := params.get(key), Steps):
            return (inner,)
    return ()


class Loop(NamedTuple):
    """A `scan` or a `while`: its programs, its operands by their purpose, its options.

    **Fields:** `test` (`None` for a `scan`) and `body`: the programs; `tested`: operands of the
    test alone; `fixed`: of the body alone; `carry`: the initial carry; `rows`: the arrays of a
    `scan`: each step takes one row of each. `length` (`None` if unknown), `reverse`, `unroll`:
    options of a `scan`.
    """

    test: Any
    body: Any
    tested: list[Any]
    fixed: list[Any]
    carry: list[Any]
    rows: list[Any]
    length: int | None = None
    reverse: bool = False
    unroll: Any = 1

    @classmethod
    def of(
        cls, equation: JaxEquation, operands: Sequence[Any], programs: Sequence[Any] = ()
    ) -> Loop:
        """Read a loop; `programs` replace its jaxprs, in the order of `nested_jaxprs`."""
        params, x = equation.params, list(operands)
        *test, body = programs or nested_jaxprs(equation)
        if test:
            first, fixed = params["cond_nconsts"], params["body_nconsts"]
            carry = len(equation.outvars)
        else:
            first, (fixed, carry) = 0, _compat.scan_counts(params)
        i, j = first + fixed, first + fixed + carry
        parts = x[:first], x[first:i], x[i:j], x[j:]
        options = [] if test else [params[k] for k in ("length", "reverse", "unroll")]
        return cls(test[0] if test else None, body, *parts, *options)

    def over(self, function: Callable[[Any], Any]) -> Loop:
        """Return the same loop on operands to which a function is applied."""
        each = lambda operands: list(map(function, operands))
        tested, fixed, carry, rows = map(each, (self.tested, self.fixed, self.carry, self.rows))
        return self._replace(tested=tested, fixed=fixed, carry=carry, rows=rows)

    def scan(self, step: Function, carry: PyTree, rows: PyTree) -> tuple[PyTree, PyTree]:
        """Run `jax.lax.scan` with another step, and the options of the equation."""
        options = {"length": self.length, "reverse": self.reverse, "unroll": self.unroll}
        return jax.lax.scan(step, carry, rows, **options)


class Branches(NamedTuple):
    """A `cond`: its programs, the operand that selects one of them, and their operands."""

    programs: Sequence[Any]
    index: Any
    operands: list[Any]


def with_branches(equation: JaxEquation, branches: Sequence[Any]) -> JaxEquation:
    """Return a `cond` with other jaxprs for its branches."""
    return equation.replace(params={**equation.params, "branches": tuple(branches)})


def reducer(equation: JaxEquation) -> Steps:
    """Return the jaxpr of the function of a reduction, which combines two entries."""
    return equation.params["jaxpr"]


def given(equation: JaxEquation, operands: Sequence[T]) -> list[Sequence[T]]:
    """Return the operands that each jaxpr of an equation takes as arguments.

    **Arguments:** `operands`: those of the equation, in any form.
    """
    kind = kind_of(equation)
    if kind is Kind.WHILE:
        loop = Loop.of(equation, operands)
        return [[*loop.tested, *loop.carry], [*loop.fixed, *loop.carry]]
    if kind is Kind.BRANCH:
        return [operands[1:]] * len(nested_jaxprs(equation))
    if kind is Kind.SOLVE:
        counts = equation.params["const_lengths"]
        start = counts.matvec + counts.vecmat
        return [[*operands[start : start + counts.solve], *operands[sum(counts) :]]]
    return [operands]


def trips(equation: JaxEquation) -> float:
    """Return the number of runs of the jaxprs in one run of the equation.

    The estimate for a `while` loop is 100.
    """
    kind = kind_of(equation)
    if kind is Kind.SCAN:
        return float(equation.params["length"])
    return 100.0 if kind is Kind.WHILE else 1.0
