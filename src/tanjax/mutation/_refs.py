"""Refs of structured arrays and quantities, which keep type and unit when written in place.

A `jax.Ref` holds a dense array. A symmetric matrix in metres is one stored array, a promise that it
equals its transpose, and a unit. A raw Ref in its field keeps neither promise nor unit, and
`Symmetric(Ref)` would reach every operation and fail deep inside of JAX. A `StructuredRef` is not
an array: it holds the Refs of the fields and the type. `ref[...]` reads the array. `ref[...] = a`
writes one of the same type, after converting its unit and dtype. If it does not fit, the write
raises first.

    length = tj.new_ref(jnp.zeros(3) * tj.units.m)
    length[0] = 2.0 * tj.units.km
    length[...] += 1.0 * tj.units.m           # 2001, 1, 1 metres

Sharp edges. A write converts numbers to the dtype of the Ref as `astype` does; only a loss of kind
(a fraction, an imaginary part) raises. A `jax.tree.map` over the leaves writes numbers into raw
Refs, unchecked.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NoReturn

import jax
from jax.tree_util import GetAttrKey, KeyPath, PyTreeDef
from jaxtyping import PyTree

from tanjax import arrays
from tanjax._compat import Tracer
from tanjax._errors import MutationError, message
from tanjax._typing import DType, Natural, Shape
from tanjax.arrays import Triangular, is_structured
from tanjax.quantities import is_quantity, unitful
from tanjax.units import Unit
from tanjax.units.signatures import Monomial, Signature

from ._entries import (
    holds_entries,
    is_whole,
    kept_by_constructor,
    of_batch,
    read_entries,
    write_entries,
)
from ._jax_refs import is_ref as is_ref
from ._writes import Text, as_array, fitted, shown_type, target_of


class StructuredRef:
    """A structured array or quantity that can be written in place; made by `tj.new_ref`.

    A pytree whose leaves are the Refs of the fields. `shape`, `dtype`, `ndim`, `batch_shape`,
    `unit` and `kind` (the class of the array) are those of its contents.

    **Reading:** `ref[...]` is the array with its type and unit, `ref[index]` the same as for the
    array.
    **Writing:** `ref[...] = a` accepts an array of the same type and static fields, or a quantity
    in any unit of the dimension. A batch is broadcast; 0 clears an array of a linear type. In a
    batch `ref[k] = a` writes one array, or those at any index of the leading axes. `ref[...] += a`
    and similar statements read, compute, and write. `ref[i, j] = v` writes both entries of a
    `Symmetric` or `Hermitian`, whose diagonal keeps real parts, as in the constructor. In a
    `Triangular` it writes one entry of the triangle. An entry outside raises, or, at a traced
    index, is not written, as JAX drops writes out of range. Dense quantities accept every index of
    `jax.numpy`, and broadcast. In other types you write fields: `ref.diag[i] = v`.

    **Raises:** `MutationError` if the type, a static field (`definite` among them) or the kind of
    numbers would change, or an entry or field cannot be written; `ShapeError`; `UnitError`;
    `IndexError` for a known integer out of range.
    **Cost:** that of the written fields; types other than quantities are read whole.
    **Derivative:** of the transition; see `tj.refs.discharge` and `tj.inplace`.
    """

    __slots__ = ("_reason", "_refs", "_tree")

    def __init__(self, refs: Iterable[PyTree], tree: PyTreeDef, reason: str = "") -> None:
        self._refs = tuple(refs)
        self._tree = tree
        self._reason = reason  # the reason why it must not be written; empty if it may

    # -- what it holds ---------------------------------------------------------------------

    def _abstract(self) -> PyTree:
        """Return the array without numbers."""
        return self._of(jax.ShapeDtypeStruct(r.shape, r.dtype) for r in self._refs)

    def _of(self, leaves: Iterable[PyTree]) -> PyTree:
        return jax.tree.unflatten(self._tree, list(leaves))

    @property
    def kind(self) -> type:
        """The class of the array: `tj.Quantity` for a quantity, `jax.Array` for a dense field."""
        x = self._abstract()
        return type(x) if is_structured(x) else jax.Array

    @property
    def shape(self) -> Shape:
        """The shape of the array, after the leading axes of a batch."""
        return arrays.shape(self._abstract())

    @property
    def ndim(self) -> int:
        """The number of dimensions of the array."""
        return len(self.shape)

    @property
    def batch_shape(self) -> Shape:
        """The leading axes that count the arrays of a batch."""
        return tuple(getattr(self._abstract(), "batch_shape", ()))

    @property
    def dtype(self) -> DType:
        """The dtype of the array."""
        return self._abstract().dtype

    @property
    def unit(self) -> Unit:
        """The unit of a quantity. **Raises:** `AttributeError` without a unit."""
        return self._abstract().unit

    # -- reading and writing -----------------------------------------------------------------

    def __getitem__(self, index: PyTree) -> Natural:
        if is_whole(index):
            return self._of(r[...] for r in self._refs)
        like = self._abstract()
        if (members := of_batch(like, index)) is not None:
            return self._of(read_entries(r, members) for r in self._refs)
        label, target = target_of(like)
        if not holds_entries(target):
            whole = self[...]
            return (whole.to_dense() if type(target) is Triangular else whole)[index]
        numbers = read_entries(self._refs[0], index)
        return numbers if label is None else unitful(numbers, label)

    def __setitem__(self, index: PyTree, value: PyTree) -> None:
        if self._reason:
            raise MutationError(self._reason)
        like = self._abstract()
        if is_whole(index):
            for ref, leaf in zip(self._refs, jax.tree.leaves(fitted(like, value)), strict=True):
                ref[...] = leaf
            return
        write_entries(self._refs, like, index, value)

    def __getattr__(self, name: str) -> PyTree:
        """Return a field: a view that reads and writes it, or the value of a static field."""
        if name.startswith("_"):  # also while an instance is made or copied
            raise AttributeError(name)
        raw = self._of(self._refs)
        label = None
        if is_quantity(raw) and name not in ("stored", "label"):
            label, raw = raw.label, raw.stored
        if not dataclasses.is_dataclass(raw) or name not in _fields(raw):
            known = ", ".join(_fields(raw)) if dataclasses.is_dataclass(raw) else "none"
            raise AttributeError(
                f"StructuredRef of {type(raw).__name__}: no field `{name}`; fields: {known}.\n"
                "Hint: `ref[...]` is the array, with its methods."
            )
        value = getattr(raw, name)
        if not any(map(is_ref, jax.tree.leaves(value))):
            return value
        if label is not None and not _shares_unit(type(raw), name):
            raise AttributeError(
                f"StructuredRef: `{name}` of a {type(raw).__name__} in {label} has no unit of its "
                f"own.\nHint: `ref.stored.{name}` counts in numbers."
            )
        reason = self._reason or kept_by_constructor(raw, name)
        return _views(value, label, reason)

    def __iadd__(self, *_: object, **__: object) -> NoReturn:
        raise _whole_missing("+=")

    def __isub__(self, *_: object, **__: object) -> NoReturn:
        raise _whole_missing("-=")

    def __imul__(self, *_: object, **__: object) -> NoReturn:
        raise _whole_missing("*=")

    def __itruediv__(self, *_: object, **__: object) -> NoReturn:
        raise _whole_missing("/=")

    # -- where an array is meant, the value must be read -----------------------------------------

    def _is_memory(self, *_: object, **__: object) -> NoReturn:
        raise MutationError(
            message(
                "StructuredRef: memory stands where an array is expected.",
                f"memory: {self._of(map(shown_type, self._refs))!r}",
                hint="read what it holds: `ref[...]`.",
            )
        )

    __array__ = __jax_array__ = __iter__ = __float__ = __neg__ = __abs__ = _is_memory
    __matmul__ = __add__ = __sub__ = __mul__ = __truediv__ = __pow__ = _is_memory
    __rmatmul__ = __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rpow__ = _is_memory
    __lt__ = __le__ = __gt__ = __ge__ = _is_memory

    def __repr__(self) -> str:
        return f"StructuredRef({self._of(map(_shown, self._refs))!r})"


def _flatten(ref: StructuredRef) -> tuple[tuple[PyTree, ...], tuple[PyTreeDef, str]]:
    return ref._refs, (ref._tree, ref._reason)


def _flatten_with_keys(ref: StructuredRef) -> tuple[tuple[PyTree, ...], tuple[PyTreeDef, str]]:
    """Return the Refs under the names of their fields: `.stored.diag`."""
    return tuple(zip(_keys(ref._tree), ref._refs, strict=True)), (ref._tree, ref._reason)


@functools.cache
def _keys(tree: PyTreeDef) -> tuple[GetAttrKey, ...]:
    numbered = jax.tree.unflatten(tree, range(tree.num_leaves))
    places, _ = jax.tree_util.tree_flatten_with_path(numbered)
    return tuple(GetAttrKey(jax.tree_util.keystr(p).removeprefix(".")) for p, _ in places)


def _unflatten(aux: tuple[PyTreeDef, str], refs: Iterable[PyTree]) -> StructuredRef:
    return StructuredRef(refs, *aux)


jax.tree_util.register_pytree_with_keys(StructuredRef, _flatten_with_keys, _unflatten, _flatten)


def _views(value: PyTree, label: Unit | None, reason: str) -> PyTree:
    """Return the arrays in a field as views of their Refs; a tuple for a tuple of fields."""
    if isinstance(value, tuple) and not is_structured(value):
        return tuple(_views(v, label, reason) for v in value)
    x = value if label is None else unitful(value, label)
    return StructuredRef(*jax.tree.flatten(x), reason)


def _fields(x: Natural) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(x) if f.init)


def _shares_unit(cls: Any, field: str) -> bool:
    """True if a field of a quantity is in the unit of the whole, by the type's signature."""
    if not isinstance(getattr(cls, "units", None), str) or "->" not in cls.units:
        return False
    signature = Signature.parse(cls.units)
    variadic = signature.variadic
    role = signature.role(field) or (variadic[1] if variadic and variadic[0] == field else None)
    return role is not None and signature.out == Monomial(((role.letter, Fraction(1)),))


def _shown(ref: PyTree) -> PyTree:
    """Return the repr of a Ref: its numbers, or shape and dtype if they are traced."""
    if is_ref(ref) and not isinstance(ref, jax.core.Tracer):
        return ref[...]
    return shown_type(ref) if is_ref(ref) else Text(repr(ref))


def _whole_missing(operator: str) -> MutationError:
    return MutationError(
        message(
            f"StructuredRef: `ref {operator} a` would bind another value to the name `ref`.",
            hint=f"write into what it holds: `ref[...] {operator} a`.",
        )
    )


# -- making and taking back ------------------------------------------------------------------------


def new_ref(tree: PyTree) -> PyTree:
    """Make Refs with the contents of a tree: separate memory, to write in place.

    **Arguments:** `tree`: an array, a structured array, a quantity, or any pytree of these.
    **Returns:** a `jax.Ref` for a dense array or number, a `StructuredRef` for a structured array
    or quantity, of the same shape, dtype and unit; the same tree of these for other trees.
    **Raises:** `MutationError` for a leaf that is a Ref already, or not an array.
    **Cost:** a copy of every array. **Derivative:** the identity, in a discharged function.

    >>> height = new_ref(jax.numpy.array([1.0, 2.0]))
    >>> height[0] = 5.0
    >>> freeze(height).tolist()
    [5.0, 2.0]
    """

    def made(path: KeyPath, x: PyTree) -> PyTree:
        if type(x) is StructuredRef or is_ref(x):
            raise _not_made(path, x, "it is a Ref already", "pass what it holds, `ref[...]`.")
        if not is_structured(x):
            return _new(path, x)
        leaves, structure = jax.tree.flatten(x)
        return StructuredRef([_new(path, leaf) for leaf in leaves], structure)

    is_leaf = lambda x: is_structured(x) or type(x) is StructuredRef
    return jax.tree_util.tree_map_with_path(made, tree, is_leaf=is_leaf)


def _new(path: KeyPath, x: PyTree) -> PyTree:
    try:
        array = as_array(x)
    except TypeError:
        hint = "keep texts and functions out of the state, or in static fields."
        raise _not_made(path, x, f"{type(x).__name__} is no array", hint) from None
    return jax.new_ref(array)


def _not_made(path: KeyPath, x: PyTree, why: str, hint: str) -> MutationError:
    where = jax.tree_util.keystr(path)
    return MutationError(
        message(f"new_ref: no Ref can hold `x{where}`.", f"why: {why}.", hint=hint)
    )


def freeze(tree: PyTree) -> PyTree:
    """Read the Refs of a tree as arrays; under a trace the Refs must not be used afterwards.

    **Arguments:** `tree`: a Ref, a `StructuredRef`, or a pytree of these; other leaves stay.
    **Returns:** the arrays, structured arrays and quantities given to `tj.new_ref`. A Ref that
    occurs twice is frozen once, and gives the same array twice.
    **Cost:** under a trace none if JAX sees that the Ref is not used again; else a copy, since the
    memory of a Ref may be written later. **Derivative:** the identity.
    """
    frozen: dict[int, PyTree] = {}

    def taken(x: PyTree) -> PyTree:
        if not is_ref(x):
            return x
        if id(x) not in frozen:
            is_traced = isinstance(x, Tracer)
            frozen[id(x)] = jax.freeze(x) if is_traced else x[...]
        return frozen[id(x)]

    def whole(x: PyTree) -> PyTree:
        return x._of(map(taken, x._refs)) if type(x) is StructuredRef else taken(x)

    return jax.tree.map(whole, tree, is_leaf=lambda x: type(x) is StructuredRef)
