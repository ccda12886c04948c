"""Conversion of a function that writes to Refs inside to a pure one.

JAX differentiates its Refs in place. It fails in second order, under `vmap` of a branch, under
`checkpoint`, and with integer Refs. Here the function is traced once. An interpreter of its jaxpr
keeps the *value* that each Ref has at each point of the program: a write makes a new value. The
result has no Refs, and JAX transforms it like any function.

    @tj.refs.discharge
    def total(x):
        r = jax.new_ref(x)
        def body(i, carry):
            r[i] = r[i] * r[i - 1]
            return carry
        jax.lax.fori_loop(1, x.size, body, None)
        return r[-1]

    jax.hessian(total)(x)

A loop or branch carries the memory that it writes. Memory that it only reads stays a constant.
Memory that it only reads by index is carried, too, for the sake of reverse mode (`_access`). If a
`scan` iterates over a Ref, each step has one row, and passes it on.

Sharp edges. Each call traces the function again: put it under `jax.jit`, which traces once. A
function compiled by `jax.jit` is inlined if it is called with a Ref. Indexing a plain array in a
loop still costs its whole size in each step of reverse mode; a Ref costs only the part that is
read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._errors import MutationError, message
from tanjax._jaxpr_types import Aval, JaxEquation, JaxVariable, Steps
from tanjax._jaxprs import is_literal
from tanjax._typing import Function
from tanjax.jaxprs import LOOPS, Branches, Kind, Loop, Walk, kind_of, opened

from ._access import accumulate, is_linear, path_of, read, write
from ._explained import explained
from ._jax_refs import is_ref, is_view
from ._uses import equation_makes_refs, uses

DischargeRule = Callable[[JaxEquation, list[PyTree], bool], list[PyTree]]


def discharge(f: Function) -> Function:
    """Return a pure function of arrays equivalent to `f`, which uses Refs inside.

    **Arguments:** `f`, of pytrees of arrays. It may make Refs (`jax.new_ref`, `tj.new_ref`), and
    write them in loops, branches and functions that it calls. It may close over arrays. It must not
    take, return, or close over Refs of its caller. Arguments that are not arrays (numbers, texts,
    functions) pass unchanged.

    **Returns:** a function of the same signature, which traces `f` at each call.

    **Derivative:** that of the program, in every mode, to any order; n reads and writes of parts
    cost O(n) in reverse mode with JAX 0.12 (O(n · size) with 0.10.2).

    **Raises:** `MutationError` for a Ref of the caller, and for a Ref in a primitive that tanjax
    cannot enter (`shard_map`, `custom_vjp`, a kernel); `ShapeError` and `MutationError` for a write
    of another shape or dtype than the Ref has.
    """

    @functools.wraps(f)
    def discharged(*args: PyTree, **kwargs: PyTree) -> PyTree:
        leaves, tree = jax.tree.flatten((args, kwargs))
        name = getattr(f, "__name__", "a function")
        if any(is_ref(x) or is_view(x) for x in leaves):
            raise _foreign(name, "is called with")
        return call_discharged(f, name, leaves, tree)[0]

    return discharged


_CAPTURED = (
    "{name}: an in-place function closes over a Ref.\n"
    "  why: what it does to that memory is no part of its transition.\n"
    "Hint: make the Ref an argument, and name it in `mutates` if it is written."
)


def call_discharged(
    f: Function,
    name: str,
    leaves: Sequence[PyTree],
    tree: PyTreeDef,
    refs: Mapping[int, PyTree] = MappingProxyType({}),
    *,
    is_in_place: bool = False,
) -> tuple[PyTree, dict[int, Array]]:
    """Call a function of `(args, kwargs)` without Refs.

    **Arguments:** `leaves` and `tree`: the arguments; `refs`: the Refs among them, by their places
    in the leaves, where `leaves` has their contents. Refs that the function closes over are then
    JAX's, in its program.
    **Returns:** the output, and the new contents of written Refs, by place.
    """
    places = [i for i, x in enumerate(leaves) if _moves(x) or i in refs]
    values = [jnp.asarray(x) if isinstance(x, np.ndarray | np.generic) else x for x in leaves]
    results = _Results()

    def traced(*args: PyTree, **kwargs: PyTree) -> list[PyTree]:
        given = list(leaves)
        for i, x in zip(places, jax.tree.leaves((args, kwargs)), strict=True):
            given[i] = x
        args, kwargs = jax.tree.unflatten(tree, given)
        return results.take_apart(name, f(*args, **kwargs))

    # In trees and with the signature of `f`, so that JAX's errors name its arguments.
    traced.__wrapped__ = f  # type: ignore[attr-defined]
    moving: list[PyTree] = [None] * len(leaves)
    for i in places:
        moving[i] = refs.get(i, values[i])
    args, kwargs = jax.tree.unflatten(tree, moving)
    with explained(name):
        closed = jax.make_jaxpr(traced)(*args, **kwargs)
    if any(map(is_ref, closed.consts)) and not refs:
        if is_in_place:
            raise MutationError(_CAPTURED.format(name=name))
        raise _foreign(name, "closes over")
    cells = {i: Cell(values[i]) for i in refs}
    given = [cells.get(i, values[i]) for i in places]
    out = results.put_together(_Discharge().inside(closed, given))
    written = {i for i, kinds in zip(places, uses(closed.jaxpr), strict=True) if "written" in kinds}
    return out, {i: cell.value for i, cell in cells.items() if i in written}


def _moves(x: PyTree) -> bool:
    return hasattr(x, "dtype") and x.dtype != _compat.float0


def _foreign(name: str, how: str) -> MutationError:
    return MutationError(
        message(
            f"{name}: a discharged function {how} a Ref.",
            "why: it is pure; what it writes to memory of its caller would be lost.",
            hint="hand its value over (`ref[...]`), or make it an in-place function: "
            "`tj.inplace(f, mutates=...)` with the Ref as an argument that it names.",
        )
    )


class _Results:
    """The output of a traced function: arrays and other leaves."""

    def take_apart(self, name: str, out: PyTree) -> list[PyTree]:
        self.leaves, self.tree = jax.tree.flatten(out)
        if any(is_ref(x) or is_view(x) for x in self.leaves):
            raise MutationError(
                message(
                    f"{name}: a Ref is returned.",
                    "why: its memory ends with it.",
                    hint="return its value: `ref[...]`, or `tj.refs.freeze(ref)`.",
                )
            )
        self.places = [i for i, x in enumerate(self.leaves) if is_array(x)]
        return [self.leaves[i] for i in self.places]

    def put_together(self, values: list[PyTree]) -> PyTree:
        leaves = list(self.leaves)
        for i, x in zip(self.places, values, strict=True):
            leaves[i] = x
        return jax.tree.unflatten(self.tree, leaves)


def is_array(x: PyTree) -> bool:
    """True if a result of a traced function is an array, or a number that becomes one."""
    return _moves(x) or isinstance(x, int | float | complex)


# -- the interpreter ---------------------------------------------------------------------------


class Cell:
    """The value of a Ref at this point of the program."""

    __slots__ = ("value",)

    def __init__(self, value: Array) -> None:
        self.value = value


def _refused(eqn: JaxEquation) -> MutationError:
    name, kind = eqn.primitive.name, kind_of(eqn)
    hint = "let it take, or close over, values (`ref[...]`), and write what it returns"
    if kind is Kind.DEVICES:
        hint += "; an in-place function is called there by its `.transition`"
    elif kind in (Kind.JVP_RULE, Kind.VJP_RULE):
        hint += "; the rule of a function that writes is that of a `tj.inplace`, `f.natural_rule`"
    return MutationError(
        message(
            f"discharge: `{name}` uses a Ref, and cannot be looked into.",
            f"where: {_compat.source_of(eqn) or 'inside of a library'}",
            hint=f"{hint}.",
        )
    )


def _new_ref(eqn: JaxEquation, values: list[PyTree], wanted: bool) -> list[PyTree]:
    return [Cell(_typed(values[0], eqn.invars[0].aval))]


def _empty_ref(eqn: JaxEquation, values: list[PyTree], wanted: bool) -> list[PyTree]:
    aval = eqn.params["ty"]
    return [Cell(jnp.zeros(aval.shape, aval.dtype))]


def _typed(x: PyTree, aval: Aval) -> Array:
    """Return a value as an array of its own type, not as a Python number."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.extended):  # a random key
        return x
    return lax.convert_element_type(x, aval.dtype) if _is_weak(x) else jnp.asarray(x, aval.dtype)


def _has_cell(values: Sequence[PyTree]) -> bool:
    return any(type(v) is Cell for v in values)


def _is_weak(x: PyTree) -> bool:
    return getattr(jax.typeof(x), "weak_type", False)


def _freeze(eqn: JaxEquation, values: list[PyTree], wanted: bool) -> list[PyTree]:
    return [values[0].value]


def _get(eqn: JaxEquation, values: list[PyTree], wanted: bool) -> list[PyTree]:
    cell, *indices = values
    cell.value, out = read(cell.value, path_of(eqn.params["tree"], indices))
    return [out]


def _swap(eqn: JaxEquation, values: list[PyTree], wanted: bool) -> list[PyTree]:
    cell, new, *indices = values
    path, old = path_of(eqn.params["tree"], indices), None
    if wanted:  # most swaps do not use the old value
        cell.value, old = read(cell.value, path)
    cell.value = write(cell.value, path, new)
    return [old]


def _addupdate(eqn: JaxEquation, values: list[PyTree], wanted: bool) -> list[PyTree]:
    cell, more, *indices = values
    cell.value = accumulate(cell.value, path_of(eqn.params["tree"], indices), more)
    return []


_RULES: dict[str, DischargeRule] = {
    "new_ref": _new_ref,
    "empty_ref": _empty_ref,
    "freeze": _freeze,
    "free_ref": lambda eqn, values, wanted: [],
    "get": _get,
    "swap": _swap,
    "addupdate": _addupdate,
}


# -- calls, loops, branches --------------------------------------------------------------------


class _Threaded:
    """Cells through a loop, branch or checkpoint: some are carried, the others are constants."""

    def __init__(self, operands: list[PyTree], goes_round: Sequence[bool]) -> None:
        order: dict[int, tuple[Cell, list[bool]]] = {}
        for v, goes in zip(operands, goes_round, strict=True):
            if type(v) is Cell:  # the same cell twice is one memory
                order.setdefault(id(v), (v, []))[1].append(goes)
        self.cells = [cell for cell, goes in order.values() if any(goes)]
        self.operands = operands

    def values(self) -> list[Array]:
        """Return the values of the carried cells."""
        return [c.value for c in self.cells]

    def enter(self, values: Sequence[Array]) -> tuple[list[PyTree], Callable[[], list[Array]]]:
        """Return the operands with fresh cells, and a function that reads the carried ones."""
        fresh = {id(c): Cell(v) for c, v in zip(self.cells, values, strict=True)}
        inside = [
            fresh.setdefault(id(v), Cell(v.value)) if type(v) is Cell else v for v in self.operands
        ]
        return inside, lambda: [fresh[id(c)].value for c in self.cells]

    def leave(self, values: Sequence[Array]) -> None:
        """Set the carried cells to the results."""
        for cell, value in zip(self.cells, values, strict=True):
            cell.value = value


def _loop_state(operands: list[PyTree], done: Sequence[frozenset[str]]) -> _Threaded:
    """Carry memory that is written, and memory with a gradient that is only read by index."""

    def goes(v: Cell, kinds: frozenset[str]) -> bool:
        return "written" in kinds or (kinds == {"indexed"} and is_linear(v.value))

    rounds = [type(v) is Cell and goes(v, k) for v, k in zip(operands, done, strict=True)]
    return _Threaded(operands, rounds)


def _arrays(eqn: JaxEquation, values: list[PyTree]) -> list[PyTree]:
    """Return operands of a loop or branch: cells, Refs, and arrays for Python's numbers."""
    pairs = zip(values, eqn.invars, strict=True)
    return [v if type(v) is Cell or is_ref(v) else _typed(v, var.aval) for v, var in pairs]


_THREADED = (Kind.CHECKPOINT, *LOOPS, Kind.BRANCH)


class _Discharge(Walk[PyTree]):
    """The meaning of equations on cells for Refs."""

    enters = (Kind.JIT, Kind.JVP_RULE, *_THREADED)

    def __init__(self) -> None:
        self.read: set[JaxVariable] = set()

    def inside(self, program: Steps, values: Sequence[PyTree]) -> list[PyTree]:
        """Run a jaxpr, and add the variables that it reads to `self.read`."""
        jaxpr = opened(program)[0]
        operands = (v for eqn in jaxpr.eqns for v in eqn.invars)
        self.read.update(v for v in (*operands, *jaxpr.outvars) if not is_literal(v))
        return self.run(program, values)

    def equation(self, eqn: JaxEquation, values: list[PyTree]) -> Sequence[PyTree]:
        with eqn.ctx.manager:
            if not (_has_cell(values) or equation_makes_refs(eqn)):
                return _compat.bind(eqn, values)
            is_threaded = kind_of(eqn) in _THREADED
            return self.meaning(eqn, _arrays(eqn, values) if is_threaded else values)

    def leaf(self, eqn: JaxEquation, values: list[PyTree]) -> list[PyTree]:
        if rule := _RULES.get(eqn.primitive.name):
            return rule(eqn, values, any(v in self.read for v in eqn.outvars))
        if _has_cell(values) or kind_of(eqn) is Kind.DEVICES:
            raise _refused(eqn)
        return _compat.bind(eqn, values)

    def call(self, eqn: JaxEquation, program: Steps, values: list[PyTree]) -> list[PyTree]:
        return self.inside(program, values)

    def scan(self, eqn: JaxEquation, loop: Loop) -> list[PyTree]:
        done, rows, count = uses(loop.body), loop.rows, len(loop.carry)
        state = _loop_state(loop.fixed, done[: len(loop.fixed)])
        written = ["written" in kinds for kinds in done[len(done) - len(rows) :]]
        scanned = [v for v, w in zip(rows, written, strict=True) if w]

        def step(going: PyTree, row: PyTree) -> PyTree:
            operands, after = state.enter(going[0])
            row = [Cell(x) if type(v) is Cell else x for v, x in zip(rows, row, strict=True)]
            out = self.inside(loop.body, [*operands, *going[1], *row])
            left = [cell.value for cell, w in zip(row, written, strict=True) if w]
            return (after(), out[:count]), (out[count:], left)

        stored = [v.value if type(v) is Cell else v for v in rows]
        (cells, last), (stacked, left) = loop.scan(step, (state.values(), loop.carry), stored)
        state.leave(cells)
        for cell, value in zip(scanned, left, strict=True):
            cell.value = value
        return [*last, *stacked]

    def while_(self, eqn: JaxEquation, loop: Loop) -> list[PyTree]:
        tested, fixed = loop.tested, loop.fixed
        done = [*uses(loop.test)[: len(tested)], *uses(loop.body)[: len(fixed)]]
        state = _Threaded([*tested, *fixed], ["written" in kinds for kinds in done])

        def goes_on(going: PyTree) -> Array:
            operands, _ = state.enter(going[0])
            return self.inside(loop.test, [*operands[: len(tested)], *going[1]])[0]

        def step(going: PyTree) -> PyTree:
            operands, after = state.enter(going[0])
            out = self.inside(loop.body, [*operands[len(tested) :], *going[1]])
            return after(), out

        cells, last = lax.while_loop(goes_on, step, (state.values(), loop.carry))
        state.leave(cells)
        return list(last)

    def cond(self, eqn: JaxEquation, branches: Branches) -> list[PyTree]:
        programs, index, operands = branches
        done = [frozenset.union(*kinds) for kinds in zip(*map(uses, programs), strict=True)]
        state = _Threaded(operands, ["written" in kinds for kinds in done])

        def branch(program: Steps) -> Function:
            def taken(cells: list[Array]) -> PyTree:
                inside, after = state.enter(cells)
                out = self.inside(program, inside)
                return after(), out

            return taken

        cells, out = lax.switch(index, list(map(branch, programs)), state.values())
        state.leave(cells)
        return list(out)

    def checkpoint(self, eqn: JaxEquation, program: Steps, values: list[PyTree]) -> PyTree:
        params, state = eqn.params, _Threaded(values, [type(v) is Cell for v in values])
        arrays = [v for v in values if type(v) is not Cell]

        def recomputed(cells: list[Array], arrays: list[Array]) -> PyTree:
            inside, after = state.enter(cells)
            rest = iter(arrays)
            inside = [v if type(v) is Cell else next(rest) for v in inside]
            out = self.inside(program, inside)
            return after(), out

        again = jax.checkpoint(
            recomputed, prevent_cse=params["prevent_cse"], policy=params["policy"]
        )
        cells, out = again(state.values(), arrays)
        state.leave(cells)
        return list(out)

    def jvp_rule(self, eqn: JaxEquation, program: Steps, values: list[PyTree]) -> PyTree:
        """Discharge a function with a rule that makes Refs, and its rule with it."""
        if _has_cell(values):
            raise _refused(eqn)
        body, rule = map(discharge, _compat.custom_jvp_functions(eqn))
        call = jax.custom_jvp(lambda *args: body(*args))

        @call.defjvp
        def _(primals: PyTree, tangents: PyTree) -> PyTree:
            out = rule(*primals, *tangents)
            return out[: len(out) // 2], out[len(out) // 2 :]

        return list(call(*values))
