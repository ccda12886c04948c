"""The policy for densifying: allow, warn or raise.

The dense array costs memory and time that the structure was chosen to save. If no rule keeps the
structure, tanjax therefore warns before it densifies. The policy changes this.

    with tj.densify("error"):
        ...
"""

from __future__ import annotations

import math
import warnings
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jaxtyping import Shaped

from tanjax._errors import DensifyWarning, NoRuleError, message, outside
from tanjax._marks import ACTIVE, Cache, capturing, marked
from tanjax._typing import DenseArray, Primal

from ._queries import dense, shape
from ._table import answers

_MODE = ["warn"]
_HERE: ContextVar[str | None] = ContextVar("densify", default=None)  # inside a context
_SEEN: set[tuple[str, type]] = set()
_MARKS: Cache = {}  # of captured calls


class densify:
    """Set the policy: `"allow"`, `"warn"` (default, once per operation and type) or `"error"`.

    A call sets the policy for all threads from now on; inside a context, until the context ends. A
    context sets the policy of its own thread or task, and restores the old policy at its end.
    Functions that `jax.jit` has already compiled keep the policy of their trace.
    """

    def __init__(self, policy: str) -> None:
        if policy not in ("allow", "warn", "error"):
            raise ValueError(
                f"unknown densify policy {policy!r}: choose 'allow', 'warn' or 'error'."
            )
        self._policy, self._outer, self._global = policy, _HERE.get(), _MODE[0]
        if self._outer is None:
            _MODE[0] = policy
        else:
            _HERE.set(policy)

    def __enter__(self) -> densify:
        if self._outer is None:
            _MODE[0] = self._global
        _HERE.set(self._policy)
        return self

    def __exit__(self, *_: object) -> None:
        _HERE.set(self._outer)


def densify_mode() -> str:
    """Return the current policy."""
    return _HERE.get() or _MODE[0]


def densified(x: Primal, operation: str, hint: str) -> Shaped[DenseArray, " ..."]:
    """Return `x.to_dense()` under the policy: for implementations that lose structure.

    **Arguments:** `operation`: its name in the message; `hint`: an alternative for the caller.
    **Raises:** `NoRuleError` under `"error"`; warns `DensifyWarning` under `"warn"`.
    """
    announce(x, operation, hint)
    return _formed(x)


def _formed(x: Primal) -> Shaped[DenseArray, " ..."]:
    """Densify without a warning: `announce` has run."""
    if ACTIVE[0] and capturing():
        return marked("densify", type(x).__name__, _formed, dense, (x,), {}, _MARKS)
    return dense(x)


def announce(x: Primal, operation: str, hint: str = "") -> None:
    """Warn or raise, as the policy says, because an operation densifies an array."""
    kind, mode = type(x), densify_mode()
    if mode == "allow" or (mode == "warn" and (operation, kind) in _SEEN):
        return
    size = shape(x)
    text = message(
        f"{operation}: {kind.__name__}{list(size)} becomes dense, with {math.prod(size)} entries.",
        hint=f'{hint or f"define `{operation}` on the type"}, or use `tj.densify("allow")`.',
    )
    if mode == "error":
        raise NoRuleError(text)
    _SEEN.add((operation, kind))
    warnings.warn(text, DensifyWarning, stacklevel=outside())


def announce_tangent(x: Primal, operation: str) -> None:
    """Warn or raise because an operation densifies a (co)tangent of `x`, even if not `x` itself.

    A type with only `to_dense` does not warn here, because its products do. Neither does a type
    that stores its array, such as `Masked(dense)`. The policy `"error"` raises for both.
    """
    if (answers(x, "apply") and not holds_its_array(x)) or densify_mode() == "error":
        announce(x, operation)


def holds_its_array(x: Primal) -> bool:
    """True if `x` stores more than half as many numbers as its array, as one triangle does."""
    return 2 * sum(map(jnp.size, jax.tree.leaves(x))) > math.prod(shape(x))
