"""Structured tensors as torch keeps them: leaves, copies, files, trees.

* A leaf gets a hook that turns a matrix that arrives as its gradient into a structural one
  (`tj.tangents.pullback_of_destructure`). All ways to require a gradient install it.
* For `torch.func` a structured tensor is the tree of its fields. So `torch.func.grad` agrees with
  `jax.grad`, and `torch.func.vmap` maps over the leading axes of all fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import jax
import numpy as np
import torch
from jaxtyping import PyTree
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils import _pytree as pytree
from torch.utils.hooks import unserializable_hook

from tanjax._errors import NoRuleError, message
from tanjax.arrays import (
    array_type,
    is_inexact,
    is_structured,
    pullback_of_destructure,
    shape as shape_of,
)
from tanjax.quantities import is_quantity, stored_of
from tanjax_torch._typing import Argument, Outcome, Payload, Payloads
from tanjax_torch.arguments._dtypes import exact_dtype
from tanjax_torch.autograd._cotangents import conjugated
from tanjax_torch.autograd._natural import Call, apply
from tanjax_torch.memory._views import Place
from tanjax_torch.tensor._tensor import StructuredTensor, Tensor, tensor

from ._structural import Leaf, Structural


def project_at_leaf(t: Outcome) -> Outcome:
    """Give a leaf the hook that makes its gradient structural."""
    is_leaf = isinstance(t, StructuredTensor) and t.requires_grad and t.is_leaf
    if is_leaf and not (_is_dense(t) or hasattr(t, "_projects")):
        place = t._place  # not the tensor: a hook that holds it would keep it forever
        project = lambda g: _projected(place, g)
        t.register_hook(unserializable_hook(project))  # a leaf from a file has its own
        t._projects = place.root.is_point = True
    return t


def _is_dense(t: StructuredTensor) -> bool:
    value = stored_of(t._place.read())
    return not is_structured(value)


def _projected(place: Place, gradient: torch.Tensor) -> Tensor | None:
    held = gradient._place.read() if isinstance(gradient, StructuredTensor) else None
    if type(held) is Structural:
        return None
    kind = array_type(stored_of(place.read()))
    if torch.is_grad_enabled() and kind is not None and not kind.is_linear(stored_of(place.read())):
        raise NoRuleError(
            message(
                f"a second derivative, and a gradient of {kind.cls.__name__} that is a matrix.",
                hint="use functions of torch or `tjt.wrap`, whose gradients are structural.",
            )
        )
    return apply(_PROJECTION, [tensor(place.read()), gradient])[0]


def _project(x: Payload, gradient: Payload) -> Payloads:
    unit = gradient.label if is_quantity(gradient) else None
    value = stored_of(x)
    step = pullback_of_destructure(value)(conjugated(stored_of(gradient)))
    step = conjugated(Structural.of(step))
    return (step if unit is None else Structural(step.leaves, step.model, unit),)


_PROJECTION = Call(_project)


# -- as trees of torch ---------------------------------------------------------------------------


class _Tree:
    """The structure of a structured tensor, which builds it from its fields."""

    def __init__(self, payload: Payload) -> None:
        leaves, self.tree = jax.tree.flatten(payload)
        self.moving = tuple([is_inexact(x) for x in leaves])
        self.make = Call(lambda *numbers: (self.join(numbers),))
        self.fixed = [None if m else x for x, m in zip(leaves, self.moving, strict=True)]

    def __eq__(self, other: object) -> bool:
        return type(other) is _Tree and (self.tree, self.moving) == (other.tree, other.moving)

    def __hash__(self) -> int:
        return hash((self.tree, self.moving))

    def join(self, numbers: Iterable[Leaf]) -> PyTree:
        rest = iter(numbers)
        full = [next(rest) if m else x for m, x in zip(self.moving, self.fixed, strict=True)]
        return jax.tree.unflatten(self.tree, full)


def _fields(x: Payload) -> tuple[Leaf, ...]:
    return tuple([leaf for leaf in jax.tree.leaves(x) if is_inexact(leaf)])


_FIELDS = Call(_fields, by_matrix=False)


def _flatten(t: StructuredTensor) -> tuple[list[torch.Tensor], _Tree]:
    place: Place | _Assembly = t._place
    if type(place) is _Assembly:
        return place.children, place.tree
    with temporarily_clear_interpreter_stack():  # no running transform owns it
        return list(apply(_FIELDS, [t])), _Tree(place.read())


def _unflatten(children: Iterable[torch.Tensor], tree: _Tree) -> PyTree:
    children = list(children)
    if not all(isinstance(c, torch.Tensor) for c in children):
        arrays = all(isinstance(c, (jax.Array, np.ndarray)) for c in children)
        return tree.join(children) if arrays else _Filled(children, tree)
    if not children:
        return tree.join(children)
    if any(map(torch._C._functorch.is_functorch_wrapped_tensor, children)):
        return _assembled(children, tree)
    with temporarily_clear_interpreter_stack():
        return apply(tree.make, children)[0]


class _Filled:
    """The tree of a structured tensor with other things in it: axes of `torch.func.vmap`."""

    def __init__(self, children: list[object], tree: _Tree) -> None:
        self.children, self.tree = children, tree


class _Assembly:
    """The memory of a structured tensor whose numbers are tensors of a running transform."""

    def __init__(self, children: list[torch.Tensor], tree: _Tree) -> None:
        self.children, self.tree = children, tree
        self._made: Tensor | None = None

    def read(self) -> NoReturn:
        raise NoRuleError(
            message(
                "a structured tensor of `torch.func` has no array while the transform runs.",
                hint="use functions of torch, or `tjt.wrap` of a JAX function.",
            )
        )

    def made(self) -> Tensor:
        """The tensor that the transform follows."""
        if self._made is None:
            self._made = apply(self.tree.make, self.children)[0]
        return self._made


def _assembled(children: list[torch.Tensor], tree: _Tree) -> StructuredTensor:
    like = [jax.ShapeDtypeStruct(c.shape, exact_dtype(c.dtype)) for c in children]
    whole = tree.join(like)
    shell: Any = StructuredTensor._make_wrapper_subclass(
        StructuredTensor, shape_of(whole), dtype=children[0].dtype
    )
    shell._place = _Assembly(children, tree)
    return shell


def assembled(t: Argument) -> Argument:
    """Return a tensor in the form that the running transform of `torch.func` follows."""
    place = getattr(t, "_place", None)
    return place.made() if type(place) is _Assembly else t


pytree.register_pytree_node(StructuredTensor, _flatten, _unflatten)
pytree.register_pytree_node(_Filled, lambda filled: (filled.children, filled.tree), _unflatten)
