"""When a structured array becomes dense, somebody should know.

Forming the dense array costs memory and time that structure was chosen to save, so it never
happens in silence where no rule keeps the structure. The policy says how loud it is.

    with tj.densify("error"):
        ...
"""

from __future__ import annotations

import warnings
from typing import Any

from tanjax._errors import DensifyWarning, NoRuleError, message

_MODE = ["warn"]
_SEEN: set[tuple[str, type]] = set()


class densify:
    """Set the policy: `"allow"`, `"warn"` (default, once per operation and type) or `"error"`.

    As a call it sets the policy from here on; as a context it restores the old one at its end.
    Functions that `jax.jit` has already compiled keep what they did when they were traced.
    """

    def __init__(self, policy: str) -> None:
        if policy not in ("allow", "warn", "error"):
            raise ValueError(
                f"unknown densify policy {policy!r}: choose 'allow', 'warn' or 'error'."
            )
        self._old, _MODE[0] = _MODE[0], policy

    def __enter__(self) -> densify:
        return self

    def __exit__(self, *_: object) -> None:
        _MODE[0] = self._old


def densify_mode() -> str:
    """The policy in force."""
    return _MODE[0]


def densified(x: Any, operation: str, hint: str) -> Any:
    """`x.to_dense()`, as loudly as the policy says: for implementations that lose structure.

    **Arguments:** `operation`, named in the message; `hint`, what the caller can do instead.
    **Raises:** `NoRuleError` under `"error"`; warns `DensifyWarning` under `"warn"`.
    """
    kind = type(x)
    if _MODE[0] == "error" or (_MODE[0] == "warn" and (operation, kind) not in _SEEN):
        text = message(
            f"{operation}: {kind.__name__}{list(x.shape)} becomes dense, with {x.size} entries.",
            hint=f'{hint}, or say `tj.densify("allow")`.',
        )
        if _MODE[0] == "error":
            raise NoRuleError(text)
        _SEEN.add((operation, kind))
        warnings.warn(text, DensifyWarning, stacklevel=2)
    from ._maps import destructure

    return destructure(x)
