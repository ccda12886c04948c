"""Build typed equations from a flat jaxpr with marks.

A jaxpr of plain arrays shows the computation; its marks show the typed calls. This module groups
the variables. The arguments of a marked call are its *skeleton*: real instances with variables for
numbers. A typed operand that no equation made was constructed from its numbers: an equation
`construct`, emitted at the first use. A number of a typed result that is used alone is a `field`
of it. Replay uses none of this, so that an incomplete view changes no result.

Sharp edges. The order of two equal constructions is unknown, and an unused construction does not
appear.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.tree_util import KeyPath, PyTreeDef
from jaxtyping import PyTree

from tanjax import _compat, _jaxprs
from tanjax._jaxpr_types import Aval, JaxEquation, JaxVariable, OpenJaxpr, Steps
from tanjax._marks import MOVING, Mark, Shape, Static, mark_of, name_of
from tanjax._typing import AnyArray
from tanjax.jaxprs import Kind as Kinds, kind_of, nested_jaxprs

from ._equations import Body, Equation, Kind, Literal, Operand, Slot, SlotView, Variable
from ._types import children, is_typed

Key: TypeAlias = tuple[PyTreeDef, tuple[object, ...]]  # a typed value: its structure, its leaves
Place: TypeAlias = tuple[int, int | str]  # an argument: its group, and its index or name
Leaf: TypeAlias = JaxVariable | Static  # a leaf of a skeleton


class View:
    """The typed equations of a jaxpr: `consts`, `inputs`, `equations`, `outputs`."""

    def __init__(
        self,
        jaxpr: OpenJaxpr,
        arguments: PyTree,
        results: Callable[[Sequence[JaxVariable]], PyTree],
        program_of: Callable[[Any], Body],
    ) -> None:
        self.consts: list[Variable] = []
        self.equations: list[Equation] = []
        self._program_of = program_of
        self._leaves: dict[JaxVariable, Variable] = {}
        self._owners: dict[JaxVariable, tuple[Variable, KeyPath]] = {}
        self._typed: dict[Key, Variable] = {}
        self._free = set(jaxpr.constvars)
        self._place: JaxEquation | None = None  # the equation of the jaxpr that is being read
        leaves = jax.tree.leaves(arguments, is_leaf=is_typed)
        self.inputs = [self.define(x) for x in leaves if not isinstance(x, Static)]
        for eqn in jaxpr.eqns:
            self._place = eqn
            self._add(eqn)
        self._place = None
        items, self.out_tree = jax.tree.flatten(results(jaxpr.outvars), is_leaf=is_typed)
        self.outputs = [self.read(x) for x in items]

    # -- values ----------------------------------------------------------------------------

    def define(self, x: PyTree) -> Variable:
        """Define a new value: an argument, or a result of an equation."""
        variable = Variable(x)
        if not is_typed(x):
            self._leaves[x] = variable
            return variable
        self._typed[_key(x)] = variable
        for path, leaf in jax.tree_util.tree_leaves_with_path(x):
            if not isinstance(leaf, Static):
                self._owners.setdefault(leaf, (variable, path))
        return variable

    def read(self, x: PyTree) -> Operand:
        """Return the variable or literal of a used value."""
        if isinstance(x, Static):
            return Literal(x.value, is_static=True)
        if is_typed(x):
            key = _key(x)
            return self._typed[key] if key in self._typed else self._constructed(x, key)
        if _jaxprs.is_literal(x):
            return Literal(_plain(x.val, x.aval), x.aval)
        found = self._leaves.get(x)
        if found is not None:
            return found
        if x in self._owners:
            owner, path = self._owners[x]
            out = self._leaves[x] = Variable(x)
            self._emit("field", jax.tree_util.keystr(path), [owner], [out], call=path)
            return out
        return self._const(x)

    def _const(self, x: PyTree) -> Variable:
        variable = self.define(x)
        self._free -= set(jax.tree.leaves(x))
        self.consts.append(variable)
        return variable

    def _constructed(self, x: PyTree, key: Key) -> Variable:
        leaves = [v for v in jax.tree.leaves(x) if not isinstance(v, Static)]
        if leaves and all(not _jaxprs.is_literal(v) and v in self._free for v in leaves):
            return self._const(x)  # a closed-over value arrives whole
        parts, tree = children(x)
        inputs = [self.read(v) for v in parts]
        variable = self._typed[key] = Variable(x)
        self._emit("construct", type(x).__name__, inputs, [variable], call=(tree, inputs))
        return variable

    # -- equations -------------------------------------------------------------------------

    def _emit(
        self,
        kind: Kind,
        name: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Variable | None],
        **more: Any,
    ) -> None:
        more.setdefault("place", self._place)
        self.equations.append(Equation(kind, name, inputs, outputs, **more))

    def _add(self, eqn: JaxEquation) -> None:
        mark = mark_of(eqn)
        if mark is None or not _fits(mark, eqn):
            self._add_primitive(eqn)
            return
        consts, moving = eqn.invars[: mark.closed], eqn.invars[mark.closed :]
        tree, items = self._items(mark, moving)
        slots = {}
        for i, x in enumerate(items):
            slot = x.value if isinstance(x, Literal) and x.is_static else None
            if slot is not None and any(slot is s for s in mark.slots):
                slots[i] = self._slot(slot, consts)
        self._emit_marked(eqn, mark, tree, items, slots)

    def _emit_marked(
        self,
        eqn: JaxEquation,
        mark: Mark,
        tree: PyTreeDef,
        items: list[Operand],
        slots: dict[int, SlotView],
    ) -> None:
        closures = [v for s in slots.values() for group in s.consts for v in group]
        shown, params, programs = [], {}, {}
        for place, part in _arguments(jax.tree.unflatten(tree, range(len(items)))):
            name, leaves = _parameter(place, mark), jax.tree.leaves(part)
            values = [items[i] for i in leaves]
            if (
                leaves
                and all(isinstance(v, Literal) and v.is_static for v in values)
                and not slots.keys() & set(leaves)
            ):
                if _is_operand(part, _static(values[0]), place, mark):
                    shown.append(values[0])
                elif (value := jax.tree.map(lambda i: _static(items[i]), part)) is not None:
                    params[name] = value
                continue
            shown += [items[i] for i in leaves if i not in slots]
            for path, i in jax.tree_util.tree_leaves_with_path(part):
                for k, program in enumerate(slots[i].programs if i in slots else ()):
                    programs[name + jax.tree_util.keystr(path) + "'" * k] = program
        outs, out_tree = jax.tree.flatten(
            _skeleton(mark.out_tree, mark.out_shape, eqn.outvars), is_leaf=is_typed
        )
        outputs = [None if isinstance(o, Static) else self.define(o) for o in outs]
        kind, name = ("helper", mark.kind) if mark.kind == "densify" else (mark.kind, mark.name)
        self._emit(
            kind, name, [*closures, *shown], outputs, params=params, programs=programs,
            target=mark.target, eqn=eqn, call=(tree, items), out_tree=(out_tree, outs),
            slots=slots, lost=functools.partial(_lost, mark, eqn),
        )  # fmt: skip

    def _items(self, mark: Mark, moving: Sequence[Leaf]) -> tuple[PyTreeDef, list[Operand]]:
        skeleton = _skeleton(mark.tree, mark.shape, moving)
        leaves, tree = jax.tree.flatten(skeleton, is_leaf=is_typed)
        return tree, [self.read(x) for x in leaves]

    def _slot(self, slot: Slot, consts: Sequence[JaxVariable]) -> SlotView:
        """Return the programs of a function, and the operands for its closed-over values."""
        programs, groups = [], []
        for program, places in slot.traced:
            outer = dict(zip(program.closed.jaxpr.constvars, places, strict=True))
            move = lambda v, outer=outer: v if isinstance(v, Static) else consts[outer[v]]
            programs.append(program)
            groups.append([self.read(jax.tree.map(move, c.skeleton)) for c in program.consts])
        return SlotView(slot.function, programs, groups)

    def _add_primitive(self, eqn: JaxEquation) -> None:
        inputs = [self.read(v) for v in eqn.invars]
        outputs = [self.define(v) for v in eqn.outvars]
        name, params = eqn.primitive.name, dict(eqn.params)
        programs = {k: self._program_of(j) for k, j in _jaxprs.inner_jaxprs(eqn)}
        for key, value in list(params.items()):
            parts = value if isinstance(value, tuple | list) else (value,)
            if any(hasattr(part, "eqns") for part in parts):
                del params[key]
        derived, jax_function = name_of(eqn), _compat.jax_function_of(eqn)
        if derived is None and jax_function and _compat.call_name(eqn):
            name, params, programs = jax_function, {}, {}
        elif _compat.call_name(eqn):
            name, params = "jit", {"name": str(_compat.call_name(eqn))}
        elif kind_of(eqn) is Kinds.LINEAR:
            name, params = f"pullback[{params['linear']}]", {}
        self._emit(
            "primitive", name, inputs, outputs, params=params, programs=programs, eqn=eqn,
            program_of=self._program_of,
        )  # fmt: skip


def _fits(mark: Mark, eqn: JaxEquation) -> bool:
    return mark.closed + sum(s is MOVING for s in mark.shape) == len(eqn.invars)


def _skeleton(tree: PyTreeDef, shape: Shape, moving: Sequence[Leaf]) -> PyTree:
    """Return real instances, with variables for operands and `Static` elsewhere."""
    rest = iter(moving)
    return jax.tree.unflatten(tree, [next(rest) if s is MOVING else s for s in shape])


def skeleton(tree: PyTreeDef, shape: Shape, moving: Sequence[Leaf]) -> PyTree:
    """Return the arguments or results of a program as instances of their classes."""
    return _skeleton(tree, shape, moving)


def _key(x: PyTree) -> Key:
    leaves, tree = jax.tree.flatten(x)
    return tree, tuple(id(v) if _jaxprs.is_literal(v) else v for v in leaves)


def _arguments(groups: PyTree) -> Iterator[tuple[Place, PyTree]]:
    """Yield the arguments in `(args, kwargs, ...)`, each with its group and its place or name."""
    for g, group in enumerate(groups):
        for place, part in group.items() if isinstance(group, dict) else enumerate(group):
            yield (g, place), part


def _plain(value: AnyArray, aval: Aval) -> AnyArray | complex:
    """Return a literal as a number of Python if it is weak, otherwise of NumPy."""
    if getattr(aval, "ndim", None) != 0 or np.dtype(aval.dtype).kind not in "biufc":
        return value
    number = np.asarray(value, aval.dtype)
    return number.item() if aval.weak_type else number[()]


def _static(x: Operand) -> object:
    return x.value if isinstance(x, Literal) else None


def _is_operand(part: PyTree, value: object, place: Place, mark: Mark) -> bool:
    """True if a static argument stands for an operand, as the 2 of `q / 2`."""
    is_number = isinstance(value, int | float | complex) and type(value) is not bool
    operands = mark.kind == "operation" or (mark.kind == "higher_order" and place[0] > 0)
    return operands and type(part) is int and is_number and place[0] % 2 == 0


def _parameter(place: Place, mark: Mark) -> str:
    """Return the name of an argument: its keyword, or its name in the signature of the call."""
    group, key = place
    if group or isinstance(key, str):
        return str(key)
    names = _names(mark.target)
    return names[key] if key < len(names) else str(key)


def _names(target: Callable[..., PyTree]) -> Sequence[str]:
    found = getattr(target, "parameters", None) or getattr(target, "names", None)
    if isinstance(found, tuple):
        return found
    try:
        return tuple(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return ()


def _lost(mark: Mark, eqn: JaxEquation) -> tuple[str, ...]:
    """Return the array types that a marked call densified, computed once per mark."""
    if mark.lost is None:
        mark.lost = tuple(sorted(set(_densified(nested_jaxprs(eqn)[0]))))
    return mark.lost


def _densified(jaxpr: Steps) -> Iterator[str]:
    for eqn in jaxpr.eqns:
        mark = mark_of(eqn)
        if mark is not None and mark.kind == "densify":
            yield mark.name
        elif mark is not None:
            yield from _lost(mark, eqn)
        else:
            for _, inner in _jaxprs.inner_jaxprs(eqn):
                yield from _densified(inner)
