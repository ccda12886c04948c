"""Widths and paddings of matrices with a few diagonals, for rules of every pack."""

from __future__ import annotations

from typing import TypeAlias

from jaxtyping import Shaped

import tanjax as tj

Band: TypeAlias = Shaped[tj.Tridiagonal | tj.SymTridiagonal | tj.Banded, "n n"]


def widths(a: Band) -> tuple[int, int]:
    """How many diagonals there are below and above the main one."""
    return (a.lower, a.upper) if isinstance(a, tj.Banded) else (1, 1)


def diagonal_padding(n: int, offset: int) -> tuple[int, int]:
    """How many columns before and after have no entry of a diagonal; of `-offset`, rows."""
    return max(0, min(offset, n)), max(0, min(-offset, n))
