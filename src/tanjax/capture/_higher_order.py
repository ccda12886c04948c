"""Functions of functions, each call one equation that carries programs.

A loop, a derivative or a map takes functions. Their programs belong in the equation, and the values
that they close over are its operands. So under capture a *slot* replaces every function among the
arguments. When the definition calls a slot, the slot traces the user's function to a program, on
the avals of that call, stores it and evaluates it. After the trace the closed-over values are
known. They become operands of the equation, whose body is the traced program. Neither the user's
code nor the definition runs again. The definition is plain code. It gives at once the meaning
outside of capture, the shape rule, the replay, the derivative, the batching rule and the lowering.

    @tj.programs.higher_order(curried=True)
    def repeat(func, n):
        def new_func(*args):
            return jax.lax.fori_loop(0, n, lambda _, a: func(*a), args)
        return new_func

Sharp edges. Arrays and traced values are operands; everything else, also Python's numbers, is
a parameter: static bounds of a loop must stay static for reverse mode. Functions given as options
(`policy=`) are parameters too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias, TypeVar, overload

import jax
from jaxtyping import PyTree

from tanjax import _marks
from tanjax._compat import Tracer
from tanjax._errors import CaptureError, describe, message
from tanjax._marks import ACTIVE, Mark, Static, capturing, join, labelled, of_operands, split
from tanjax._typing import AnyArray, Function

from ._notes import called_from, explain
from ._program import Program
from ._replay import Replay, as_it_is, is_of_functions
from ._tracing import trace
from ._types import is_typed

F = TypeVar("F", bound=Function)
Given: TypeAlias = tuple[Sequence[PyTree], dict[str, PyTree]]  # arguments of one call


class Slot:
    """A function among the arguments of a call that is being captured."""

    def __init__(self, function: Function) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.programs: dict[Hashable, Program] = {}
        self.places: dict[int, int] = {}  # by identity of a closed-over array

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        moving, tree, shape = split((args, kwargs), _marks.is_operand)
        key = tree, shape, tuple(map(jax.typeof, moving))
        program = self.programs.get(key)
        if program is None:
            traced = trace(self.function, tree, shape, moving)
            name = getattr(self.function, "__name__", "f")
            program = self.programs[key] = Program(traced, name)
        # JAX sums cotangents in another order around a call than among the equations in the call.
        outs = Replay(program.closed, is_of_functions, as_it_is)(*moving)
        return join(program.out_tree, program.out_shape, outs)

    @property
    def traced(self) -> list[tuple[Program, list[int]]]:
        """Return the programs, and the places of their constants among the operands."""
        places = lambda p: [self.places[id(c)] for c in p.closed.consts]
        return [(p, places(p)) for p in self.programs.values()]


@overload
def higher_order(definition: F, /) -> F: ...
@overload
def higher_order(*, curried: bool = ..., name: str | None = ...) -> Callable[[F], F]: ...
def higher_order(
    definition: Function | None = None, /, *, curried: bool = False, name: str | None = None
) -> Function:
    """Make each call of a function of functions one equation of captured programs.

    **Arguments:** `definition`: the function. `curried`: the definition returns a function of
    arrays, and the call of that function is the equation, as with `grad` and `vmap`. `name`: the
    printed name, if not that of the definition.
    **Returns:** a function with the same signature. Outside of `tj.capture` it is the definition
    itself; under capture it is an equation with a program for every positional function.
    **Raises:** under capture, errors of the definition and of its functions, with the name of the
    equation and the line.
    **Derivative:** that of the definition.
    **Cost:** outside of capture one Python call; under capture a trace of the definition, an
    evaluation of the result, and a trace of every function.

    >>> import jax, tanjax as tj
    >>> @tj.programs.higher_order(curried=True)
    ... def repeat(func, n):
    ...     return lambda x: jax.lax.fori_loop(0, n, lambda _, x: func(x), x)
    >>> print(tj.capture(lambda x: repeat(lambda x: 2.0 * x, 3)(x))(1.5))
    { lambda ; a:f32[]. let
        b:f32[] = repeat[
          n=3
          func={ lambda ; c:f32[]. let
              d:f32[] = mul 2.0 c
            in (d,) }
        ] a
      in (b,) }
    """
    if definition is None:
        return lambda f: higher_order(f, curried=curried, name=name)  # type: ignore[call-overload]
    make = _curried if curried else _direct
    return make(definition, name or definition.__name__)


def in_place_of(plain: F) -> Callable[[Function], F]:
    """Make a decorator for a function with the name, the docstring and the type of another."""
    return functools.wraps(plain)  # type: ignore[return-value]


def _direct(definition: Function, name: str) -> Function:
    @functools.wraps(definition)
    def public(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if ACTIVE[0] and capturing():
            return emit(name, public, definition, [(args, kwargs)])
        return definition(*args, **kwargs)

    public.parameters = parameters(definition)  # type: ignore[attr-defined]
    return public


def _curried(definition: Function, name: str) -> Function:
    names = parameters(definition) or ("",)

    @functools.wraps(definition)
    def public(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if not args and names[0] not in kwargs:
            return lambda f: public(f, **kwargs)  # a decorator with options
        plain = definition(*args, **kwargs)

        @functools.wraps(plain)
        def call(*given: PyTree, **named: PyTree) -> PyTree:
            if ACTIVE[0] and capturing():
                return emit(name, public, definition, [(args, kwargs), (given, named)])
            return plain(*given, **named)

        return call

    public.parameters = parameters(definition)  # type: ignore[attr-defined]
    return public


def parameters(definition: Function) -> tuple[str, ...]:
    """The names of the positional parameters."""
    try:
        found = inspect.signature(definition).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return tuple(p.name for p in found if p.kind in kinds)


def emit(name: str, public: Function, definition: Function, calls: Sequence[Given]) -> PyTree:
    """Emit a call as an equation that carries the programs of its functions."""
    slots: list[Slot] = []
    groups: list[PyTree] = [part for call in calls for part in call]
    groups[0] = _with_slots(groups[0], slots)
    named = public.parameters  # type: ignore[attr-defined]  # options may be functions, too
    groups[1] = {k: _with_slots(v, slots) if k in named else v for k, v in groups[1].items()}
    moving, tree, shape = split(tuple(groups), _marks.is_operand)

    def run(*moving: AnyArray) -> PyTree:
        given = join(tree, shape, moving)
        f = definition
        for i in range(0, len(given), 2):
            f = f(*given[i], **given[i + 1])
        return f

    result: list[PyTree] = []

    def flat(*moving: AnyArray) -> list[AnyArray]:
        outs, *result[:] = split(run(*moving))
        return outs

    try:
        closed = jax.make_jaxpr(of_operands(flat))(*moving)
    except Exception as error:
        explain(error, name, "a program that is being captured", called_from())
        raise
    consts = _closed_over(slots, closed.consts)

    def again(*operands: AnyArray) -> PyTree:
        own = [operands[consts[id(c)][0]] if id(c) in consts else c for c in closed.consts]
        out_tree, out_shape = result
        outs = jax.core.eval_jaxpr(closed.jaxpr, own, *operands[len(consts) :])
        return join(out_tree, out_shape, outs)

    mark = Mark("higher_order", name, public, tree, shape)
    mark.slots, mark.closed = slots, len(consts)
    jitted = labelled(mark, again)
    moving = [*(c for _, c in consts.values()), *moving]
    mark.jaxpr = jitted.trace(*moving).jaxpr
    outs = jitted(*moving)
    return join(mark.out_tree, mark.out_shape, outs)


def _closed_over(
    slots: Sequence[Slot], others: Sequence[AnyArray]
) -> dict[int, tuple[int, AnyArray]]:
    """Return the operands of a call by identity, each with its place.

    Operands are the values that the programs close over and other traced values. Arrays of the
    definition stay inside.
    """
    programs = [p for slot in slots for p in slot.programs.values()]
    consts = {id(c): c for p in programs for c in p.closed.consts}
    consts |= {id(c): c for c in others if isinstance(c, Tracer)}
    found = {key: (i, c) for i, (key, c) in enumerate(consts.items())}
    for slot in slots:
        slot.places = {key: i for key, (i, _) in found.items()}
    return found


def _with_slots(args: PyTree, slots: list[Slot]) -> PyTree:
    def replaced(x: PyTree) -> PyTree:
        if not _is_function(x):
            return x
        slots.append(Slot(x))
        return Static(slots[-1])

    return jax.tree.map(replaced, args, is_leaf=lambda x: is_typed(x) or _is_function(x))


def _is_function(x: PyTree) -> bool:
    return callable(x) and not isinstance(x, type | jax.Array)


def require_function(where: str, f: object) -> None:
    """**Raises:** `CaptureError` if the argument is no function."""
    if not callable(f):
        raise CaptureError(
            message(
                f"{where}: it takes a function, and got {describe(f)}.",
                hint="pass the function, uncalled.",
            )
        )
