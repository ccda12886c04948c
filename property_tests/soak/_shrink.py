"""Minimal failing programs: fewer calls, fewer steps, fewer and rounder numbers.

The search is greedy: a change stays if the program still breaks a promise of the same kind at its
last call. Mostly one or two operations and one or two calls remain. They name the family of the
failure.

    small = shrink(failure, seconds=15)

Sharp edges. The limit is time, not size; under load the result is larger.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from collections.abc import Iterator

import numpy as np
from jaxtyping import PyTree

from tanjax._typing import Function

from ._programs import Call, Program, Step
from ._run import Failure, run
from ._values import held

# Simpler operations to try in place of a step.
_SIMPLE = ("{0} * {0}", "jnp.sqrt(jnp.abs({0}))", "{0} * {1}", "{0} / {1}", "{0} + {1}")
_LARGE = 8  # arrays of this size and more are cut first: they slow each run


def shrink(failure: Failure, seconds: float = 15.0) -> Failure:
    """Return the smallest failure of the same promise found in time."""
    end = time.monotonic() + seconds
    best = _same(failure, _cut(failure.program, failure.call)) or failure
    moved = True
    while moved and time.monotonic() < end:
        moved = False
        for candidate in _candidates(best.program):
            if time.monotonic() > end:
                break
            found = _same(best, candidate)
            if found is not None:
                best, moved = found, True
                break
    return best


def _same(failure: Failure, program: Program) -> Failure | None:
    try:
        found = run(program, last_only=True)
    except Exception:  # a program that JAX rejects is no smaller failure
        return None
    if found is None or found.promise != failure.promise:
        return None
    if found.promise == "crash" and found.looks != failure.looks:
        return None
    return found


def _cut(program: Program, last: int) -> Program:
    return dataclasses.replace(program, calls=_kept(program.calls, list(range(last + 1))))


def _kept(calls: tuple[Call, ...], keep: list[int]) -> tuple[Call, ...]:
    """Keep some of the calls; those that repeat a removed one become independent."""
    where = {old: new for new, old in enumerate(keep)}
    return tuple(dataclasses.replace(calls[i], same=where.get(calls[i].same)) for i in keep)  # type: ignore[arg-type]


def _candidates(program: Program) -> Iterator[Program]:
    """Yield smaller programs, the most promising first."""
    n = len(program.calls)
    if n > 1:
        yield dataclasses.replace(program, calls=_kept(program.calls, [n - 1]))
    if n > 2:
        for i in range(n - 1):
            yield dataclasses.replace(program, calls=_kept(program.calls, [i, n - 1]))
        for i in range(n - 1):
            rest = [j for j in range(n) if j != i]
            yield dataclasses.replace(program, calls=_kept(program.calls, rest))
    if any(np.size(v) > _LARGE for c in program.calls for v in c.values):
        yield from _fewer_entries(program)
    if len(program.outputs) > 1:
        for name in program.outputs:
            yield dataclasses.replace(program, outputs=(name,))
    if program.wrap != "plain":
        yield _plain(program)
    if program.traced:
        yield dataclasses.replace(program, traced=False)
    yield from _without_arguments(program)
    yield from _without_steps(program)
    yield from _fewer_entries(program)
    yield from _rounder(program)


def _without_arguments(program: Program) -> Iterator[Program]:
    text = " ".join(s.line() for s in program.live()) + " ".join(program.outputs)
    used = [bool(re.search(rf"\b{a.name}\b", text)) for a in program.arguments]
    if all(used) or not any(u and a.is_float for u, a in zip(used, program.arguments, strict=True)):
        return
    arguments = tuple(itertools.compress(program.arguments, used))
    calls = tuple(
        dataclasses.replace(c, values=tuple(itertools.compress(c.values, used)))
        for c in program.calls
    )
    units = tuple(itertools.compress(program.units, used))
    steps = program.live()
    yield dataclasses.replace(program, arguments=arguments, calls=calls, steps=steps, units=units)


def _plain(program: Program) -> Program:
    """Remove the transformation; a mapped program gets its first row."""
    calls = program.calls
    if program.wrap.startswith("vmap"):
        calls = tuple(_each(c, program, lambda x: np.asarray(x)[0]) for c in calls)
    return dataclasses.replace(program, wrap="plain", calls=calls)


def _each(call: Call, program: Program, change: Function) -> Call:
    values = tuple(
        change(v) if a.is_float else v for a, v in zip(program.arguments, call.values, strict=True)
    )
    return dataclasses.replace(call, values=values)


def _without_steps(program: Program) -> Iterator[Program]:
    live = program.live()
    if live != program.steps:
        program = dataclasses.replace(program, steps=live)
    kinds = {a.name: a.kind for a in program.arguments} | {s.name: s.kind for s in live}
    for step in reversed(live):
        for operand in dict.fromkeys(step.operands):
            if (kinds[operand] == step.kind and not program.units) or step.name in program.outputs:
                yield _renamed(program, step, operand)
    for step in live:
        for i, operand in enumerate(step.operands):
            for other in (a.name for a in program.arguments if a.is_float):
                if kinds[other] == kinds[operand] and other != operand and operand[0] != "x":
                    operands = (*step.operands[:i], other, *step.operands[i + 1 :])
                    yield _replaced(program, step, dataclasses.replace(step, operands=operands))
    for step in live:
        for text in _SIMPLE:
            if (
                not program.units
                and step.text not in _SIMPLE
                and len(step.operands) > text.count("{1}")
            ):
                simple = dataclasses.replace(step, op="simple", text=text)
                yield _replaced(program, step, simple)


def _replaced(program: Program, step: Step, by: Step) -> Program:
    steps = tuple(by if s is step else s for s in program.steps)
    return dataclasses.replace(program, steps=steps)


def _renamed(program: Program, step: Step, operand: str) -> Program:
    """Remove a step from the program: its operand replaces its result."""

    def name(x: str) -> str:
        return operand if x == step.name else x

    steps = tuple(
        dataclasses.replace(s, operands=tuple(name(o) for o in s.operands))
        for s in program.steps
        if s is not step
    )
    outputs = tuple(dict.fromkeys(name(o) for o in program.outputs))
    return dataclasses.replace(program, steps=steps, outputs=outputs)


def _fewer_entries(program: Program) -> Iterator[Program]:
    """Cut vectors to some of their entries, in all calls alike."""
    sizes = {np.size(v) for c in program.calls for v in c.values} | {
        np.size(v) for _, v in program.closed
    }
    size = max(sizes)
    if size < 2 or program.wrap.startswith("vmap"):
        return
    for keep in _subsets(size):

        def cut(x: PyTree, keep: PyTree = keep) -> PyTree:
            return np.ravel(x)[keep] if np.size(x) == size else x

        calls = tuple(_each(c, program, cut) for c in program.calls)
        closed = tuple((n, cut(v)) for n, v in program.closed)
        yield dataclasses.replace(program, calls=calls, closed=closed)


def _subsets(size: int) -> Iterator[list[int]]:
    if size > _LARGE:
        for part in range(0, size, max(size // 4, 1)):
            yield list(range(part, min(part + max(size // 4, 1), size)))
        yield list(range(0, size, 4))
        return
    for i in range(size):
        yield [i]
    for i in range(size):
        if size > 2:
            yield [j for j in range(size) if j != i]


def _rounder(program: Program) -> Iterator[Program]:
    """Replace numbers by ones that are easier to read: powers of ten, one."""

    def near(x: PyTree) -> PyTree:
        with np.errstate(all="ignore"):
            powers = 10.0 ** np.round(np.log10(np.abs(x)))
        return np.where(np.isfinite(x) & (x != 0), np.sign(x) * powers, x)

    for change in (np.abs, near, np.ones_like):
        for i, argument in enumerate(program.arguments):
            if not argument.is_float:
                continue
            calls = []
            for call in program.calls:
                values = list(call.values)
                change_of = change(np.asarray(values[i], np.float64))
                values[i] = change_of if program.units else held(change_of, program.dtype)
                calls.append(dataclasses.replace(call, values=tuple(values)))
            changed = dataclasses.replace(program, calls=tuple(calls))
            if _differs(program, changed):
                yield changed


def _differs(program: Program, other: Program) -> bool:
    return any(
        not np.array_equal(a, b, equal_nan=True)
        for c, d in zip(program.calls, other.calls, strict=True)
        for a, b in zip(c.values, d.values, strict=True)
        if np.asarray(a).dtype.kind == "f"
    )
