"""Keys of random numbers: each operation takes one from torch's generator, or from the context."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import jax
import torch

_KEY: ContextVar[list[jax.Array] | None] = ContextVar("key", default=None)


@contextlib.contextmanager
def random_key(key: jax.Array) -> Iterator[None]:
    """Draw the keys of random operations from `key` in here."""
    token = _KEY.set([key])
    try:
        yield
    finally:
        _KEY.reset(token)


def next_key(generator: torch.Generator | None = None) -> jax.Array:
    """A key that no other operation has."""
    held = _KEY.get()
    if held is None:
        return jax.random.key(int(torch.randint(2**31 - 1, (), generator=generator)))
    held[0], key = jax.random.split(held[0])
    return key
