"""Registration: add an array type to the table.

Your own type derives from `AbstractArray` and has the decorator. For a foreign class, a pytree, you
call the function and pass its maps. Both give an `ArrayType`.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any, TypeAlias, TypeVar, dataclass_transform, overload

import jax
from jax import Array

from tanjax._errors import RegistrationError, final_type
from tanjax._typing import Function, Natural, Primal, Structural

from ._abstract import AbstractArray, array_field, dense_of, static_field
from ._batches import map_methods
from ._constructors import map_constructor, take_fields
from ._dense_aval import note_ranks
from ._export import register_export
from ._table import TYPES, ArrayType
from .maps import _defaults as default

T = TypeVar("T")
Fields: TypeAlias = tuple[object, ...]


@overload
def register_array_type(cls: type[T], /, **options: object) -> type[T]: ...
@overload
def register_array_type(cls: None = None, /, **options: object) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(
    frozen_default=True, eq_default=False, field_specifiers=(static_field, array_field)
)
def register_array_type(cls: type | None = None, /, **options: Any) -> type | Function:
    """Register an array type: a decorator for your own class, a call for a foreign class.

    **Arguments:** for a subclass of `AbstractArray`, `linear`, `isometric` and `injective`, by
    default `False`; `tj.testing.check_array_type` checks your claims. For a foreign class,
    `destructure` (required) and optionally `pullback_of_destructure`, `pullback_of_restructure`,
    `pushforward_of_destructure`, `pushforward_of_restructure`, each a function of the array and a
    (co)tangent.

    **Returns:** the class, now a frozen dataclass with slots and a registered pytree.

    **Raises:** `RegistrationError` on a second registration, on a class without `to_dense`, on a
    field with the name of a method, or on a foreign class that is not a pytree.
    """
    if cls is None:
        return lambda cls: register_array_type(cls, **options)
    if cls in TYPES:
        raise RegistrationError(f"{cls.__name__} is already registered as an array type.")
    register = _register_own if issubclass(cls, AbstractArray) else _register_foreign
    known = list(inspect.signature(register).parameters)[1:]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise RegistrationError(
            f"register_array_type({cls.__name__}): unknown option {', '.join(unknown)}.\n"
            f"Hint: the options for this class are {', '.join(known)}."
        )
    return register(cls, **options)


def _register_own(
    cls: type,
    *,
    linear: bool | None = None,
    isometric: bool | None = None,
    injective: bool | None = None,
) -> type:
    if cls.__mro__[1] is not AbstractArray:
        raise final_type(cls)
    if "to_dense" not in cls.__dict__:
        raise RegistrationError(f"{cls.__name__} must define `to_dense`.")
    methods = {n for n, m in vars(AbstractArray).items() if inspect.isfunction(m)}
    for hidden in sorted(methods & set(inspect.get_annotations(cls))):
        raise RegistrationError(
            f"{cls.__name__}: the field `{hidden}` has the name of a method of every array type.\n"
            f"Hint: give it another name, such as `{hidden}_`."
        )
    for name, value in (
        ("is_linear", linear),
        ("is_isometric", isometric),
        ("is_injective", injective),
    ):
        if value is not None:
            setattr(cls, name, value)
    if not cls.constructor_unflattens:  # type: ignore[attr-defined]  # quantities delegate
        map_methods(cls)
    # eq=False keeps `==` free for the element-wise meaning.
    is_written = "__init__" in cls.__dict__
    new: Any = dataclasses.dataclass(
        frozen=True, slots=True, eq=False, repr=False, init=not is_written
    )(cls)
    fields = [f for f in dataclasses.fields(new) if f.init]  # others cache facts about these
    new._dynamic = tuple(f.name for f in fields if not f.metadata.get("static"))
    new._static = tuple(f.name for f in fields if f.metadata.get("static"))
    _register_pytree(new)
    new._ranks = {f.name: f.metadata["ndim"] for f in fields if "ndim" in f.metadata}
    if new._ranks and not new.constructor_takes_batches:
        map_constructor(new)
    elif not new._ranks and new._dynamic and new.batch_shape is AbstractArray.batch_shape:
        note_ranks(new)
    if is_written:
        take_fields(new)
    register_export(new)
    TYPES[new] = ArrayType(
        new,
        dense_of,
        lambda x, t: x.pushforward_of_destructure(t),
        lambda x, t: x.pullback_of_destructure(t),
        lambda x, t: x.pushforward_of_restructure(t),
        lambda x, t: x.pullback_of_restructure(t),
        lambda x: x.is_linear,
        lambda x: x.is_isometric,
        lambda x: x.is_injective,
        new.pullback_of_restructure is not AbstractArray.pullback_of_restructure,
        is_own=True,
    )
    return new


def _register_pytree(cls: type[AbstractArray]) -> None:
    """Register the fields as leaves; every compiled call flattens and unflattens.

    Slot descriptors replace `getattr` and `object.__setattr__` by name. The overhead of a jitted
    function of one `Diagonal` over a plain array is 1.2 us with them, and 3.0 us without.
    """
    dynamic, static = cls._dynamic, cls._static
    if cls.constructor_unflattens:
        # Runs in C++: a compiled function of 100 quantities takes 1.3 times as long as with plain
        # arrays, instead of 1.9 times. JAX then runs the constructor on placeholders.
        jax.tree_util.register_dataclass(cls, list(dynamic), list(static))
        return
    keys = tuple(jax.tree_util.GetAttrKey(name) for name in dynamic)
    children_of, aux_of = _reader(cls, dynamic), _reader(cls, static)
    writers = [getattr(cls, name).__set__ for name in dynamic]
    static_writers = [getattr(cls, name).__set__ for name in static]
    new_instance = object.__new__

    def flatten(x: AbstractArray) -> tuple[Fields, Fields]:
        return children_of(x), aux_of(x)

    def flatten_with_keys(x: AbstractArray) -> tuple[Fields, Fields]:
        return tuple(zip(keys, children_of(x), strict=True)), aux_of(x)

    def unflatten(aux: Fields, children: Fields) -> AbstractArray:
        new = new_instance(cls)
        for write, value in zip((*writers, *static_writers), (*children, *aux), strict=True):
            write(new, value)
        return new

    if len(dynamic) == 1 and not static:
        flatten, unflatten = _of_one_field(cls, getattr(cls, dynamic[0]))
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


def _of_one_field(cls: type, field: MemberDescriptorType) -> tuple[Function, Function]:
    """Return flatten and unflatten for one field; they save 0.4 us per array and call."""
    read, write, new_instance = field.__get__, field.__set__, object.__new__

    def flatten(x: AbstractArray) -> tuple[Fields, Fields]:
        return (read(x),), ()

    def unflatten(aux: Fields, children: Fields) -> AbstractArray:
        new: AbstractArray = new_instance(cls)
        write(new, children[0])
        return new

    return flatten, unflatten


def _reader(cls: type, names: tuple[str, ...]) -> Callable[[AbstractArray], Fields]:
    """Return a function that reads fields into a tuple, by the descriptors of slots."""
    if not names:
        return lambda x: ()
    if len(names) == 1:
        read = getattr(cls, names[0]).__get__
        return lambda x: (read(x),)
    return operator.attrgetter(*names)


def _is_pytree(cls: type) -> bool:
    """True if JAX flattens instances of a class."""
    if issubclass(cls, tuple):
        return hasattr(cls, "_fields")  # a named tuple
    probe: object = object.__new__(cls)
    try:
        return not jax.tree_util.all_leaves([probe])
    except Exception:  # the class is a pytree whose flatten needs its fields
        return True


def _register_foreign(
    cls: type,
    *,
    destructure: Callable[[Primal], Array] | None = None,
    pullback_of_destructure: Callable[[Primal, Natural], Structural] | None = None,
    pullback_of_restructure: Callable[[Primal, Structural], Natural] | None = None,
    pushforward_of_destructure: Callable[[Primal, Structural], Natural] | None = None,
    pushforward_of_restructure: Callable[[Primal, Natural], Structural] | None = None,
    linear: bool = False,
    isometric: bool = False,
    injective: bool = False,
) -> type:
    if destructure is None:
        raise RegistrationError(
            f"{cls.__name__} does not derive from AbstractArray, and `destructure` is missing.\n"
            "Hint: derive it from `tj.AbstractArray`, or pass `destructure=`, a function that "
            "forms the dense array."
        )
    if not _is_pytree(cls):
        raise RegistrationError(
            f"{cls.__name__} is not a pytree.\n"
            "Hint: register it first, for instance with `jax.tree_util.register_dataclass`."
        )
    TYPES[cls] = ArrayType(
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
        pullback_of_restructure is not None,
        is_own=False,
    )
    return cls


map_methods(AbstractArray)
