"""Annotations: words for arrays of any class, and quantities with a dimension, dtype and shape.

`Shaped[AnyArray, "m n"]` is jaxtyping's, of an array of any class. Nothing is checked, and nothing
costs, until `checked` or jaxtyping's import hook asks for it.
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
    Primal as Primal,
    Pullback as Pullback,
    Samples as Samples,
    Scalar as Scalar,
    SquareMatrix as SquareMatrix,
    Structural as Structural,
    Vector as Vector,
)
from .bridges._typing import Quantity as Quantity, checked as checked
