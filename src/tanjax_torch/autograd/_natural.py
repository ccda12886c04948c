"""A JAX function as one node of torch's graph, with derivatives of any order.

Torch differentiates operation by operation, and its formulas know no structure. A node here is a
whole JAX function: its output is the function, its backward is JAX's pullback (our natural rules,
our units), which is a node again. So double backward, `torch.func` and hooks need nothing more.

Memory. For first derivatives a node keeps the residuals of JAX's pullback. It saves them as torch
saves tensors, so `checkpoint` and hooks on saved tensors see them. With `create_graph=True` and
under `torch.func` it keeps the inputs, and computes the function again.

A gradient of a structured tensor is structural everywhere (`_structural`): at a leaf it is
`jax.grad`'s, in the middle of a graph it goes into the next pullback without a matrix being made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import torch
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree
from torch.autograd.function import FunctionCtx as Context

from tanjax._typing import Arraylike, Function, Pullback
from tanjax.arrays import is_structured
from tanjax.transforms import vjp_in_fields
from tanjax_torch._typing import Payload, Payloads
from tanjax_torch.compiler._traced import recorder, unrecorded
from tanjax_torch.structure._structural import Structural
from tanjax_torch.table._kernels import settled
from tanjax_torch.tensor._lift import lifted, payload_of
from tanjax_torch.tensor._plain import plain
from tanjax_torch.tensor._tensor import StructuredTensor, Tensor, tensor

from ._cotangents import (
    Outline,
    label_of,
    number_of,
    outline,
    structural_bars,
    structural_tangents,
    torch_bars,
    torch_tangents,
)


def _through(
    pullback: Pullback, outs: Sequence[Outline], gradients: Sequence[Payload | None]
) -> Payloads:
    bars, rate = structural_bars(outs, gradients)
    return torch_bars(pullback(bars), rate)


_pull = jax.jit(_through)
T = TypeVar("T")
Build: TypeAlias = Callable[[Iterator[torch.Tensor]], PyTree]
Settled: TypeAlias = Callable[..., "tuple[Payloads, Built | None]"]
Given: TypeAlias = "torch.Tensor | _Held"
Plain: TypeAlias = bool | tuple[bool, ...] | None


class Call:
    """A JAX function of payloads and its pullbacks, each compiled once.

    **Arguments:** `function`, from payloads to a tuple of payloads; `by_matrix`: it uses structured
    arrays as the matrices that they stand for, and does not read their fields; `builds`: it returns
    such a tuple and, for shapes of these sizes, how a result is built from it (a `Built`).
    """

    def __init__(self, function: Function, by_matrix: bool = True, builds: bool = False) -> None:
        self.function = _settled(function, builds)
        self.by_matrix = by_matrix
        self.run = jax.jit(self.function, inline=True)  # jaxprs show its operations
        self._derived: dict[Hashable, Any] = {}  # calls, and pullbacks

    def _made(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]

    def _of(self, moving: tuple[int, ...], payloads: Payloads) -> Settled:
        def of_moving(*values: Payload) -> tuple[Payloads, Built | None]:
            full = list(payloads)
            for i, x in zip(moving, values, strict=True):
                full[i] = x
            return self.function(*full)

        return of_moving

    def with_pullback(
        self, moving: tuple[int, ...]
    ) -> Callable[..., tuple[Payloads, Pullback, Built | None]]:
        """Outputs, JAX's pullback (a pytree of residuals), and how the result is built."""

        def forward(*payloads: Payload) -> tuple[Payloads, Pullback, Built | None]:
            primals = [payloads[i] for i in moving]
            return vjp_in_fields(self._of(moving, payloads), *primals, has_aux=True)

        return self._made(("vjp", moving), lambda: jax.jit(forward))

    def backward(self, moving: tuple[int, ...], given: tuple[int, ...], count: int) -> Call:
        """Gradients of some inputs, from all inputs and the gradients of some outputs."""

        def cotangents(*payloads: Payload) -> Payloads:
            inputs, bars = payloads[:count], payloads[count:]
            primals = [inputs[i] for i in moving]
            outs, pullback, _ = vjp_in_fields(self._of(moving, inputs), *primals, has_aux=True)
            gradients: list[Payload | None] = [None] * len(outs)
            for k, g in zip(given, bars, strict=True):
                gradients[k] = g
            return _through(pullback, outs, gradients)

        return self._made(("back", moving, given), lambda: Call(cotangents, False))

    def pushed(self, moving: tuple[int, ...], count: int) -> Call:
        """Tangents of the outputs as a function of inputs and tangents of some of them."""

        def tangents(*payloads: Payload) -> Payloads:
            inputs, given = payloads[:count], payloads[count:]
            primals = tuple([inputs[i] for i in moving])
            moved, rate = structural_tangents(primals, given, self.by_matrix)
            outs: list[Payload] = []

            def numbers(*values: Payload) -> Payloads:
                outs[:] = self._of(moving, inputs)(*values)[0]
                return tuple(map(number_of, outs))

            values, pushed = jax.jvp(numbers, primals, moved)
            return torch_tangents(values, list(map(label_of, outs)), pushed, rate)

        return self._made(("push", moving), lambda: Call(tangents, self.by_matrix))

    def batched(self, axes: tuple[int | None, ...]) -> Call:
        """The call mapped over a batch."""

        def of_all(*payloads: Payload) -> tuple[Payloads, Built | None]:
            return jax.vmap(self.function, axes)(*payloads)

        return self._made(("vmap", axes), lambda: Call(of_all, self.by_matrix, builds=True))


@jax.tree_util.register_static
class Built:
    """A function that builds a result from its tensors, as static data of JAX's pytrees."""

    def __init__(self, build: Build) -> None:
        self.build = build


def _settled(function: Function, builds: bool) -> Settled:
    """Return the function with results without weak types, and with their `Built`."""

    def run(*payloads: Payload) -> tuple[Payloads, Built | None]:
        outs, build = function(*payloads) if builds else (function(*payloads), None)
        return tuple(jax.tree.map(settled, outs)), build

    return run


class _Run:
    """One call on its way through torch: the function, and the pullback if there is one.

    `plain`: true to return plain tensors, for all results or for each of them. If it is `None`,
    plain operands that require a gradient raise, and all results are ours.
    """

    def __init__(self, call: Call, inner: bool = False, plain: Plain = None) -> None:
        self.call, self.inner, self.plain = call, inner, plain
        self.moving: tuple[int, ...] = ()
        self.keeps = False
        self.kept: tuple[list[Tensor], PyTreeDef] | None = None
        self.built: Built | None = None

    def forward(self, tensors: Sequence[torch.Tensor]) -> tuple[Tensor, ...]:
        payloads = [payload_of(_shown(t)) for t in tensors]
        if not self.keeps:
            outs, self.built = self.call.run(*payloads)
            return self.tensors(outs)
        outs, pullback, self.built = self.call.with_pullback(self.moving)(*payloads)
        leaves, tree = jax.tree.flatten((pullback, tuple(map(outline, outs))))
        self.kept = [tensor(x) for x in leaves], tree
        return self.tensors(outs)

    def as_inputs(self, tensors: Sequence[torch.Tensor], which: Sequence[int]) -> Plain:
        """Return `plain` for gradients: a gradient is plain where its input is."""
        if self.plain is None:
            return None
        return tuple([not isinstance(bottom(tensors[i]), Tensor) for i in which])

    def tensors(self, outs: Payloads) -> tuple[torch.Tensor, ...]:
        """Return results as tensors: plain where requested, for arrays that torch has, too."""
        kinds = self.plain if isinstance(self.plain, tuple) else [self.plain] * len(outs)
        return tuple([_as_asked(x, k, self.inner) for x, k in zip(outs, kinds, strict=True)])


def _as_asked(x: Payload, plainly: bool | None, inner: bool) -> torch.Tensor:
    numbers = isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    return plain(x) if plainly and numbers else tensor(x, inner)


class _Held:
    """A structured tensor, hidden from `torch.func`, which would flatten it as a tree."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _hidden(t: Given) -> Given:
    return _Held(t) if isinstance(t, StructuredTensor) else t


def _shown(t: Given) -> torch.Tensor:
    return t.tensor if type(t) is _Held else t


class Node(torch.autograd.Function):
    """The function as a `torch.autograd.Function`."""

    @classmethod
    def apply(cls, run: _Run, *tensors: Given) -> tuple[Tensor, ...]:
        """Outside of `torch.func`, which ends here, every tensor is one of the graph."""
        change = _hidden if _transforming() else _shown
        return super().apply(run, *map(change, tensors))

    @staticmethod
    def forward(run: _Run, *tensors: torch.Tensor) -> tuple[Tensor, ...]:
        return run.forward(tensors)

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[_Run, *tuple[Given, ...]], output: tuple[Tensor, ...]
    ) -> None:
        run, *tensors = inputs
        ctx.run = run
        ctx.held = {i: t.tensor for i, t in enumerate(tensors) if type(t) is _Held}
        tensors = [t for t in tensors if type(t) is not _Held]
        ctx.count = len(tensors) + len(ctx.held)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[t for t in output if not _is_inexact(t)])
        kept, ctx.tree = run.kept or ([], None)
        run.kept = None
        ctx.save_for_backward(*tensors, *kept)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Context, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        tensors, kept = _inputs(ctx)
        needs = ctx.needs_input_grad[1:]
        needed = [i for i, t in enumerate(tensors) if needs[i] and _is_inexact(t)]
        result: list[torch.Tensor | None] = [None] * (1 + ctx.count)
        if all(g is None for g in gradients) or not needed:
            return tuple(result)
        if ctx.tree is not None and not torch.is_grad_enabled() and not _transforming():
            pullback, outs = jax.tree.unflatten(ctx.tree, [t.payload for t in kept])
            bars = _pull(
                pullback, outs, tuple([None if g is None else payload_of(g) for g in gradients])
            )
            moving = ctx.run.moving
            found: Sequence[torch.Tensor] = _Run(
                ctx.run.call, plain=ctx.run.as_inputs(tensors, moving)
            ).tensors(bars)
        else:
            moving = tuple(needed)
            given = tuple([k for k, g in enumerate(gradients) if g is not None])
            back = ctx.run.call.backward(moving, given, ctx.count)
            run = _Run(back, ctx.run.inner, ctx.run.as_inputs(tensors, moving))
            found = _applied(run, [*tensors, *[gradients[k] for k in given]])
        for i, bar in zip(moving, found, strict=True):
            result[1 + i] = bar if needs[i] else None
            _remember_point(bar, tensors[i])
        return tuple(result)

    @staticmethod
    def jvp(ctx: Context, run: None, *tangents: torch.Tensor | None) -> tuple[Tensor, ...]:
        tensors, _ = _inputs(ctx)
        moving = tuple([i for i, t in enumerate(tangents) if t is not None])
        push = ctx.run.call.pushed(moving, ctx.count)
        pushed = _Run(push, ctx.run.inner, ctx.run.plain)
        return tuple(_applied(pushed, [*tensors, *[tangents[i] for i in moving]]))

    @staticmethod
    def vmap(
        info: object, in_dims: Sequence[int | None], run: _Run, *tensors: Given
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        batched = _Run(run.call.batched(tuple(in_dims[1:])), True, run.plain)
        outs = _applied(batched, [_shown(t) for t in tensors])
        run.built = batched.built
        return tuple(outs), tuple([0] * len(outs))


def _inputs(ctx: Context) -> tuple[list[torch.Tensor], Sequence[Tensor]]:
    """The tensors of a call, and its other saved values."""
    saved = ctx.saved_tensors
    rest = iter(saved)
    tensors = [ctx.held[i] if i in ctx.held else next(rest) for i in range(ctx.count)]
    return tensors, saved[ctx.count - len(ctx.held) :]


def _remember_point(bar: torch.Tensor, primal: torch.Tensor) -> None:
    bar, primal = bottom(bar), bottom(primal)
    step = bar._place.read() if isinstance(bar, Tensor) else None
    if type(step) is Structural and isinstance(primal, Tensor):
        step.at = number_of(primal._place.read())


def bottom(t: torch.Tensor) -> torch.Tensor:
    """The tensor inside of all wrappers of `torch.func`."""
    while torch._C._functorch.is_functorch_wrapped_tensor(t):
        t = torch._C._functorch.get_unwrapped(t)
    return t


def _is_inexact(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def _transforming() -> bool:
    return torch._C._are_functorch_transforms_active()


def apply(call: Call, tensors: Sequence[torch.Tensor]) -> Sequence[Tensor]:
    """Return the outputs of a call as tensors, with a node of torch's graph if gradients flow."""
    return _applied(_Run(call), tensors)


def built(call: Call, tensors: Sequence[torch.Tensor], plainly: Plain = None) -> PyTree:
    """Return the result of a call with a `Built`; `plainly`: see `plain` of `_Run`."""
    run = _Run(call, plain=plainly)
    outs = _applied(run, tensors)
    assert run.built is not None
    return run.built.build(iter(outs))


def _applied(run: _Run, tensors: Sequence[torch.Tensor]) -> Sequence[Tensor]:
    if recorder() is not None:  # the result would be a constant of its graph
        raise unrecorded("a function of JAX")
    if _transforming():
        run.inner = True
        return Node.apply(run, *tensors)
    tensors = [_alive(t) for t in tensors]
    if not torch.is_grad_enabled():
        return run.forward(tensors)
    run.moving = tuple([i for i, t in enumerate(tensors) if t.requires_grad])
    run.keeps = bool(run.moving)
    for i in run.moving:
        if run.plain is None and not isinstance(tensors[i], Tensor):
            lifted(tensors[i])  # raises for a plain tensor that requires a gradient
    if not run.keeps and torch.autograd.forward_ad._current_level < 0:
        return run.forward(tensors)
    return Node.apply(run, *tensors)


def _alive(t: torch.Tensor) -> torch.Tensor:
    """Unwrap a tensor of a transform that has ended."""
    return torch._C._functorch.unwrap_if_dead(t) if type(t) is torch.Tensor else t


def as_tensor(x: torch.Tensor | Arraylike) -> torch.Tensor:
    """Return an operand as a tensor; a number stays weak and takes the dtype of other operands."""
    if isinstance(x, torch.Tensor):
        return x
    return tensor(x if is_structured(x) else jnp.asarray(x))
