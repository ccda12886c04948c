"""Types for annotations, in particular where no Python class describes an argument.

jaxtyping annotates dtype and shape of an array, `Shaped[AnyArray, "m n"]`. Its first part is the
class: `tj.Diagonal`, `DenseArray`, or `AnyArray` for dense, structured and traced arrays and
quantities. Tests run under jaxtyping's import hook, which checks every call. Without the hook
annotations are strings and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NotImplementedType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Integer, PyTree, Shaped

# Anything with a shape and a dtype: JAX's, NumPy's and structured arrays, quantities, tracers,
# `ShapeDtypeStruct`. They have no common class; jaxtyping checks the two attributes.
AnyArray: TypeAlias = Any
if TYPE_CHECKING:
    DenseArray: TypeAlias = Array
    Factor: TypeAlias = AnyArray
    Order: TypeAlias = AnyArray
    Arraylike: TypeAlias = AnyArray
    Matrixlike: TypeAlias = AnyArray
else:  # a rule called without compilation gets its caller's objects
    DenseArray = Array | np.ndarray | np.generic
    Factor = Shaped[ArrayLike, ""]  # an array of rank 0 or a Python number
    Order = Factor | str | None  # the order of a norm
    # Arguments of `jnp.asarray`, and structured arrays; matrix arguments of constructors.
    Arraylike = Shaped[AnyArray, " ..."] | complex | Sequence
    Matrixlike = Shaped[AnyArray, "_ _"] | Sequence

Scalar: TypeAlias = Shaped[AnyArray, ""]
Vector: TypeAlias = Shaped[AnyArray, " n"]
Matrix: TypeAlias = Shaped[AnyArray, "m n"]
SquareMatrix: TypeAlias = Shaped[AnyArray, "n n"]
# Right-hand sides and solutions of `solve`: one vector, or a matrix of them.
Columns: TypeAlias = Shaped[AnyArray, " n *k"]


# A natural (co)tangent has the shape of its primal; a structural one is a pytree like it.
Natural: TypeAlias = Shaped[AnyArray, " ..."]
Structural: TypeAlias = PyTree
# One array of any type, also of another library's registered class, which need not have a shape.
Primal: TypeAlias = PyTree

# A multiple of an array, if a field of its type can hold it.
Multiple: TypeAlias = Natural | NotImplementedType
# The query that pairs a thin cotangent with any array: its name, its arguments, its cotangent.
Query: TypeAlias = tuple[str, tuple[DenseArray | np.ndarray, ...], DenseArray]
LinearTerms: TypeAlias = tuple[tuple[DenseArray | None, Natural], ...]

Shape: TypeAlias = tuple[int, ...]
# Indices of requested rows or columns: known while JAX traces, and inside of the array.
Places: TypeAlias = Integer[np.ndarray, " p"]
Axis: TypeAlias = int | tuple[int, ...] | None
DType: TypeAlias = np.dtype[Any]
Function: TypeAlias = Callable[..., PyTree]
Pullback: TypeAlias = Callable[..., PyTree]
# Parameters of an operation that are not arrays, and the checks of their values.
Statics: TypeAlias = Sequence[str] | dict[str, Callable[[str, str, Any], None]]


@runtime_checkable
class Samples(Protocol):
    """A source of random numbers for `examples`: a `tanjax.testing.Samples`."""

    def normal(self, *shape: int) -> Array: ...
    def complex(self, *shape: int) -> Array: ...
    def positive(self, *shape: int) -> Array: ...
    def regular(self, n: int, *, complex: bool = ...) -> Array: ...
    def definite(self, n: int, *, complex: bool = ...) -> Array: ...
