"""The parts of a captured program: typed variables, literals and equations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal as OneOf, Protocol, runtime_checkable

from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._errors import message
from tanjax._jaxpr_types import Aval, JaxEquation
from tanjax._typing import Function
from tanjax.quantities import stored_of

from ._tracing import Traceable
from ._types import aval_text, is_typed, type_text

Kind = OneOf[
    "operation", "construct", "field", "helper", "class", "higher_order", "pullback", "primitive"
]


class Variable:
    """A value of a captured program, of any type.

    **Fields:** `skeleton`: an instance of its class with variables of the jaxpr for numbers, or one
    such variable; `type`: its type as text.
    """

    __slots__ = ("skeleton", "type")

    def __init__(self, skeleton: PyTree) -> None:
        self.skeleton = skeleton
        self.type = type_text(skeleton)

    @property
    def kind(self) -> type | None:
        """The class of a typed value; `None` for plain arrays."""
        return None if hasattr(self.skeleton, "aval") else type(self.skeleton)

    def __repr__(self) -> str:
        return f"<variable of type {self.type}>"


class Literal:
    """A number written into the program, or a static argument in the place of an operand."""

    __slots__ = ("aval", "is_static", "value")

    def __init__(self, value: Any, aval: Aval | None = None, is_static: bool = False) -> None:
        self.value, self.aval, self.is_static = value, aval, is_static

    @property
    def type(self) -> str:
        """The type, as text."""
        return type(self.value).__name__ if self.aval is None else aval_text(self.aval)

    def __repr__(self) -> str:
        return f"<literal {self.value!r}>"


Operand = Variable | Literal


@runtime_checkable
class Body(Protocol):
    """A program as its readers see it: prints, pictures, interpreters. The class is `Program`."""

    name: str
    closed: Traceable

    @property
    def consts(self) -> list[Variable]: ...
    @property
    def inputs(self) -> list[Variable]: ...
    @property
    def outputs(self) -> list[Operand]: ...
    @property
    def out_tree(self) -> PyTreeDef: ...
    @property
    def out_shape(self) -> tuple[object, ...]: ...
    @property
    def equations(self) -> list[Equation]: ...
    def __iter__(self) -> Iterator[Equation]: ...
    def __len__(self) -> int: ...
    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree: ...
    def const_values(self) -> list[PyTree]: ...
    def input_values(self, args: PyTree, kwargs: dict[str, PyTree]) -> list[PyTree]: ...
    def result_of(self, values: Sequence[PyTree]) -> PyTree: ...
    def takes(self, args: PyTree, kwargs: dict[str, PyTree]) -> bool: ...
    def has_parameters(self, args: PyTree, kwargs: dict[str, PyTree]) -> bool: ...
    def check(self, args: PyTree, kwargs: dict[str, PyTree]) -> None: ...


@runtime_checkable
class Slot(Protocol):
    """A function among the arguments of a call under capture, and the programs traced from it."""

    function: Function

    @property
    def traced(self) -> Sequence[tuple[Body, Sequence[int]]]: ...


class SlotView:
    """A function among the arguments of an equation: the programs it was traced to."""

    __slots__ = ("consts", "function", "programs")

    def __init__(
        self,
        function: Function,
        programs: Sequence[Body],
        consts: Sequence[Sequence[Operand]],
    ) -> None:
        self.function, self.programs, self.consts = function, programs, consts


class Equation:
    """One equation of a captured program; made by `tj.capture`, and read only.

    **Fields:** `kind`; `name`; `inputs` and `outputs`, typed; `params`, static parameters by name;
    `programs`, by the name of the parameter that takes them; `source`, the line of the user's
    program; `target`, the called object, if it can be called again; `eqn`, JAX's equation, if
    there is exactly one; `lost`, the names of the array types that this equation densified.
    """

    __slots__ = (
        "_lost", "_place", "call", "eqn", "inputs", "kind", "name", "out_tree", "outputs",
        "params", "program_of", "programs", "slots", "target",
    )  # fmt: skip
    kind: Kind
    name: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Variable | None, ...]
    params: dict[str, Any]
    programs: dict[str, Body]
    slots: dict[int, SlotView]
    _lost: Callable[[], Sequence[str]]
    _place: JaxEquation | None
    # Set only for kinds that have them; others hold `None`, and a reader checks `kind` first.
    target: Function
    eqn: JaxEquation
    program_of: Callable[[Any], Body]  # makes the program of an inner jaxpr of `eqn`
    call: Any  # a tree and its operands; the path of a field
    out_tree: tuple[PyTreeDef, Sequence[PyTree]]

    def __init__(
        self,
        kind: Kind,
        name: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Variable | None],
        *,
        params: Mapping[str, Any] | None = None,
        programs: Mapping[str, Body] | None = None,
        place: JaxEquation | None = None,
        target: Any = None,
        eqn: Any = None,
        program_of: Any = None,
        call: Any = None,
        out_tree: Any = None,
        slots: Mapping[int, SlotView] | None = None,
        lost: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        fields = {
            "kind": kind,
            "name": name,
            "inputs": tuple(inputs),
            "outputs": tuple(outputs),
            "params": dict(params or {}),
            "programs": dict(programs or {}),
            "target": target,
            "eqn": eqn,
            "program_of": program_of,
            "call": call,
            "out_tree": out_tree,
            "slots": dict(slots or {}),
            "_lost": lost,
            "_place": place,
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            message(
                f"an equation is read only; got a value for `{name}`.",
                hint="rewrite programs with a `tj.programs.Interpreter`.",
            )
        )

    @property
    def source(self) -> str:
        """The line of the user's program; found on demand, which halves the time of a reading."""
        return "" if self._place is None else _compat.source_of(self._place)

    @property
    def lost(self) -> tuple[str, ...]:
        """The names of the array types that this equation densified."""
        return tuple(self._lost())

    @property
    def types(self) -> tuple[str, ...]:
        """The names of the classes of its operands, with `"Dense"` for plain arrays."""
        names = []
        for x in self.inputs:
            skeleton = x.skeleton if isinstance(x, Variable) else None
            skeleton = stored_of(skeleton)
            names.append(type(skeleton).__name__ if is_typed(skeleton) else "Dense")
        return tuple(names)

    def __repr__(self) -> str:
        outs = ", ".join(o.type for o in self.outputs if o is not None)
        ins = ", ".join(x.type for x in self.inputs)
        return f"<{self.kind} {self.name}: {ins} -> {outs}>"
