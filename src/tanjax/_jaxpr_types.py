"""Types for annotations of jaxprs, their equations and values.

These protocols describe the parts of JAX's classes that tanjax uses, as JAX documents them. The
classes themselves change between versions (`ClosedJaxpr` is `Jaxpr` from 0.11 on), and JAX's
abstract value declares neither shape nor dtype. The protocols serve annotations only: an
`isinstance` check compares attributes.
"""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np

from ._typing import AnyArray

# The parameters of an equation; their classes depend on the primitive.
Params: TypeAlias = dict[str, Any]


@runtime_checkable
class Aval(Protocol):
    """A value as JAX knows it while tracing: everything except its numbers."""

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
    def aval(self) -> Any: ...  # an `Aval`, except for tokens and references


@runtime_checkable
class JaxLiteral(JaxVariable, Protocol):
    """An operand that is a literal number of the program."""

    @property
    def val(self) -> AnyArray: ...


@runtime_checkable
class Primitive(Protocol):
    """The operation of an equation."""

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
    """A closed program to read and evaluate: JAX's own, or a `Closed`."""

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
