"""Types for arrays of any class, and quantities with a dimension, dtype and shape.

`Shaped[AnyArray, "m n"]` is jaxtyping's, for an array of any class. Annotations are not checked,
and cost nothing, without `checked` or jaxtyping's import hook.
"""

from ._typing import (
    AnyArray as AnyArray,
    Axis as Axis,
    Columns as Columns,
    DenseArray as DenseArray,
    Factor as Factor,
    Function as Function,
    Matrix as Matrix,
    Natural as Natural,
    Order as Order,
    Primal as Primal,
    Pullback as Pullback,
    Samples as Samples,
    Scalar as Scalar,
    SquareMatrix as SquareMatrix,
    Structural as Structural,
    Vector as Vector,
)
from .bridges._typing import Quantity as Quantity, checked as checked
