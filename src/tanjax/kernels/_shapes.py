"""Annotations for shapes of dense arrays that the kernels share."""

from __future__ import annotations

from typing import TypeAlias

from jaxtyping import Bool, Inexact, Integer

from tanjax._typing import DenseArray

Square: TypeAlias = Inexact[DenseArray, "n n"]
Rows: TypeAlias = Inexact[DenseArray, "m m"]
# The unknown of an equation: the rows of its first matrix, the columns of its second one.
Between: TypeAlias = Inexact[DenseArray, "m n"]
Column: TypeAlias = Inexact[DenseArray, " n"]
# Any shape: batches of matrices, eigenvalues in a grid.
Numbers: TypeAlias = Inexact[DenseArray, "..."]
Number: TypeAlias = Inexact[DenseArray, ""]
Index: TypeAlias = Integer[DenseArray, ""] | int
Flag: TypeAlias = Bool[DenseArray, ""]
# A Schur form `(t, u)` of some matrix.
Factors: TypeAlias = tuple[Square, Square]
