"""The origins and the users of the values of a program, during a walk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
from jaxtyping import PyTree

from tanjax import operations as tj
from tanjax._typing import DType, Natural, Shape
from tanjax.arrays import destructure, is_structured
from tanjax.quantities import is_quantity, stored_of

from .._equations import Body, Equation, Literal, Operand, Variable
from ._pass import Rewriter


class Walk:
    """One run of a program: the equation of each value, the users of each value, and the values."""

    def __init__(self, program: Body) -> None:
        self.made_by: dict[Variable, Equation] = {}
        self.users: dict[Variable, list[Equation | None]] = {}  # `None`: the program returns it
        self.env: Mapping[Variable, PyTree] = {}
        self.notes: dict[Variable, Any] = {}  # notes of a pass about values of this run
        for equation in program:
            self.made_by.update((v, equation) for v in equation.outputs if v is not None)
            for x in _operands(equation):
                self._use(x, equation)
        for x in program.outputs:
            self._use(x, None)

    def _use(self, x: Operand, user: Equation | None) -> None:
        if isinstance(x, Variable):
            self.users.setdefault(x, []).append(user)

    def origin(self, x: Operand, *names: str) -> Equation | None:
        """Return the equation that made a value, if it has one of these names."""
        found = self.made_by.get(x) if isinstance(x, Variable) else None
        return found if found is not None and (not names or found.name in names) else None

    def uses(self, x: Operand) -> list[Equation | None]:
        """Return the users of a value."""
        return self.users.get(x, []) if isinstance(x, Variable) else []

    def value(self, x: Operand) -> PyTree:
        """Return the value in this run."""
        return x.value if isinstance(x, Literal) else self.env[x]


def _operands(equation: Equation) -> Iterator[Operand]:
    closed = {id(v) for s in equation.slots.values() for group in s.consts for v in group}
    yield from (x for x in equation.inputs if id(x) not in closed)
    for slot in equation.slots.values():
        for group in slot.consts:
            yield from group


class Walker(Rewriter):
    """A rewriter whose handlers read the origins of their operands from `self.walk`."""

    @property
    def walk(self) -> Walk:
        found: Walk = self.frame
        return found

    def frame_of(self, program: Body) -> Walk:
        return Walk(program)

    def _step(self, equation: Equation, env: dict[Variable, PyTree]) -> None:
        self.walk.env = env
        super()._step(equation, env)


def is_product(equation: Equation | None) -> bool:
    """True if an equation is the product of two matrices or vectors, of any type."""
    if equation is None or len(equation.inputs) != 2:
        return False
    if equation.target is tj.matmul:
        return not equation.params
    if equation.kind != "primitive" or equation.name != "dot_general":
        return False
    a, b = (v.aval for v in equation.eqn.invars)
    params = equation.eqn.params
    standard = (((a.ndim - 1,), (0,)), ((), ()))
    axes = tuple(tuple(map(tuple, part)) for part in params["dimension_numbers"])
    usual = params.get("precision") is None and params.get("out_sharding") is None
    kept = params.get("preferred_element_type") in (None, a.dtype)
    return 1 <= a.ndim <= 2 and 1 <= b.ndim <= 2 and axes == standard and usual and kept


def shape_of(x: Natural) -> tuple[int, ...]:
    """Return the shape of a value of any type."""
    x = stored_of(x)
    return tuple(x.shape) if hasattr(x, "shape") else ()


def conform(out: PyTree, equation: Equation, keeps: bool) -> PyTree | None:
    """Return a result in the type of the equation; `None` if it does not conform.

    **Arguments:** `keeps`: whether a structured array may replace a dense one.
    """
    wanted = [x for x in equation.outputs if x is not None]
    is_one = lambda x: is_structured(x) or is_quantity(x)
    given = jax.tree.leaves(out, is_leaf=is_one)
    if len(given) != len(wanted):
        return None
    done = [_conform(x, v, keeps) for x, v in zip(given, wanted, strict=True)]
    if any(x is None for x in done):
        return None
    return jax.tree.unflatten(jax.tree.structure(out, is_leaf=is_one), done)


def _conform(x: PyTree, v: Variable, keeps: bool) -> PyTree:
    if v.kind is None:
        aval = v.skeleton.aval
        if not hasattr(x, "dtype") or (tuple(x.shape), x.dtype) != (aval.shape, aval.dtype):
            return None
        if is_structured(x) and not keeps:
            return destructure(x)
        return x
    same = jax.tree.structure(x) == jax.tree.structure(v.skeleton)
    return x if same and _avals(x) == _avals(v.skeleton) else None


def _avals(x: PyTree) -> list[tuple[Shape | None, DType | None]]:
    avals = [getattr(v, "aval", v) for v in jax.tree.leaves(x)]
    return [(getattr(a, "shape", None), getattr(a, "dtype", None)) for a in avals]
