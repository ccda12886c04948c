"""Words for programs: what is read of a jaxpr, of its equations and of their values.

Classes of JAX by what we use of them, which is what JAX documents; their own move from version to
version (`ClosedJaxpr` is `Jaxpr` from 0.11 on), and say of an abstract value neither shape nor
dtype. For annotations alone: nothing is an instance of one at run time unless it looks like it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np

from ._typing import AnyArray

# The parameters of an equation: each primitive has its own, of any class.
Params: TypeAlias = dict[str, Any]


@runtime_checkable
class Aval(Protocol):
    """What JAX knows of a value while it traces: all but its numbers."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def weak_type(self) -> bool: ...


@runtime_checkable
class JaxVariable(Protocol):
    """A value in a program; one with a `val` is a literal, a number written into it."""

    @property
    def aval(self) -> Any: ...  # an `Aval`, but for tokens and references


@runtime_checkable
class JaxLiteral(JaxVariable, Protocol):
    """An operand that is a number written into the program."""

    @property
    def val(self) -> AnyArray: ...


@runtime_checkable
class Primitive(Protocol):
    """What an equation does."""

    name: str
    multiple_results: bool

    def bind(self, *args: Any, **params: Any) -> Any: ...
    def get_bind_params(self, params: Params) -> Params | tuple[Sequence[Any], Params]: ...


@runtime_checkable
class JaxEquation(Protocol):
    """One step of a program: results, a primitive, its parameters, operands."""

    @property
    def primitive(self) -> Primitive: ...
    @property
    def invars(self) -> Sequence[JaxVariable]: ...
    @property
    def outvars(self) -> Sequence[JaxVariable]: ...
    @property
    def params(self) -> Params: ...
    @property
    def effects(self) -> AbstractSet[Any]: ...
    @property
    def source_info(self) -> Any: ...
    @property
    def ctx(self) -> Any: ...
    def replace(self, **changes: Any) -> Self: ...


@runtime_checkable
class Steps(Protocol):
    """A program of either kind, open or closed over its constants."""

    @property
    def eqns(self) -> Sequence[JaxEquation]: ...


@runtime_checkable
class OpenJaxpr(Steps, Protocol):
    """A program whose constants are operands, `constvars`."""

    @property
    def invars(self) -> Sequence[JaxVariable]: ...
    @property
    def constvars(self) -> Sequence[JaxVariable]: ...
    @property
    def outvars(self) -> Sequence[JaxVariable]: ...
    @property
    def effects(self) -> AbstractSet[Any]: ...
    @property
    def debug_info(self) -> Any: ...
    def replace(self, **changes: Any) -> Self: ...


@runtime_checkable
class Readable(Protocol):
    """A closed program as it is read and evaluated: JAX's own, or a `Closed`."""

    @property
    def jaxpr(self) -> OpenJaxpr: ...
    @property
    def consts(self) -> Sequence[AnyArray]: ...
    @property
    def out_avals(self) -> Sequence[Aval]: ...


@runtime_checkable
class ClosedJaxpr(Readable, Steps, Protocol):
    """A program with its constants, as JAX traces it."""

    @property
    def effects(self) -> AbstractSet[Any]: ...
