"""The form of the arguments of a compiled function, before it measures their numbers."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import numpy as np
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax._typing import Function
from tanjax.quantities import Quantity

ARRAYS: set[type] = set()  # the types of JAX's arrays that hold numbers, collected from calls
NOBODY: object = object()  # no argument is this object
_NUMBERS = (float, int, complex, bool, str, type(None))

Args: TypeAlias = tuple[PyTree, ...]  # of a call
Kwargs: TypeAlias = dict[str, PyTree]
# One array of the arguments: JAX's or NumPy's, a Python number, a `Spread`, or a leaf that only
# JAX refuses.
Leaf: TypeAlias = PyTree
Leaves: TypeAlias = Sequence[Leaf]
Weak: TypeAlias = weakref.ref[Leaf]  # to an argument, which is not kept alive
Form: TypeAlias = PyTreeDef | int  # of arguments: how many, if all are arrays
Options: TypeAlias = dict[str, Any]  # of `jax.jit`
# The result of `jax.jit`; `jax.stages.Wrapped` lacks `eval_shape` and `clear_cache`.
Jitted: TypeAlias = Any


class Last(NamedTuple):
    """The arguments of a last call and its program, in one value: threads swap it at once.

    **Fields:** `args`: the very arguments, None if they are not kept alive; `weak`: references to
    them instead; `leaves`: references to the arrays in dicts and lists; `context`: JAX's settings.
    """

    args: Args | None = None
    weak: tuple[Weak, ...] = ()
    leaves: tuple[Weak, ...] = ()
    program: Any = None
    context: object = None

    def holds(self, leaves: Leaves) -> bool:
        """True if dicts and lists, which can change, hold the very arrays of the last call."""
        # Compare the first array alone: in a loop it is new, and the rest is skipped.
        if not self.leaves or self.leaves[0]() is not leaves[0]:
            return False
        return all([r() is x for r, x in zip(self.leaves, leaves, strict=True)])


@runtime_checkable
class Direct(Protocol):
    """A function that knows its last call."""

    last: Last


def _named_arguments(
    fun: Function, options: Options, what: str
) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
    """Return positions and names of arguments, each found from the other as `jax.jit` does.

    **Arguments:** `what`: `"static"` or `"donate"`.
    """
    numbers, names = options.get(f"{what}_argnums"), options.get(f"{what}_argnames")
    if numbers is None and names is None:
        return None
    places = () if numbers is None else (numbers,) if isinstance(numbers, int) else tuple(numbers)
    called = () if names is None else (names,) if isinstance(names, str) else tuple(names)
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return places, called
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if numbers is None:
        places = tuple(i for i, p in enumerate(positional) if p in called)
    if names is None:
        called = tuple(positional[i] for i in places if -len(positional) <= i < len(positional))
    return places, called


class Arguments:
    """The static and the donated arguments of a function.

    **Fields:** `static`: positions and names of static arguments, None if there are none;
    `donates`: true if JAX deletes some arguments.
    """

    def __init__(self, fun: Function, options: Options) -> None:
        self._fun, self._options = fun, options
        self.static = _named_arguments(fun, options, "static")
        self._donated = _named_arguments(fun, options, "donate")
        self.donates = self._donated is not None

    def dynamic(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Return the arguments that are traced."""
        if self.static is None:
            return args, kwargs
        places, names = self.static
        static = {p % len(args) for p in places if -len(args) <= p < len(args)}
        kept = tuple(x for i, x in enumerate(args) if i not in static)
        return kept, {k: v for k, v in kwargs.items() if k not in names}

    def statics(self, args: Args, kwargs: Kwargs) -> tuple[Hashable, ...]:
        """Return the part of a key for static arguments: places, values and types."""
        if self.static is None:
            return ()
        places, names = self.static
        given: list[PyTree] = [(p, args[p]) for p in places if -len(args) <= p < len(args)]
        given += [(k, kwargs[k]) for k in names if k in kwargs]
        return tuple((place, x, type(x)) for place, x in given)  # to JAX 1 is not 1.0 either

    def on_leaves(self, args: Args, kwargs: Kwargs) -> Function:
        """Return the function of the flat dynamic arguments, as it is traced in float64."""
        dynamic = self.dynamic(args, kwargs)
        places = self.static[0] if self.static else ()
        treedef = jax.tree.structure(dynamic)
        positions = {p % len(args) for p in places if -len(args) <= p < len(args)}

        def on_leaves(*leaves: PyTree) -> PyTree:
            given, named = jax.tree.unflatten(treedef, leaves)
            rest = iter(given)
            whole = [args[i] if i in positions else next(rest) for i in range(len(args))]
            return self._fun(*whole, **{**kwargs, **named})

        return on_leaves

    def take_away(self, args: Args, kwargs: Kwargs, out: PyTree) -> None:
        """Delete donated arguments, except results, after a program that did not donate."""
        if self._donated is None:
            return
        places, names = self._donated
        donated = [args[p] for p in places if -len(args) <= p < len(args)]
        donated += [kwargs[name] for name in names if name in kwargs]
        kept = set(map(id, jax.tree.leaves(out)))
        for x in jax.tree.leaves(donated):
            if isinstance(x, jax.Array) and id(x) not in kept and not x.is_deleted():
                x.delete()

    def shifted(self, count: int, *, donates: bool) -> Options:
        """Return the options for a program with `count` more arguments first, and one result more.

        The additional result comes first.
        """
        found = {k: v for k, v in self._options.items() if not k.startswith("donate_")}
        donated = self._donated if donates else None
        for what, named in (("static", self.static), ("donate", donated)):
            if named is not None:
                places, names = named
                found[f"{what}_argnums"] = tuple(p + count if p >= 0 else p for p in places)
                found[f"{what}_argnames"] = names
        if isinstance(found.get("in_shardings"), tuple | list):
            found["in_shardings"] = (*[None] * count, *found["in_shardings"])
        if found.get("out_shardings") is not None:
            found["out_shardings"] = (None, found["out_shardings"])
        return found

    def kept(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Return arguments for another run: copies, if the first run deletes its arguments."""
        if not self.donates:
            return args, kwargs
        copied = lambda x: x.copy() if hasattr(x, "copy") and hasattr(x, "dtype") else x
        kept: tuple[Args, Kwargs] = jax.tree.map(copied, (args, kwargs))
        return kept


def signature(x: Leaf) -> object:
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval
    return (x.shape, x.dtype) if hasattr(x, "dtype") else type(x)


def is_finite(x: Leaf) -> bool:
    known = getattr(x, "is_finite", None)  # of an array on several hosts
    if known is not None:
        return bool(known)
    if not hasattr(x, "dtype") or not jax.numpy.issubdtype(x.dtype, jax.numpy.inexact):
        return True
    if not isinstance(x, jax.Array):
        return bool(np.isfinite(x).all())
    from tanjax.scale.numbers import is_finite

    return is_finite(x)


def is_on_several_hosts(x: Leaf) -> bool:
    """True if this process holds only a part of an argument, or no part."""
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return not x.is_fully_addressable


@functools.cache  # the number of processes is fixed once a program has run
def are_several() -> bool:
    """True if there are several processes."""
    return jax.process_count() > 1


def all_finite(out: PyTree) -> bool:
    return all(map(is_finite, jax.tree.leaves(out)))


def is_immutable(x: PyTree) -> bool:
    kind = type(x.stored) if type(x) is Quantity else type(x)
    return kind in ARRAYS or kind in _NUMBERS


def can_be_looked_at(x: Leaf) -> bool:
    if isinstance(x, jax.Array):
        if isinstance(x, jax.core.Tracer):
            return False
        ARRAYS.add(type(x))
        return x.is_fully_addressable and not x.is_deleted()
    known = isinstance(x, np.ndarray | np.generic | int | float | complex)
    return known or hasattr(x, "is_finite")  # an array on several hosts, measured already
