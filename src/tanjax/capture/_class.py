"""Classes whose construction is an equation: `class RX(metaclass=tj.programs.CaptureMeta)`.

A gate, an event or an operator of your domain is no array. It matters that it was made, and in
which order. So the metaclass makes the class a pytree and its construction an equation, at once,
even if no equation uses it. The instance is real: it has its own type, attributes and methods. Its
`__init__` runs while tracing, so that it can refuse invalid arguments.

    class RX(metaclass=tj.programs.CaptureMeta):
        def __init__(self, angle, wires=0):
            self.angle, self.wires = angle, wires

Sharp edges. Positional arrays and floats are operands; integers, texts and keyword arguments are
parameters. Attributes that hold integers or tuples of them (wires) are static. A class with
`__slots__` has no instance dictionary, and cannot be captured.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import GetAttrKey
from jaxtyping import PyTree

from tanjax._errors import CaptureError, RegistrationError, describe, message
from tanjax._marks import ACTIVE, Cache, Static, capturing, is_operand, marked

from ._types import CapturedClass

_HANDLE = "_equation"  # an instance without numbers holds this one, so that it has an equation
_NAMES = "_leaves"  # the names of the attributes that are leaves, fixed at construction

Instance: TypeAlias = PyTree  # of a captured class
# The static part of an instance: the names of its leaves, and its static attributes by name.
Aux: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, Hashable], ...]]


class CaptureMeta(CapturedClass):
    """The metaclass of classes whose construction is an equation of captured programs.

    Instances are pytrees of their attributes: arrays, floats and pytrees of these are leaves.
    Every other attribute is static and must be hashable. A method `type_text(self)` overrides how
    the type is printed. A subclass is a captured class of its own, with its own type.

    **Raises:** `RegistrationError` for a class without an instance dictionary; under capture
    `CaptureError` for a static attribute that cannot be hashed.

    >>> import tanjax as tj
    >>> class RX(metaclass=tj.programs.CaptureMeta):
    ...     def __init__(self, angle, wires=0):
    ...         self.angle, self.wires = angle, wires
    >>> print(tj.capture(lambda x: RX(2 * x, wires=1).angle)(0.5))
    { lambda ; a:f32[]. let
        b:f32[] = mul 2.0 a
        c:RX<f32[], wires=1> = RX[wires=1] b
        d:f32[] = c.angle
      in (d,) }
    """

    def __init__(
        cls, name: str, bases: tuple[type, ...], namespace: PyTree, **options: PyTree
    ) -> None:
        super().__init__(name, bases, namespace, **options)
        if "__slots__" in namespace and "__dict__" not in namespace["__slots__"]:
            raise RegistrationError(
                message(
                    f"{name}: a class of `tj.programs.CaptureMeta` keeps its attributes in a "
                    "dictionary.",
                    hint="leave `__slots__` out.",
                )
            )
        cls._marks: Cache = {}
        # Instead of that of `__call__` below, which takes anything.
        init: Callable[..., None] = cls.__init__  # type: ignore[misc]  # of the class itself
        own = list(inspect.signature(init).parameters.values())[1:]
        cls.__signature__ = inspect.Signature(own)
        jax.tree_util.register_pytree_with_keys(cls, _flatten_with_keys, _unflatten(cls), _flatten)

    def __call__(cls, *args: PyTree, **kwargs: PyTree) -> PyTree:
        if not (ACTIVE[0] and capturing()):
            return cls._make(args, kwargs)

        def construct(*args: PyTree, **kwargs: PyTree) -> Instance:
            instance = cls._make(args, kwargs)
            _require_hashable(cls.__name__, vars(instance))
            if not jax.tree.leaves(instance):
                vars(instance)[_HANDLE] = jnp.zeros((), bool)
                vars(instance)[_NAMES] = (*vars(instance)[_NAMES], _HANDLE)
            return instance

        named = {
            k: v if any(map(is_operand, jax.tree.leaves(v))) else Static(v)
            for k, v in kwargs.items()
        }
        return marked("class", cls.__name__, cls, construct, args, named, cls._marks, moves=_moves)

    def _make(cls, args: tuple[PyTree, ...], kwargs: dict[str, PyTree]) -> Instance:
        """Make an instance that knows which of its attributes are leaves."""
        instance = type.__call__(cls, *args, **kwargs)
        fields = vars(instance)
        is_instance = lambda x: isinstance(type(x), CapturedClass)
        parts = {k: jax.tree.leaves(v, is_leaf=is_instance) for k, v in fields.items()}
        dynamic = [k for k, xs in parts.items() if any(_moves(x) or is_instance(x) for x in xs)]
        fields[_NAMES] = tuple(sorted(dynamic))
        return instance


def _require_hashable(name: str, fields: dict[str, PyTree]) -> None:
    """**Raises:** `CaptureError` for static attributes that cannot be hashed or compared."""
    for key, value in fields.items():
        if key in fields[_NAMES]:
            continue
        try:
            hash(value)
        except TypeError as error:
            raise CaptureError(
                message(
                    f"{name}: the attribute `{key}` is static and cannot be hashed.",
                    f"got: {describe(value)}",
                    "why: instances that differ in it are of different types, which are compared.",
                    hint=f"keep a tuple instead of a list: `self.{key} = tuple({key})`.",
                )
            ) from error


def _moves(x: PyTree) -> bool:
    return is_operand(x) or isinstance(x, float | complex | np.inexact)


def _flatten(x: Instance) -> tuple[list[PyTree], Aux]:
    fields = vars(x)
    names = fields[_NAMES]
    static = tuple(sorted((k, v) for k, v in fields.items() if k not in names and k != _NAMES))
    return [fields[name] for name in names], (names, static)


def _flatten_with_keys(x: Instance) -> tuple[list[tuple[GetAttrKey, PyTree]], Aux]:
    values, aux = _flatten(x)
    return [(GetAttrKey(k), v) for k, v in zip(aux[0], values, strict=True)], aux


def _unflatten(cls: type) -> Callable[[Aux, Iterable[PyTree]], Instance]:
    def unflatten(aux: Aux, children: Iterable[PyTree]) -> Instance:
        names, static = aux
        new: Instance = object.__new__(cls)
        vars(new).update(static)
        vars(new).update(zip(names, children, strict=True))
        vars(new)[_NAMES] = names
        return new

    return unflatten
