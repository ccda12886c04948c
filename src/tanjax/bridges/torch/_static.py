"""Arguments that are no arrays, as keys under which something is kept."""

from __future__ import annotations

from typing import Any

import torch


def frozen(a: Any) -> Any:
    """An argument as a key that can be hashed."""
    if isinstance(a, (list, tuple)):
        return tuple([frozen(x) for x in a])
    if isinstance(a, (bool, int, float)):
        return (type(a), a)  # 1, 1.0 and True are one key, but not one argument
    return None if isinstance(a, torch.Generator) else a


def thawed(a: Any) -> Any:
    """The argument of a key."""
    if isinstance(a, tuple):
        typed = len(a) == 2 and isinstance(a[0], type)
        return a[1] if typed else [thawed(x) for x in a]
    return a
