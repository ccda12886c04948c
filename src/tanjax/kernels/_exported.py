"""Parts of factors that exported programs take and return."""

from __future__ import annotations

from typing import TypeVar

from jax import export

Parts = TypeVar("Parts", bound=type)


def exported(cls: Parts) -> Parts:
    """Let `jax.export` write a named tuple that is among the parts of a factorization."""
    name = f"tanjax_rules.{cls.__name__}"
    export.register_namedtuple_serialization(cls, serialized_name=name)
    return cls
