"""Functions that write to their arguments, with derivatives and their own rules.

A function that mutates has no derivative as it is: its effect is not in its result. Its
*transition* has one. It maps the arguments before to the state after, and the output. That is an
ordinary operation, with rules, natural cotangents, quantities, dispatch by array types and every
transformation of JAX. The reverse pass has no mutation to undo.

    @tj.inplace(mutates="x")
    def square(x):
        x[...] = x[...] ** 2
        return jnp.sum(x[...])

    r = jax.new_ref(jnp.array([1.0, 2.0]))
    square(r)                                   # 5.0, and r holds [1, 4]
    square.transition(jnp.array([1.0, 2.0]))    # Transition(state=([1, 4],), out=5.0)

    @square.natural_rule
    def square_rule(x):
        def square_pullback(x_bar, out_bar):    # of the state after, and of the output
            return 2 * x * (x_bar + out_bar)    # of the argument before
        return square.primal(x), square_pullback

Sharp edges. The body runs while JAX traces it: its effects besides writes to Refs happen then.
After a reverse pass a caller's Ref holds the final state. An argument with Refs that `mutates` does
not name is read before the call, and the body gets arrays. A batch of structured arrays goes to the
body whole, and is differentiated through it: rules are for one array. Outside of `jit` a call on
Refs takes some twenty times as long as one of a jitted function of small arrays.
"""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MethodType
from typing import Any, overload

import jax
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax import _compat, arrays
from tanjax._errors import RegistrationError, message
from tanjax._typing import Function
from tanjax.registry import Operation, operation

from ._aliases import check_refs
from ._discharge import call_discharged
from ._explained import explained, mapped
from ._jax_refs import is_ref, is_tracing, is_view
from ._refs import freeze, new_ref
from ._rule_forms import from_inplace_rule, from_state_rule
from ._transition import Transition, marked, memories, read, with_memory


class InPlace:
    """A function that mutates arguments, with its transition; made by `tj.inplace`.

    **Attributes:** `transition`: the operation `(arguments before) -> Transition(state, out)`.
    """

    transition: Operation

    def __init__(
        self, function: Function, mutates: Sequence[str], static: Sequence[str], jit: bool
    ) -> None:
        functools.update_wrapper(self, function)
        self.name = function.__name__
        self._signature = inspect.signature(function)
        self.mutates = tuple(mutates)
        self._check_names(static)
        self.transition = operation(static=static, batched=_whole, jit=jit)(self._pure(function))
        self._compiled: dict[Hashable, Function] = {}

    def _check_names(self, static: Sequence[str]) -> None:
        parameters = self._signature.parameters.values()
        fixed = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} | set(static)
        known = [p.name for p in parameters if p.name not in fixed]
        wrong = [n for n in self.mutates if n not in known]
        if wrong:
            raise RegistrationError(
                message(
                    f"{self.name}: `mutates` must name arguments of the function.",
                    f"got: {self.mutates}; wrong: {wrong}",
                    f"arguments: {known}",
                    hint="name arguments that are neither static nor keyword-only.",
                )
            )

    # -- calling -------------------------------------------------------------------------------

    def __call__(self, /, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Run on Refs: mutate them, and return what the function returns.

        **Arguments:** Refs, or pytrees of Refs, for the mutated arguments; arrays or Refs for the
        others.
        **Returns:** the output; a mutated Ref in it is the caller's object itself.

        **Raises:** `MutationError` for an array where a Ref belongs, `AliasError` for one memory in
        two places, `TypeError` (with a note) for a write to an argument that is not in `mutates`.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}{self._signature}: {error}.") from None
        bound.apply_defaults()
        static = self.transition.static
        statics = {k: v for k, v in bound.arguments.items() if k in static}
        given = {k: v for k, v in bound.arguments.items() if k not in static}
        check_refs(self.name, given, self.mutates)
        leaves, tree = jax.tree.flatten(given, is_leaf=is_view)
        if is_tracing() or not (self.transition.jit and _can_be_arguments(leaves)):
            with mapped(self.name):
                return with_memory(self._step(given, statics), given)
        return with_memory(self._run_compiled(leaves, tree, statics), given)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind as a method: the instance, a pytree or static, is the first argument."""
        return self if instance is None else MethodType(self, instance)

    def _step(self, given: Mapping[str, PyTree], statics: Mapping[str, PyTree]) -> PyTree:
        """Read the Refs, call the transition, write the Refs."""
        before = {name: read(tree) for name, tree in given.items()}
        # By name: a static argument may stand between others.
        after = self.transition(**before, **statics)
        for name, state in zip(self.mutates, after.state, strict=True):
            _write(given[name], state)
        return after.out

    def _run_compiled(
        self, leaves: list[PyTree], tree: PyTreeDef, statics: dict[str, PyTree]
    ) -> PyTree:
        """Run `_step` as one program, whose buffers are those of the Refs."""
        fixed = {
            i: x
            for i, x in enumerate(leaves)
            if not (
                hasattr(x, "dtype")
                or (isinstance(x, int | float | complex) and type(x) is not bool)
            )
        }
        key = arrays.densify_mode(), tree, tuple(fixed.items()), tuple(statics.items())
        compiled = self._compiled.get(key)
        if compiled is None:

            def run(*moving: PyTree) -> PyTree:
                rest = iter(moving)
                full = [fixed[i] if i in fixed else next(rest) for i in range(len(leaves))]
                return self._step(jax.tree.unflatten(tree, full), statics)

            run.__name__ = self.name
            compiled = self._compiled[key] = jax.jit(run)
        return compiled(*(x for i, x in enumerate(leaves) if i not in fixed))

    def primal(self, /, *before: PyTree, **kwargs: PyTree) -> Transition:
        """Run the transition without rule or compilation, for rules."""
        out: Transition = self.transition.primal(*before, **kwargs)
        return out

    def _pure(self, body: Function) -> Function:
        """Return the transition of a body that mutates Refs: a function of arrays."""

        def on_fresh_refs(**given: PyTree) -> Transition:
            refs = {n: new_ref(given[n]) for n in self.mutates}
            given = {**given, **refs}
            with explained(self.name, refs):
                bound = inspect.BoundArguments(self._signature, OrderedDict(given))
                more = {n: x for n, x in given.items() if n not in self._signature.parameters}
                out = body(*bound.args, **bound.kwargs, **more)
            out = marked(self.name, out, refs)
            return Transition(tuple(freeze(refs[n]) for n in self.mutates), out)

        on_fresh_refs.__wrapped__ = body  # type: ignore[attr-defined]

        # The body is annotated to return the output alone.
        @functools.wraps(body, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
        def transition(*before: PyTree, **statics: PyTree) -> PyTree:
            given = {**dict(zip(self.transition.parameters, before, strict=True)), **statics}
            leaves, tree = jax.tree.flatten(((), given))
            return call_discharged(on_fresh_refs, self.name, leaves, tree, is_in_place=True)[0]

        named = sorted(
            map(_named, self._signature.parameters.values()), key=lambda p: p.kind is p.KEYWORD_ONLY
        )
        after = self._signature.replace(parameters=named, return_annotation=Transition)
        transition.__signature__ = after  # type: ignore[attr-defined]
        return transition

    # -- registering ---------------------------------------------------------------------------

    @overload
    def natural_rule(self, rule: Function, /) -> Function: ...
    @overload
    def natural_rule(self, *types: type, **options: PyTree) -> Callable[[Function], Function]: ...
    def natural_rule(self, *types: type | Function, **options: PyTree) -> Function:
        """Register a rule of the transition; bare, or for these array types.

        **Arguments:** `rule(*before) -> (transition, pullback)`. `pullback(*state_bars, out_bar)`
        gets the natural cotangents of the state after, one for each name in `mutates`, and of the
        output. It returns one natural cotangent for each argument before. `options` as of
        `Operation.natural_rule`.
        """
        return self._register(types, options, from_state_rule)

    def_pullback = natural_rule

    @overload
    def inplace_rule(self, rule: Function, /) -> Function: ...
    @overload
    def inplace_rule(self, *types: type, **options: PyTree) -> Callable[[Function], Function]: ...
    def inplace_rule(self, *types: type | Function, **options: PyTree) -> Function:
        """Register a rule whose pullback mutates cotangents, as Mooncake's do.

        **Arguments:** `rule(*before) -> (transition, pullback)`.
        `pullback(*state_bar_refs, out_bar)` gets Refs with the cotangents of the state after, and
        changes them to those of the arguments before. It returns the cotangents of the other
        arguments: one, a tuple of them, or `None` without any.
        """
        others = [n not in self.mutates for n in self.transition.parameters]
        order = [self.mutates.index(n) for n in self.transition.parameters if n in self.mutates]
        return self._register(
            types, options, functools.partial(from_inplace_rule, others=others, order=order)
        )

    def _register(
        self, types: tuple[Any, ...], options: dict[str, PyTree], form: Function
    ) -> Function:
        def register(rule: Function, *types: type) -> Function:
            self.transition.natural_rule(*types, **options)(form(rule))
            return rule

        if len(types) == 1 and callable(types[0]) and not isinstance(types[0], type):
            return register(types[0])
        return lambda rule: register(rule, *types)

    def implementation(self, *types: type, **options: bool) -> Callable[[Function], Function]:
        """Register a body for these array types of the leading arguments; it mutates Refs, too."""

        def register(body: Function) -> Function:
            self.transition.implementation(*types, **options)(self._pure(body))
            self._compiled.clear()
            return body

        return register

    def __repr__(self) -> str:
        return f"<tanjax in-place function {self.name}{self._signature}, mutates {self.mutates}>"


def _named(p: inspect.Parameter) -> inspect.Parameter:
    """Return the parameter of a transition: a tuple for `*args`, a dict for `**kwargs`."""
    defaults: dict[Any, PyTree] = {p.VAR_POSITIONAL: (), p.VAR_KEYWORD: {}}
    kind = p.kind if p.kind is p.KEYWORD_ONLY else p.POSITIONAL_OR_KEYWORD
    default = defaults.get(p.kind, p.default)
    return inspect.Parameter(p.name, kind, default=default, annotation=p.annotation)


def _whole(transition: Operation, *args: PyTree, **statics: PyTree) -> PyTree:
    """Run the body on a whole batch; the body decides how to treat it."""
    return transition.resolve(args, statics).primal(*args)


def _can_be_arguments(leaves: list[PyTree]) -> bool:
    """True if `jax.jit` accepts the leaves of a call: concrete Refs, each only once."""
    refs = [id(x) for x in leaves if is_ref(x)]
    traced = any(isinstance(x, _compat.Tracer) or is_view(x) for x in leaves)
    return not traced and len(set(refs)) == len(refs)


def _write(refs: PyTree, state: PyTree) -> None:
    """Write arrays to Refs of their types."""
    values = jax.tree.leaves(state, is_leaf=arrays.is_structured)
    for place, value in zip(memories(refs), values, strict=True):
        if arrays.is_structured(place):  # with Refs in its fields
            _write(jax.tree.leaves(place), jax.tree.leaves(value))
        else:
            place[...] = value


@overload
def inplace(
    function: Function,
    /,
    *,
    mutates: str | Sequence[str],
    static: Sequence[str] = ...,
    jit: bool = ...,
) -> InPlace: ...
@overload
def inplace(
    *, mutates: str | Sequence[str], static: Sequence[str] = ..., jit: bool = ...
) -> Callable[[Function], InPlace]: ...
def inplace(
    function: Function | None = None,
    /,
    *,
    mutates: str | Sequence[str],
    static: str | Sequence[str] = (),
    jit: bool = True,
) -> InPlace | Callable[[Function], InPlace]:
    """Make an in-place function of a function that writes to some of its arguments.

    It is compiled once for arguments of one kind, as under `jax.jit`: it reads globals, closures
    and attributes in that call alone. If a closure or an attribute holds a traced value, the call
    is not compiled. `jit=False` runs the function each time. The instance of a method is its first
    argument, a pytree or static.

    If the compiled program fails at run time, the Refs lose their values; with `jit=False` they
    keep them.

    **Arguments:** `mutates`: the name, or the names, of the arguments that the function writes to.
    `*args` and `**kwargs` are a tuple and a dict, and one argument each of transition and rules. In
    the body these arguments are the results of `tj.new_ref`: a `jax.Ref` for an array, a
    `tj.refs.StructuredRef` for a structured array or quantity, and pytrees of these. `static`:
    names of arguments that are not arrays (keyword-only ones are static anyway).

    **Returns:** an `InPlace`: call it on Refs. `.transition` is its pure form; `.natural_rule`,
    `.inplace_rule` and `.implementation` register rules and bodies.

    **Raises:** `RegistrationError` for a name that is not an argument.

    **References:** the model is that of Mooncake.jl (formerly Tapir.jl) for mutable data.
    """
    names = (mutates,) if isinstance(mutates, str) else tuple(mutates)
    fixed = (static,) if isinstance(static, str) else tuple(static)
    make = functools.partial(InPlace, mutates=names, static=fixed, jit=jit)
    return make if function is None else make(function)
