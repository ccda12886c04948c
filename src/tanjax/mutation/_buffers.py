"""Matching of buffers with the number arrays of a tree, and checks that they fit.

A tree of buffers has the structure of its parameters, with a `jax.Ref` for every leaf that moves.
Every difference is an error that names the leaf. It is raised before anything is added, because an
addition to the wrong place cannot be undone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import PyTreeDef
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax import units
from tanjax._errors import (
    AliasError,
    CotangentError,
    MutationError,
    ScaleError,
    UnitError,
    describe,
    message,
)
from tanjax._typing import DType, Natural, Pullback, Scalar
from tanjax.arrays import is_inexact, is_structured
from tanjax.quantities import convert, is_quantity
from tanjax.units import Unit

from ._refs import StructuredRef, is_ref


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GradientRefs:
    """Buffers for the gradient of a loss with a unit.

    **Fields:** `refs`, a tree of Refs like the parameters; `unit`, static: the unit of the loss, in
    which numbers are added.
    """

    refs: PyTree
    unit: Unit = dataclasses.field(metadata={"static": True})


class Slot(NamedTuple):
    """One number array that moves, and its buffer; `units` if these differ.

    The buffer of a frozen parameter is `None`: no cotangent is computed.
    """

    path: str
    leaf: PyTree
    ref: PyTree
    units: tuple[Unit, Unit] | None

    def add(self, cotangent: Natural) -> None:
        """Add the cotangent of the leaf to the buffer, in its unit and dtype."""
        if self.ref is None:
            return
        if self.units is not None:
            cotangent = convert(cotangent, self.units[0].inverse, self.units[1].inverse)
        self.ref[...] += cotangent.astype(self.ref.dtype)

    def read(self) -> Natural:
        """Return the cotangent of the leaf, in the dtype of the buffer; `None` for a frozen one."""
        if self.ref is None:
            return None
        value = self.ref[...]
        if self.units is None:
            return value
        return convert(value, self.units[1].inverse, self.units[0].inverse)

    @property
    def is_direct(self) -> bool:
        """True if JAX can add to the buffer itself."""
        if self.ref is None:
            return False
        return self.units is None and jnp.result_type(self.leaf) == self.ref.dtype


class Matched:
    """The buffers of one call of a gradient."""

    def __init__(self, slots: list[Slot], unit: Unit) -> None:
        self.slots, self.unit = slots, unit

    def add(self, pullback: Pullback, loss: Scalar, unit: Unit | None) -> None:
        """Pull back from the loss into the buffers."""
        seed = _seed(loss, _checked(unit, self.unit), self.unit)
        ad: Any = jax.ad
        pull: Any = pullback
        other = lambda slot: ad.DontWant() if slot.ref is None else ad.GradValue()
        wanted = [slot.ref if slot.is_direct else other(slot) for slot in self.slots]
        try:
            (cotangents,) = pull.with_refs(wanted)(seed)
        except Exception as error:  # JAX has no class for this error
            if "vmap" in str(error):
                error.add_note(
                    "Hint: a buffer cannot be added to by each of many: sum the losses inside of "
                    "the function, or `scan` over the micro-batches."
                )
            raise
        for slot, cotangent in zip(self.slots, cotangents, strict=True):
            if not slot.is_direct:
                slot.add(cotangent)


def matched(where: str, x: PyTree, refs: PyTree, name: str = "") -> tuple[list[Slot], Unit]:
    """Return the slots of all moving leaves of a tree, and the unit of their buffers."""
    unit, tree = units.one, refs
    if isinstance(refs, GradientRefs):
        unit, tree = refs.unit, refs.refs
    slots = list(_slots(where, name, x, tree))
    check_distinct(where, slots)
    return slots, unit


def match_arguments(
    into: PyTree, args: Sequence[PyTree], kwargs: PyTree, argnums: int | Sequence[int]
) -> Matched:
    """Find the buffer of every leaf that moves, for `tj.grad(f, into=...)`."""
    if not isinstance(argnums, int) and len({i % len(args) for i in argnums}) < len(argnums):
        raise AliasError(f"grad: `argnums={tuple(argnums)}` names an argument twice.")
    if isinstance(argnums, int):
        slots, unit = matched("grad", args[argnums], into, f"argument {argnums}")
    else:
        given = into.refs if isinstance(into, GradientRefs) else into
        if not isinstance(given, tuple | list) or len(given) != len(argnums):
            raise CotangentError(
                message(
                    "grad: `into` must have one tree of buffers per argument.",
                    f"argnums: {tuple(argnums)}",
                    f"into: {_kind(given)}",
                    hint="for instance `into=(tj.refs.zero_refs(x), tj.refs.zero_refs(y))`.",
                )
            )
        found = [
            matched("grad", args[i], tree, f"argument {i}")
            for i, tree in zip(argnums, given, strict=True)
        ]
        slots = [slot for own, _ in found for slot in own]
        unit = found[0][1]
        for i, (_, label) in zip(argnums, found, strict=True):
            if label is not unit:
                raise UnitError(
                    message(
                        "grad: the buffers of two arguments remember different units.",
                        f"argument {argnums[0]}: {unit}",
                        f"argument {i}: {label}",
                        hint="make them together: `tj.refs.zero_refs((x, y), unit=...)`.",
                    )
                )
        if given is not into:
            unit = into.unit
    check_distinct("grad", slots, (args, kwargs))
    return Matched(slots, unit)


def _slots(where: str, name: str, x: PyTree, tree: PyTree) -> Iterator[Slot]:
    stop = lambda a: is_structured(a) or a is None
    paths, treedef = jax.tree_util.tree_flatten_with_path(x, is_leaf=stop)
    may_freeze = where != "accumulate"
    given = _flattened_like(where, name, treedef, _spread(x, tree) if may_freeze else tree)
    for (path, leaf), buffer in zip(paths, given, strict=True):
        place = f"{name}{jax.tree_util.keystr(path)}" or "the array"
        if type(buffer) is StructuredRef:
            buffer = buffer._of(buffer._refs)  # the type with Refs in its fields
        labels = None
        if is_quantity(leaf) and is_quantity(buffer):
            labels = _labels(where, place, leaf.label.delta, buffer.label.delta)
            leaf, buffer = leaf.stored, buffer.stored
        numbers, own = jax.tree.flatten(leaf, is_leaf=lambda x: x is None)
        if buffer is None and may_freeze:
            yield from (Slot(place, n, None, None) for n in numbers if is_inexact(n))
            continue
        refs = _flattened_like(where, place, own, buffer)
        for number, ref in zip(numbers, refs, strict=True):
            # A leaf of a gradient may mark that there is none, as for integers.
            added = (
                where == "accumulate"
                and ref is not None
                and not (number is None or getattr(number, "dtype", None) == jax.dtypes.float0)
            )
            if added or is_inexact(number):
                yield _checked_slot(where, Slot(place, number, ref, labels))


def _spread(x: PyTree, tree: PyTree) -> PyTree:
    """Spread a `None` for a part of `x` to all leaves of that part."""
    whole = lambda b: b is None or type(b) is StructuredRef or is_structured(b)
    nothing = lambda part: jax.tree.map(lambda leaf: None, part, is_leaf=is_structured)
    try:
        return jax.tree.map(
            lambda b, part: nothing(part) if b is None else b, tree, x, is_leaf=whole
        )
    except (ValueError, TypeError):
        return tree  # it does not fit; the caller raises


def _flattened_like(where: str, place: str, treedef: PyTreeDef, tree: PyTree) -> list[PyTree]:
    try:
        return treedef.flatten_up_to(tree)
    except (ValueError, TypeError) as error:
        raise CotangentError(
            message(
                f"{where}: the buffers are not like the tree that they belong to.",
                f"where: {place or 'the whole tree'}",
                f"why: {error}",
                hint="`tj.refs.zero_refs(x)` makes buffers for the gradient by `x`.",
            )
        ) from None


def _labels(where: str, place: str, mine: Unit, buffers: Unit) -> tuple[Unit, Unit] | None:
    """Return the units of a parameter and of its buffer if they differ by a factor."""
    if mine is buffers:
        return None
    if mine.dimension is buffers.dimension:
        return mine, buffers
    raise UnitError(
        message(
            f"{where}: the buffer of {place} is one of another dimension.",
            f"parameter: {mine} ({mine.dimension})",
            f"buffer, made for: {buffers} ({buffers.dimension})",
            hint="`tj.refs.zero_refs(x)` makes buffers for the gradient by `x`.",
        )
    )


def _checked_slot(where: str, slot: Slot) -> Slot:
    """Raise, with the name of the leaf, for a buffer that cannot take its cotangent."""
    ref, leaf = slot.ref, slot.leaf
    if not is_ref(ref):
        raise MutationError(
            message(
                f"{where}: {slot.path} has no buffer, but {_kind(ref)}.",
                "why: the gradient would be lost.",
                hint="`tj.refs.zero_refs(x)` makes buffers for the gradient by `x`.",
            )
        )
    if is_ref(leaf):
        raise MutationError(
            message(
                f"{where}: {slot.path} is a Ref, and its number was meant.",
                hint="read it first: `ref[...]`, or `tj.refs.freeze`.",
            )
        )
    fits = is_inexact(leaf) and _holds(ref.dtype, jnp.result_type(leaf))
    if jnp.shape(leaf) != ref.shape or not fits:
        raise CotangentError(
            message(
                f"{where}: the buffer of {slot.path} has the wrong "
                f"{'dtype' if jnp.shape(leaf) == ref.shape else 'shape'}.",
                f"expected: {jnp.result_type(leaf)}{list(jnp.shape(leaf))}, or a wider dtype"
                if hasattr(leaf, "dtype") or is_inexact(leaf)
                else f"expected: one for {_kind(leaf)}",
                f"got: Ref of {ref.dtype}{list(ref.shape)}",
                hint="`tj.refs.zero_refs(x, dtype=...)` makes buffers that fit.",
            )
        )
    return slot


def joined_dtype(a: DTypeLike, b: DTypeLike) -> DType:
    """Return the dtype that holds the numbers of both, also if JAX does not promote implicitly."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(a, b)


def _holds(buffer: DType, dtype: DType) -> bool:
    """True if numbers of a dtype are numbers of the buffer's dtype, and of the same kind."""
    kind = jnp.complexfloating
    same = jnp.issubdtype(buffer, kind) == jnp.issubdtype(dtype, kind)
    return same and joined_dtype(buffer, dtype) == buffer


def check_distinct(where: str, slots: list[Slot], arguments: PyTree = ()) -> None:
    """Raise if a Ref is the buffer of two leaves, or if the function can read it."""
    seen: dict[int, str] = {}
    for slot in slots:
        if slot.ref is None:
            continue
        if id(slot.ref) in seen:
            raise AliasError(
                message(
                    f"{where}: one Ref is the buffer of two arrays.",
                    f"first: {seen[id(slot.ref)]}",
                    f"second: {slot.path}",
                    hint="give each its own; `tj.refs.zero_refs(x)` does.",
                )
            )
        seen[id(slot.ref)] = slot.path
    for leaf in jax.tree.leaves(arguments):
        if id(leaf) in seen:
            raise AliasError(
                message(
                    f"{where}: the buffer of {seen[id(leaf)]} is an argument of the function, too.",
                    hint="the function would see half of a gradient; give it another Ref.",
                )
            )


def _checked(unit: Unit | None, remembered: Unit) -> Unit:
    """Return the unit of a loss, if buffers can take it."""
    own = units.one if unit is None else unit.delta
    if own.dimension is remembered.dimension:
        return own
    raise UnitError(
        message(
            "grad: the loss has another dimension than the buffers remember.",
            f"loss: {own} ({own.dimension})",
            f"buffers: {remembered} ({remembered.dimension})",
            hint=f'`tj.refs.zero_refs(x, unit="{own}")` makes buffers for it.',
        )
    )


def _seed(loss: Scalar, own: Unit, remembered: Unit) -> Scalar:
    """Return the cotangent of the loss: 1 in its unit, as a number in the unit of the buffers."""
    if own is remembered:
        return jnp.ones_like(loss)
    multiplier, divisor = units.conversion(own.plain, remembered.plain)
    seed = math.ldexp(multiplier / divisor, own.scale - remembered.scale)
    span = jnp.finfo(loss.dtype)
    if not float(span.tiny) <= seed <= float(span.max):
        raise ScaleError(
            message(
                f"grad: the loss in {own} cannot be added to buffers in {remembered}.",
                f"why: the factor {seed:.1e} does not fit in {loss.dtype}.",
                hint="convert the loss, use a wider dtype, or buffers in a unit nearer to it.",
            )
        )
    return jnp.full_like(loss, seed)


def _kind(x: PyTree) -> str:
    return "None" if x is None else describe(x)
