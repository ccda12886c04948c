"""Shapes of arguments that several families of rules share, for annotations."""

from __future__ import annotations

from typing import TypeAlias

from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import DenseArray

# The right-hand sides of a system, and its solutions: one vector, or a matrix of them.
DenseColumns: TypeAlias = Shaped[DenseArray, " n *k"]
# Square matrices of one type.
SquareDiagonal: TypeAlias = Shaped[tj.Diagonal, "n n"]
SquareTriangular: TypeAlias = Shaped[tj.Triangular, "n n"]
SquareUpdate: TypeAlias = Shaped[tj.LowRankUpdate, "n n"]
# The two types that store every entry of a matrix with a symmetry.
FullStorage: TypeAlias = Shaped[tj.Symmetric | tj.Hermitian, "n n"]
