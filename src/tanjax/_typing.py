"""Words for annotations: what an argument is, where a class of Python cannot say it.

jaxtyping says dtype and shape of an array, `Shaped[AnyArray, "m n"]`; its first part says the
class: `tj.Diagonal`, `DenseArray`, or `AnyArray` where dense, structured and traced arrays and
quantities are all welcome. Tests run under jaxtyping's import hook, which checks every call;
without it an annotation is a text that nobody reads, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NotImplementedType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Integer, PyTree, Shaped

# Whatever has a shape and a dtype: JAX's, NumPy's and structured arrays, quantities, tracers,
# `ShapeDtypeStruct`. They have no class in common; jaxtyping asks for the two attributes.
AnyArray: TypeAlias = Any
if TYPE_CHECKING:
    DenseArray: TypeAlias = Array
    Factor: TypeAlias = AnyArray
    Order: TypeAlias = AnyArray
    Arraylike: TypeAlias = AnyArray
    Matrixlike: TypeAlias = AnyArray
else:  # a rule that is called without compilation gets what its caller had
    DenseArray = Array | np.ndarray | np.generic
    Factor = Shaped[ArrayLike, ""]  # an array of rank 0 or a number of Python
    Order = Factor | str | None  # which norm
    # What `jnp.asarray` takes and structured arrays; what a constructor makes a matrix of.
    Arraylike = Shaped[AnyArray, " ..."] | complex | Sequence
    Matrixlike = Shaped[AnyArray, "_ _"] | Sequence

Scalar: TypeAlias = Shaped[AnyArray, ""]
Vector: TypeAlias = Shaped[AnyArray, " n"]
Matrix: TypeAlias = Shaped[AnyArray, "m n"]
SquareMatrix: TypeAlias = Shaped[AnyArray, "n n"]
# What `solve` takes and gives: one vector, or a matrix of them.
Columns: TypeAlias = Shaped[AnyArray, " n *k"]


# A natural (co)tangent has a shape, that of its primal; a structural one is a pytree like it.
Natural: TypeAlias = Shaped[AnyArray, " ..."]
Structural: TypeAlias = PyTree
# One array of any type, also of a registered class of somebody else, which need not have a shape.
Primal: TypeAlias = PyTree

# A multiple of an array, if a field of its type can hold it.
Multiple: TypeAlias = Natural | NotImplementedType
# The query that pairs a thin cotangent with any array: its name, its arguments, its cotangent.
Query: TypeAlias = tuple[str, tuple[DenseArray | np.ndarray, ...], DenseArray]
LinearTerms: TypeAlias = tuple[tuple[DenseArray | None, Natural], ...]

Shape: TypeAlias = tuple[int, ...]
# Rows, or columns, of entries that are asked for: known while JAX traces, inside of the array.
Places: TypeAlias = Integer[np.ndarray, " p"]
Axis: TypeAlias = int | tuple[int, ...] | None
DType: TypeAlias = np.dtype[Any]
Function: TypeAlias = Callable[..., PyTree]
Pullback: TypeAlias = Callable[..., PyTree]
# Parameters of an operation that are no arrays, and what is asked of their values.
Statics: TypeAlias = Sequence[str] | dict[str, Callable[[str, str, Any], None]]


@runtime_checkable
class Samples(Protocol):
    """What draws the numbers of `examples`: a `tanjax.testing.Samples`."""

    def normal(self, *shape: int) -> Array: ...
    def complex(self, *shape: int) -> Array: ...
    def positive(self, *shape: int) -> Array: ...
    def regular(self, n: int, *, complex: bool = ...) -> Array: ...
    def definite(self, n: int, *, complex: bool = ...) -> Array: ...
