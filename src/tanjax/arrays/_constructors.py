"""Constructors: one written for the fields of one array also takes the fields of a batch.

Constructors run outside of `jit`. So a constructor looks at the rank of each field, and maps over
leading axes only if a field has some.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from jaxtyping import PyTree

from tanjax._typing import Function, Primal, Shape

from ._batches import batch_of, leading, over_batches
from ._leaves import as_array
from ._table import is_own

_BY_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD


def map_constructor(cls: Any) -> None:
    """Let a constructor for one array take the fields of a batch, broadcast."""
    construct: Function = cls.__init__
    parameters = list(inspect.signature(construct).parameters.values())[1:]
    ranks: dict[int | str, int] = {}  # of arguments by place and by name
    rank_of_others: int | None = None
    for i, parameter in enumerate(parameters):
        rank = cls._ranks.get(parameter.name)
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            rank_of_others = rank
        elif rank is not None:
            ranks[i] = ranks[parameter.name] = rank

    def __init__(self: object, *args: PyTree, **kwargs: PyTree) -> None:
        given: list[tuple[int | str, PyTree]] = [*enumerate(args), *kwargs.items()]
        found: dict[int | str, Shape] = {}
        for key, value in given:
            rank = ranks.get(key, rank_of_others)
            if rank is not None and (axes := _axes_before(value, rank)):
                found[key] = axes
        if not found:
            construct(self, *args, **kwargs)
            return
        fields = dict(given)

        def one(*moving: PyTree) -> Primal:
            new = {**fields, **dict(zip(found, moving, strict=True))}
            return cls(*(new[i] for i in range(len(args))), **{k: new[k] for k in kwargs})

        moving = [v if is_own(v) else as_array(v) for v in map(fields.__getitem__, found)]
        made = over_batches(cls.__name__, one, moving, list(found.values()))
        _set_all(self, **{name: getattr(made, name) for name in (*cls._dynamic, *cls._static)})

    cls.__init__ = functools.wraps(construct)(__init__)


def take_fields(cls: Any) -> None:
    """Let a constructor with other arguments take all fields by name, for `dataclasses.replace`.

    Fields by name are set unchanged, as by the method `replace`, without a check.
    """
    construct: Function = cls.__init__
    parameters = inspect.signature(construct).parameters
    names = {*cls._dynamic, *cls._static}
    if names <= {name for name, p in parameters.items() if p.kind is _BY_NAME}:
        return

    def __init__(self: object, *args: PyTree, **named: PyTree) -> None:
        make = construct if args or named.keys() != names else _set_all
        make(self, *args, **named)

    cls.__init__ = functools.wraps(construct)(__init__)


def _set_all(self: object, **named: PyTree) -> None:
    for name, value in named.items():
        object.__setattr__(self, name, value)


def _axes_before(value: PyTree, rank: int) -> Shape:
    """Return the axes of a constructor's argument before those of one array."""
    shape = getattr(value, "shape", None)  # a list has none
    if shape is not None and len(shape) <= rank:
        return ()
    return batch_of(value) if is_own(value) else leading(value, rank)
