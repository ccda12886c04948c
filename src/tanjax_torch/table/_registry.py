"""The table of torch's operations on our arrays, read by every way into the bridge.

An entry is a pure function of payloads: `jax.Array`s, or arrays of our types for a structured one,
with the arguments of the operation's schema. It has no tensors, views or autograd. So the same
entry serves eager calls, graphs of fx, exported programs and `torch.compile`.

    @implements(aten.addmm)
    def addmm(bias, a, b, *, beta=1, alpha=1):
        return beta * bias + alpha * (a @ b)

Entries are compiled, once for the shapes and the arguments that are no numbers. In-place and `out=`
variants are derived from the functional one.

Sharp edges. `Scalar` and `float` arguments are traced, so that a new learning rate does not compile
again. An entry whose Python code branches on one names it in `static`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from tanjax._errors import NoRuleError, RegistrationError, message
from tanjax_torch._typing import Function, Op

T = TypeVar("T")


class Entry(NamedTuple):
    """An operation on payloads of some types."""

    function: Function
    static: frozenset[str] = frozenset()  # names of numbers known while tracing
    eager: bool = False  # result shapes depend on values: never compiled
    layout: bool = False  # gets `contiguous`: the memory order of its first tensor
    check: Function | None = None  # called before, to refuse known values


DENSE: dict[Op, Entry] = {}
STRUCTURED: dict[Op, dict[tuple[type, ...], Entry]] = {}


def implements(
    *what: Op | type,
    static: tuple[str, ...] = (),
    eager: bool = False,
    layout: bool = False,
    check: Function | None = None,
) -> Callable[[Function], Function]:
    """Register the function of an operation of torch on payloads.

    **Arguments:** `what`: operations (`torch.ops.aten.mm`, all its overloads, or one of them,
    `torch.ops.aten.mm.default`), then the types of its tensors in order, `tj.Dense` for any dense
    array; no types mean that all are dense. `static`: names of `Scalar` or `float` arguments that
    the function must know as Python numbers. `eager`: the function needs values, not only shapes.
    `layout`: the function takes `contiguous`, true if torch has the first tensor in order in
    memory. The values that torch saves for a few derivatives depend on it. `check`: a function of
    the same arguments, called before the entry. It raises for known values that torch refuses.

    **Returns:** a decorator. The function takes payloads and the arguments of the schema.

    **Raises:** `RegistrationError` for an operation that has an entry for these types already, one
    in place or with `out=` (both are derived), or something that is no operation.
    """
    ops = tuple(w for w in what if isinstance(w, (OpOverload, OpOverloadPacket)))
    types = tuple(w for w in what if w not in ops)
    if not ops or not all(isinstance(t, type) for t in types):
        raise RegistrationError(
            message(
                "implements: give operations of torch first, then types of arrays.",
                f"got: {what}",
                hint="for example `@implements(torch.ops.aten.mm, tj.Diagonal, tj.Dense)`.",
            )
        )

    def register(function: Function) -> Function:
        entry = Entry(function, frozenset(static), eager, layout, check)
        for op in ops:
            _check(op, types)
            (STRUCTURED.setdefault(op, {}) if types else DENSE)[types if types else op] = entry
        _forget()
        return function

    return register


def dense_entry(op: OpOverload) -> Entry | None:
    """The entry of an overload, or of its packet, for dense arrays."""
    return DENSE.get(op) or DENSE.get(op.overloadpacket)


def structured_entries(op: OpOverload) -> Iterator[tuple[tuple[type, ...], Entry]]:
    """The entries of an overload and its packet for structured arrays, with their types."""
    for key in (op, op.overloadpacket):
        yield from STRUCTURED.get(key, {}).items()


def _check(op: Op, types: tuple[type, ...]) -> None:
    if str(op).rstrip("0123456789").split(".")[1].endswith("_") and not _is_dunder(op):
        raise RegistrationError(
            message(
                f"implements: {op} works in place, and is derived from the functional operation.",
                hint="register that one.",
            )
        )
    known = STRUCTURED.get(op, {}) if types else DENSE
    if (types or op) in known:
        names = ", ".join(t.__name__ for t in types) or "dense arrays"
        raise RegistrationError(f"implements: {op} has an entry for {names} already.")


def _is_dunder(op: Op) -> bool:
    return str(op).split(".")[1].endswith("__")


_CACHES: list[Callable[[], None]] = []


def _forget() -> None:
    for clear in _CACHES:
        clear()


def remembered(function: Callable[..., T]) -> Callable[..., T]:
    """Cache as `functools.cache`; a new entry empties the cache."""
    cached = functools.cache(function)
    _CACHES.append(cached.cache_clear)
    return cached


def no_rule(op: object, types: tuple[type, ...] = ()) -> NoRuleError:
    """The error for an operation without entry; it names the nearest that have one."""
    import difflib

    names = sorted({str(key).removesuffix(".default") for key in DENSE})
    near = difflib.get_close_matches(str(op).removesuffix(".default"), names, 3, 0.6)
    return NoRuleError(
        message(
            f"{op} has no entry"
            + (f" for {', '.join(t.__name__ for t in types)}." if types else "."),
            *([f"nearest: {', '.join(near)}"] if near else []),
            hint="torch's functions of functions are `cond`, `while_loop`, `scan` and `map` here; "
            "`tjt.wrap` takes one of JAX."
            if isinstance(op, HigherOrderOperator)
            else f"write one: `@tjt.implements(torch.ops.{op})`.",
        )
    )


__all__ = ["Entry", "dense_entry", "implements", "no_rule", "remembered", "structured_entries"]
