"""Run a captured program by its typed equations, some of them with another meaning.

`Walk` is the part of `tj.Interpreter` that needs no capture. A program uses it for a replay over a
mesh. Inner programs are walked too, except for bodies whose derivatives or layouts are their own.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence

import jax
from jax.tree_util import KeyEntry
from jaxtyping import PyTree

from tanjax import _compat, _jaxprs, _marks
from tanjax._errors import CaptureError, CaptureWarning, message, outside
from tanjax._jaxpr_types import JaxVariable
from tanjax._typing import AnyArray, Function

from ._equations import Body, Equation, Literal, Operand, SlotView, Variable
from ._loops import walk_loop
from ._notes import explain
from ._tracing import is_argument
from ._types import is_typed


class Walk:
    """An evaluation of captured programs, equation by equation; `Interpreter` documents it."""

    _handlers: dict[object, Function] = {}  # noqa: RUF012  (one per class)

    def __init_subclass__(cls, **options: PyTree) -> None:
        super().__init_subclass__(**options)
        cls._handlers = {}
        for base in reversed(cls.__mro__[:-1]):
            for name, found in vars(base).items():
                for key in getattr(found, "handled", ()):
                    cls._handlers[key] = getattr(cls, name)

    def run(
        self,
        program: Body,
        args: Sequence[PyTree],
        kwargs: dict[str, PyTree] | None = None,
        consts: Sequence[PyTree] | None = None,
    ) -> PyTree:
        """Evaluate a program; override it to keep a state per (inner) program.

        **Arguments:** `consts`: values of `program.consts`; by default those of its capture. An
        inner program has no default.
        """
        env: dict[Variable, PyTree] = {}
        given = program.const_values() if consts is None else consts
        env.update(zip(program.consts, given, strict=True))
        env.update(zip(program.inputs, program.input_values(args, kwargs or {}), strict=True))
        for equation in program:
            self._step(equation, env)
        return program.result_of([_value(x, env) for x in program.outputs])

    def _step(self, equation: Equation, env: dict[Variable, PyTree]) -> None:
        with _compat.placed(equation.eqn):
            try:
                args, kwargs = self._arguments(equation, env)
                handler = self._handler(equation)
                if handler is None:
                    out = self.default(equation, *args, **kwargs)
                else:
                    out = handler(self, equation, *args, **kwargs)
            except Exception as error:
                explain(error, equation.name, "a captured program", equation.source)
                raise
        _bind(equation, out, env)

    def default(self, equation: Equation, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Return the result of an equation without a handler; its programs are walked by `run`."""
        kind, eqn = equation.kind, equation.eqn
        if kind == "construct":
            return jax.tree.unflatten(equation.call[0], args)
        if kind == "field":
            return functools.reduce(functools.partial(_field, equation), equation.call, args[0])
        if kind == "higher_order":
            return self._higher_order(equation, args, kwargs)
        if kind != "primitive":
            return equation.target(*args, **kwargs)
        if varies(args, eqn.invars):
            return self._on_devices(equation, args)
        if any(map(self._concerns, equation.programs.values())):
            found = walk_loop(equation, self.run, args)
            if found is not None:
                return found
            self._warn_if_skipped(equation)
        return _compat.bind_again(eqn, args)

    def _on_devices(self, equation: Equation, args: Sequence[AnyArray]) -> list[AnyArray]:
        """Run an equation of JAX on values that vary over devices, inside of `jax.shard_map`."""
        eqn, args = equation.eqn, _compat.align(list(args))
        programs = {k: equation.program_of(j) for k, j in _jaxprs.inner_jaxprs(eqn)}
        if not programs:
            return _compat.bind(eqn, args)
        inner = Equation("primitive", equation.name, (), (), programs=programs, eqn=eqn)
        found = walk_loop(inner, self.run, args)
        if found is None:
            raise CaptureError(
                message(
                    f"{equation.name}: a program that was captured outside of `jax.shard_map` "
                    "cannot replay it inside.",
                    *([f"at: {equation.source}"] if equation.source else []),
                    "why: it was traced for values that are the same on all devices, and its "
                    "derivative would not be summed over them.",
                    hint="capture inside of the function that `jax.shard_map` maps.",
                )
            )
        return found

    def _higher_order(
        self, equation: Equation, args: Sequence[PyTree], kwargs: dict[str, PyTree]
    ) -> PyTree:
        f, start = equation.target, 0
        for count, names in _calls(equation):
            named = {k: kwargs[k] for k in names}
            f = f(*args[start : start + count], **named)
            start += count
        return f

    # -- values ----------------------------------------------------------------------------

    def _arguments(
        self, equation: Equation, env: dict[Variable, PyTree]
    ) -> tuple[Sequence[PyTree], dict[str, PyTree]]:
        if equation.call is None or equation.kind in ("construct", "field"):
            return [_value(x, env) for x in equation.inputs], {}
        tree, items = equation.call
        values = [_value(x, env) for x in items]
        for i, slot in equation.slots.items():
            values[i] = self._walked(
                slot, [[_value(v, env) for v in group] for group in slot.consts]
            )
        groups = jax.tree.unflatten(tree, values)
        args = [x for group in groups[::2] for x in group]
        return args, {k: v for group in groups[1::2] for k, v in group.items()}

    def _walked(self, slot: SlotView, consts: Sequence[Sequence[PyTree]]) -> Callable[..., PyTree]:
        """Return a function of a higher-order call that walks its traced program."""

        @functools.wraps(slot.function)
        def walked(*args: PyTree, **kwargs: PyTree) -> PyTree:
            if not slot.programs:
                return slot.function(*args, **kwargs)
            fits = [i for i, p in enumerate(slot.programs) if p.takes(args, kwargs)]
            if not fits:  # a handler returned arrays of other types than the captured ones
                alike = [p.has_parameters(args, kwargs) for p in slot.programs]
                fits = [max(range(len(alike)), key=lambda i: (alike[i], i))]
            return self.run(slot.programs[fits[0]], args, kwargs, consts[fits[0]])

        return walked

    def _handler(self, equation: Equation) -> Function | None:
        handlers = self._handlers
        target: object = equation.target
        if not handlers:
            return None
        if equation.kind == "construct":
            target = equation.outputs[0].kind  # type: ignore[union-attr]
        for key in target.__mro__ if isinstance(target, type) else (target,):
            if key is not None and _hashable(key) and key in handlers:
                return handlers[key]
        return handlers.get(equation.name)

    def _handles_in(self, program: Body) -> bool:
        """True if there is a handler for an equation of a program."""
        inner = lambda e: any(map(self._handles_in, e.programs.values()))
        return any(self._handler(e) or inner(e) for e in program)

    def _warn_if_skipped(self, equation: Equation) -> None:
        """Warn if a handler would apply in the body of an equation, which is not walked."""
        if any(map(self._handles_in, equation.programs.values())):
            at = f"at: {equation.source}"
            warnings.warn(
                message(
                    f"{type(self).__name__}: the body of `{equation.name}` is not walked.",
                    *([at] if equation.source else []),
                    "why: its derivative or layout was written for that body, and fits no other.",
                    hint=f'handle the equation: `@tj.programs.handles("{equation.name}")`.',
                ),
                CaptureWarning,
                stacklevel=outside(),
            )

    def _concerns(self, program: Body) -> bool:
        """True if a handler may apply anywhere in a program; other programs run unchanged."""
        return any(
            e.kind != "primitive"
            or self._handler(e)
            or any(map(self._concerns, e.programs.values()))
            for e in program
        )


def _calls(equation: Equation) -> list[tuple[int, list[str]]]:
    """Return the number of arguments and the names of each call of a curried function."""
    tree, items = equation.call
    groups = jax.tree.unflatten(tree, items)
    return [(len(groups[i]), list(groups[i + 1])) for i in range(0, len(groups), 2)]


def _hashable(x: object) -> bool:
    return getattr(type(x), "__hash__", None) is not None


def _value(x: Operand, env: dict[Variable, PyTree]) -> PyTree:
    return x.value if isinstance(x, Literal) else env[x]


def _field(equation: Equation, value: PyTree, key: KeyEntry) -> PyTree:
    """Take one step of the path to a field."""
    try:
        if hasattr(key, "name"):
            return getattr(value, key.name)
        if hasattr(key, "idx"):
            return value[key.idx]
        if hasattr(key, "key") and isinstance(value, dict):
            return value[key.key]
        return jax.tree.leaves(value, is_leaf=lambda v: v is not value)[key.key]
    except (AttributeError, TypeError, KeyError, IndexError) as error:
        raise CaptureError(
            message(
                f"{equation.name}: there is no such field of a {type(value).__name__}.",
                f"the program has: {equation.inputs[0].type}",
                "why: a handler returned another type, and the program reads a field of it.",
                hint='handle the field as well: `@tj.programs.handles("' + equation.name + '")`.',
            )
        ) from error


def _bind(equation: Equation, out: PyTree, env: dict[Variable, PyTree]) -> None:
    """Store the results of an equation for its users."""
    if equation.kind == "primitive":
        values = list(out) if isinstance(out, list | tuple) else [out]
    elif equation.kind in ("construct", "field"):
        values = [out]
    else:
        values = jax.tree.leaves(out, is_leaf=is_typed)
        wanted = [x for x in equation.out_tree[1] if not isinstance(x, _marks.Static)]
        values = values if len(values) == len(wanted) else _moving(values)
    outputs = [v for v in equation.outputs if v is not None]
    if len(values) != len(outputs):
        raise CaptureError(
            message(
                f"{equation.name}: its handler returned {len(values)} values.",
                f"wanted: {len(outputs)}, {', '.join(v.type for v in outputs)}",
                *([f"at: {equation.source}"] if equation.source else []),
                hint="return what the equation returns: `self.default(equation, *args)` shows it.",
            )
        )
    env.update(zip(outputs, values, strict=True))


def _moving(values: Sequence[PyTree]) -> list[PyTree]:
    return [v for v in values if is_typed(v) or is_argument(v)]


def varies(operands: Sequence[AnyArray], variables: Sequence[JaxVariable]) -> bool:
    """True if operands vary over manual axes of a mesh over which the captured ones did not.

    Then no equation of JAX can be bound unchanged: where a replicated value meets a varying one
    JAX inserts a cast, whose transpose sums over the devices.
    """
    axes = _compat.varying_axes
    return any(axes(x) - axes(v.aval) for x, v in zip(operands, variables, strict=True))
