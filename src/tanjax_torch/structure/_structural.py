"""The gradient of a structured tensor: numbers by field, in stored coordinates.

`D.grad` of a `Kronecker` is a pair of factor cotangents. It has the class of a `Kronecker` and its
shape, as `jax.grad` gives it, but it is no matrix: its Kronecker product means nothing. So the
bridge holds it as `Structural`, a type whose fields are coordinates. The state of an optimiser is
structural, too (`torch.zeros_like(p)`).

Torch's optimisers compute entry by entry. Here this means field by field, as optax does on trees
of parameters. `grad.mul_(0.5)` halves the cotangent of every factor; `p.add_(grad, alpha=-rate)`
moves every field; norms and sums are those of all stored numbers. Products of matrices, solves and
the like have no meaning for coordinates and raise.

Sharp edges. The first operand decides the type of the result: a point plus a step is a point, a
step plus a point (weight decay) is a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree
from torch._ops import OpOverload

from tanjax._errors import CotangentError, NoRuleError, UnitError, describe, message
from tanjax._typing import AnyArray, DType, Natural
from tanjax.arrays import (
    is_inexact,
    is_structured,
    pullback_of_destructure,
    pullback_of_restructure,
    shape as shape_of,
)
from tanjax.quantities import convert, is_quantity, stored_of, unitful
from tanjax.units import Unit, one
from tanjax_torch._typing import Args, Argument, Kwargs, Payload
from tanjax_torch.table._calls import call_of

aten = torch.ops.aten
# A field of an array; `ShapeDtypeStruct` and the like while JAX looks at trees.
Leaf: TypeAlias = AnyArray


class Model(NamedTuple):
    """The tree of an array, and the shapes of its leaves that have no tangents."""

    tree: PyTreeDef
    fixed: tuple[tuple[int, ...] | None, ...]

    def join(self, leaves: Sequence[Leaf]) -> PyTree:
        """The array with these leaves, and with JAX's zero of integers elsewhere."""
        rest = iter(leaves)
        full = [next(rest) if s is None else np.zeros(s, jax.dtypes.float0) for s in self.fixed]
        return jax.tree.unflatten(self.tree, full)


@jax.tree_util.register_pytree_node_class
class Structural:
    """A structural cotangent or tangent: the inexact leaves, and their unit."""

    __slots__ = ("at", "leaves", "model", "unit")

    def __init__(
        self, leaves: Sequence[Leaf], model: Model, unit: Unit = one, at: Payload | None = None
    ) -> None:
        self.leaves, self.model, self.unit = list(leaves), model, unit
        self.at = at  # the point, where it is known: no part of the pytree

    @classmethod
    def of(cls, tree: PyTree, unit: Unit = one, at: Payload | None = None) -> Structural:
        """Return the fields of an array as coordinates."""
        leaves, treedef = jax.tree.flatten(tree)
        fixed = tuple([None if is_inexact(leaf) else np.shape(leaf) for leaf in leaves])
        moving = [leaf for leaf, s in zip(leaves, fixed, strict=True) if s is None]
        return cls(moving, Model(treedef, fixed), unit, at)

    @property
    def tree(self) -> PyTree:
        """The (co)tangent as JAX has it: an instance of the primal's class."""
        return self.model.join(self.leaves)

    @property
    def public(self) -> PyTree:
        """The same with its unit."""
        return self.tree if self.unit.is_one else unitful(self.tree, self.unit)

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.tree)

    @property
    def dtype(self) -> DType:
        return jnp.result_type(*self.leaves) if self.leaves else self.tree.dtype

    def in_unit(self, unit: Unit) -> Structural:
        """The same (co)tangent, its numbers in another unit. **Raises:** `UnitError`."""
        leaves = [convert(leaf, self.unit, unit) for leaf in self.leaves]
        return Structural(leaves, self.model, unit, self.at)

    def tree_flatten(self) -> tuple[list[Leaf], tuple[Model, Unit]]:
        return self.leaves, (self.model, self.unit)

    @classmethod
    def tree_unflatten(cls, static: tuple[Model, Unit], leaves: Sequence[Leaf]) -> Structural:
        return cls(leaves, *static)

    def __repr__(self) -> str:
        return repr(self.public)


def moved(point: PyTree, leaves: Sequence[Leaf]) -> PyTree:
    """The array at other coordinates, with its integers as they are."""
    flat, treedef = jax.tree.flatten(point)
    rest = iter(leaves)
    return jax.tree.unflatten(treedef, [next(rest) if is_inexact(x) else x for x in flat])


def is_by_field(op: OpOverload) -> bool:
    """True if an operation acts entry by entry, so that it has a meaning for coordinates."""
    return torch.Tag.pointwise in op.tags or op.overloadpacket in _BY_FIELD


_BY_FIELD = (aten.copy, aten.clone, aten._to_copy, aten.zero, aten.fill)
_LIKE = (aten.zeros_like, aten.ones_like, aten.full_like, aten.empty_like)
_OVER_ALL = (aten.linalg_vector_norm, aten.norm, aten.sum, aten.max, aten.min)


def as_matrices(op: OpOverload, args: Args, kwargs: Kwargs) -> list[Argument] | None:
    """The operands of one of torch's derivative formulas, with its gradient as a matrix.

    Torch's own formulas know no coordinates. If one of them computes with a gradient, and the point
    of that gradient is known, the gradient becomes its matrix. Otherwise return `None`.
    """
    in_backward = torch._C._current_graph_task_id() != -1
    values = [*args, *kwargs.values()]
    steps = [a for a in values if type(a) is Structural]
    if not in_backward or any(s.at is None for s in steps) or op.overloadpacket is aten.add:
        return None
    with_arrays = any(is_structured(a) or (isinstance(a, jax.Array) and a.ndim) for a in values)
    if is_by_field(op) and not with_arrays:
        return None
    return [_matrix(a) if type(a) is Structural else a for a in args]


def _matrix(step: Structural) -> Natural:
    natural = pullback_of_restructure(step.at)(step.tree)
    return natural if step.unit.is_one else unitful(natural, step.unit)


def structural_call(op: OpOverload, args: Args, kwargs: Kwargs) -> Payload:
    """Run an operation on operands that include a `Structural`.

    **Raises:** `CotangentError` for an operation that coordinates do not have.
    """
    if op.overloadpacket is aten.add and torch._C._current_graph_task_id() != -1:
        args = _in_coordinates(args)
    if is_by_field(op) or op.overloadpacket in _LIKE:
        return by_field(op, args, kwargs)
    if (
        op.overloadpacket in _OVER_ALL
        and type(args[0]) is Structural
        and _is_over_all(args, kwargs)
    ):
        step = args[0]
        numbers = jnp.concatenate([jnp.ravel(leaf) for leaf in step.leaves])
        total = call_of(op)(numbers, *args[1:], **kwargs)
        return total if step.unit.is_one else unitful(total, step.unit)
    raise CotangentError(
        message(
            f"{op}: a gradient of {_name(args)} is in stored coordinates, and is no matrix.",
            hint="`tj.tangents.natural(x, gradient)` on the arrays (`tensor.payload`) gives its "
            "matrix; an optimiser that flattens, such as LBFGS, takes an array by its fields, "
            "which `tjt.make(tj.Kronecker, a, b)` joins.",
        )
    )


def _in_coordinates(args: Args) -> Args:
    """Prepare a sum of two gradients: pull a matrix back to the coordinates of the other."""
    steps = [a for a in args[:2] if type(a) is Structural and a.at is not None]
    dense = [a for a in args[:2] if isinstance(stored_of(a), jax.Array) and a.shape]
    if not (steps and dense):
        return args
    (step, matrix) = steps[0], dense[0]
    unit = matrix.label if is_quantity(matrix) else one
    pulled = Structural.of(pullback_of_destructure(step.at)(stored_of(matrix)), unit)
    return [step, pulled if unit is step.unit else pulled.in_unit(step.unit), *args[2:]]


def _is_over_all(args: Args, kwargs: Kwargs) -> bool:
    return not any(isinstance(a, (list, tuple)) and a for a in (*args[1:], *kwargs.values()))


def _name(args: Args) -> str:
    kinds = [type(a.tree).__name__ for a in args if type(a) is Structural]
    return kinds[0] if kinds else "a structured tensor"


def by_field(op: OpOverload, args: Args, kwargs: Kwargs) -> Payload:
    """Run an operation field by field; the result is a point or a step, as the first operand.

    **Raises:** `CotangentError` for operands of different structure; `UnitError` for units.
    """
    operands = [a for a in (*args, *kwargs.values()) if type(a) is Structural or is_structured(a)]
    first = operands[0]
    unit = _common_unit(op, operands)
    steps = [a if type(a) is Structural else Structural.of(stored_of(a)) for a in operands]
    model = steps[0].model
    for step in steps[1:]:
        _check_alike(op, steps[0], step)
    for a in (*args, *kwargs.values()):
        if isinstance(a, jax.Array) and a.ndim:
            raise _not_alike(op, steps[0], a)
    call, done = call_of(op), []
    for i in range(len(steps[0].leaves)):
        pick = lambda a, i=i: _leaf(a, i)
        done.append(call(*map(pick, args), **{n: pick(a) for n, a in kwargs.items()}))
    if any(not is_inexact(x) for x in done):
        raise NoRuleError(f"{op}: stored coordinates have no entry for it.")
    if type(first) is Structural or op.overloadpacket in _LIKE:
        at = first.at if type(first) is Structural else stored_of(first)
        return Structural(done, model, unit, at)
    return moved(first, done)


def _leaf(a: Argument, i: int) -> Argument:
    if type(a) is Structural:
        return a.leaves[i]
    return Structural.of(stored_of(a)).leaves[i] if is_structured(a) else a


def _common_unit(op: OpOverload, operands: list[Payload]) -> Unit:
    units = [a.unit if type(a) is Structural else getattr(a, "label", one) for a in operands]
    first = units[0]
    if all(u.is_one for u in units) or (
        all(u is first for u in units)
        and (op.overloadpacket in _LINEAR or op.overloadpacket in _LIKE)
    ):
        return first
    raise UnitError(
        message(
            f"{op}: a step by field with units: {', '.join(map(str, units))}.",
            "why: torch's optimisers know no units, and a gradient is in [loss]/[parameter].",
            hint="keep a pure number as the parameter, and make the quantity in the loss.",
        )
    )


_LINEAR = (aten.add, aten.sub, aten.neg, aten.copy, aten.clone, aten._to_copy, aten.lerp, aten.zero)


def _check_alike(op: OpOverload, a: Structural, b: Structural) -> None:
    if a.model != b.model or [jnp.shape(x) for x in a.leaves] != [jnp.shape(x) for x in b.leaves]:
        raise _not_alike(op, a, b.tree)


def _not_alike(op: OpOverload, a: Structural, b: PyTree) -> CotangentError:
    return CotangentError(
        message(
            f"{op}: in stored coordinates only arrays of one structure meet.",
            f"got: {describe(a.tree)} and {describe(b)}",
            hint="a gradient has the structure of its parameter, a number fits all; to average "
            "models in stored numbers: `AveragedModel(m, multi_avg_fn=get_swa_multi_avg_fn())`.",
        )
    )
