"""A captured program as text, in the layout of a jaxpr: typed, with units, bodies indented.

Inner programs continue the letters, so that two variables of a text never share a name. Parameters
that are `None` are omitted, and long ones print as an ellipsis. Parameters of JAX's own loops
change from version to version and are not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tanjax.jaxprs import CALLS, LOOPS, Kind, names_of

from ._equations import Body, Equation, Literal, Operand, Variable
from ._types import value_text

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_NAMED = names_of(*LOOPS, Kind.BRANCH, *CALLS[1:], Kind.DEVICES)
_UNSHOWN = ("sharding", "out_sharding", "jvp", "fwd", "bwd", "ctx_mesh", "compiler_options_kvs")


class Names:
    """Letters for variables, in the order of their first use."""

    def __init__(self) -> None:
        self._known: dict[Variable, str] = {}

    def __call__(self, x: Operand | None) -> str:
        if x is None:
            return "_"
        if isinstance(x, Literal):
            return literal_text(x)
        if x not in self._known:
            count = len(self._known)
            text = ""
            count += 1
            while count:
                count, digit = divmod(count - 1, 26)
                text = _LETTERS[digit] + text
            self._known[x] = text
        return self._known[x]

    def typed(self, x: Operand | None) -> str:
        """The text of a variable where it is bound."""
        return "_" if x is None else f"{self(x)}:{x.type}"


def literal_text(x: Literal) -> str:
    """Return a number as Python writes it."""
    value = x.value
    if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biufc":
        value = np.asarray(value).item()
    return value_text(value)


def program_text(program: Body, names: Names | None = None) -> str:
    """The whole program."""
    return "\n".join(_program(program, names or Names()))


def equation_text(equation: Equation, names: Names | None = None) -> str:
    """One equation, with its programs."""
    return "\n".join(_equation(equation, names or Names()))


def _program(program: Body, names: Names) -> Iterator[str]:
    consts = " ".join(names.typed(v) for v in program.consts)
    inputs = " ".join(names.typed(v) for v in program.inputs)
    outputs = lambda: _tuple([names(v) for v in program.outputs])
    head = f"{{ lambda {consts}; {inputs}. let"
    if not len(program):
        yield f"{head} in {outputs()} }}"
        return
    yield head
    for equation in program:
        yield from _indented(_equation(equation, names), 4)
    yield f"  in {outputs()} }}"


def _equation(equation: Equation, names: Names) -> Iterator[str]:
    inputs = [names(v) for v in equation.inputs]  # before the bodies, as they are read
    shown = _params(equation)
    if not equation.programs:
        yield _line(equation, names, inputs, f"[{' '.join(shown)}]" if shown else "")
        return
    outputs = [names.typed(v) for v in equation.outputs]
    start = f"{' '.join(outputs)} = " if outputs else ""
    yield f"{start}{equation.name}["
    for text in shown:
        yield f"  {text}"
    for name, program in equation.programs.items():
        first, *rest = _program(program, names)
        yield f"  {name}={first}"
        yield from _indented(rest, 2)
    yield f"] {' '.join(inputs)}".rstrip()


def _line(equation: Equation, names: Names, inputs: Sequence[str], params: str) -> str:
    outputs = " ".join(names.typed(v) for v in equation.outputs)
    start = f"{outputs} = " if outputs else ""
    if equation.kind == "field":
        return f"{start}{inputs[0]}{equation.name}"
    return f"{start}{equation.name}{params} {' '.join(inputs)}".rstrip()


def call_text(equation: Equation, names: Names) -> str:
    """Return an equation in one line, without its results and its programs."""
    inputs, shown = [names(v) for v in equation.inputs], _params(equation)
    if equation.kind == "field":
        return f"{inputs[0]}{equation.name}"
    params = f"[{' '.join(shown)}]" if shown else ""
    return f"{equation.name}{params} {' '.join(inputs)}".rstrip()


def _params(equation: Equation) -> list[str]:
    params = equation.params
    if equation.kind == "primitive":
        if equation.name in _NAMED:
            return []
        params = {k: v for k, v in params.items() if v is not None and k not in _UNSHOWN}
        return [f"{k}={value_text(v)}" for k, v in params.items()]
    shown = [f"{k}={value_text(v)}" for k, v in params.items()]
    return classes(equation) + shown


def classes(equation: Equation) -> list[str]:
    """Return the classes on which an operation was dispatched, with marks on those it densified."""
    types, lost = list(equation.types), list(equation.lost)
    if equation.kind not in ("operation", "helper") or not (
        lost or any(t != "Dense" for t in types)
    ):
        return []
    named = [f"densify[{t}]" if t in lost else t for t in types]
    named += [f"densify[{t}]" for t in lost if t not in types]
    return [", ".join(named)]


def _indented(lines: Iterable[str], width: int) -> Iterator[str]:
    return (" " * width + line for line in lines)


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
