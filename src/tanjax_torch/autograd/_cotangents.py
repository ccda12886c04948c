"""Conversions between the cotangents of torch and those of JAX, with units.

Torch carries one tensor for each output and needs one for each input. The payload is one of these:

* for a dense tensor, an array;
* for a structured one, a `Structural`, as in JAX; or its matrix (a natural cotangent), dense or
  structured, if it comes from one of torch's own formulas or from a user;
* for a quantity in `u`, any of these in `[loss]/u`;
* for complex numbers, the conjugate of JAX's cotangent.

`structural_bars` turns these into arguments of a pullback of JAX, and `torch_bars` turns its
results into cotangents of torch. Tangents of forward mode cross in the same way, in `u` times a
rate. They leave as matrices, because a tangent always has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, TypeVar, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import arrays
from tanjax._errors import CotangentError, NoRuleError, UnitError, describe, message
from tanjax._typing import DType
from tanjax.arrays import is_structured
from tanjax.quantities import convert, is_quantity, stored_of, unitful
from tanjax.transforms import structural_cotangent
from tanjax.units import Unit, one
from tanjax_torch._typing import Payload, Payloads
from tanjax_torch.structure._structural import Structural

T = TypeVar("T")


class Shaped(NamedTuple):
    """The shape, dtype and unit of a dense output, without the numbers."""

    shape: tuple[int, ...]
    dtype: DType
    label: Unit | None


@jax.tree_util.register_static
@final
class Spec:
    """A `Shaped` as a pytree without leaves."""

    def __init__(self, known: Shaped) -> None:
        self.known = known

    def __eq__(self, other: object) -> bool:
        return type(other) is Spec and self.known == other.known

    def __hash__(self) -> int:
        return hash(self.known)


Outline: TypeAlias = Payload | Spec  # a payload, or its shape, dtype and unit


def outline(out: Payload) -> Outline:
    """Return an output, without its numbers if its cotangent does not depend on them."""
    value, label = (out.stored, out.label) if is_quantity(out) else (out, None)
    if is_structured(value) or type(value) is Structural:
        return out
    return Spec(Shaped(jnp.shape(value), jnp.result_type(value), label))


def label_of(x: Outline) -> Unit:
    """The unit of a payload, or of its outline."""
    if type(x) is Structural:
        return x.unit
    if type(x) is Spec:
        return x.known.label.delta if x.known.label else one
    return x.label.delta if is_quantity(x) else one


def in_label(value: Payload, unit: Unit) -> Payload:
    """Return a number as a quantity, unless its unit is 1."""
    if type(value) is Structural:
        return Structural(value.leaves, value.model, unit, value.at)
    return value if unit.is_one else unitful(value, unit)


def number_of(x: Outline) -> Outline:
    """The number of a payload."""
    return stored_of(x)


def _rescaled(x: Payload, own: Unit, rate: Unit) -> Payload:
    if own is rate:
        return x
    if type(x) is Structural:
        return Structural([convert(v, own, rate) for v in x.leaves], x.model, x.unit, x.at)
    return convert(x, own, rate)


def common_rate(owns: Sequence[Unit | None], what: str) -> Unit:
    """The common unit of all (co)tangents of a call. **Raises:** `UnitError`."""
    given = [own for own in owns if own is not None]
    for own in given[1:]:
        if own.dimension is not given[0].dimension:
            raise UnitError(
                message(
                    f"backward: gradients disagree about {what}: {given[0]} and {own}.",
                    hint="a gradient is in [loss]/[output]; give `backward` one of that unit.",
                )
            )
    return given[0] if given else one


def structural_bars(
    outs: Sequence[Outline], gradients: Sequence[Payload | None]
) -> tuple[tuple[PyTree, ...], Unit]:
    """Return the cotangents for a pullback of JAX, and the unit of the loss."""
    pairs = list(zip(outs, gradients, strict=True))
    owns = [None if g is None else label_of(g) * label_of(o) for o, g in pairs]
    rate = common_rate(owns, "the unit of the loss")
    done = []
    for (o, g), own in zip(pairs, owns, strict=True):
        given = None if g is None or own is None else _rescaled(number_of(g), own, rate)
        done.append(_bar(number_of(o), conjugated(given)))
    return tuple(done), rate


def _bar(out: Outline, g: Payload | None) -> PyTree:
    if type(out) is Spec:
        out = jax.ShapeDtypeStruct(out.known.shape, out.known.dtype)
    if type(out) is Structural:
        if g is not None and type(g) is not Structural:
            raise _no_coordinates(out.tree, g)
        leaves = [jnp.zeros_like(x) for x in out.leaves] if g is None else _fitting(out, g).leaves
        return Structural(leaves, out.model, out.unit)
    if type(g) is Structural:
        if not is_structured(out):
            raise _no_coordinates(g.tree, out)
        return _fitting(Structural.of(out), g).tree
    if is_structured(out):
        return structural_cotangent(out, g)
    if not jnp.issubdtype(out.dtype, jnp.inexact):
        return np.zeros(out.shape, jax.dtypes.float0)
    if g is None:
        return jnp.zeros(out.shape, out.dtype)
    return arrays.destructure(g) if is_structured(g) else jnp.asarray(g, out.dtype)


def _fitting(out: Structural, g: Structural) -> Structural:
    if g.model != out.model:
        raise _no_coordinates(out.tree, g.tree)
    return g


def _no_coordinates(a: PyTree, b: PyTree) -> CotangentError:
    return CotangentError(
        message(
            f"backward: a gradient in coordinates of {describe(a)} meets {describe(b)}.",
            hint="`tj.tangents.natural(x, gradient)` on the arrays makes a matrix of it.",
        )
    )


def torch_bars(cotangents: Sequence[PyTree], rate: Unit) -> Payloads:
    """Return torch's cotangent for every input, in the loss's unit divided by the input's."""
    done = []
    for c in cotangents:
        unit = rate / label_of(c)
        value = number_of(c)
        value = conjugated(Structural.of(value) if is_structured(value) else value)
        done.append(in_label(value, unit))
    return tuple(done)


def conjugated(cotangent: T) -> T:
    """Convert a cotangent of torch to one of JAX, or back."""
    return jax.tree.map(jnp.conj, cotangent)


def structural_tangents(
    primals: Sequence[Payload], tangents: Sequence[Payload | None], by_matrix: bool
) -> tuple[tuple[PyTree, ...], Unit]:
    """Return the tangents for `jax.jvp`, and the common rate."""
    pairs = list(zip(primals, tangents, strict=True))
    owns = [None if t is None else label_of(t) / label_of(x) for x, t in pairs]
    rate = common_rate(owns, "the rate")
    done = []
    for (x, t), own in zip(pairs, owns, strict=True):
        given = None if t is None or own is None else _rescaled(number_of(t), own, rate)
        done.append(_relabelled(x, _tangent(number_of(x), given, by_matrix)))
    return tuple(done), rate


def _relabelled(x: Payload, tangent: PyTree) -> PyTree:
    return unitful(tangent, x.label) if is_quantity(x) else tangent


def _tangent(x: Payload, t: Payload | None, by_matrix: bool) -> PyTree:
    if type(x) is Structural:
        leaves = [jnp.zeros_like(v) for v in x.leaves] if t is None else _fitting(x, t).leaves
        return Structural(leaves, x.model, x.unit)
    if t is None:
        return arrays.zero_tangent(x)
    if type(t) is Structural:
        return _fitting(Structural.of(x), t).tree
    kind = arrays.array_type(x)
    if kind is None:
        return jnp.asarray(t, x.dtype)
    if not (by_matrix or kind.is_injective(x)):
        raise NoRuleError(
            message(
                f"forward mode: a function reads the fields of {describe(x)}.",
                "why: its matrix does not determine them, and neither do tangents of a matrix.",
                hint="use reverse mode (`backward`), or JAX's own `jax.jvp`.",
            )
        )
    return arrays.pushforward_of_restructure(x)(t)


def torch_tangents(
    values: Sequence[Payload], labels: Sequence[Unit], tangents: Sequence[PyTree], rate: Unit
) -> Payloads:
    """Return tangents of outputs for torch: matrices, in the unit of the output times the rate."""
    done = []
    for value, label, t in zip(values, labels, tangents, strict=True):
        if is_structured(value):
            t = arrays.pushforward_of_destructure(value)(t)
        done.append(in_label(t, rate * label))
    return tuple(done)
