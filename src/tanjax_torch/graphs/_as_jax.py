"""A module of torch as a pure function: `params, f = tjt.as_jax(module)`.

A module holds its parameters, and its code reads and writes them. JAX needs a function of them. So
the code runs on tensors over the given arrays, and `as_jax` collects the values that it writes:

    params, f = tjt.as_jax(model)
    loss = jax.jit(jax.grad(lambda params, x: f(params, x).sum()))
    out, after = f.with_state(params, x)  # batch norm in training writes its statistics

`params` holds the parameters that require a gradient. `f.state` holds frozen parameters and
buffers; `f` uses it for names that `params` lacks.

Sharp edges. The code of a module runs when JAX traces, so its side effects (prints, counters)
happen then. Keeping a tensor in an attribute raises, since the tensor may be a tracer.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import torch
from jaxtyping import PyTree
from torch.utils import _pytree as pytree

from tanjax._errors import MutationError, NoRuleError, ShapeError, message
from tanjax_torch._typing import Args, Argument, Function, Kwargs, Payload, State
from tanjax_torch.arguments._keys import random_key
from tanjax_torch.tensor._plain import is_tensor
from tanjax_torch.tensor._tensor import Tensor, tensor

from ._exported import Held, exported, split
from ._fx import Interpreter, on_tensors, state_of, written
from ._tracing import without_derivative

Key: TypeAlias = jax.Array | None
# A program on its state, arguments and a key. It returns the result and the changed state.
Run: TypeAlias = Callable[[State, Args, Kwargs, Key], tuple[PyTree, State]]
Program: TypeAlias = torch.export.ExportedProgram | torch.nn.Module | Function
# Attributes by name, with copies of lists and dicts; the same for each module, by its `id`.
Contents: TypeAlias = dict[str, tuple[Any, Any]]
Before: TypeAlias = dict[int, tuple[torch.nn.Module, Contents]]


class PureFunction:
    """A program of torch as a function of arrays: `f(params, *args, key=None, **kwargs)`.

    `params` has an array for each name that `as_jax` gave. It may have names of `state`, too:
    frozen parameters and buffers, which otherwise are constants of the function. Arguments and
    results are arrays, in lists, tuples and dicts. Random operations, such as dropout, need `key`,
    a key of JAX, under a trace of JAX. A program with its own argument `key` receives that one.
    Give it random numbers by `with tjt.random_key(key):`.

    **Raises:** `ShapeError` for names that do not match. `MutationError` if the program writes into
    its parameters, its buffers, its arguments or its attributes.

    **Derivative:** JAX's, in every mode; values that torch's program detaches are constant. A
    `torch.autograd.Function` and a backward hook raise `NoRuleError` where they are differentiated.
    """

    def __init__(self, name: str, held: Held, run: Run, has_key: bool = False) -> None:
        self.__name__ = self.__qualname__ = name
        self._names, self.state = frozenset(held[0]), held[1]
        self._run, self._has_key = run, has_key

    def __call__(
        self, params: Mapping[str, Payload], *args: Argument, **kwargs: Argument
    ) -> PyTree:
        out, changed = self._result(self._all(params), args, kwargs)
        if changed:
            raise written(self.__name__, changed)
        return out

    def with_state(
        self, params: Mapping[str, Payload], *args: Argument, **kwargs: Argument
    ) -> tuple[PyTree, State]:
        """Return the result, and all of `params` and `state` after the writes of the program."""
        given = self._all(params)
        out, changed = self._result(given, args, kwargs)
        return out, {**given, **changed}

    def _all(self, params: Mapping[str, Payload]) -> State:
        given = {**self.state, **params}
        missing, unknown = (
            self._names - params.keys(),
            given.keys() - self._names - self.state.keys(),
        )
        if missing or unknown:
            raise ShapeError(
                message(
                    f"{self.__name__}: the names of `params` are not those of the program.",
                    f"missing: {sorted(missing) or 'none'}",
                    f"unknown: {sorted(unknown) or 'none'}",
                    hint="give all that `as_jax` gave: `{**params, **changed}`.",
                )
            )
        return given

    def _result(self, given: State, args: Args, kwargs: Kwargs) -> tuple[PyTree, State]:
        key = None if self._has_key else kwargs.pop("key", None)
        return self._run(given, args, kwargs, key)

    def __repr__(self) -> str:
        return f"<{self.__name__} as a function of {len(self._names)} arrays and its arguments>"


def as_jax(program: Program) -> tuple[State, PureFunction]:
    """A program of torch as a pure function of its parameters, buffers and arguments.

    **Arguments:** `program`: an `nn.Module`, an exported program, a graph module of `make_fx` or
    `symbolic_trace`, or a function of tensors.

    **Returns:** `(params, f)`. `params`: a dict by name of the parameters that require a gradient,
    as arrays (or the payload of a `tjt.Tensor`); numbers of plain tensors are copied. `f`: see
    `PureFunction`; `f.state` is a dict of the same kind, of frozen parameters and of buffers.

    **Raises:** `DtypeError` for float64 without x64. `NoRuleError` for TorchScript, and for a lazy
    module that has not been run.
    """
    program = getattr(program, "_orig_mod", program)  # the module inside of `torch.compile`
    if isinstance(program, torch.export.ExportedProgram):
        held, runs, name = exported(program)
        return held[0], PureFunction(name, held, runs, "key" in _keywords(program))
    if isinstance(program, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        raise NoRuleError(
            message(
                "as_jax: TorchScript runs its own code, which tensors of ours do not reach.",
                hint="give the module that it was made from, or `torch.export.export` of it.",
            )
        )
    if isinstance(program, torch.nn.Module):
        every = _params(program)
        trained = {n for n, p in program.named_parameters() if p.requires_grad}
        held = split(every, trained)
        run, has_key = _of_module(program), _takes_key(program.forward)
        return held[0], PureFunction(type(program).__name__, held, run, has_key)
    if not callable(program):
        raise ShapeError(
            message(
                "as_jax: give a module, an exported program, a graph module or a function.",
                f"got: {type(program).__name__}",
            )
        )

    name = getattr(program, "__name__", type(program).__name__)
    run = functools.partial(_of_function, program)
    return {}, PureFunction(name, ({}, {}), run, _takes_key(program))


def functional_call(
    module: torch.nn.Module,
    params: Mapping[str, Payload | torch.Tensor],
    args: Argument | tuple[Argument, ...] = (),
    kwargs: Mapping[str, Argument] | None = None,
) -> PyTree:
    """`torch.func.functional_call` on arrays, or on tensors of ours.

    **Arguments:** `params`: arrays or tensors by name; missing ones are the module's own, as
    constants. `args`: one argument, or a tuple of all.

    **Returns:** arrays, for `jax.jit` and `jax.grad`; tensors if a tensor was among `params` or
    arguments, and then torch's autograd differentiates.

    **Raises:** `MutationError` if arrays are given and the module writes into its state, which
    `tjt.as_jax` gives back.
    """
    args = args if isinstance(args, tuple) else (args,)
    kwargs = dict(kwargs or {})
    leaves = pytree.tree_leaves((dict(params), args, kwargs), is_leaf=is_tensor)
    if any(isinstance(a, torch.Tensor) for a in leaves):
        return torch.func.functional_call(module, _tensors_of(params), args, kwargs)
    given = _params(module) | dict(params)
    out, changed = _of_module(module)(given, args, kwargs, None)
    if changed:
        raise written(type(module).__name__, changed)
    return out


def _tensors_of(params: Mapping[str, Payload | torch.Tensor]) -> dict[str, torch.Tensor]:
    from tanjax_torch.tensor._conversions import from_jax

    return {n: p if isinstance(p, torch.Tensor) else from_jax(p) for n, p in params.items()}


def _params(module: torch.nn.Module) -> State:
    for name, p in module.named_parameters():
        if isinstance(p, torch.nn.parameter.UninitializedTensorMixin):
            raise NoRuleError(
                message(
                    f"as_jax: the parameter {name!r} has no size yet.",
                    hint="run the lazy module once on plain tensors first.",
                )
            )
    return state_of(module)


_ONE_AT_A_TIME = threading.RLock()  # the code of a module finds the tensors of its call in it


def _of_module(module: torch.nn.Module) -> Run:
    if isinstance(module, torch.fx.GraphModule) and Interpreter(module).is_direct:
        return functools.partial(_of_graph, module)

    def run(params: State, args: Args, kwargs: Kwargs, key: Key) -> tuple[PyTree, State]:
        params = _hooked(module, params)
        with _ONE_AT_A_TIME, _keeping(module) as own, _refusing_hooks(module):

            def call(held: dict[str, torch.Tensor], *args: Argument, **kwargs: Argument) -> PyTree:
                own.extend(held.values())
                return torch.func.functional_call(module, held, args, kwargs)

            return on_tensors(call, params, args, kwargs, key)

    return run


def _of_function(
    function: Function, params: State, args: Args, kwargs: Kwargs, key: Key
) -> tuple[PyTree, State]:
    return on_tensors(lambda _, *a, **k: function(*a, **k), params, args, kwargs, key)


def _of_graph(
    module: torch.fx.GraphModule, params: State, args: Args, kwargs: Kwargs, key: Key
) -> tuple[PyTree, State]:
    with contextlib.nullcontext() if key is None else random_key(key):
        return Interpreter(module, _hooked(module, params))(*args, **kwargs), {}


def _hooked(module: torch.nn.Module, params: State) -> State:
    """Return arrays by name; arrays of tensors with a hook by the user have no derivative."""
    changed = dict(params)
    for name, p in (*module.named_parameters(), *module.named_buffers()):
        hooks = {**(p._backward_hooks or {}), **(p._post_accumulate_grad_hooks or {})}
        if not all(h.__module__.startswith("tanjax_torch.") for h in hooks.values()):
            kind = "a tensor with a hook for its gradient"
            changed[name] = without_derivative(name, kind, params[name], ())
    return changed


@contextlib.contextmanager
def _refusing_hooks(module: torch.nn.Module) -> Iterator[None]:
    """Refuse derivatives of results of modules with backward hooks, in the `with` block."""

    def refuse(name: str, m: torch.nn.Module, args: Args, out: PyTree) -> PyTree:
        kind = f"a {type(m).__name__} with a backward hook"
        cut = lambda t: tensor(without_derivative(name, kind, t.payload, ()))
        return pytree.tree_map_only(Tensor, cut, out, is_leaf=is_tensor)

    with contextlib.ExitStack() as stack:
        for path, m in module.named_modules():
            if m._backward_hooks or m._backward_pre_hooks or (m is module and any(_FOR_ALL)):
                refusing = functools.partial(refuse, path or type(module).__name__)
                stack.callback(m.register_forward_hook(refusing).remove)
        yield


_FOR_ALL = (
    torch.nn.modules.module._global_backward_hooks,
    torch.nn.modules.module._global_backward_pre_hooks,
)


def _takes_key(function: Function) -> bool:
    try:
        return "key" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _keywords(program: torch.export.ExportedProgram) -> Sequence[str]:
    return program.call_spec.in_spec.child(1).context


@contextlib.contextmanager
def _keeping(module: torch.nn.Module) -> Iterator[list[torch.Tensor]]:
    """Restore a module afterwards; the list takes tensors that stand for its parameters.

    **Raises:** `MutationError` if the module keeps tensors of this call.
    """
    before = {id(m): (m, _contents(m)) for m in module.modules()}
    failed, own = True, list[torch.Tensor]()
    try:
        yield own
        failed = False
    finally:
        modules = list(module.named_modules())
        kept = [name for n, m in modules for name in _restored(n, m, before, set(map(id, own)))]
        if kept and not failed:
            raise MutationError(
                message(
                    f"{type(module).__name__} keeps tensors of this call in {', '.join(kept)}.",
                    "under a trace of JAX they have no values, and they are no result.",
                    hint="return them, or `self.register_buffer(name, t)` and `f.with_state`.",
                )
            )


def _contents(module: torch.nn.Module) -> Contents:
    return {n: (v, v.copy() if type(v) in (list, dict) else v) for n, v in vars(module).items()}


def _restored(path: str, module: torch.nn.Module, before: Before, own: set[int]) -> list[str]:
    """Take tensors out of a module, and return the names of those that are not `own`."""
    _, old = before.get(id(module), (None, {}))
    kept = []
    for name, value in list(vars(module).items()):
        was, contents = old.get(name, (None, None))
        if value is was and type(value) not in (list, dict):
            continue
        known = {id(t) for t in pytree.tree_leaves(contents, is_leaf=is_tensor)}
        leaves = pytree.tree_leaves(value, is_leaf=is_tensor)
        found = [t for t in leaves if isinstance(t, Tensor) and id(t) not in known]
        if not found:
            continue
        if any(id(t) not in own for t in found):
            kept.append(f"{path}.{name}".removeprefix("."))
        if name not in old:
            vars(module).pop(name)
            continue
        if type(was) is list:
            was[:] = contents
        elif type(was) is dict:
            was.clear()
            was.update(contents)
        vars(module)[name] = was
    return kept
