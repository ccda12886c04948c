"""One or more generic instances of every built-in array type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tanjax import arrays as tj

from ._samples import Samples


def examples_of(kind: type) -> list[Any]:
    """Instances of a built-in array type, real and complex; none for other types."""
    build = _EXAMPLES.get(kind)
    return build(Samples(1)) if build else []


_EXAMPLES: dict[type, Callable[[Samples], list[Any]]] = {
    tj.Diagonal: lambda s: [tj.Diagonal(s.normal(3)), tj.Diagonal(s.complex(2))],
    tj.Symmetric: lambda s: [tj.Symmetric(s.normal(3, 3)), tj.Symmetric(s.complex(2, 2), "L")],
    tj.Hermitian: lambda s: [tj.Hermitian(s.normal(2, 2)), tj.Hermitian(s.complex(2, 2), "L")],
    tj.Triangular: lambda s: [
        tj.Triangular(s.normal(3, 3)),
        tj.Triangular(s.complex(2, 2), lower=False, unit_diagonal=False),
        tj.Triangular(s.normal(3, 3), lower=False, unit_diagonal=True),
    ],
    tj.Fill: lambda s: [tj.Fill(s.normal(), (2, 3)), tj.Fill(s.complex(), (2, 2))],
    tj.Identity: lambda s: [tj.Identity(3)],
    tj.Zero: lambda s: [tj.Zero((2, 3))],
    tj.Scaled: lambda s: [
        tj.Scaled(s.normal(2, 3), s.normal()),
        tj.Scaled(tj.Symmetric(s.normal(2, 2)), s.normal()),
        tj.Scaled(s.complex(2, 2), s.complex()),
    ],
    tj.LowRank: lambda s: [
        tj.LowRank(s.normal(3, 2), s.normal(4, 2)),
        tj.LowRank(s.complex(2, 1), s.complex(2, 1)),
    ],
    tj.LowRankUpdate: lambda s: [
        tj.LowRankUpdate(tj.Diagonal(s.normal(3)), s.normal(3, 1), s.normal(1)),
        tj.LowRankUpdate(s.normal(2, 3), s.normal(2, 1), None, s.normal(3, 1)),
    ],
    tj.Kronecker: lambda s: [
        tj.Kronecker(s.normal(2, 2), s.normal(2, 1)),
        tj.Kronecker(tj.Symmetric(s.normal(2, 2)), tj.Diagonal(s.normal(2))),
        tj.Kronecker(s.complex(1, 2), s.complex(2, 1)),
    ],
    tj.BlockDiagonal: lambda s: [
        tj.BlockDiagonal(s.normal(2, 1), tj.Symmetric(s.normal(2, 2))),
        tj.BlockDiagonal(tj.Scaled(s.normal(1, 2), s.normal()), tj.Diagonal(s.normal(1))),
    ],
    tj.Outer: lambda s: [tj.Outer(s.normal(3, 1), s.normal(2, 1))],
    tj.Masked: lambda s: [
        tj.Masked(s.normal(3, 3), "lower"),
        tj.Masked(s.normal(2, 3), "strictly_upper"),
    ],
    tj.Sum: lambda s: [tj.Sum(s.normal(2, 2), tj.Diagonal(s.normal(2)))],
}
