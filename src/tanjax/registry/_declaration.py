"""The parts of an operation that dispatch reads: its declaration and its registrations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, Protocol, runtime_checkable

from jaxtyping import PyTree

from tanjax._typing import Function

from ._natural import Convention
from ._table import Table

Hidden = Literal["ad", "hybrid", "natural"]


@dataclasses.dataclass(frozen=True)
class Implementation:
    """A primal for some types."""

    function: Function
    differentiate: bool = False


@dataclasses.dataclass(frozen=True)
class Rule:
    """A natural rule `function(*args) -> (out, natural_pullback)`, with its convention."""

    function: Function
    convention: Convention
    hidden: Hidden = "ad"


@runtime_checkable
class Declaration(Protocol):
    """An `Operation` as dispatch reads it; `operation` documents the fields."""

    name: str
    origin: str
    generic: Function | None
    dense: bool
    check: Callable[..., None] | None
    elementwise: bool
    core_ndims: tuple[int, ...] | None
    batched: Function | None
    implementations: Table[Implementation]
    rules: Table[Rule]
    pushforwards: Table[Rule]
    opt_outs: Table[bool]

    def names_for(self, count: int) -> list[str]: ...
    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree: ...
