"""Torch's functions on structured tensors: each call is one natural node.

Torch lets a tensor's class replace each function (`__torch_function__`). Here the replacement is a
JAX function of the payloads. For products, sums and solves it is the operation of tanjax itself.
Any other function of torch runs once on tensors over JAX's tracers, where `__torch_dispatch__`
finds our operations again. Compiled, and differentiated by JAX with our rules, it is one node of
the graph (`_natural`).

Functions without numbers (`requires_grad_`, `size`, hooks) go to torch unchanged. Writes in place
go to the dispatcher if no gradient flows there; otherwise they raise.

Sharp edges. A function that needs values (`nonzero`, `item`) runs without compilation. Numbers are
constants of the compiled function, unless they are operands of `+ - * /`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NoReturn

import jax
import numpy as np
import torch
from jaxtyping import PyTree
from torch.nn import functional as F

from tanjax import operations as ops
from tanjax._errors import NoRuleError, UnitError, message
from tanjax.arrays import Dense, densified, densify_mode, is_structured
from tanjax.quantities import is_quantity, unitful
from tanjax_torch._typing import Args, Argument, Function, Kwargs, Outcome, Payload, Payloads, Types
from tanjax_torch.arguments._keys import random_key
from tanjax_torch.arguments._static import Arguments, cut
from tanjax_torch.memory._images import is_view, linked
from tanjax_torch.structure import _operations as operations
from tanjax_torch.structure._leaves import assembled, project_at_leaf
from tanjax_torch.structure._quantities import OF_QUANTITIES
from tanjax_torch.structure._structural import Structural
from tanjax_torch.table._decompositions import factories
from tanjax_torch.table._registry import STRUCTURED, remembered
from tanjax_torch.tensor._lift import payload_of, quietly
from tanjax_torch.tensor._plain import TensorError, is_followed
from tanjax_torch.tensor._tensor import (
    QuantityTensor,
    StructuredTensor,
    Tensor,
    serve_functions,
    tensor,
)

from ._cotangents import number_of
from ._natural import Build, Built, Call, apply, as_tensor, built

_T = torch.Tensor
_DIRECT: dict[Function, Function] = {}


def _direct(function: Function, *names: str) -> None:
    """Replace torch's functions and methods of these names; numbers become operands."""
    for name in names:
        for place in (torch, _T, torch.linalg, F):
            known = getattr(place, name, None)
            if known is not None:
                _DIRECT[known] = function


_direct(operations.add, "add")
_direct(operations.sub, "sub", "subtract")
_direct(operations.rsub, "rsub")
_direct(ops.multiply, "mul", "multiply")
_direct(ops.divide, "true_divide")
_direct(operations.div, "div", "divide")
_direct(ops.matmul, "matmul", "mm", "mv", "bmm")
_direct(ops.negative, "neg", "negative")
_direct(ops.trace, "trace")
_direct(ops.kron, "kron")
_direct(ops.inv, "inv", "inverse")
_direct(ops.det, "det")
_direct(ops.logdet, "logdet")
_direct(operations.linear, "linear")
_direct(operations.adjoint, "adjoint")
_direct(ops.expm, "matrix_exp")
_DIRECT |= {
    torch.linalg.solve: operations.solve,
    _T.T.__get__: ops.transpose,
    _T.mT.__get__: ops.transpose,
    _T.H.__get__: operations.adjoint,
    _T.mH.__get__: operations.adjoint,
    torch.transpose: operations.transpose,
    _T.transpose: operations.transpose,
    _T.t: ops.transpose,
    torch.t: ops.transpose,
}
_ARITHMETIC: tuple[Function, ...] = (operations.add, operations.sub, operations.rsub)
_ARITHMETIC += (ops.multiply, ops.divide, operations.div)
_SINGLE = (torch.float32, torch.float16, torch.bfloat16)
_LOWERED = (ops.matmul, operations.linear)  # by `torch.autocast`
_AS_IT_IS = frozenset(
    [
        "_is_view",
        "can_cast",
        "detach",
        "dim",
        "element_size",
        "get_device",
        "has_names",
        "is_coalesced",
        "is_complex",
        "is_conj",
        "is_contiguous",
        "is_floating_point",
        "is_inference",
        "is_neg",
        "is_same_size",
        "is_signed",
        "is_tensor",
        "ndimension",
        "nelement",
        "numel",
        "register_hook",
        "register_post_accumulate_grad_hook",
        "requires_grad_",
        "result_type",
        "retain_grad",
        "size",
        "storage_offset",
        "stride",
    ]
)
_UNUSUAL = {"out", "check_errors"}
_LIKE = ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like")
_COMPUTED = {getattr(_T, n).__get__ for n in ("T", "mT", "H", "mH", "real", "imag")}
_VALUES = ("item", "__bool__", "__float__", "__int__", "__index__", "__complex__")


@serve_functions
def torch_function(func: Function, types: Types, args: Args, kwargs: Kwargs) -> Outcome:
    """Answer a call of one of torch's functions with a structured tensor among its arguments."""
    if torch._C._are_functorch_transforms_active():
        args, kwargs = jax.tree.map(assembled, (args, kwargs))
        return _answer(func, args, kwargs)
    of_unit = bool(args) and isinstance(args[0], QuantityTensor)
    if of_unit and is_view(func, args) and not is_followed(args[0]):
        return _by_torch(func, args, kwargs)  # its numbers have a memory with views
    out = _answer(func, args, kwargs)
    if _has_steps(args):
        return out
    again = lambda payload: _answer(func, (tensor(payload), *args[1:]), kwargs)
    return linked(func, args, kwargs, out, again)


def _answer(func: Function, args: Args, kwargs: Kwargs) -> Outcome:
    defined = OF_QUANTITIES.get(func)
    if defined is not None and _have_units((args, kwargs)):
        return defined(*args, **kwargs)
    direct = _DIRECT.get(func)
    if direct is not None:
        if not kwargs.keys() & _UNUSUAL and not _needs_torch(args):
            if direct in _LOWERED and torch.is_autocast_enabled("cpu"):
                args, kwargs = jax.tree.map(_lowered, (args, kwargs))
            return _call_direct(direct, args, kwargs)
        args = tuple([as_tensor(a) if _is_array(a) else a for a in args])
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        if func not in _COMPUTED:
            return _by_torch(func, args, kwargs)
    elif name in _LIKE:
        with operations.states():
            return _by_torch(func, args, kwargs)
    elif name in _AS_IT_IS or _is_inner(name):
        out = _by_torch(func, args, kwargs)
        return project_at_leaf(out) if name == "requires_grad_" else out
    elif func is _T.backward:
        return torch.autograd.backward(args[0], kwargs.pop("gradient"), **kwargs)
    elif func in _DIFFERENTIATING:
        return _DIFFERENTIATING[func](*args, **kwargs)
    elif name in _VALUES:
        return _value(func, name, args)
    elif _writes(name, kwargs):
        return _written(func, name, args, kwargs)
    elif name == "view_as" and args[0] is args[1]:  # torch finds a parameter's node so
        return _call_direct(operations.clone, args[:1], {})
    return _traced(func, name, args, kwargs)


def _lowered(t: Argument) -> Argument:
    """Cast an operand to the dtype of `torch.autocast`; double precision stays, as in torch."""
    is_single = isinstance(t, torch.Tensor) and t.dtype in _SINGLE
    return t.to(torch.get_autocast_dtype("cpu")) if is_single else t


def _have_units(tree: PyTree) -> bool:
    """True if there are structured operands, and all of them are dense quantities."""
    kinds = [type(t) for t in _tensors(tree) if isinstance(t, StructuredTensor)]
    return bool(kinds) and all(kind is QuantityTensor for kind in kinds)


def _has_steps(args: Args) -> bool:
    return any(isinstance(a, Tensor) and type(a._place.read()) is Structural for a in args)


def _needs_torch(args: Args) -> bool:
    """True if an operand is in stored coordinates, or of a type with its own entries."""
    if _has_steps(args):
        return True
    held = [a._place.read() for a in args if isinstance(a, Tensor)]
    claimed = {t for sigs in STRUCTURED.values() for types in sigs for t in types} - {Dense}
    return any(isinstance(x, t) for t in claimed for x in held)


def _is_inner(name: str) -> bool:
    """True if torch means a tensor and not its numbers: `_make_dual` gives it a tangent."""
    return name.startswith("_") and not name.startswith(("__", "_foreach"))


def _by_torch(func: Function, args: Args, kwargs: Kwargs) -> Outcome:
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


# While torch differentiates, hooks and checkpoints call functions, too. `_by_torch` would not bring
# those here. So these entries to torch do not ask for the tensor's class.


def _backward(
    outputs: Args, grad_tensors: Outcome = None, inputs: Args | None = None, **kwargs: Argument
) -> None:
    backward = torch.autograd.backward
    if not _has_edges((*outputs, *(inputs or ()))):  # torch raises its error
        return _by_torch(backward, (outputs, grad_tensors), {**kwargs, "inputs": inputs})
    edges = list(map(_edge, inputs)) if inputs else None
    bars = _started(outputs, grad_tensors)
    return backward(list(map(_edge, outputs)), bars, inputs=edges, **kwargs)


def _grad(outputs: Args, inputs: Args, grad_outputs: Outcome = None, **kwargs: Argument) -> Outcome:
    grad = torch.autograd.grad
    special = kwargs.get("is_grads_batched") or kwargs.get("materialize_grads")
    if special or not _has_edges((*outputs, *inputs)):
        return _by_torch(grad, (outputs, inputs, grad_outputs), kwargs)
    bars = _started(outputs, grad_outputs)
    return grad(list(map(_edge, outputs)), list(map(_edge, inputs)), bars, **kwargs)


def _has_edges(tensors: Args) -> bool:
    return all(t.requires_grad for t in tensors if isinstance(t, torch.Tensor))


def _started(outputs: Args, gradients: Outcome) -> Outcome:
    """Return gradients of outputs, with the default 1 for scalars."""
    if isinstance(gradients, torch.Tensor):
        gradients = (gradients,)
    bars = [None] * len(outputs) if gradients is None else list(gradients)
    for i, (t, bar) in enumerate(zip(outputs, bars, strict=False)):
        if bar is None and isinstance(t, Tensor) and t.numel() == 1:
            bars[i] = _by_torch(torch.ones_like, (t,), {})
    return bars


def _edge(t: Argument) -> Argument:
    return torch.autograd.graph.get_gradient_edge(t) if isinstance(t, torch.Tensor) else t


_DIFFERENTIATING: dict[Function, Function] = {
    torch.autograd.backward: _backward,
    torch.autograd.grad: _grad,
}


def _writes(name: str, kwargs: Kwargs) -> bool:
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name == "__setitem__" or kwargs.get("out") is not None


def _written(func: Function, name: str, args: Args, kwargs: Kwargs) -> Outcome:
    """Write in place if no gradient flows through the old or the new numbers; else raise."""
    tensors = list(_tensors((args, kwargs)))
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        if tensors and tensors[0].requires_grad and tensors[0].is_leaf:
            raise RuntimeError(
                f"{name}: a leaf tensor that requires grad is being used in an in-place operation."
            )
        raise TensorError(
            message(
                f"{name}: in place where gradients of structured tensors flow.",
                hint="use the function without the underscore, or `torch.no_grad()`.",
            )
        )
    return _by_torch(func, args, kwargs)


def _tensors(args: PyTree) -> Iterator[torch.Tensor]:
    for a in jax.tree.leaves(args):
        if isinstance(a, torch.Tensor):
            yield a


# -- operations of ours --------------------------------------------------------------------------


def _is_operand(x: object) -> bool:
    return isinstance(x, (torch.Tensor, float, complex)) or type(x) is int or _is_array(x)


def _is_array(x: object) -> bool:
    return isinstance(x, (jax.Array, np.ndarray, np.generic)) or is_structured(x)


def _is_tensor(x: object) -> bool:
    return isinstance(x, torch.Tensor)


@remembered
def _direct_call(function: Function, key: Arguments, policy: str) -> Call:
    def run(*payloads: Payload) -> Payloads:
        args, kwargs = key.fill(payloads)
        return (function(*args, **kwargs),)

    return Call(run)


def _call_direct(function: Function, args: Args, kwargs: Kwargs) -> Tensor:
    key, operands = cut(args, kwargs, _is_operand if function in _ARITHMETIC else _is_tensor)
    out = apply(_direct_call(function, key, densify_mode()), [as_tensor(x) for x in operands])
    return out[0]


# -- any function of torch -----------------------------------------------------------------------


def _as_call(func: Function, key: Arguments) -> Call:
    """Return a function of torch as one of payloads, which also returns a `Built`."""

    def run(*payloads: Payload) -> tuple[Payloads, Built]:
        args, kwargs = key.fill([tensor(x) for x in payloads])
        with below(), quietly(), factories(integers=True), _no_keys():
            found: list[Payload] = []
            build = _taken(func(*args, **kwargs), found)
            return tuple(found), Built(build)

    return Call(run, builds=True)


@contextlib.contextmanager
def below() -> Iterator[None]:
    """Run torch's code on payloads alone: no autograd, no functions of ours."""
    with torch._C._AutoDispatchBelowAutograd(), torch._C.DisableTorchFunctionSubclass():
        yield


class NeedsKey(Exception):
    """A compiled function asked for random numbers."""


class _NoKey:
    def __getattr__(self, name: str) -> NoReturn:
        raise NeedsKey


def _no_keys() -> contextlib.AbstractContextManager[None]:
    return random_key(_NoKey())  # type: ignore[arg-type]


def _taken(out: Outcome, found: list[Payload]) -> Build:
    """Append the tensors of a result to `found`; return a function that builds it from others."""
    if isinstance(out, torch.Tensor):
        found.append(payload_of(out) if not hasattr(out, "_place") else out._place.read())
        return next
    if isinstance(out, (list, tuple)):
        parts = [_taken(x, found) for x in out]
        kind = type(out)
        if hasattr(out, "_fields"):
            return lambda rest: kind(*[p(rest) for p in parts])
        return lambda rest: kind([p(rest) for p in parts])
    return lambda rest: out


@remembered
def _traced_call(func: Function, key: Arguments, policy: str, dtype: torch.dtype) -> Call:
    return _as_call(func, key)


def _traced(func: Function, name: str, args: Args, kwargs: Kwargs) -> Outcome:
    if _has_steps(args) and not torch.is_grad_enabled():
        return _by_torch(func, args, kwargs)  # an optimiser has another number in every step
    key, operands = cut(args, kwargs, _is_tensor)
    try:
        call = _traced_call(func, key, densify_mode(), torch.get_default_dtype())
    except TypeError:  # an argument that cannot be hashed, such as an array
        call = _as_call(func, key)
    try:
        return built(call, operands)
    except (jax.errors.ConcretizationTypeError, NeedsKey):
        pass
    except NoRuleError as error:
        if not isinstance(error.__cause__, jax.errors.ConcretizationTypeError):
            raise
    dense = [_dense(x, name) for x in operands]  # torch's formulas give no structural gradients
    args, kwargs = key.fill(dense)
    return _by_torch(func, args, kwargs)


def _dense(t: torch.Tensor, name: str) -> torch.Tensor:
    if not isinstance(t, StructuredTensor) or type(t._place.read()) is Structural:
        return t
    if isinstance(t, QuantityTensor):
        return t
    return apply(_dense_call(name, densify_mode()), [t])[0]


@remembered
def _dense_call(name: str, policy: str) -> Call:
    def run(x: Payload) -> Payloads:
        value = densified(number_of(x), name, "")
        return (unitful(value, x.label) if is_quantity(x) else value,)

    return Call(run)


def _value(func: Function, name: str, args: Args) -> complex:
    (t,) = args
    payload = t.payload
    if getattr(payload, "has_unit", False) and not payload.label.is_dimensionless:
        raise UnitError(
            message(
                f"{name}: a quantity in {payload.unit} is no plain number.",
                hint="`t.payload.to_value(unit)` counts it in a unit.",
            )
        )
    plain = payload.plain(name) if getattr(payload, "has_unit", False) else payload.to_dense()
    return func(tensor(plain))
