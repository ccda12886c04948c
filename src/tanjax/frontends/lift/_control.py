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
from tanjax._jaxpr_types import JaxEquation
from tanjax.jaxprs import Kind, names_of, nested_jaxprs
from tanjax.units import Unit
from tanjax.units.signatures import ANY, ENDLESS, AnyUnit, Found, Signature, describe_unit, zero_of

from ..signatures import TABLES
from ._units import NeedsCoherent, apply_signature, infer, literal_unit, unit_rule

TAG = "tanjax_unit:"
TAGGED: dict[str, Unit] = {}


def inner(closed: Any, operands: list[Found]) -> list[Found]:
    """Return the units of the results of a closed jaxpr."""
    jaxpr = getattr(closed, "jaxpr", closed)
    consts = getattr(closed, "consts", None) or [None] * len(jaxpr.constvars)
    return infer(jaxpr, list(map(literal_unit, consts)), operands)


@unit_rule(*names_of(Kind.JIT, Kind.CALL, Kind.CHECKPOINT, Kind.DEVICES, Kind.OPAQUE))
def _(eqn: JaxEquation, operands: list[Found]) -> list[Found]:
    params = eqn.params
    name = params.get("name")
    if isinstance(name, str) and name.startswith(TAG):
        tracked = operands[0]  # the unit of the number in the quantity, which also has its own unit
        own = TAGGED[name]
        return [tracked * own if isinstance(tracked, Unit) else own]
    if _compat.jax_function_of(eqn) == "det" and isinstance(operands[0], Unit):
        # JAX 0.12 replaces zero pivots by a plain 1, which no matrix in metres can contain.
        return [operands[0] ** eqn.invars[0].aval.shape[-1]]
    for closed in nested_jaxprs(eqn):
        try:
            return inner(closed, operands)
        except UnitError as error:
            return _by_table(eqn, operands, error)
    raise UnitError(f"lift: cannot look into `{eqn.primitive.name}`.")


def _by_table(eqn: JaxEquation, operands: list[Found], error: UnitError) -> list[Found]:
    """Return the units of one of JAX's functions that do not follow from its equations.

    `hypot`, `interp` and `lstsq` replace zero divisors by a plain one. That is right for any unit
    as a whole, but not step by step. **Raises:** `error` if there is no entry.
    """
    name = (_compat.jax_function_of(eqn) or "").lstrip("_")
    text = TABLES["numpy"].get(name) or TABLES["linalg"].get(name, "plain")
    if "->" not in text:
        raise error
    signature = Signature.parse(text)
    arguments = eqn.params["jaxpr"].jaxpr.debug_info.arg_names or ()
    roles = dict(signature.roles)
    if len(arguments) != len(operands) or not set(arguments) <= set(roles):
        raise error
    pairs = [(n, roles[n]) for n in arguments]
    fitting = dataclasses.replace(signature, roles=tuple(pairs), variadic=None)
    return apply_signature(name, fitting, operands, len(eqn.outvars))


@unit_rule(*names_of(Kind.BRANCH))
def _(eqn: JaxEquation, operands: list[Found]) -> list[Found]:
    results = [inner(branch, operands[1:]) for branch in eqn.params["branches"]]
    return [_agree("cond", f"result {i}", units) for i, units in enumerate(zip(*results))]  # noqa: B905


@unit_rule(*names_of(Kind.WHILE))
def _(eqn: JaxEquation, operands: list[Found]) -> list[Found]:
    p = eqn.params
    cond_consts, body_consts, carry, _ = _compat.Loop.of(p).cut(operands)
    step = lambda carry: inner(p["body_jaxpr"], body_consts + carry)
    carry = _fixed_point("while_loop", step, carry)
    inner(p["cond_jaxpr"], cond_consts + carry)
    return carry


@unit_rule(*names_of(Kind.SCAN))
def _(eqn: JaxEquation, operands: list[Found]) -> list[Found]:
    p = eqn.params
    _, consts, carry, xs = _compat.Loop.of(p).cut(operands)
    ncarry = len(carry)
    ys: list[Found] = []

    def step(carry: list[Found]) -> list[Found]:
        out = inner(p["jaxpr"], consts + carry + xs)
        ys[:] = out[ncarry:]
        return out[:ncarry]

    return _fixed_point("scan", step, carry) + ys


@unit_rule("custom_linear_solve")
def _(eqn: JaxEquation, operands: list[Found]) -> list[Found]:
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    counts = [lengths.matvec, lengths.vecmat, lengths.solve, lengths.transpose_solve]
    start = counts[0] + counts[1]
    solve = operands[start : start + counts[2]]
    b = operands[sum(counts) :]
    return inner(jaxprs.solve, solve + b)


@unit_rule("custom_root")
def _(eqn: JaxEquation, operands: list[Found]) -> list[Found]:
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    start = lengths.f
    guess = operands[sum(lengths) :]
    return inner(jaxprs.solve, operands[start : start + lengths.solve] + guess)


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
