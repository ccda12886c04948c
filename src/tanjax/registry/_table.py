"""Dispatch: which registration serves a call on these types.

A table maps signatures (tuples of classes, one per leading array argument; missing ones match
anything) to entries. Lookup is on concrete classes with their MRO: the most specific first argument
wins, then the second, and so on. This order leaves no ambiguity. Type hints play no part. Results
are cached until the next registration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax._compat import Tracer
from tanjax._errors import RegistrationError, message, unregistered
from tanjax._typing import Function
from tanjax.arrays import AbstractArray, Dense, is_structured

Signature = tuple[type, ...]
Entry = TypeVar("Entry")


@dataclasses.dataclass(frozen=True)
class Registered(Generic[Entry]):
    """An entry with its signature and its origin."""

    signature: Signature
    entry: Entry
    origin: str


class Journal:
    """A record of the registrations made while it is open, to roll back a pack that fails."""

    open_: list[Journal] = []  # noqa: RUF012  (one stack for the process)

    def __init__(self, origin: str) -> None:
        self.origin, self.undo = origin, list[Callable[[], None]]()

    def __enter__(self) -> Journal:
        self.open_.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.open_.remove(self)
        if kind is not None:
            for step in reversed(self.undo):
                step()


def current_origin(function: Function) -> str:
    """Return the origin of a registration: the pack that is loading, and the function's module."""
    place = f"{function.__module__}.{function.__qualname__}"
    return f"{Journal.open_[-1].origin}: {place}" if Journal.open_ else place


class Table(Generic[Entry]):
    """A map from signatures to entries, for one operation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: dict[Signature, Registered[Entry]] = {}
        self._found: dict[Signature, Registered[Entry] | None] = {}

    def add(
        self, signature: Signature, entry: Entry, origin: str, *, override: bool = False
    ) -> None:
        """Register, or raise `RegistrationError` naming both origins."""
        old = self.rows.get(signature)
        if old is not None and not override:
            names = ", ".join(c.__name__ for c in signature) or "any types"
            raise RegistrationError(
                f"{self.name} for ({names}) is already registered.\n"
                f"  by:  {old.origin}\n  now: {origin}\n"
                "Hint: pass `override=True` to replace it on purpose."
            )
        self.rows[signature] = Registered(signature, entry, origin)
        self._found.clear()
        if Journal.open_:
            Journal.open_[-1].undo.append(lambda: self._restore(signature, old))

    def _restore(self, signature: Signature, old: Registered[Entry] | None) -> None:
        self.rows.pop(signature, None)
        if old is not None:
            self.rows[signature] = old
        self._found.clear()

    def find(self, classes: Signature) -> Registered[Entry] | None:
        """Return the most specific entry for a call on these classes, or `None`."""
        if classes not in self._found:
            fits = [
                (d, r)
                for r in self.rows.values()
                if (d := distance(r.signature, classes)) is not None
            ]
            self._found[classes] = min(fits, key=lambda pair: pair[0])[1] if fits else None
        return self._found[classes]

    def nearest(self, classes: Signature, count: int = 5) -> list[str]:
        """Return the closest registrations, each mismatch marked, for error messages."""

        def fits(signature: Signature) -> list[bool]:
            given = (*classes, *(type(None),) * len(signature))
            return [w in g.__mro__ for w, g in zip(signature, given, strict=False)]

        lines = []
        for row in sorted(
            self.rows.values(), key=lambda r: -sum(fits(r.signature)[: len(classes)])
        )[:count]:
            pairs = zip(row.signature, fits(row.signature), strict=True)
            names = ", ".join(c.__name__ if fit else f"!{c.__name__}" for c, fit in pairs)
            lines.append(f"({names})  from {row.origin}")
        return lines


def distance(signature: Signature, classes: Signature) -> tuple[int, ...] | None:
    """Return how far a signature is from a call (smaller is closer), or `None`: no match."""
    if len(signature) > len(classes):
        return None
    steps = []
    for wanted, given in zip(signature, classes, strict=False):
        if wanted not in given.__mro__:
            return None
        steps.append(given.__mro__.index(wanted))
    return (*steps, *(len(c.__mro__) for c in classes[len(signature) :]))


# the types that `Dense` stands for
NUMBERS = jax.Array, np.ndarray, np.generic, int, float, complex
_CLASSES: dict[type, type] = {}


def is_static_value(x: PyTree) -> bool:
    """True if a positional argument is not an array: a flag, a text, a function."""
    if type(x) is bool or not isinstance(x, NUMBERS):
        return jax.tree_util.all_leaves([x])
    return False


def dispatch_class(x: PyTree) -> type:
    """Return the class that a signature uses for a value: its own, or `Dense` for plain arrays."""
    kind = type(x)
    found = _CLASSES.get(kind)
    if found is None:
        if isinstance(x, AbstractArray) and not is_structured(x):
            raise unregistered(kind)
        dense = isinstance(x, NUMBERS) and kind is not bool
        found = _CLASSES[kind] = Dense if dense and not is_structured(x) else kind
    return found


def check_classes(name: str, types: tuple[PyTree, ...]) -> None:
    """Raise unless a signature is made of classes that a call can have."""
    if Any in types or not all(isinstance(t, type) for t in types):
        raise RegistrationError(
            f"{name}: signatures are made of classes (`object` for any), got {types}."
        )
    if any(issubclass(t, NUMBERS) and t is not bool for t in types):
        raise RegistrationError(
            f"{name}: no call would find this registration: JAX's and NumPy's arrays and "
            "Python's numbers are one type.\nHint: write `tj.Dense` in the signature."
        )


def bare_or_with(types: tuple[PyTree, ...], register: Function) -> Function:
    """Return a decorator used as `@op.rule` or as `@op.rule(*types)`."""
    if len(types) == 1 and callable(types[0]) and not isinstance(types[0], type):
        return register(types[0], ())
    return lambda function: register(function, types)


def hashable(x: object) -> object:
    """Convert lists to tuples."""
    return tuple(map(hashable, x)) if isinstance(x, list | tuple) else x


def check_static(operation: str, name: str, value: object) -> None:
    """**Raises:** `TypeError` for a static argument that cannot be part of a compiled program."""
    try:
        hash(value)
    except TypeError:
        what = "a traced value" if isinstance(value, Tracer) else type(value).__name__
        raise TypeError(
            message(
                f"{operation}: `{name}` is a static argument, and {what} cannot be one.",
                "why: it is part of the compiled program, and must be hashable.",
                hint="pass a Python number, text or tuple; `jax.jit` has `static_argnames`.",
            )
        ) from None
