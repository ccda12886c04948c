"""An entry of the table, compiled: once for the arguments that are no arrays and no numbers.

The arguments of a call are cut in two. Arrays and numbers go through `jax.jit` as they are. The
rest (dims, flags, dtypes) is the key under which the compiled function is kept. Under a trace of
JAX the same function is inlined.

Sharp edges. Random operations draw their key outside, where each call has another one. Numbers
become arrays with weak types inside, and no weak type comes out: torch has none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import torch
from torch._ops import OpOverload

from tanjax._errors import NoRuleError, message
from tanjax_torch._typing import Args, Argument, Function, Kwargs, Outcome, Payload, RandomKey
from tanjax_torch.arguments._keys import drawn_key, next_key, under_trace
from tanjax_torch.arguments._static import frozen, thawed

from ._registry import Entry

_default = torch.get_default_dtype  # the dtype of quotients of integers: part of the key
_HOLE = object()  # in a key: the place of a traced argument
_NUMBERS = (float, int, complex)
Named: TypeAlias = tuple[tuple[str, Hashable], ...]


class Kernel:
    """An operation by one entry: `kernel(*payloads and other arguments)`."""

    def __init__(self, op: OpOverload, entry: Entry) -> None:
        self.op, self.entry = op, entry
        arguments = op._schema.arguments
        self._kinds = tuple(self._kind(a) for a in arguments if not a.kwarg_only)
        self._named = {a.name: self._kind(a) for a in arguments} | {"contiguous": "static"}
        self._random = torch.Tag.nondeterministic_seeded in op.tags
        self._compiled: dict[Hashable, Function] = {}

    def _kind(self, argument: torch.Argument) -> str:
        kind = str(argument.type)
        if "Tensor" in kind:
            return "tensor"
        traced = kind in ("number", "float", "Optional[number]", "Optional[float]")
        if kind == "List[number]" and argument.name not in self.entry.static:
            return "numbers"
        return "number" if traced and argument.name not in self.entry.static else "static"

    def __call__(self, *args: Argument, **kwargs: Argument) -> Outcome:
        if self.entry.check is not None:
            self.entry.check(*args, **kwargs)
        if self.entry.eager:
            return self._eagerly(args, kwargs)
        dynamic: list[Payload] = []
        key: Any = tuple([_sorted(a, k, dynamic) for a, k in zip(args, self._kinds, strict=False)])
        if kwargs:
            named = self._named
            pairs = sorted(kwargs.items())
            key = key, tuple([(n, _sorted(a, named[n], dynamic)) for n, a in pairs]), _default()
        else:
            key = key, (), _default()
        if self._random:
            dynamic.append(_key(_generator((*args, *kwargs.values()))))
        run = self._compiled.get(key)
        if run is None:
            run = self._compiled[key] = self._compile(*key)
        return run(*dynamic)

    def _compile(
        self, positional: tuple[Hashable, ...], named: Named, default: torch.dtype
    ) -> Function:
        def run(*dynamic: Payload) -> Outcome:
            given = iter(dynamic[: len(dynamic) - self._random])
            args = [next(given) if a is _HOLE else thawed(a) for a in positional]
            kwargs = {n: next(given) if a is _HOLE else thawed(a) for n, a in named}
            with _as_torch(self.op):
                if not self._random or dynamic[-1] is None:
                    return settled(self.entry.function(*args, **kwargs))
                with drawn_key(dynamic[-1]):
                    return settled(self.entry.function(*args, **kwargs))

        run.__name__ = run.__qualname__ = str(self.op)
        return jax.jit(run, inline=True)

    def _eagerly(self, args: Args, kwargs: Kwargs) -> Outcome:
        try:
            with _as_torch(self.op), _values(args, kwargs):
                return settled(self.entry.function(*args, **kwargs))
        except jax.errors.ConcretizationTypeError as error:
            raise NoRuleError(
                message(
                    f"{self.op} needs values, which a trace of JAX does not have.",
                    hint="its result's shape depends on values: call it outside of `jax.jit`.",
                )
            ) from error


def _sorted(a: Argument, kind: str, dynamic: list[Payload]) -> Hashable:
    """Append an argument to the traced ones, or return its part of the key."""
    if kind == "tensor":
        if a is None:
            return None
    elif kind == "numbers":
        a = list(a)
    elif kind == "static" or a.__class__ not in _NUMBERS:
        return frozen(a)
    dynamic.append(a)
    return _HOLE


def _values(args: Args, kwargs: Kwargs) -> contextlib.AbstractContextManager[object]:
    """Return a context in which constants have values under a trace."""
    if under_trace():
        leaves = jax.tree.leaves((args, kwargs))
        if not any(isinstance(x, jax.core.Tracer) for x in leaves):
            return jax.ensure_compile_time_eval()
    return contextlib.nullcontext()


@contextlib.contextmanager
def _as_torch(op: OpOverload) -> Iterator[None]:
    """Set JAX's promotion for entries, which use torch's rules, and raise torch's errors.

    Python would replace a `TypeError` of JAX by "unsupported operand type(s)".
    """
    try:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            yield
    except TypeError as error:
        if type(error) is not TypeError:
            raise
        raise RuntimeError(f"{op}: {error}") from error


def _key(generator: torch.Generator | None) -> RandomKey | None:
    """Return a key, or `None` without one, so that only a draw raises: dropout may be 0."""
    try:
        return next_key(generator)
    except NoRuleError:
        return None


def _generator(args: Args) -> torch.Generator | None:
    return next((a for a in args if isinstance(a, torch.Generator)), None)


def settled(out: Outcome) -> Outcome:
    """Return results without weak types."""
    if isinstance(out, (list, tuple)):  # also one with names, which takes no list
        found = [settled(x) for x in out]
        return found if isinstance(out, list) else tuple(found)
    if getattr(out, "weak_type", False):
        return jax.lax.convert_element_type(out, jnp.result_type(out))
    return out
