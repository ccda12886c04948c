"""Graphs of torch, run on arrays.

`make_fx`, `torch.export` and `torch.compile` make graphs of ATen operations that write nothing.
Such a graph is a program on payloads as it stands: each node is a lookup in the table of
operations. No tensor lies in between, so a structured array keeps its type.

    f = tjt.Interpreter(make_fx(lambda d, x: d @ x)(torch.eye(3), torch.ones(3)))
    jax.jit(f)(tj.Diagonal(d), x)  # matmul[Diagonal, Dense]

Any other graph (in-place operations, calls of modules and of torch's functions) runs on tensors
over the same arrays. Both are functions of arrays, under all transformations of JAX.

Sharp edges. `aten.detach` in a graph cuts the gradient, as it does when torch runs the graph. Sizes
are those of the arrays, numbers at trace time. Assertions on values are not checked under
`jax.jit`, where the values are unknown.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping

import jax
import numpy as np
import torch
from jaxtyping import PyTree
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils import _pytree as pytree

from tanjax._errors import MutationError, ShapeError, message
from tanjax._typing import Shape
from tanjax.arrays import is_structured, shape as shape_of
from tanjax_torch._typing import Args, Argument, Function, Kwargs, Outcome, Payload, State
from tanjax_torch.arguments._keys import as_state, drawn_key, key_of, next_key
from tanjax_torch.ops._asserts import has_metadata, holds
from tanjax_torch.structure._structured import structured_call_of
from tanjax_torch.table._calls import call_of
from tanjax_torch.table._registry import dense_entry
from tanjax_torch.tensor._plain import copied, is_tensor
from tanjax_torch.tensor._tensor import Tensor

from ._branches import branched
from ._tracing import as_arrays, as_tensors, purely, without_gradient

aten = torch.ops.aten

# They write their running statistics, which their schemas do not declare.
_WRITES = ("batch_norm", "instance_norm", "native_batch_norm", "_batch_norm_impl_index")
_IN_ORDER = torch.ops.higher_order.with_effects
_DRAWS = torch.ops.higher_order.run_and_save_rng_state  # in recomputed code
_DRAWS_AGAIN = torch.ops.higher_order.run_with_rng_state
_ARITHMETIC = ("_operator", "math", "builtins")  # of sizes, in graphs of nothing but ATen


def is_functional(graph: torch.fx.Graph) -> bool:
    """True if every node is an ATen operation that writes nothing, or arithmetic of sizes."""
    return all(
        node.op in ("placeholder", "output")
        or (node.op == "get_attr" and not isinstance(_attribute(node), torch.nn.Module))
        or (node.op == "call_function" and is_pure(called(node)))
        for node in graph.nodes
    )


def _attribute(node: torch.fx.Node) -> object:
    found: object = node.graph.owning_module
    for name in str(node.target).split("."):
        found = getattr(found, name)
    return found


def called(node: torch.fx.Node) -> Function:
    """Return the function that a node calls, behind torch's wrappers for order and randomness."""
    if node.target is _DRAWS:
        return node.args[0]
    return node.args[1] if node.target in (_IN_ORDER, _DRAWS_AGAIN) else node.target


def draws_again(node: torch.fx.Node) -> bool:
    """True if a node draws the numbers that another has drawn."""
    return bool(node.target is _DRAWS_AGAIN)


def is_pure(target: Function) -> bool:
    """True if a function is an ATen operation that writes nothing, or arithmetic of sizes."""
    if isinstance(target, OpOverload):
        return not target._schema.is_mutable and target._opname not in _WRITES
    home = getattr(target, "__module__", None) or ""
    of_sizes = home == "torch" and target.__name__.startswith("sym_")
    return of_sizes or home in _ARITHMETIC or home.startswith("torch.utils._sympy")


class Interpreter(torch.fx.Interpreter):
    """A graph of torch as a function of arrays: `Interpreter(graph_module)(*args)`.

    **Arguments:** `module`: a `torch.fx.GraphModule`. `state`: arrays by name, for parameters,
    buffers and constants of the module; those that are not named here are constants with the
    numbers that the module holds when a call begins.

    **Returns:** a callable of payloads (`jax.Array`s, arrays of our types, quantities, and the
    numbers that the graph takes), whose results are payloads.

    **Raises:** `MutationError` if the graph writes into an argument, or into what it holds.
    `NoRuleError` for an operation without entry and without decomposition, by name.

    **Derivative:** JAX's, of the entries: the same rules as everywhere.
    """

    def __init__(
        self, module: torch.fx.GraphModule, state: Mapping[str, Payload] | None = None
    ) -> None:
        super().__init__(module)
        self.is_direct = is_functional(module.graph)
        self._given = dict(state or {})
        self.extra_traceback = False

    def __call__(self, *args: Argument, **kwargs: Argument) -> Outcome:
        """The results of the graph for payloads."""
        if self.is_direct:
            flat = [as_array(x) for x in self._flat(args, kwargs)]
            return self.graph.process_outputs(self.run(*flat, enable_io_processing=False))
        out, changed = self._on_tensors(args, kwargs)
        if changed:
            raise written("the graph", changed)
        return out

    def _on_tensors(self, args: Args, kwargs: Kwargs) -> tuple[PyTree, State]:
        call = functools.partial(torch.func.functional_call, self.module)
        held = state_of(self.module) | self._given
        return on_tensors(lambda held, *a, **k: call(held, a, k), held, args, kwargs)

    def _flat(self, args: tuple[Argument, ...], kwargs: Kwargs) -> Args:
        """Return arguments in the order of the graph: JAX orders the keys of a dict otherwise."""
        info = getattr(self.graph._codegen, "pytree_info", None)
        if info is None or info.in_spec is None:
            return inspect.signature(self.module.forward).bind(*args, **kwargs).args
        return flattened(info.in_spec, args, kwargs)

    def values(
        self, given: Mapping[torch.fx.Node, Argument], wanted: Iterable[torch.fx.Node]
    ) -> dict[torch.fx.Node, Outcome]:
        """The values of some nodes, from those of the placeholders."""
        env = dict(given)
        for node in self.graph.nodes:
            if node.op in ("call_function", "get_attr"):
                self.env = env
                env[node] = self.run_node(node)
        return {node: env[node] for node in wanted}

    def fetch_attr(self, target: str) -> Argument:
        """A parameter, buffer or constant of the module as an array."""
        if target in self._given:
            return self._given[target]
        held = super().fetch_attr(target)
        return as_array(held)

    def call_function(
        self, target: Function, args: tuple[Argument, ...], kwargs: Kwargs
    ) -> Outcome:
        """A node of the graph on payloads."""
        if target is _IN_ORDER:  # checks of values, as of a matrix that is inverted
            token, target, *given = args
            out = self.call_function(target, tuple(given), kwargs)
            return (token, *out) if isinstance(out, (list, tuple)) else (token, out)
        if target is _DRAWS:
            key = next_key()
            with drawn_key(key):
                return as_state(key), self.call_function(args[0], args[1:], kwargs)
        if target is _DRAWS_AGAIN:
            with drawn_key(key_of(args[0])):
                return self.call_function(args[1], args[2:], kwargs)
        if isinstance(target, HigherOrderOperator):
            return branched(target, args, lambda inner, given: Interpreter(inner)(*given))
        if not isinstance(target, OpOverload):
            return target(*args, **kwargs)
        special = _SPECIAL.get(target)
        if special is not None:
            return special(*args, **kwargs)
        leaves = pytree.tree_leaves((args, kwargs), is_leaf=is_structured)
        args, kwargs = tuple(map(_plain, args)), {n: _plain(a) for n, a in kwargs.items()}
        if any(is_structured(a) for a in leaves):
            return structured_call_of(target)(*args, **kwargs)
        entry = dense_entry(target)
        if entry is not None and entry.layout:  # as torch had it in memory when it made the graph
            kwargs["contiguous"] = _is_contiguous(self._node.args[0])
        return call_of(target)(*args, **kwargs)

    def run_node(self, n: torch.fx.Node) -> Outcome:
        """The value of a node."""
        self._node = n
        return super().run_node(n)


def _is_contiguous(node: object) -> bool:
    known = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return known is None or bool(known.is_contiguous())


def _plain(a: Argument) -> Argument:
    return [_plain(x) for x in a] if isinstance(a, (list, tuple)) else a


def flattened(spec: pytree.TreeSpec, args: tuple[Argument, ...], kwargs: Kwargs) -> list[Argument]:
    """Return the leaves of arguments, which must have the structure of a traced program."""
    named = spec.num_children == 2 and spec.child(0).type is tuple and spec.child(1).type is dict
    try:
        return spec.flatten_up_to((args, kwargs) if named else args)
    except ValueError as error:
        raise ShapeError(
            message(f"the program was made for other arguments: {error}", f"for: {spec}")
        ) from None


def as_array(x: Argument) -> Argument:
    """Numbers of any kind as a payload; other values as they are."""
    if isinstance(x, Tensor):
        return x.payload
    if isinstance(x, torch.Tensor):
        return copied(x)
    if isinstance(x, (np.ndarray, np.generic)):
        return copied(torch.from_numpy(np.array(x)))
    if isinstance(x, jax.Array) and x.weak_type:
        return jax.lax.convert_element_type(x, x.dtype)
    return x


def on_tensors(
    call: Function,
    state: Mapping[str, Payload],
    args: Args,
    kwargs: Kwargs,
    key: jax.Array | None = None,
) -> tuple[PyTree, State]:
    """Return the result of `call(tensors by name, *args, **kwargs)`, and the changed state.

    **Raises:** `MutationError` if it writes into an argument.
    """
    held = {n: as_tensors(p) for n, p in state.items()}
    payloads = {n: t.payload for n, t in held.items()}
    args, kwargs = as_tensors(args), as_tensors(kwargs)
    before = _payloads((args, kwargs))
    with purely(key):
        out = call(held, *args, **kwargs)
    for (path, old), (_, new) in zip(before, _payloads((args, kwargs)), strict=True):
        if old is not new:
            raise MutationError(
                message(
                    f"the program writes into its argument {path}, and arrays of JAX never change.",
                    hint="write into a clone, and give that back.",
                )
            )
    now = {n: as_arrays(t) for n, t in held.items()}
    return as_arrays(out), {n: p for n, p in now.items() if p is not payloads[n]}


def _payloads(tree: PyTree) -> list[tuple[str, Payload]]:
    leaves, _ = pytree.tree_flatten_with_path(tree, is_leaf=is_tensor)
    return [(pytree.keystr(path), t.payload) for path, t in leaves if isinstance(t, Tensor)]


def _size(x: Payload, dim: int | None = None) -> Shape | int:
    shape = tuple(shape_of(x))
    return shape if dim is None else shape[dim]


def _strides(x: Payload, dim: int | None = None) -> Shape | int:
    shape = tuple(shape_of(x))
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= max(n, 1)
    return tuple(strides) if dim is None else strides[dim]


def _in_range(size: float, min: float | None = None, max: float | None = None) -> None:
    if (min is not None and size < min) or (max is not None and size > max):
        raise RuntimeError(f"Invalid value range for {size} between [{min}, {max}].")


def state_of(module: torch.nn.Module) -> State:
    """The parameters of a module, then its buffers, by name, as payloads of their own."""
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {n: as_array(t) for n, t in held.items()}


def written(what: str, names: Iterable[str]) -> MutationError:
    """The error for a program that changed its state, if the caller does not return it."""
    return MutationError(
        message(
            f"{what} writes into {', '.join(map(repr, names))}.",
            hint="`out, after = f.with_state(params, ...)` gives it back; or `module.eval()`.",
        )
    )


def _same(x: Payload, *args: object, **kwargs: object) -> Payload:
    return x


_SPECIAL: dict[OpOverload, Function] = {
    aten.detach.default: without_gradient,
    aten.alias.default: _same,
    aten.lift_fresh.default: _same,
    aten.sym_size.default: _size,
    aten.sym_size.int: _size,
    aten.sym_stride.default: _strides,
    aten.sym_stride.int: _strides,
    aten.sym_numel.default: lambda x: int(np.prod(_size(x))),
    aten.sym_storage_offset.default: lambda x: 0,
    aten._assert_scalar.default: holds,
    aten._assert_tensor_metadata.default: has_metadata,
    aten.sym_constrain_range.default: _in_range,
    aten.sym_constrain_range_for_size.default: _in_range,
}
