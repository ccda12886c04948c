"""An operation: one name, many types, one rule.

`matmul` of two diagonal matrices and `matmul` of dense ones are the same idea with different
arithmetic. An `Operation` holds the generic implementation, the specialised ones and the rules. It
dispatches on the classes of its arguments, compiles once per choice, and is differentiable.

    @tj.operation
    def quadratic(a, x):
        return x @ (a @ x)

    @quadratic.natural_rule
    def quadratic_rule(a, x):
        y = quadratic.primal(a, x)
        def quadratic_pullback(y_bar):
            return tj.Outer(y_bar * x, x), y_bar * (a @ x + a.mT @ x)
        return y, quadratic_pullback

Sharp edges. A rule cannot see arrays that a function argument closes over, so JAX differentiates
the implementation in these calls. An argument that is neither an array nor a pytree of arrays is
static. It must be hashable, and every new value compiles again.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Hashable, Iterator, Sequence
from types import MethodType
from typing import Any, Literal, TypeAlias, TypeVar, overload

import jax
from jaxtyping import PyTree

from tanjax import _marks, arrays
from tanjax._errors import RegistrationError
from tanjax._marks import ACTIVE, Cache, capturing
from tanjax._typing import Function, Statics
from tanjax.quantities import UnitFunction, is_quantity, is_traced, stored_of

from . import _batched, _lowering
from ._closures import as_partial, closes_over_tracers, held_by, holds_functions
from ._declaration import Hidden, Implementation, Rule
from ._natural import Convention, Kind
from ._packs import load_packs
from ._resolution import Resolution, resolve
from ._table import (
    Table,
    bare_or_with,
    check_classes,
    check_static,
    current_origin,
    dispatch_class,
    hashable,
    is_static_value,
)

CoreNdims: TypeAlias = tuple[int, ...] | Literal["elementwise"] | None
Units: TypeAlias = str | Function | None  # a unit signature, or a function that handles units
F = TypeVar("F", bound=Callable[..., object])
_OPERATIONS: list[Operation] = []
_INSPECTORS: list[Callable[[Operation, Sequence[PyTree]], None]] = []


class Operation:
    """A function of arrays of any type, made by `tj.operation`."""

    def __init__(
        self,
        function: Function,
        *,
        static: Statics,
        dense: bool,
        generic: bool,
        units: Units = None,
        check: Callable[..., None] | None = None,
        core_ndims: CoreNdims = None,
        batched: Function | None = None,
        jit: bool = True,
    ) -> None:
        functools.update_wrapper(self, function)
        self.name = function.__name__
        self.origin = current_origin(function)
        self.generic = function if generic else None
        self.dense = dense
        self.units = units
        self.check = check
        self.elementwise = core_ndims == "elementwise"
        self.core_ndims = (2,) if core_ndims == "elementwise" else core_ndims
        self.batched = batched
        self.jit = jit
        self.implementations: Table[Implementation] = Table(f"{self.name}: an implementation")
        self.rules: Table[Rule] = Table(f"{self.name}: a natural rule")
        self.pushforwards: Table[Rule] = Table(f"{self.name}: a natural pushforward")
        self.opt_outs: Table[bool] = Table(f"{self.name}: an opt-out")
        self._signature = inspect.signature(function)
        self._parse(static)
        self._compiled: dict[Hashable, Function] = {}
        self.marks: Cache = {}  # of captured calls
        self._for_keywords: dict[str, Function] = {}
        _OPERATIONS.append(self)

    def _parse(self, static: Statics) -> None:
        self._allowed = static if isinstance(static, dict) else {}
        parameters = self._signature.parameters.values()
        self.variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self.static = frozenset(static) | {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        unknown = self.static - set(self._signature.parameters)
        if unknown or any(p.kind is p.VAR_KEYWORD for p in parameters):
            raise RegistrationError(
                f"{self.name}: static arguments must be named parameters, got {sorted(unknown)}."
            )
        self.parameters = tuple(p.name for p in parameters if p.name not in self.static)
        self._direct = 0  # how many leading positional arguments are arrays
        for p in parameters:
            if p.name in self.static or p.kind is p.KEYWORD_ONLY:
                break
            self._direct += 1
        defaults = {p.name: p.default for p in parameters if p.name in self.static}
        complete = not any(d is inspect.Parameter.empty for d in defaults.values())
        self._defaults = {k: hashable(d) for k, d in defaults.items()} if complete else None

    def names_for(self, count: int) -> list[str]:
        """Return argument names for messages."""
        if not self.variadic:
            return list(self.parameters[:count])
        return [f"{self.parameters[-1]}[{i}]" for i in range(count)]

    # -- calling ---------------------------------------------------------------------------

    def __call__(self, /, *args: PyTree, **kwargs: PyTree) -> PyTree:
        if kwargs or self._defaults is None or not (self.variadic or len(args) == self._direct):
            for name, other in self._for_keywords.items():
                if kwargs.get(name) is not None:
                    return other(*args, **kwargs)
                kwargs.pop(name, None)
            args, kwargs = self._bind(args, kwargs)
        else:  # 5 us less than binding; a rule still gets the defaults of static arguments
            kwargs = self._defaults
        if ACTIVE[0] and capturing():
            return self._marked_call([*map(arrays.held, args)], kwargs)
        key = (arrays.densify_mode(), tuple(kwargs.items()), *map(type, args))
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = self._compile(args, kwargs)
        return compiled(*args)

    def _marked_call(self, args: Sequence[PyTree], statics: dict[str, PyTree]) -> PyTree:
        """Return a call of an operation as one equation of the program under capture.

        A call whose static arguments, body or rule hold tracers is traced through: no equation
        would show what it depends on.
        """
        fixed = [i for i, a in enumerate(args) if is_static_value(a)]
        if closes_over_tracers(*(args[i] for i in fixed), *self.resolve(args, statics).functions()):
            return self.primal(*args, **statics)
        if self.strips(args) and not is_traced(args):
            return self.body(args, statics)[0](*args)

        def run(*args: PyTree, **statics: PyTree) -> PyTree:
            body, _ = self.body(args, statics)
            return body(*args)

        shown = [_marks.Static(a) if i in fixed else a for i, a in enumerate(args)]
        named = {k: _marks.Static(v) for k, v in statics.items()}
        # The literals beside a quantity decide the unit: `q + 0` fits, `q ** 2` is squared.
        moves = _marks.is_operand if self.strips(args) else _marks.is_number
        mode: Hashable = arrays.densify_mode(), _lowering.use_linear()
        return _marks.marked(
            "operation", self.name, self, run, shown, named, self.marks, mode, moves
        )

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind as a method: the instance, a pytree or static, is the first argument."""
        return self if instance is None else MethodType(self, instance)

    def _bind(
        self, args: Sequence[PyTree], kwargs: dict[str, PyTree]
    ) -> tuple[tuple[PyTree, ...], dict[str, PyTree]]:
        """Sort arguments into arrays (positional) and static ones (by name)."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}{self._signature}: {error}.") from None
        bound.apply_defaults()
        statics = {k: hashable(v) for k, v in bound.arguments.items() if k in self.static}
        for name, value in statics.items():
            self._allowed.get(name, check_static)(self.name, name, value)
        if self.variadic:
            return tuple(bound.arguments[self.parameters[-1]]), statics
        return tuple(bound.arguments[k] for k in self.parameters), statics

    def resolve(self, args: Sequence[PyTree], statics: dict[str, PyTree]) -> Resolution:
        """Dispatch a call (see `_resolution`); with a unit signature, on the stripped numbers."""
        load_packs()
        if self.strips(args):
            args = list(map(stored_of, args))
        return resolve(self, tuple(map(dispatch_class, args)), statics)

    def _compile(self, args: Sequence[PyTree], statics: dict[str, PyTree]) -> Function:
        if any(map(arrays.holds_array, args)):
            return lambda *args: self(*map(arrays.held, args), **statics)
        trees = [i for i, a in enumerate(args) if holds_functions(a)]
        if trees:
            whole = lambda args: [as_partial(a) if i in trees else a for i, a in enumerate(args)]
            return lambda *args: self(*whole(args), **statics)
        body, fixed = self.body(args, statics)
        if self.strips(args):
            return body
        run = self._jitted(body, fixed, args, statics) if self.jit else body
        if not _INSPECTORS:
            return run

        def inspected(*args: PyTree) -> PyTree:
            for look in _INSPECTORS:
                look(self, args)
            return run(*args)

        return inspected

    def _jitted(
        self,
        body: Function,
        fixed: tuple[int, ...],
        args: Sequence[PyTree],
        statics: dict[str, PyTree],
    ) -> Function:
        """The body compiled, where it does not reach values that JAX is tracing beside its args.

        `jax.jit` would not see that a cell or an attribute holds another one than when it compiled.
        """
        compiled = jax.jit(body, inline=True, static_argnums=fixed)
        functions = [*self.resolve(args, statics).functions(), *statics.values()]
        holders = [f for f in functions if any(x is not f for x in held_by(f))]
        if not (holders or fixed):
            return compiled

        def run(*args: PyTree) -> PyTree:
            given = [args[i] for i in fixed]
            return (body if closes_over_tracers(*holders, *given) else compiled)(*args)

        return run

    def body(
        self, args: Sequence[PyTree], statics: dict[str, PyTree]
    ) -> tuple[Function, tuple[int, ...]]:
        """Return the function for arguments of these types, and the places of static ones."""
        if self.strips(args):
            return self._on_quantities(functools.partial(self, **statics)), ()
        fixed = tuple(i for i, a in enumerate(args) if is_static_value(a))
        body = functools.partial(self.resolve(args, statics).traced, fixed)
        body.__name__ = self.name  # type: ignore[attr-defined]  # for profiles and jaxprs
        return body, fixed

    def strips(self, args: Sequence[PyTree]) -> bool:
        """True if an argument is a quantity and the operation has a unit signature."""
        return self.units is not None and any(map(is_quantity, args))

    def _on_quantities(self, raw: Function) -> Function:
        """Make a function of plain arrays accept quantities, by the unit signature."""
        if callable(self.units):
            return functools.partial(self.units, functools.update_wrapper(raw, self, updated=()))
        return UnitFunction(self.name, raw, str(self.units), names=self.parameters)

    def _forget(self) -> None:
        self._compiled.clear()
        self.marks.clear()

    def primal(self, /, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Return the implementation's result for these arguments, without rule or compilation."""
        args, statics = self._bind(args, kwargs)
        if self.strips(args):
            return self._on_quantities(functools.partial(self.primal, **statics))(*args)
        return _batched.call(self, self.resolve(args, statics).primal, args, statics)

    # -- registering -----------------------------------------------------------------------

    @overload
    def implementation(
        self, *types: type, differentiate: bool = ..., override: bool = ...
    ) -> Callable[[F], F]: ...
    @overload
    def implementation(self, function: F, /) -> F: ...
    def implementation(
        self, *types: PyTree, differentiate: bool = False, override: bool = False
    ) -> Function:
        """Register a specialised primal for these types of the leading arguments; bare, for any.

        **Arguments:** `types`: array types, `tj.Dense`, `tj.AbstractArray` (any of ours), or
        `object`. `differentiate`: differentiate this implementation instead of using a rule
        that is not more specific.
        """

        def register(function: Function, signature: tuple[type, ...]) -> Function:
            entry = Implementation(function, differentiate)
            self._add(self.implementations, signature, entry, function, override)
            return function

        return bare_or_with(types, register)

    @overload
    def natural_rule(
        self,
        *types: type,
        cotangents: tuple[Kind, ...] | None = ...,
        output: Kind = ...,
        convention: str = ...,
        hidden: Hidden = ...,
        override: bool = ...,
    ) -> Callable[[F], F]: ...
    @overload
    def natural_rule(self, function: F, /) -> F: ...
    def natural_rule(
        self,
        *types: PyTree,
        cotangents: tuple[Kind, ...] | None = None,
        output: Kind = "natural",
        convention: str = "jax",
        hidden: Hidden = "ad",
        override: bool = False,
    ) -> Function:
        """Register a rule `rule(*args) -> (out, natural_pullback)`; bare, or with types.

        **Arguments:** `cotangents`, `output`: `"natural"` (default) or `"structural"`, per argument
        and for the output. `convention`: `"jax"` (no conjugation) or `"chainrules"`. `hidden`: how
        to handle output cotangents that no natural cotangent expresses exactly. They occur for an
        over-parametrised type, or one without a closed form of `pullback_of_restructure`. `"ad"`
        (default) uses AD of the implementation for such outputs. `"hybrid"` uses the rule for the
        visible part and AD for the rest. `"natural"` uses the rule alone: exact only if no code
        reads the fields of the output, and as exact as the map.
        """
        return self._rule(self.rules, types, cotangents, output, convention, hidden, override)

    @overload
    def natural_pushforward(
        self, *types: type, hidden: Hidden = ..., override: bool = ...
    ) -> Callable[[F], F]: ...
    @overload
    def natural_pushforward(self, function: F, /) -> F: ...
    def natural_pushforward(
        self, *types: PyTree, hidden: Hidden = "ad", override: bool = False
    ) -> Function:
        """Register `rule(*args) -> (out, natural_pushforward)` for forward mode.

        If a natural rule exists, reverse mode uses it. Otherwise the pushforward serves both modes.
        """
        return self._rule(self.pushforwards, types, None, "natural", "jax", hidden, override)

    def for_keyword(self, name: str, function: Function) -> None:
        """Dispatch calls with a keyword that is not `None` to a function of the same arguments.

        Calls without the keyword cost no more: implementations and rules never receive it. The
        keywords of the function appear in the signature.
        """
        self._for_keywords[name] = function
        have = self.__dict__.get("__signature__", self._signature)
        more = inspect.signature(function).parameters.values()
        new = [p for p in more if p.name not in have.parameters]
        absent = [p.replace(default=None) if p.name == name else p for p in new]
        self.__signature__ = have.replace(parameters=[*have.parameters.values(), *absent])

    def _rule(
        self,
        table: Table[Rule],
        types: tuple[PyTree, ...],
        cotangents: tuple[Kind, ...] | None,
        output: Kind,
        convention: str,
        hidden: Hidden,
        override: bool,
    ) -> Function:
        if convention not in ("jax", "chainrules") or hidden not in ("ad", "hybrid", "natural"):
            raise RegistrationError(
                f"{self.name}: unknown convention {convention!r} or hidden {hidden!r}."
            )

        def register(function: Function, signature: tuple[type, ...]) -> Function:
            how = Convention(function.__name__, cotangents, output, convention == "chainrules")
            self._add(table, signature, Rule(function, how, hidden), function, override)
            return function

        return bare_or_with(types, register)

    def opt_out(self, *types: type) -> None:
        """Differentiate the implementation for these types, and use no rule."""
        self._add(self.opt_outs, types, True, self.__wrapped__, False)  # type: ignore[attr-defined]

    def _add(
        self,
        table: Table[Any],
        types: tuple[type, ...],
        entry: Any,
        function: Function,
        override: bool,
    ) -> None:
        check_classes(self.name, types)
        if not self.variadic and len(types) > len(self.parameters):
            raise RegistrationError(
                f"{self.name} has {len(self.parameters)} array argument(s), got {len(types)} types."
            )
        table.add(types, entry, current_origin(function), override=override)
        self._forget()

    def __repr__(self) -> str:
        return f"<tanjax operation {self.name}{self._signature}>"


@contextlib.contextmanager
def inspecting(look: Callable[[Operation, Sequence[PyTree]], None]) -> Iterator[None]:
    """Call `look(operation, args)` before each call of an operation on numbers, for debugging.

    Entering and leaving the context clear the compiled operations, so it costs nothing outside.
    """
    _INSPECTORS.append(look)
    try:
        _forget_all()
        yield
    finally:
        _INSPECTORS.remove(look)
        _forget_all()


@contextlib.contextmanager
def lowering(name: str) -> Iterator[None]:
    """Choose the lowering of rules inside the context: `"linear"` (default) or `"public"`.

    For tests and comparisons. Entering and leaving the context clear the compiled operations.
    """
    old = _lowering.choose(name)
    try:
        _forget_all()
        yield
    finally:
        _lowering.choose(old)
        _forget_all()


def _forget_all() -> None:
    for op in _OPERATIONS:
        op._forget()


@overload
def operation(function: Function, /) -> Operation: ...
@overload
def operation(
    *,
    static: Statics = ...,
    dense: bool = ...,
    generic: bool = ...,
    units: Units = ...,
    check: Callable[..., None] | None = ...,
    core_ndims: CoreNdims = ...,
    batched: Function | None = ...,
    jit: bool = ...,
) -> Callable[[Function], Operation]: ...
def operation(
    function: Function | None = None,
    /,
    *,
    static: Statics = (),
    dense: bool = False,
    generic: bool = True,
    units: Units = None,
    check: Callable[..., None] | None = None,
    core_ndims: CoreNdims = None,
    batched: Function | None = None,
    jit: bool = True,
) -> Operation | Callable[[Function], Operation]:
    """Make a function of arrays an operation, with the function as generic implementation.

    It is compiled once for arguments of one kind, as under `jax.jit`: it reads globals, closures
    and attributes in that call alone. If a closure or an attribute holds a traced value, the call
    is not compiled. `jit=False` runs the function each time. The instance of a method is its first
    argument, a pytree or static.

    **Arguments:** `static`: names of parameters that are not arrays (keyword-only parameters always
    are static); in a dict each has a `check(operation, name, value)`. `dense`: the generic
    implementation takes dense arrays only. Structured arguments without their own implementation
    are densified; `tj.densify` decides whether that warns. `generic=False`: the function only
    declares name and signature. `units`: the unit signature, such as `"a: u, b: v -> v/u"`; the
    operation then strips quantities and labels its results. Without one, implementations and rules
    see the quantities themselves. `check(name, *args)`: raises `tj.ShapeError` if shapes do not
    fit. It runs before every implementation and rule. If all arguments are dense, it gets shapes
    without their batch. `core_ndims`: the most dimensions that each array argument has without a
    batch. Axes of a dense argument before these are a batch, as leading axes of structured ones
    always are, and the operation is mapped over it. `"elementwise"`: the arguments broadcast.
    `batched(op, *args)` maps.
    """
    make = functools.partial(
        Operation, static=static, dense=dense, generic=generic, units=units, check=check,
        core_ndims=core_ndims, batched=batched, jit=jit,
    )  # fmt: skip
    return make if function is None else make(function)


def operations() -> tuple[Operation, ...]:
    """Return every operation, in order of definition."""
    return tuple(_OPERATIONS)
