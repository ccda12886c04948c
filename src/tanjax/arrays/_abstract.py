"""What an array type is, and how one is registered.

A matrix with structure is two things at once: a few stored numbers (its *fields*) and the dense
array that they stand for. JAX differentiates the first, people think in the second. An array type
is a pytree of fields with one obligation, `to_dense`; the four linear maps between tangents of
fields and tangents of the dense array have defaults derived from it (`_default_maps`), which a
type may replace by closed forms.

    @tj.register_array_type
    class Vandermonde(tj.AbstractArray):
        points: Array
        degree: int = tj.static_field()
        def to_dense(self):
            return self.points[:, None] ** jnp.arange(self.degree, dtype=self.points.dtype)

Sharp edges. `tree_unflatten` never runs the constructor: JAX passes placeholders through it, and
a batch of arrays (the result of `jax.vmap`) carries leading axes on its leaves. A type that has
hidden directions (two sets of fields with the same dense array) must not claim `injective=True`:
rules would then drop cotangents that reach the fields without passing through the array.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform, overload

import jax
import jax.numpy as jnp
import numpy as np

from tanjax._errors import RegistrationError, wrong_ndim

from . import _default_maps
from ._densify import densified

T = TypeVar("T")


class Dense:
    """The type of `jax.Array`, NumPy arrays, Python and NumPy scalars, in rule signatures."""


def static_field(**kwargs: Any) -> Any:
    """A field that is part of the type and not differentiated: hashable, kept in the treedef."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


class AbstractArray:
    """A structured array: fields that stand for a dense array.

    Subclasses are final, frozen dataclasses registered with `register_array_type`. They have
    fields and `to_dense`; everything else has a default. `is_linear`: the matrices that the
    type can express are a linear subspace, so a natural tangent can be shown as the same type.
    `is_isometric`: conversions between structural and natural only relabel. `is_injective`:
    no cotangent of the fields is hidden from the array (up to what the constructor projects).
    """

    __slots__ = ()
    __array_priority__ = 1000.0
    __hash__ = None  # type: ignore[assignment]
    _dynamic: ClassVar[tuple[str, ...]] = ()
    _static: ClassVar[tuple[str, ...]] = ()
    core_ndim: ClassVar[int | None] = None  # the rank of one array, where the type has only one
    is_linear: Any = False
    is_isometric: Any = False
    is_injective: Any = False

    def to_dense(self) -> jax.Array:
        """The dense array that the fields stand for (the map D)."""
        raise NotImplementedError(f"{type(self).__name__} must define `to_dense`.")

    # -- the four maps; closed forms in subclasses only make them fast ---------------------

    def pushforward_of_destructure(self, structural: Any) -> Any:
        """J: structural tangent to natural tangent."""
        return _default_maps.pushforward_of_destructure(_dense_of, self, structural)

    def pullback_of_destructure(self, natural: Any) -> Any:
        """Jᵀ: natural cotangent to structural cotangent."""
        return _default_maps.pullback_of_destructure(_dense_of, self, natural)

    def pushforward_of_restructure(self, natural: Any) -> Any:
        """J⁺: natural tangent to the least structural tangent that gives it."""
        return _default_maps.pushforward_of_restructure(self, natural)

    def pullback_of_restructure(self, structural: Any) -> Any:
        """J⁺ᵀ: structural cotangent to the least-norm natural cotangent that gives it."""
        return _default_maps.pullback_of_restructure(self, structural)

    # -- what a natural cotangent can be asked; defaults form the dense array --------------

    def apply(self, b: Any) -> Any:
        """`self @ b` for a dense vector or matrix `b`, in plain JAX."""
        return densified(self, "apply", "define `apply` on the type") @ b

    def transposed(self) -> Any:
        """The transposed matrix, without conjugation."""
        return jnp.swapaxes(densified(self, "transposed", "define `transposed` on the type"), -1, -2)

    def diagonal(self) -> Any:
        """The main diagonal."""
        return jnp.diagonal(densified(self, "diagonal", "define `diagonal` on the type"))

    def total(self) -> Any:
        """The sum of all entries."""
        return jnp.sum(densified(self, "total", "define `total` on the type"))

    def block(self, rows: slice, columns: slice) -> Any:
        """The sub-matrix of a contiguous range of rows and columns."""
        return self.to_dense()[..., rows, columns]

    def pair(self, other: Any) -> Any:
        """`Σ selfᵢⱼ otherᵢⱼ`, without conjugation."""
        other = other.to_dense() if isinstance(other, AbstractArray) else other
        return jnp.sum(self.to_dense() * other)

    def canonical(self) -> Any:
        """The same array with its storage invariant enforced again (nothing to do by default).

        A linear projection of the fields, which also serves for tangents. Call it after code
        that changes leaves without the constructor.
        """
        return self

    # -- facts -----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the dense array."""
        return _dense_aval(self).shape

    @property
    def dtype(self) -> Any:
        """The dtype of the dense array."""
        return _dense_aval(self).dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions of the dense array."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of entries of the dense array."""
        return int(np.prod(self.shape))

    def replace(self, **fields: Any) -> Any:
        """A copy with other fields, made without running the constructor."""
        new = object.__new__(type(self))
        for name in (*self._dynamic, *self._static):
            object.__setattr__(
                new, name, fields.pop(name) if name in fields else getattr(self, name)
            )
        if fields:
            raise TypeError(f"{type(self).__name__} has no field {sorted(fields)}.")
        return new

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Densify for NumPy: `np.asarray(x)` is `np.asarray(x.to_dense())`."""
        return np.asarray(self.to_dense(), dtype=dtype)

    def __repr__(self) -> str:
        parts = [f"{name}={_show(getattr(self, name))}" for name in (*self._dynamic, *self._static)]
        return f"{type(self).__name__}({', '.join(parts)})"


def _show(x: Any) -> str:
    """A value in a repr: small concrete arrays in full, others as dtype and shape."""
    if isinstance(x, jax.core.Tracer) or (isinstance(x, jax.Array | np.ndarray) and x.size > 16):
        return f"{x.dtype}[{','.join(map(str, x.shape))}]"
    if isinstance(x, jax.Array | np.ndarray):
        text = np.array2string(np.asarray(x), separator=", ", precision=4, suppress_small=True)
        return " ".join(text.split())
    if isinstance(x, tuple):
        return f"({', '.join(map(_show, x))}{',' if len(x) == 1 else ''})"
    return repr(x)


def _dense_of(x: AbstractArray) -> jax.Array:
    return x.to_dense()


_AVALS: dict[Any, jax.ShapeDtypeStruct] = {}


def _dense_aval(x: AbstractArray) -> jax.ShapeDtypeStruct:
    """Shape and dtype of `x.to_dense()`, traced once per kind of leaves (about 0.3 ms)."""
    leaves, tree = jax.tree.flatten(x)
    key = (tree, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves))
    if key not in _AVALS:
        _AVALS[key] = jax.eval_shape(_dense_of, x)
    return _AVALS[key]


# -- registration ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ArrayType:
    """What the library knows of a registered array type: its four maps and its facts."""

    cls: type
    destructure: Callable[[Any], Any]
    pushforward_of_destructure: Callable[[Any, Any], Any]
    pullback_of_destructure: Callable[[Any, Any], Any]
    pushforward_of_restructure: Callable[[Any, Any], Any]
    pullback_of_restructure: Callable[[Any, Any], Any]
    is_linear: Callable[[Any], bool]
    is_isometric: Callable[[Any], bool]
    is_injective: Callable[[Any], bool]


_TYPES: dict[type, ArrayType] = {}


def array_type(x: Any) -> ArrayType | None:
    """The registered array type of a value, or `None` if the value is not structured."""
    return _TYPES.get(type(x))


def is_structured(x: Any) -> bool:
    """Whether the value is an instance of a registered array type."""
    return type(x) in _TYPES


def registered_array_types() -> tuple[type, ...]:
    """Every registered array type, in order of registration."""
    return tuple(_TYPES)


@overload
def register_array_type(cls: type[T], /, **options: Any) -> type[T]: ...
@overload
def register_array_type(cls: None = None, /, **options: Any) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static_field,))
def register_array_type(cls: Any = None, /, **options: Any) -> Any:
    """Register an array type: a decorator for your own class, a call for somebody else's.

    **Arguments:** for a subclass of `AbstractArray`, `linear`, `isometric` and `injective` (all
    `False` unless you say otherwise; `tj.testing.check_array_type` checks what you say). For a
    foreign class, `destructure` (required) and optionally `pullback_of_destructure`,
    `pullback_of_restructure`, `pushforward_of_destructure`, `pushforward_of_restructure`, each
    a function of the array and a (co)tangent.

    **Returns:** the class, now a frozen dataclass with slots and a registered pytree.

    **Raises:** `RegistrationError` on a second registration, on a class without `to_dense`, or
    on a foreign class that is not a pytree.
    """
    if cls is None:
        return lambda cls: register_array_type(cls, **options)
    if cls in _TYPES:
        raise RegistrationError(f"{cls.__name__} is already registered as an array type.")
    return (
        _register_own(cls, **options)
        if issubclass(cls, AbstractArray)
        else _register_foreign(cls, **options)
    )


def _register_own(
    cls: type,
    *,
    linear: bool | None = None,
    isometric: bool | None = None,
    injective: bool | None = None,
) -> type:
    if cls.__mro__[1] is not AbstractArray:
        raise RegistrationError(
            f"{cls.__name__}: array types are final; derive from `tj.AbstractArray` directly."
        )
    if "to_dense" not in cls.__dict__:
        raise RegistrationError(f"{cls.__name__} must define `to_dense`.")
    for name, value in (
        ("is_linear", linear),
        ("is_isometric", isometric),
        ("is_injective", injective),
    ):
        if value is not None:
            setattr(cls, name, value)
    # eq=False keeps `==` free for the element-wise meaning; slots: 0.35 us to construct.
    new: Any = dataclasses.dataclass(
        frozen=True, slots=True, eq=False, repr=False, init="__init__" not in cls.__dict__
    )(cls)
    fields = dataclasses.fields(new)
    new._dynamic = tuple(f.name for f in fields if not f.metadata.get("static"))
    new._static = tuple(f.name for f in fields if f.metadata.get("static"))
    _register_pytree(new)
    _TYPES[new] = ArrayType(
        new,
        _dense_of,
        lambda x, t: x.pushforward_of_destructure(t),
        lambda x, t: x.pullback_of_destructure(t),
        lambda x, t: x.pushforward_of_restructure(t),
        lambda x, t: x.pullback_of_restructure(t),
        lambda x: x.is_linear,
        lambda x: x.is_isometric,
        lambda x: x.is_injective,
    )
    return new


def _register_pytree(cls: Any) -> None:
    dynamic, static = cls._dynamic, cls._static
    keys = tuple(jax.tree_util.GetAttrKey(name) for name in dynamic)

    def flatten(x: Any) -> tuple[Any, Any]:
        return tuple(getattr(x, n) for n in dynamic), tuple(getattr(x, n) for n in static)

    def flatten_with_keys(x: Any) -> tuple[Any, Any]:
        children, aux = flatten(x)
        return tuple(zip(keys, children, strict=True)), aux

    def unflatten(aux: Any, children: Any) -> Any:
        new = object.__new__(cls)
        for name, value in zip(dynamic, children, strict=True):
            object.__setattr__(new, name, value)
        for name, value in zip(static, aux, strict=True):
            object.__setattr__(new, name, value)
        return new

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


def _register_foreign(
    cls: type,
    *,
    destructure: Callable[[Any], Any],
    pullback_of_destructure: Callable[[Any, Any], Any] | None = None,
    pullback_of_restructure: Callable[[Any, Any], Any] | None = None,
    pushforward_of_destructure: Callable[[Any, Any], Any] | None = None,
    pushforward_of_restructure: Callable[[Any, Any], Any] | None = None,
    linear: bool = False,
    isometric: bool = False,
    injective: bool = False,
) -> type:
    probe = object.__new__(cls)
    try:
        is_leaf = jax.tree_util.all_leaves([probe])
    except Exception:  # the class is a pytree whose flatten needs its fields
        is_leaf = False
    if is_leaf:
        raise RegistrationError(
            f"{cls.__name__} is not a pytree.\n"
            "Hint: register it first, for instance with `jax.tree_util.register_dataclass`."
        )
    default = _default_maps
    _TYPES[cls] = ArrayType(
        cls,
        destructure,
        pushforward_of_destructure
        or (lambda x, t: default.pushforward_of_destructure(destructure, x, t)),
        pullback_of_destructure
        or (lambda x, t: default.pullback_of_destructure(destructure, x, t)),
        pushforward_of_restructure or (lambda x, t: default.pushforward_of_restructure(x, t)),
        pullback_of_restructure or (lambda x, t: default.pullback_of_restructure(x, t)),
        lambda x: linear,
        lambda x: isometric,
        lambda x: injective,
    )
    return cls


# -- helpers for the constructors of array types -------------------------------------------------

# Concrete classes seen to be `jax.Array`: a set lookup takes 40 ns, isinstance 190 ns. Learnt at
# run time, because making an array at import would start JAX's back end.
_ARRAY_CLASSES: set[type] = set()


def set_fields(x: Any, **fields: Any) -> None:
    """Set fields of a frozen instance, for constructors that canonicalise."""
    for name, value in fields.items():
        object.__setattr__(x, name, value)


def canonical_field(x: Any, name: str, ndim: int) -> Any:
    """Check the rank of an array field and turn lists, scalars and NumPy arrays into `jax.Array`."""
    value = getattr(x, name)
    if type(value) not in _ARRAY_CLASSES:
        if not isinstance(value, jax.Array):
            value = jnp.asarray(value)
            object.__setattr__(x, name, value)
        _ARRAY_CLASSES.add(type(value))
    if value.ndim != ndim:
        raise wrong_ndim(type(x).__name__, name, ndim, value)
    return value
