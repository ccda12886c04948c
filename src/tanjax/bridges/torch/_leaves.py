"""Structured tensors as torch keeps them: leaves, copies, files, trees.

* A leaf gets a hook that turns a matrix that arrives as its gradient into a structural one
  (`tj.pullback_of_destructure`), whichever way the leaf began to require a gradient.
* `copy.deepcopy`, `pickle` and `torch.save` keep the type, the hook and what else a leaf has.
* For `torch.func` a structured tensor is a tree: what it stores. So `torch.func.grad` gives what
  `jax.grad` does, and `torch.func.vmap` maps over the leading axes of all fields.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any

import jax
import numpy as np
import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils import _pytree as pytree

from tanjax.arrays import Unitful, is_inexact, is_structured, pullback_of_destructure

from ._natural import Call, apply
from ._structural import Structural
from ._tensor import StructuredTensor, tensor


def project_at_leaf(t: Any) -> Any:
    """Give a leaf the hook that makes its gradient structural."""
    if isinstance(t, StructuredTensor) and t.requires_grad and t.is_leaf and not _is_dense(t):
        if not hasattr(t, "_projects"):
            point = weakref.ref(t)
            t._projects = t.register_hook(lambda g: _projected(point(), g))
    return t


def _is_dense(t: StructuredTensor) -> bool:
    value = _value(t._place.read())
    return not is_structured(value)


def _value(payload: Any) -> Any:
    return payload.stored if type(payload) is Unitful else payload


def _projected(point: Any, gradient: torch.Tensor) -> Any:
    held = gradient._place.read() if isinstance(gradient, StructuredTensor) else None
    if point is None or type(held) is Structural:
        return None
    return apply(_PROJECTION, [point, gradient])[0]


def _project(x: Any, gradient: Any) -> tuple[Any, ...]:
    unit = gradient.label if type(gradient) is Unitful else None
    value = _value(x)
    step = Structural.of(pullback_of_destructure(value)(_value(gradient)))
    return (step if unit is None else Structural(step.leaves, step.model, unit),)


_PROJECTION = Call(_project)


def deepcopy(t: StructuredTensor, memo: Any) -> Any:
    """A leaf of its own, with the same gradient and attributes."""
    if id(t) in memo:
        return memo[id(t)]
    if not t.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment."
        )
    made = tensor(t._place.read())
    memo[id(t)] = made
    made.requires_grad_(t.requires_grad)
    if t.grad is not None:
        made.grad = copy.deepcopy(t.grad, memo)
    if getattr(t, "_is_param", False):
        made._is_param = True  # type: ignore[attr-defined]
    return made


def reduced(t: StructuredTensor) -> Any:
    """What a file keeps: numbers and the type."""
    held = t._place.read()
    step = type(held) is Structural
    leaves, tree = jax.tree.flatten(held.public if step else held)
    numbers = [np.asarray(x) if is_inexact(x) or not step else None for x in leaves]
    parameter = getattr(t, "_is_param", False)
    empty = jax.tree.unflatten(tree, numbers)
    return rebuilt, (empty, step, t.requires_grad, parameter)


def rebuilt(array: Any, step: bool, requires_grad: bool, parameter: bool) -> Any:
    """The tensor of a file."""
    on_device = jax.tree.map(jax.numpy.asarray, array)
    if step:
        value, unit = _value(on_device), getattr(on_device, "label", None)
        held = Structural.of(value) if unit is None else Structural.of(value, unit)
        return tensor(held).requires_grad_(requires_grad)
    made = tensor(on_device).requires_grad_(requires_grad)
    if parameter:
        made._is_param = True  # type: ignore[attr-defined]
    return made


# -- as trees of torch ---------------------------------------------------------------------------


class _Tree:
    """How a structured tensor is built from what it stores."""

    def __init__(self, payload: Any) -> None:
        leaves, self.tree = jax.tree.flatten(payload)
        self.moving = tuple([is_inexact(x) for x in leaves])
        self.fixed = [None if m else x for x, m in zip(leaves, self.moving, strict=True)]

    def __eq__(self, other: object) -> bool:
        return type(other) is _Tree and (self.tree, self.moving) == (other.tree, other.moving)

    def __hash__(self) -> int:
        return hash((self.tree, self.moving))

    def join(self, numbers: Any) -> Any:
        rest = iter(numbers)
        full = [next(rest) if m else x for m, x in zip(self.moving, self.fixed, strict=True)]
        return jax.tree.unflatten(self.tree, full)


def _fields(x: Any) -> tuple[Any, ...]:
    return tuple([leaf for leaf in jax.tree.leaves(x) if is_inexact(leaf)])


_FIELDS = Call(_fields, by_matrix=False)


def _flatten(t: StructuredTensor) -> tuple[list[Any], _Tree]:
    with temporarily_clear_interpreter_stack():  # it is no tensor of any transform that runs
        return list(apply(_FIELDS, [t])), _Tree(t._place.read())


def _unflatten(children: Any, tree: _Tree) -> Any:
    children = list(children)
    if not children or not all(isinstance(c, torch.Tensor) for c in children):
        return tree.join(children)
    return apply(Call(lambda *numbers: (tree.join(numbers),)), children)[0]


pytree.register_pytree_node(StructuredTensor, _flatten, _unflatten)
