"""Assertions on values: checked where these are known, which they are not under a trace of JAX."""

from __future__ import annotations

from typing import Any

import jax
import torch

from .._registry import implements
from ._support import Array

aten = torch.ops.aten


def holds(condition: Any, text: str = "an assertion of the program does not hold.") -> None:
    """Raise where a condition is known to be false. **Raises:** `RuntimeError`, as torch does."""
    if not isinstance(condition, jax.core.Tracer) and not bool(condition):
        raise RuntimeError(text)


@implements(aten._assert_async.default, eager=True)
def _assert_async(self: Array) -> None:
    holds(self)


@implements(aten._assert_async.msg, eager=True)
def _assert_async_msg(self: Array, assert_msg: str) -> None:
    holds(self, assert_msg)


@implements(aten._functional_assert_async.msg, eager=True)
def _functional_assert_async(self: Array, assert_msg: str, dep_token: Array) -> Array:
    holds(self, assert_msg)
    return dep_token
