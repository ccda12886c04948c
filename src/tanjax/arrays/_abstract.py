"""The base class of array types.

A matrix with structure is two things at once: a few stored numbers (its *fields*) and the dense
array that they stand for. JAX differentiates the first, people think in the second. An array type
is a pytree of fields with one obligation, `to_dense`. The four linear maps between tangents of
fields and of the dense array have defaults (`maps/_defaults`). Closed forms can replace them.

    @tj.register_array_type
    class Vandermonde(tj.AbstractArray):
        points: Array
        degree: int = tj.rules.static_field()
        def to_dense(self):
            return self.points[:, None] ** jnp.arange(self.degree, dtype=self.points.dtype)

Sharp edges. `tree_unflatten` never runs the constructor. JAX passes placeholders through it, and
a batch of arrays (the result of `jax.vmap`) has leading axes on its leaves. A type with hidden
directions (two sets of fields with the same dense array) must not claim `injective=True`. Rules
would then drop cotangents that reach the fields without passing through the array.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import PyTree, Shaped

from tanjax._errors import NoRuleError, final_type, wrong_ndim
from tanjax._typing import (
    AnyArray,
    Arraylike,
    DenseArray,
    DType,
    Factor,
    Function,
    LinearTerms,
    Multiple,
    Natural,
    Places,
    Query,
    Samples,
    Scalar,
    Shape,
)

from ._dense_aval import batch_shape, dense_aval
from ._densify import densified, holds_its_array
from ._free_forms import FreeForm
from ._leaves import ARRAY_CLASSES, as_array, held, is_inexact, keeps_parts
from ._places import band_places, gather_entries
from ._queries import dense, without_promise
from ._show import show
from .maps import _defaults

T = TypeVar("T")


class Dense:
    """The type of `jax.Array`, NumPy arrays, Python and NumPy scalars, in rule signatures."""


def static_field(**kwargs: Any) -> Any:
    """Declare a hashable field that is part of the treedef and has no derivative."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


def array_field(*, ndim: int, **kwargs: Any) -> Any:
    """Declare an array field of `ndim` dimensions, structured or dense, or a tuple of arrays.

    It lets the type take batches: axes before these `ndim` count the arrays, and tanjax maps the
    type's methods over them. Further arguments are those of `dataclasses.field`.
    """
    return dataclasses.field(metadata={"ndim": ndim}, **kwargs)


class AbstractArray:
    """A structured array: fields that stand for a dense array.

    Subclasses are final, frozen dataclasses registered with `register_array_type`. They have
    fields and `to_dense`; everything else has a default. `is_linear`: the matrices of the type
    form a linear subspace, so a natural tangent can have the same type. `is_isometric`:
    conversions between structural and natural only relabel. `is_injective`: no cotangent of the
    fields is hidden from the array (except the part that the constructor projects out).
    `is_hermitian`: the array is Hermitian for all values of its fields. `has_unit`: True for
    quantities, whose static method `outside` moves the unit of a field out of an array.
    """

    __slots__ = ()
    __array_priority__ = 1000.0
    __hash__ = None  # type: ignore[assignment]
    _dynamic: ClassVar[tuple[str, ...]] = ()
    _static: ClassVar[tuple[str, ...]] = ()
    _ranks: ClassVar[dict[str, int]] = {}  # of the fields of one array, if `array_field` has them
    has_unit = False
    units: ClassVar[str | Function | None] = None  # the constructor's signature
    constructor_unflattens = False  # True if the constructor neither checks nor converts
    constructor_takes_batches = False  # True if it needs no map over leading axes
    fields_are_entries = False  # True if integer fields are entries, too, and not indices

    def __init_subclass__(cls, **kwargs: object) -> None:
        if any("_dynamic" in base.__dict__ for base in cls.__mro__[1:-2]):
            raise final_type(cls)

    def __new__(cls, *args: object, **kwargs: object) -> Any:
        """Make a quantity if a field is a quantity: `Diagonal(x * metre)` is in metres."""
        for value in (*args, *kwargs.values()):
            kind: Any = type(value)
            if getattr(kind, "has_unit", False):
                return kind.outside(cls, args, kwargs)
        return object.__new__(cls)

    def to_dense(self) -> Shaped[DenseArray, " ..."]:
        """Return the dense array that the fields stand for (the map D)."""
        raise NotImplementedError(f"{type(self).__name__} must define `to_dense`.")

    # -- the four maps; closed forms in subclasses only make them fast ---------------------

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        """J: map a structural tangent to its natural tangent."""
        return _defaults.pushforward_of_destructure(dense_of, self, structural)

    def pullback_of_destructure(self, natural: Natural) -> Self:
        """Jᵀ: map a natural cotangent to its structural cotangent."""
        return _defaults.pullback_of_destructure(dense_of, self, natural)

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        """J⁺: map a natural tangent to the least structural tangent that J maps to it."""
        return _defaults.pushforward_of_restructure(self, natural)

    def pullback_of_restructure(self, structural: Self) -> Natural:
        """J⁺ᵀ: map a structural cotangent to the least natural cotangent that Jᵀ maps to it."""
        return _defaults.pullback_of_restructure(self, structural)

    # -- queries of a natural cotangent; defaults form the dense array ---------------------

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        """Return `self @ b` for a dense vector or matrix `b`, in plain JAX."""
        return densified(self, "apply", "define `apply` on the type") @ b

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        """Return the transposed matrix, without conjugation."""
        return jnp.swapaxes(densified(self, "transposed", "define `transposed`"), -1, -2)

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        """Return the main diagonal."""
        return jnp.diagonal(densified(self, "diagonal", "define `diagonal` on the type"))

    def off_diagonal(self, offset: int) -> Shaped[DenseArray, "... k"]:
        """Return the entries `self[i, i + offset]`: a band needs these of a cotangent."""
        if holds_its_array(self):
            return jnp.diagonal(self.to_dense(), offset, -2, -1)
        return self.entries_at(*band_places(self.shape, offset))

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        """Return the entries `self[rows[k], columns[k]]`: a sparse matrix needs these."""
        return gather_entries(self._dense_for("entries_at"), rows, columns)

    def total(self) -> Shaped[DenseArray, " ..."]:
        """Return the sum of all entries."""
        return jnp.sum(densified(self, "total", "define `total` on the type"))

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        """Return the sub-matrix of a contiguous range of rows and columns."""
        return self._dense_for("submatrix")[..., rows, columns]

    def _dense_for(self, query: str) -> Shaped[DenseArray, " ..."]:
        """Densify for a query; warn unless the fields are about as large as the array."""
        if holds_its_array(self):
            return self.to_dense()
        return densified(self, query, f"define `{query}` on the type")

    def inner_product(self, other: Natural) -> Scalar:
        """Return `Σ selfᵢⱼ otherᵢⱼ`, without conjugation."""
        return jnp.sum(self._dense_for("inner_product") * dense(other))

    def as_query(self) -> Query | None:
        """Return name, arguments and cotangent of the query that pairs `self` with any array.

        `⟨self, D⟩ = ⟨cotangent, D.query(*arguments)⟩`; `None` if no query does this.
        """
        return None

    def linear_terms(self) -> LinearTerms | None:
        """Return the terms of a lazy linear combination: pairs of factor (`None` for 1) and array.

        Other types return `None`.
        """
        return None

    def conj(self) -> Natural:
        """Return the complex conjugate: the array itself if it is real."""
        if not jnp.issubdtype(self.dtype, jnp.complexfloating):
            return self
        return conj_of_fields(self) if self.fields_are_entries else self._dense_for("conj").conj()

    def scaled(self, factor: Factor) -> Multiple:
        """Return `factor * self` for a scalar, or `NotImplemented` if the type cannot express it.

        By default a linear type multiplies its fields. For other types the caller makes a lazy
        `Scaled`.
        """
        return self._on_fields(operator.mul, factor)

    def divided(self, divisor: Factor) -> Multiple:
        """Return `self / divisor`, or `NotImplemented`: then the caller scales by `1/divisor`."""
        return self._on_fields(operator.truediv, divisor)

    def _on_fields(self, function: Callable[[Array, Factor], Array], number: Factor) -> Multiple:
        """Return a multiple of an array of a linear type, if a multiple of its fields gives it."""
        if not self.is_linear:
            return NotImplemented
        x = without_promise(self)  # the number may be negative
        if self.fields_are_entries:
            return jax.tree.map(lambda leaf: function(leaf, number), x)
        if not jnp.issubdtype(self.dtype, jnp.inexact) or jnp.iscomplexobj(number):
            return NotImplemented  # linear over the real numbers only, perhaps
        return jax.tree.map(lambda v: function(v, number) if is_inexact(v) else v, x)

    def canonical(self) -> Self:
        """Return the same array with its storage invariant restored; by default that of its fields.

        This is a linear projection of the fields, also valid for tangents. Call it after code
        that changes leaves without the constructor.
        """
        own = lambda v: isinstance(v, AbstractArray)
        inner = lambda v: v is not self and own(v)
        return jax.tree.map(lambda v: v.canonical() if own(v) else v, self, is_leaf=inner)

    def _repeated(self, batch: Shape) -> AbstractArray:
        """Return this array for each member of a batch. A type without leaves may need another."""
        return self

    def free_form(self, positive: bool) -> FreeForm | None:
        """Return the free numbers of the array for `free_coordinates`: by default its fields.

        `positive`: the diagonal, the entries or the eigenvalues are positive; the result is `None`
        if this has no meaning. Define it for fields that repeat a number or hold constants.
        """
        return None

    if TYPE_CHECKING:  # attributes or properties of the types

        @property
        def is_linear(self) -> bool: ...
        @property
        def is_isometric(self) -> bool: ...
        @property
        def is_injective(self) -> bool: ...
        @property
        def is_hermitian(self) -> bool: ...
        @property
        def core_ndim(self) -> int | None: ...
        # installed by frontends/_operators.py, two layers above
        @property
        def mT(self) -> Shaped[AnyArray, "... n m"]: ...
        @property
        def T(self) -> Shaped[AnyArray, "... n m"]: ...
        @property
        def H(self) -> Shaped[AnyArray, "... n m"]: ...
        def __matmul__(self, other: Arraylike) -> Natural: ...
        def __rmatmul__(self, other: Arraylike) -> Natural: ...
        def __add__(self, other: Arraylike) -> Natural: ...
        def __radd__(self, other: Arraylike) -> Natural: ...
        def __sub__(self, other: Arraylike) -> Natural: ...
        def __rsub__(self, other: Arraylike) -> Natural: ...
        def __mul__(self, other: Arraylike) -> Natural: ...
        def __rmul__(self, other: Arraylike) -> Natural: ...
        def __truediv__(self, other: Arraylike) -> Natural: ...
        def __neg__(self) -> Natural: ...
        def __getitem__(self, index: PyTree) -> Natural: ...

    else:
        is_linear = is_isometric = is_injective = is_hermitian = False
        core_ndim = None  # the rank of one array, if all arrays of the type have the same

    # -- facts -----------------------------------------------------------------------------

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        """Return generic values for `python -m tanjax check`, from a `tj.testing.Samples`."""
        return []

    @property
    def shape(self) -> Shape:
        """The shape of the dense array, after the leading axes of a batch."""
        return dense_aval(self).shape

    @property
    def batch_shape(self) -> Shape:
        """The leading axes of `shape` that count the arrays of a batch; `()` for one array."""
        return batch_shape(self)

    @property
    def dtype(self) -> DType:
        """The dtype of the dense array."""
        return dense_aval(self).dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions of the dense array."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of entries of the dense array."""
        return math.prod(self.shape)

    def replace(self, **fields: object) -> Self:
        """Return a copy with other fields, without running the constructor."""
        new = object.__new__(type(self))
        for name in (*self._dynamic, *self._static):
            value = fields.pop(name) if name in fields else getattr(self, name)
            object.__setattr__(new, name, value)
        if fields:
            raise TypeError(f"{type(self).__name__} has no field {sorted(fields)}.")
        return new

    def astype(self, dtype: DTypeLike) -> Natural:
        """Cast to another dtype; densify if the cast drops fractions or imaginary parts."""
        new = jnp.dtype(dtype)
        if keeps_parts(self.dtype, new):
            cast = lambda leaf: leaf.astype(new) if is_inexact(leaf) else leaf
            result = jax.tree.map(cast, self)
            if result.dtype == new:  # False if the dtype is a static field
                return result
        return self._dense_for("astype").astype(new)

    def __bool__(self) -> bool:
        if self.size == 1:
            return bool(self.to_dense())
        raise ValueError(
            f"the truth value of {type(self).__name__}{list(self.shape)} is ambiguous.\n"
            "Hint: compare entries, as in `jnp.all(x == y)`; `x is None` asks whether there is one."
        )

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """Densify for NumPy: `np.asarray(x)` is `np.asarray(x.to_dense())`."""
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(self)):
            raise NoRuleError(
                f"a dense array was asked for where {type(self).__name__}{list(self.shape)} is "
                "traced.\nHint: functions of `jax.numpy` take dense arrays: pass `x.to_dense()`, "
                "or use an operation of `tanjax`."
            )
        return np.asarray(self.to_dense(), dtype=dtype)

    def __repr__(self) -> str:
        parts = [f"{name}={show(getattr(self, name))}" for name in (*self._dynamic, *self._static)]
        return f"{type(self).__name__}({', '.join(parts)})"


def dense_of(x: AbstractArray) -> jax.Array:
    return x.to_dense()


# -- helpers for the constructors of array types -------------------------------------------------


def set_fields(x: object, **fields: object) -> None:
    """Set fields of a frozen instance, in constructors that canonicalise."""
    for name, value in fields.items():
        object.__setattr__(x, name, value)


def conj_of_fields(x: T) -> T:
    """Conjugate the fields: the conjugate of an array whose `to_dense` has real coefficients."""
    return jax.tree.map(
        lambda v: v.conj() if isinstance(v, AbstractArray) or jnp.iscomplexobj(v) else v,
        x,
        is_leaf=lambda v: v is not x and isinstance(v, AbstractArray),
    )


_DEFAULT_DTYPES: dict[bool, DType] = {}


def default_dtype() -> DType:
    """Return JAX's default floating dtype, cached: JAX takes 5 us."""
    wide = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    if wide not in _DEFAULT_DTYPES:
        _DEFAULT_DTYPES[wide] = jnp.dtype(jnp.result_type(float))
    return _DEFAULT_DTYPES[wide]


def canonical_field(x: object, name: str, ndim: int) -> Shaped[Array, " ..."]:
    """Check the rank of an array field; convert lists, scalars and NumPy arrays to `jax.Array`."""
    value = getattr(x, name)
    if type(value) not in ARRAY_CLASSES:
        if not isinstance(value, jax.Array):
            value = as_dense_field(type(x).__name__, value)
            object.__setattr__(x, name, value)
        ARRAY_CLASSES.add(type(value))
    if value.ndim != ndim:
        raise wrong_ndim(type(x).__name__, name, ndim, value)
    return value


def as_dense_field(cls: str, value: Arraylike) -> Shaped[Array, " ..."]:
    """Convert a field to a dense array; densify a structured one with a `DensifyWarning`."""
    value = held(value)
    if isinstance(value, AbstractArray):
        return densified(value, cls, f"pass {cls} a dense array")
    return as_array(value, cls)
