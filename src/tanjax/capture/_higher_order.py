"""Functions of functions, each call one equation that carries programs.

A loop, a derivative or a map takes functions, and what these do belongs in the equation, with what
they close over as operands. So under capture every function among the arguments is replaced by a
*slot*: when the definition calls it, the slot traces the user's function to a program, on whatever
avals it is called with, remembers it and evaluates it. What the programs close over is known then;
if there is anything, the call is traced once more with that as operands, without running user code
again. The definition is plain code, and is the meaning outside of capture, the shape rule, the
replay, the derivative, the batching rule and the lowering at once.

    @tj.higher_order(curried=True)
    def repeat(func, n):
        def new_func(*args):
            return jax.lax.fori_loop(0, n, lambda _, a: func(*a), args)
        return new_func

Sharp edges. Arrays and what is traced are operands; everything else, Python's numbers included, is
a parameter: static bounds of a loop must stay static for reverse mode. Functions given by keyword
are parameters too.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import jax
from jaxtyping import PyTree

from tanjax import _marks
from tanjax._errors import CaptureError, describe, message, outside
from tanjax._marks import ACTIVE, Mark, Shape, Static, capturing, join, labelled, split
from tanjax._typing import Function

from ._program import Program
from ._tracing import trace
from ._types import is_typed

F = TypeVar("F", bound=Callable[..., Any])


class Slot:
    """A function among the arguments of a call that is being captured."""

    def __init__(self, function: Function) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.programs: dict[Any, Program] = {}
        self.consts: list[Any] | None = None  # the operands that hold what programs close over
        self.places: dict[int, int] = {}  # of a closed-over array, by identity, among them

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        moving, tree, shape = split((args, kwargs), _marks.is_operand)
        key = tree, shape, tuple(map(jax.typeof, moving))
        program = self.programs.get(key)
        if program is None:
            traced = trace(self.function, tree, shape, moving)
            name = getattr(self.function, "__name__", "f")
            program = self.programs[key] = Program(traced, name)
        consts = program.closed.consts
        if self.consts is not None:
            consts = [self.consts[self.places[id(c)]] for c in consts]
        outs = jax.core.eval_jaxpr(program.closed.jaxpr, consts, *moving)
        return join(program.out_tree, program.out_shape, outs)

    def on(self, consts: Sequence[Any]) -> Slot:
        """The same programs on other operands: another function to JAX, which keeps traces."""
        new = Slot(self.function)
        new.programs, new.places, new.consts = self.programs, self.places, list(consts)
        return new

    @property
    def traced(self) -> list[tuple[Program, list[int]]]:
        """The programs, and where among the operands their constants are."""
        places = lambda p: [self.places[id(c)] for c in p.closed.consts]
        return [(p, places(p)) for p in self.programs.values()]


@overload
def higher_order(definition: F, /) -> F: ...
@overload
def higher_order(*, curried: bool = ..., name: str | None = ...) -> Callable[[F], F]: ...
def higher_order(
    definition: Function | None = None, /, *, curried: bool = False, name: str | None = None
) -> Any:
    """Make calls of a function of functions equations of captured programs.

    **Arguments:** `definition`: the function; `curried`: it returns a function of arrays, and the
    call of that one is the equation, as with `grad` and `vmap`. `name`: printed instead of its own.
    **Returns:** a function with the same signature: outside of `tj.capture` the definition itself,
    under it an equation with a program for every function among the positional arguments.
    **Raises:** under capture, errors of the definition and of its functions, with the name of the
    equation and the line.
    **Derivative:** that of the definition.
    **Cost:** outside of capture one Python call; under it a trace of the definition, two if its
    functions close over something, and one of every function.

    >>> import jax, tanjax as tj
    >>> @tj.higher_order(curried=True)
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


def _direct(definition: Function, name: str) -> Function:
    @functools.wraps(definition)
    def public(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if ACTIVE[0] and capturing():
            return emit(name, public, definition, [(args, kwargs)])
        return definition(*args, **kwargs)

    public.parameters = parameters(definition)  # type: ignore[attr-defined]
    return public


def _curried(definition: Function, name: str) -> Function:
    @functools.wraps(definition)
    def public(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if not args:
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


def emit(
    name: str, public: Function, definition: Function, calls: Sequence[tuple[Any, Any]]
) -> PyTree:
    """A call as an equation that carries the programs of its functions."""
    slots: list[Slot] = []
    groups: list[Any] = [part for call in calls for part in call]
    groups[0] = _with_slots(groups[0], slots)
    moving, tree, shape = split(tuple(groups), _marks.is_operand)

    def run(consts: Sequence[Any] | None, *moving: Any) -> PyTree:
        given = join(tree, shape if consts is None else _with_consts(shape, slots, consts), moving)
        f = definition
        for i in range(0, len(given), 2):
            f = f(*given[i], **given[i + 1])
        return f

    mark = Mark("higher_order", name, public, tree, shape)
    mark.slots = slots
    jitted = labelled(mark, functools.partial(run, None))
    try:
        mark.jaxpr = jitted.trace(*moving).jaxpr
    except Exception as error:
        _explain(error, name)
        raise
    consts = _closed_over(slots)
    if consts:
        mark.closed = len(consts)
        count = len(consts)
        jitted = labelled(mark, lambda *moving: run(moving[:count], *moving[count:]))
        moving = [*consts, *moving]
        mark.jaxpr = jitted.trace(*moving).jaxpr
    outs = jitted(*moving)
    return join(mark.out_tree, mark.out_shape, outs)


def _with_consts(shape: Shape, slots: Sequence[Slot], consts: Sequence[Any]) -> Shape:
    """Arguments whose functions close over `consts`."""
    mine = lambda s: type(s) is Static and any(s.value is slot for slot in slots)
    return tuple(Static(s.value.on(consts)) if mine(s) else s for s in shape)


def _closed_over(slots: Sequence[Slot]) -> list[Any]:
    """Everything that the programs of a call close over, once each."""
    consts: dict[int, Any] = {}
    for slot in slots:
        for program in slot.programs.values():
            consts.update((id(c), c) for c in program.closed.consts)
    places = {key: i for i, key in enumerate(consts)}
    for slot in slots:
        slot.places = places
    return list(consts.values())


def _with_slots(args: PyTree, slots: list[Slot]) -> PyTree:
    def replaced(x: PyTree) -> PyTree:
        if not _is_function(x):
            return x
        slots.append(Slot(x))
        return Static(slots[-1])

    return jax.tree.map(replaced, args, is_leaf=lambda x: is_typed(x) or _is_function(x))


def _is_function(x: PyTree) -> bool:
    return callable(x) and not isinstance(x, type | jax.Array)


def _explain(error: Exception, name: str) -> None:
    """Say in which equation it happened, and in which line, once."""
    if not any(n.startswith("In the equation") for n in getattr(error, "__notes__", ())):
        line = called_from()
        where = f", {line}" if line else ""
        error.add_note(f"In the equation `{name}` of a program that is being captured{where}.")


def called_from() -> str:
    """The line of the user's program that is running, as `file:line (function)`."""
    try:
        frame = sys._getframe(outside() - 1)
    except ValueError:
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"


def require_function(where: str, f: Any) -> None:
    """**Raises:** `CaptureError` if there is no function where one belongs."""
    if not callable(f):
        raise CaptureError(
            message(
                f"{where}: it takes a function, and got {describe(f)}.",
                hint="pass the function, uncalled.",
            )
        )
