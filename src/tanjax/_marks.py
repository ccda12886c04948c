"""Marks: calls that a captured program shows as one equation.

Under `tj.capture`, a marked call runs as a `jax.jit` whose *name* is a string that carries the
function and the tree of its arguments. To JAX it is an ordinary `jit`, so every transformation,
loop and compiler pass handles it without a rule of ours. A printer of the program finds the types
in the mark. A derivative, a batch or dead-code elimination may drop or change a mark. Only a view
is lost then: replay runs the jaxpr.

    if ACTIVE[0] and capturing():
        return marked("operation", "matmul", op, body, args, kwargs, cache)

Sharp edges. `ACTIVE` counts captures in all threads, so other code pays only one list lookup. JAX's
own context knows whether *this* thread captures. It also keeps functions traced with marks apart
from others in JAX's caches. Only the jaxprs that show marks keep them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import jax
import numpy as np
from jax.stages import Wrapped
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from . import _compat
from ._jaxpr_types import JaxEquation, Readable
from ._typing import AnyArray, Function

F = TypeVar("F", bound=Function)
Kind: TypeAlias = Literal["operation", "class", "higher_order", "pullback", "helper", "densify"]

ACTIVE = [0]
_MOST = 1024  # marks kept per operation; their number grows with the shapes in the process
_NUMBERS = (int, float, complex, np.generic)
_OPERANDS = inspect.signature(lambda *operands: None)
MOVING = object()  # stands for an operand


class Static:
    """An argument of any class that is a parameter of the equation."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        v = self.value
        return hash((type(v), v.shape, v.tobytes()) if type(v) is np.ndarray else (type(v), v))

    def __eq__(self, other: object) -> bool:
        if type(other) is not Static or type(self.value) is not type(other.value):
            return False
        a, b = self.value, other.value
        if type(a) is np.ndarray:
            return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        return bool(a == b) and repr(a) == repr(b)  # 0.0 is not -0.0 here

    def __repr__(self) -> str:
        return repr(self.value)


Shape = tuple[Any, ...]  # per leaf: `MOVING`, or its `Static`


class Mark:
    """A record of a call: everything that a typed view of its equation needs.

    **Fields:** `kind`: `"operation"`, `"class"`, `"higher_order"`, `"pullback"`; `"helper"` for
    computations of constructors and queries of arrays; `"densify"` inside of an operation that
    loses structure. `name`: as printed. `target`: the called function, which can be called again.
    `tree`, `shape`: of the arguments `(args, kwargs)`. `out_tree`, `out_shape`: of the result.
    `slots`: the functions of a higher-order function. `closed`: how many operands, the first ones,
    these functions close over. `jaxpr`: the trace of the call. Set on request: `lost`, the array
    types that the call converted to dense arrays; `compiled` and `inlined`, the call as a function,
    outside of a trace and under one.
    """

    __slots__ = (
        "closed", "compiled", "inlined", "jaxpr", "kind", "lost", "name", "out_shape", "out_tree",
        "shape", "slots", "target", "tree",
    )  # fmt: skip

    def __init__(
        self, kind: Kind, name: str, target: Function, tree: PyTreeDef, shape: Shape
    ) -> None:
        self.kind, self.name, self.target = kind, name, target
        self.tree, self.shape = tree, shape
        self.out_tree: PyTreeDef = None
        self.out_shape: Shape = ()
        self.slots: Sequence[Any] = ()
        self.closed = 0
        self.jaxpr: Readable | None = None
        self.lost: tuple[str, ...] | None = None
        self.compiled: Wrapped | None = None
        self.inlined: Wrapped | None = None


# The marks of one operation with their compiled functions, by everything that determines these.
Cache: TypeAlias = dict[Hashable, tuple[Mark, Wrapped]]


class Label(str):
    """The name of a call, with its mark."""

    __slots__ = ("mark",)
    mark: Mark


def capturing() -> bool:
    """True if this thread is capturing."""
    return bool(_compat.capturing.value)


@contextlib.contextmanager
def scope(on: bool = True) -> Iterator[None]:
    """Capture the code inside, in this thread; or, with `on=False`, run it without capture."""
    ACTIVE[0] += 1
    try:
        with _compat.capturing(on), jax.disable_jit(False):
            yield
    finally:
        ACTIVE[0] -= 1


def is_operand(x: PyTree) -> bool:
    """True if a leaf is an array, traced or not, or a `Ref`."""
    return isinstance(x, jax.Array | np.ndarray | jax.Ref)


def is_number(x: PyTree) -> bool:
    """True if a leaf is an array or a number, so that operations compute with it."""
    return is_operand(x) or (isinstance(x, _NUMBERS) and type(x) is not bool)


def split(
    tree: PyTree, moves: Callable[[PyTree], bool] = is_number
) -> tuple[list[AnyArray], PyTreeDef, Shape]:
    """Split a tree into its operands, its structure, and the entry in every place."""
    leaves, treedef = jax.tree.flatten(tree)
    shape = tuple(x if type(x) is Static else MOVING if moves(x) else Static(x) for x in leaves)
    return [x for x, s in zip(leaves, shape, strict=True) if s is MOVING], treedef, shape


def join(treedef: PyTreeDef, shape: Shape, moving: Sequence[AnyArray]) -> PyTree:
    """Rebuild a split tree on other operands."""
    rest = iter(moving)
    return jax.tree.unflatten(treedef, [next(rest) if s is MOVING else s.value for s in shape])


def labelled(mark: Mark, function: Function) -> Wrapped:
    """Return `jax.jit` of a function of operands, whose equation will carry the mark."""
    label = Label(mark.name)
    label.mark = mark

    def body(*moving: AnyArray) -> list[AnyArray]:
        outs, mark.out_tree, mark.out_shape = split(function(*moving))
        return outs

    body.__name__ = body.__qualname__ = label
    return jax.jit(of_operands(body))


def of_operands(function: F) -> F:
    """Set the signature `*operands`; JAX would inspect the function, 9 us of 140 per trace."""
    function.__signature__ = _OPERANDS  # type: ignore[attr-defined]
    return function


def marked(
    kind: Kind,
    name: str,
    target: Function,
    function: Function,
    args: Sequence[PyTree],
    kwargs: dict[str, PyTree],
    cache: Cache,
    mode: Hashable = (),
    moves: Callable[[PyTree], bool] = is_number,
) -> PyTree:
    """Run `function(*args, **kwargs)` as a marked equation.

    **Arguments:** `function`: the function to run; it must not close over tracers. `args`,
    `kwargs`: leaves that are `Static` are parameters; others are operands if `moves` is true of
    them. `cache`: of one operation. `mode`: everything besides the arguments that determines the
    computation.
    """
    moving, tree, shape = split((tuple(args), kwargs), moves)
    key: Hashable = (tree, shape, tuple(map(jax.typeof, moving)), mode)
    try:
        found = cache.get(key)
    except TypeError:  # unhashable parameters: traced again at every call
        key = found = None
    if found is None:
        mark = Mark(kind, name, target, tree, shape)

        def on_operands(*moving: AnyArray) -> PyTree:
            args, kwargs = join(tree, shape, moving)
            return function(*args, **kwargs)

        found = mark, labelled(mark, on_operands)
        if len(cache) >= _MOST:
            cache.clear()
        if key is not None:
            cache[key] = found
    mark, jitted = found
    outs = jitted(*moving)
    if mark.jaxpr is None:
        mark.jaxpr = jitted.trace(*moving).jaxpr
    return join(mark.out_tree, mark.out_shape, outs)


def helper(
    name: str, function: F, mode: Callable[[], Hashable] = tuple, *, compiled: bool = False
) -> F:
    """Make each captured call of a function of arrays one equation.

    `compiled`: the function is a compiled unit also without capture.
    """
    marks: Cache = {}

    @functools.wraps(function, updated=())
    def call(*args: PyTree) -> PyTree:
        if ACTIVE[0] and capturing():
            return marked("helper", name, call, function, args, {}, marks, mode())
        return function(*args)

    call.is_unit = compiled  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def mark_of(eqn: JaxEquation) -> Mark | None:
    """Return the mark of an equation if it is the marked call itself, not one derived from it."""
    name = _compat.call_name(eqn)
    if type(name) is not Label:
        return None
    return name.mark if _compat.is_trace_of(eqn, name.mark.jaxpr) else None


def name_of(eqn: JaxEquation) -> str | None:
    """Return the name of the call that an equation runs or derives from; `None` of others."""
    name = _compat.call_name(eqn)
    return str(name) if type(name) is Label else None
