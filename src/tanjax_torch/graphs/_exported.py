"""Programs of `torch.export` as functions of arrays.

An exported program takes its parameters, its buffers and its lifted constants before the arguments,
and returns the new values of buffers before its results. Its graph has the sizes of the example,
or symbols for those that were declared dynamic. Arrays have sizes, so it is one program for each.

Sharp edges. `ExportedProgram.run_decompositions` makes a program for inference: it does not mark
operations under `torch.no_grad()`. Take gradients of the program as it was exported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Hashable, Sequence
from typing import TypeAlias

import jax
import numpy as np
import sympy
import torch
from jaxtyping import PyTree
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from tanjax._errors import MutationError, NoRuleError, ShapeError, message
from tanjax.arrays import shape as shape_of
from tanjax_torch._typing import Args, Argument, Kwargs, Payload, State
from tanjax_torch.arguments._dtypes import exact_dtype
from tanjax_torch.arguments._keys import random_key
from tanjax_torch.tensor._tensor import Tensor

from ._fx import Interpreter, as_array, flattened, is_functional, on_tensors

# Trained parameters; frozen parameters and buffers.
Held: TypeAlias = tuple[State, State]


def split(every: State, trained: Collection[str]) -> Held:
    """Return the arrays of a program whose names are in `trained`, and the others."""
    rest = {n: x for n, x in every.items() if n not in trained}
    return {n: x for n, x in every.items() if n in trained}, rest


def exported(program: torch.export.ExportedProgram) -> tuple[Held, _Exported, str]:
    """Return the arrays of an exported program, its function of payloads, and its name."""
    made = _Exported(program)
    name = getattr(program.graph_module, "_name", None) or "exported"
    return split(made.params, made.trained), made, name


class _Exported:
    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self.program = program
        self.inputs = program.graph_signature.input_specs
        self.outputs = program.graph_signature.output_specs
        self.params: State = {}
        self.trained: set[str] = set()
        self.constants: State = {}
        self._named: dict[str, str] = {}  # tied weights are one array, by the first of their names
        memories: dict[Hashable, str] = {}
        for spec in self.inputs:
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                held = self._held(spec)
                name = self._named[spec.target] = memories.setdefault(_memory(held), spec.target)
                if name == spec.target:
                    self.params[name] = as_array(held)
                    if spec.kind is InputKind.PARAMETER and held.requires_grad:
                        self.trained.add(name)
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                self.constants[spec.target] = as_array(program.constants[spec.target])
            elif spec.kind is not InputKind.USER_INPUT:
                raise NoRuleError(
                    message(
                        f"as_jax: an exported program with an input of kind {spec.kind.name}.",
                        hint="only parameters, buffers and tensors are arrays.",
                    )
                )

    def _held(self, spec: InputSpec) -> torch.Tensor:
        state = self.program.state_dict
        return state[spec.target] if spec.target in state else self.program.constants[spec.target]

    def __call__(
        self, params: State, args: Args, kwargs: Kwargs, key: jax.Array | None
    ) -> tuple[PyTree, State]:
        given = iter(self._flat(args, kwargs))
        user = [
            x for spec in self.inputs if spec.kind is InputKind.USER_INPUT for x in [next(given)]
        ]
        module, state = self.program.graph_module, {**params, **self.constants}
        if is_functional(module.graph):
            with contextlib.nullcontext() if key is None else random_key(key):
                out = Interpreter(module).run(*map(as_array, self._ordered(state, user)))
            written: State = {}
        else:

            def call(held: dict[str, torch.Tensor], *user: Argument) -> PyTree:
                return module(*self._ordered(held, user))

            out, written = on_tensors(call, state, user, {}, key)
        return self._results(out, written)

    def _ordered(self, held: State | dict[str, torch.Tensor], user: Args) -> list[Argument]:
        rest = iter(user)
        return [
            next(rest)
            if s.kind is InputKind.USER_INPUT
            else held[self._named.get(s.target, s.target)]
            for s in self.inputs
        ]

    def _results(self, out: Sequence[Payload], written: State) -> tuple[PyTree, State]:
        results = []
        for spec, value in zip(self.outputs, out, strict=True):
            if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
                written[self._named[spec.target]] = value
            elif spec.kind is OutputKind.USER_INPUT_MUTATION:
                raise MutationError(
                    message(
                        f"the program writes into its argument {spec.target}.",
                        hint="write into a clone, and give that back.",
                    )
                )
            else:
                results.append(value)
        return pytree.tree_unflatten(results, self.program.call_spec.out_spec), written

    def _flat(self, args: Args, kwargs: Kwargs) -> list[Argument]:
        """Return the leaves of arguments, with the exported structure, sizes and dtypes."""
        flat = flattened(self.program.call_spec.in_spec, tuple(args), dict(kwargs))
        specs = [s for s in self.inputs if s.kind is InputKind.USER_INPUT]
        nodes = {n.name: n for n in self.program.graph.nodes if n.op == "placeholder"}
        symbols: dict[sympy.Symbol, int] = {}
        for spec, x in zip(specs, flat, strict=True):
            if isinstance(spec.arg, TensorArgument):
                _check(spec.arg.name, nodes[spec.arg.name].meta["val"], x, symbols)
            elif isinstance(spec.arg, ConstantArgument) and not _is_same(spec.arg.value, x):
                raise ShapeError(
                    message(
                        f"{spec.arg.name}: the program was exported for {spec.arg.value!r}.",
                        f"got: {x!r}",
                        hint="export again, or close over Python values outside of `jax.jit`.",
                    )
                )
        self._check_ranges(symbols)
        return flat

    def _check_ranges(self, symbols: dict[sympy.Symbol, int]) -> None:
        for symbol, size in symbols.items():
            allowed = self.program.range_constraints.get(symbol)
            if allowed is not None and not allowed.lower <= size <= allowed.upper:
                raise ShapeError(
                    message(
                        f"a dynamic size is {size}, and was exported for "
                        f"{allowed.lower} to {allowed.upper}.",
                        hint="export with another range: `torch.export.Dim(name, min=, max=)`.",
                    )
                )


def _memory(t: torch.Tensor) -> Hashable:
    if isinstance(t, Tensor):
        return id(t._place)
    return (
        t.untyped_storage().data_ptr(),
        t.storage_offset(),
        t.shape,
        t.stride(),
        t.numel() or id(t),
    )


def _is_same(constant: object, x: object) -> bool:
    return not isinstance(x, jax.Array) and type(x) is type(constant) and bool(x == constant)


def _check(name: str, example: torch.Tensor, x: Argument, symbols: dict[sympy.Symbol, int]) -> None:
    if not hasattr(x, "dtype"):
        raise ShapeError(message(f"{name}: the program takes an array here.", f"got: {x!r}"))
    shape = tuple(shape_of(x))
    fits = len(shape) == example.ndim and all(
        _matches(e, n, symbols) for e, n in zip(example.shape, shape, strict=True)
    )
    wanted = exact_dtype(example.dtype)
    if not fits:
        raise ShapeError(
            message(
                f"{name}: the program was exported for size {list(example.shape)}.",
                f"got: {list(shape)}",
                hint="declare what varies: `torch.export.export(..., dynamic_shapes=...)`.",
            )
        )
    if jax.dtypes.canonicalize_dtype(wanted) != np.dtype(x.dtype) != wanted:
        raise ShapeError(
            message(f"{name}: the program was exported for {example.dtype}.", f"got: {x.dtype}")
        )


def _matches(expected: int | torch.SymInt, size: int, symbols: dict[sympy.Symbol, int]) -> bool:
    if isinstance(expected, int):
        return expected == size
    expr = expected.node.expr
    if isinstance(expr, sympy.Symbol):
        return symbols.setdefault(expr, size) == size
    known = expr.subs(symbols)
    return not known.is_number or int(known) == size
