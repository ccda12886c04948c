"""`torch.compile(model, backend=tjt.backend)`: torch's graphs by JAX's compiler.

Torch traces the program, guards its assumptions, makes the backward graph and handles writes. The
interpreter then runs each graph of ATen operations under `jax.jit`.

    model = torch.compile(model, backend=tjt.backend)
    model(x).sum().backward()
    optimizer.step()

Tensors cross without a copy and without a cache: `jax.jit` reads torch's memory in place, and torch
reads JAX's results in place. Torch may write into its memory as soon as a call has returned, so a
call ends when JAX has computed. The graphs always run in JAX's 64-bit mode, because torch's dtypes
are exact.

Sharp edges. JAX compiles for each size, also where torch has one graph for all. Random numbers
are JAX's, seeded by torch's generator at each call. Structured arrays have no memory that torch
could read: export such a model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TypeAlias

import jax
import numpy as np
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._ops import OpOverload

from tanjax._errors import NoRuleError, message
from tanjax_torch._typing import Argument, Function, Numbers, Outcome
from tanjax_torch.arguments._dtypes import DtypeError, exact_dtype, torch_dtype
from tanjax_torch.arguments._keys import random_key
from tanjax_torch.graphs._branches import is_flow, nodes_of
from tanjax_torch.graphs._fx import Interpreter, called, draws_again, is_pure
from tanjax_torch.table._registry import no_rule

from ._results import Results

Input: TypeAlias = torch.Tensor | int | None  # `None` for a token
Order: TypeAlias = tuple[int, ...] | None


def backend(
    graph_module: torch.fx.GraphModule, example_inputs: Sequence[Input], **options: object
) -> Function:
    """JAX's compiler as a backend of torch: `torch.compile(model, backend=tjt.backend)`.

    Works on plain tensors and on `tjt.Tensor`s that hold a `jax.Array`, forward and backward.

    **Raises:** `NoRuleError` for an operation without entry, by name, and for structured arrays.
    `DtypeError` for tensors that are not dense numbers on the CPU. `ValueError` for options.

    **Derivative:** torch's, of its graph.
    """
    if options:
        raise ValueError(message(f"tjt.backend takes no options, got: {sorted(options)}."))
    return aot_autograd(fw_compiler=compiled, bw_compiler=compiled)(graph_module, example_inputs)


def compiled(graph_module: torch.fx.GraphModule, example_inputs: Sequence[Input]) -> Function:
    """A graph of ATen operations as a function of a list of torch tensors, by `jax.jit`."""
    return make_boxed_func(_Compiled(graph_module))


class _Compiled:
    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.interpreter = Interpreter(module)
        nodes = list(nodes_of(module.graph))
        _check(nodes)
        self._inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
        self._is_array = [_is_tensor(x) for x in self._inputs]
        self.arrays = [x for x in self._inputs if _is_tensor(x)]
        self.orders = [_order(x) for x in self.arrays]
        self.numbers = [x for x in self._inputs if not _is_tensor(x)]
        self.results = Results(module.graph)
        self.random = any(_is_random(n) for n in nodes)
        self._programs: dict[tuple[int, ...], _Program] = {}

    def __call__(self, *args: Argument) -> list[Outcome]:
        tensors = [a for a, is_array in zip(args, self._is_array, strict=True) if is_array]
        numbers: tuple[int, ...] = ()
        if self.numbers:
            numbers = tuple(
                [a for a, is_array in zip(args, self._is_array, strict=True) if not is_array]
            )
        program = self._programs.get(numbers)
        if program is None:
            program = self._programs[numbers] = _Program(self, numbers)
        arrays = [
            None if t is None else _numpy(t) if order is None else _numpy(t).transpose(order)
            for t, order in zip(tensors, self.orders, strict=True)  # a token is None
        ]
        known = program(_seed() if self.random else None, arrays)
        known.update(zip(self._inputs, args, strict=True))
        return self.results.given(known)


class _Program:
    """A graph with fixed values of its arguments that are numbers."""

    def __init__(self, owner: _Compiled, numbers: tuple[int, ...]) -> None:
        self._owner, self._numbers = owner, numbers
        self._known: dict[torch.fx.Node, Input] = {}  # values known while JAX traces: sizes
        self._arrays: list[
            tuple[torch.fx.Node, Order]
        ] = []  # computed nodes, and their order in memory
        self._run = jax.jit(self._trace)

    def __call__(
        self, seed: Numbers | None, arrays: list[Numbers | None]
    ) -> dict[torch.fx.Node, Input]:
        with jax.enable_x64(True):
            results = self._run(seed, arrays)
        jax.block_until_ready(results)  # torch may write into the inputs
        known = self._known.copy()
        for (node, order), x in zip(self._arrays, results, strict=True):
            known[node] = as_torch(x) if order is None else _laid(as_torch(x), order)
        return known

    def _trace(self, seed: jax.Array | None, arrays: list[jax.Array]) -> list[jax.Array]:
        owner = self._owner
        given: dict[torch.fx.Node, jax.Array | int] = {
            node: x if order is None else x.transpose(_back(order))
            for node, x, order in zip(owner.arrays, arrays, owner.orders, strict=True)
        }
        given |= zip(owner.numbers, self._numbers, strict=True)
        wanted = {*owner.results.computed, *owner.results.sizes}
        with contextlib.nullcontext() if seed is None else random_key(jax.random.key(seed)):
            found = owner.interpreter.values(given, wanted)
        self._known = {n: x for n, x in found.items() if not isinstance(x, jax.Array)}
        computed = [n for n in owner.results.computed if n not in self._known]
        for node in computed:
            _check_result(node, found[node])
        self._arrays = [(node, _order(node)) for node in computed]
        return [found[node] for node in computed]


def _is_tensor(node: torch.fx.Node) -> bool:
    return isinstance(node.meta["val"], torch.Tensor)


def _is_random(node: torch.fx.Node) -> bool:
    target = called(node)
    return (
        isinstance(target, OpOverload)
        and torch.Tag.nondeterministic_seeded in target.tags
        and not draws_again(node)
    )


def _seed() -> Numbers:
    return torch.randint(2**63 - 1, ()).numpy()


def _check(nodes: list[torch.fx.Node]) -> None:
    for node in nodes:
        if node.op == "call_function" and not (is_pure(called(node)) or is_flow(called(node))):
            raise no_rule(called(node))
        if node.op == "placeholder" and _is_tensor(node):
            t = node.meta["val"]
            if t.device.type != "cpu" or t.layout is not torch.strided:
                raise DtypeError(
                    message(
                        "tjt.backend compiles programs on dense tensors on the CPU.",
                        f"got: {node.name} on {t.device}, layout {t.layout}",
                        hint="`t.cpu()`, `t.to_dense()`; JAX computes on its default device.",
                    )
                )


def _check_result(node: torch.fx.Node, x: jax.Array) -> None:
    expected = node.meta["val"]
    if expected is None:  # a token, for the order of calls
        return
    sizes = [n for n in expected.shape if isinstance(n, int)]
    if x.dtype != exact_dtype(expected.dtype) or (
        len(sizes) == expected.ndim and tuple(sizes) != x.shape
    ):
        raise NoRuleError(
            message(
                f"{node.target} gives {x.dtype}{list(x.shape)}, where torch has "
                f"{expected.dtype}{list(expected.shape)}.",
                hint="the entry of this operation is wrong: please report it.",
            )
        )


def _numpy(t: torch.Tensor) -> Numbers:
    """The memory of a tensor for JAX to read, or a copy if NumPy cannot share it."""
    if t.dtype in _NOT_NUMPY:
        t = t.detach().contiguous()
        return t.view(_NOT_NUMPY[t.dtype]).numpy().view(exact_dtype(t.dtype))
    return t.numpy(force=True)


_NOT_NUMPY = {
    torch.bfloat16: torch.int16,
    torch.float8_e4m3fn: torch.int8,
    torch.float8_e5m2: torch.int8,
}


class _Memory:
    """The memory of an array for NumPy to read and write; it keeps the array alive."""

    __slots__ = ("__array_interface__", "_array")

    def __init__(self, x: jax.Array) -> None:
        self._array = x
        self.__array_interface__ = {
            "shape": x.shape,
            "typestr": x.dtype.str,
            "data": (x.unsafe_buffer_pointer(), False),
            "version": 3,
        }


def as_torch(x: jax.Array) -> torch.Tensor:
    """Return a tensor over the memory of an array that has no other owner."""
    if x.platform() != "cpu":
        x = jax.device_put(x, jax.devices("cpu")[0])
    kind = x.dtype.kind
    if kind != "V" and x.size:
        # 1.6 us, 5 by dlpack. The result of a compiled program is new, and on the CPU row by row.
        return torch.from_numpy(np.asarray(_Memory(x)))
    if kind == "V" and x.dtype.itemsize == 1:
        return torch.from_numpy(np.array(x).view(np.int8)).view(torch_dtype(x.dtype))
    return torch.from_dlpack(x)


def _order(node: torch.fx.Node) -> Order:
    """The axes from the slowest to the fastest as torch lays them; `None` for C order."""
    t = node.meta["val"]
    if t is None:
        return None
    strides = [_hint(s) for s in t.stride()]
    sizes = [_hint(n) for n in t.shape]
    order = sorted(range(t.ndim), key=lambda d: (-strides[d], d))
    kept = [d for d in order if sizes[d] != 1 and strides[d]]
    return None if kept == sorted(kept) or 0 in sizes else tuple(order)


def _hint(n: int | torch.SymInt) -> int:
    return n if isinstance(n, int) else int(n.node.hint)


def _laid(t: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    return t.permute(order).contiguous().permute(_back(order))


def _back(order: tuple[int, ...]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)
