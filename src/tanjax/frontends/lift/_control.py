"""Units through equations that hold jaxprs: calls, loops, branches, custom rules.

A call passes the units of its operands on. A carry must keep its unit. If it starts with a plain
zero (any unit), the step is repeated until its units no longer change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from tanjax import _compat
from tanjax._errors import UnitError, message
from tanjax._jaxpr_types import JaxEquation, Readable
from tanjax.jaxprs import CALLS, LOOPS, Branches, Kind, Loop, Walk, kind_of, opened, reducer
from tanjax.units import Unit
from tanjax.units.signatures import ANY, ENDLESS, AnyUnit, Found, Signature, describe_unit, zero_of

from ..signatures import TABLES
from ._units import (
    REGISTERED,
    UNIT_RULES,
    NeedsCoherent,
    apply_signature,
    by_name,
    literal_unit,
    results,
    unit_rule,
)

TAG = "tanjax_unit:"
TAGGED: dict[str, Unit] = {}


class _Units(Walk[Found]):
    """The units of results: `Unit`, `None` (plain), `ANY` or `ENDLESS`."""

    enters = (*CALLS, Kind.DEVICES, Kind.OPAQUE, Kind.SOLVE, *LOOPS, Kind.BRANCH)

    def constant(self, number: Any) -> Found:
        return literal_unit(number)

    def equation(self, eqn: JaxEquation, values: list[Found]) -> list[Found]:
        try:
            return self.meaning(eqn, values)
        except UnitError as error:
            source = _compat.source_of(eqn)
            # otherwise the call around it adds its place
            if source and not getattr(error, "located", False):
                error = UnitError(f"{error}\n  in: `{eqn.primitive.name}` at {source}")
                error.located = True  # type: ignore[attr-defined]
            raise error from None

    def leaf(self, eqn: JaxEquation, values: list[Found]) -> list[Found]:
        from tanjax.scale.laws import expansion, is_expanded  # a third of the import time

        name = eqn.primitive.name
        if kind_of(eqn) in self.enters:
            raise UnitError(f"lift: cannot look into `{name}`.")
        if name not in UNIT_RULES and name not in REGISTERED and is_expanded(eqn):
            known = by_name(type(eqn.params.get("_prim")).__name__, eqn, values)
            return self.run(expansion(eqn), values) if known is None else known
        return results(eqn, values)

    def call(self, eqn: JaxEquation, program: Readable, values: list[Found]) -> list[Found]:
        name, operands = eqn.params.get("name"), values
        if isinstance(name, str) and name.startswith(TAG):
            tracked = operands[0]  # the unit of the number in the quantity, which has its own too
            own = TAGGED[name]
            return [tracked * own if isinstance(tracked, Unit) else own]
        if _compat.jax_function_of(eqn) == "det" and isinstance(operands[0], Unit):
            # JAX 0.12 replaces zero pivots by a plain 1, which no matrix in metres can contain.
            return [operands[0] ** eqn.invars[0].aval.shape[-1]]
        try:
            return self.run(program, operands)
        except UnitError as error:
            return _by_table(eqn, program, operands, error)

    def cond(self, eqn: JaxEquation, branches: Branches) -> list[Found]:
        found = [self.run(program, branches.operands) for program in branches.programs]
        pairs = enumerate(zip(*found, strict=True))
        return [_agree("cond", f"result {i}", units) for i, units in pairs]

    def scan(self, eqn: JaxEquation, loop: Loop) -> list[Found]:
        count, ys = len(loop.carry), list[Found]()

        def step(carry: list[Found]) -> list[Found]:
            out = self.run(loop.body, loop.fixed + carry + loop.rows)
            ys[:] = out[count:]
            return out[:count]

        return _fixed_point("scan", step, loop.carry) + ys

    def while_(self, eqn: JaxEquation, loop: Loop) -> list[Found]:
        step = lambda carry: self.run(loop.body, loop.fixed + carry)
        carry = _fixed_point("while_loop", step, loop.carry)
        self.run(loop.test, loop.tested + carry)
        return carry


def infer(program: Readable, given: Sequence[Found]) -> list[Found]:
    """Return the units of the results of a jaxpr: `Unit`, `None` (plain), `ANY` or `ENDLESS`.

    **Raises:** `UnitError` naming primitive and source line; `NeedsCoherent` if two operands
    differ by a prefix.
    """
    return _Units().run(program, given)


@unit_rule("reduce")
def _(eqn: JaxEquation, operands: list[Found]) -> list[Found]:
    """Check that the computation returns the unit of its operands and initial values."""
    same = Signature.parse("x: U, init: U -> u")
    half = len(operands) // 2
    pairs = zip(operands[:half], operands[half:], strict=True)
    taken = [apply_signature("reduce", same, list(pair), 1)[0] for pair in pairs]
    returned = _Units().run(reducer(eqn), taken + taken)
    pairs = zip(taken, returned, strict=True)
    return [apply_signature("reduce", same, list(pair), 1)[0] for pair in pairs]


def _by_table(
    eqn: JaxEquation, program: Readable, operands: list[Found], error: UnitError
) -> list[Found]:
    """Return the units of one of JAX's functions that do not follow from its equations.

    `hypot`, `interp` and `lstsq` replace zero divisors by a plain one. That is right for any unit
    as a whole, but not step by step. **Raises:** `error` if there is no entry.
    """
    name = (_compat.jax_function_of(eqn) or "").lstrip("_")
    text = TABLES["numpy"].get(name) or TABLES["linalg"].get(name, "plain")
    if "->" not in text:
        raise error
    signature = Signature.parse(text)
    arguments = opened(program)[0].debug_info.arg_names or ()
    roles = dict(signature.roles)
    if len(arguments) != len(operands) or not set(arguments) <= set(roles):
        raise error
    pairs = [(n, roles[n]) for n in arguments]
    fitting = dataclasses.replace(signature, roles=tuple(pairs), variadic=None)
    return apply_signature(name, fitting, operands, len(eqn.outvars))


def _fixed_point(
    where: str, step: Callable[[list[Found]], list[Found]], carry: list[Found]
) -> list[Found]:
    """Return the units of a carry that its step keeps."""
    for _ in range(len(carry) + 2):
        new = [
            _agree(where, f"carry {i}", pair)
            for i, pair in enumerate(zip(carry, step(carry)))  # noqa: B905
        ]
        if all(a is b for a, b in zip(new, carry, strict=True)):
            return new
        carry = new
    raise UnitError(f"{where}: the units of the carry never settle.")


def _agree(where: str, what: str, units: Sequence[Found]) -> Found:
    """Return the one unit that all have; every other unit replaces `ANY` and `ENDLESS`."""
    known = [u for u in units if type(u) is not AnyUnit]
    if not known:
        return ANY if ANY in units else ENDLESS
    first = known[0]
    if isinstance(first, Unit) and not first.is_linear and ANY in units:
        raise zero_of(where, what, first)
    for other in known[1:]:
        if other is first or other == first:
            continue
        if (
            isinstance(first, Unit)
            and isinstance(other, Unit)
            and first.dimension is other.dimension
        ):
            raise NeedsCoherent
        raise UnitError(
            message(
                f"{where}: {what} changes its unit.",
                describe_unit(first),
                describe_unit(other),
                hint="start with a value of the right dimension.",
            )
        )
    return first
