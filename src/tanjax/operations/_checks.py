"""Checks of the argument shapes of operations, shared by all implementations.

JAX broadcasts where linear algebra would not, and an implementation for one type sees fields, not
shapes. `Diagonal(n) @ b` with a `b` of one row would silently give a matrix of the wrong size. So
each operation checks shapes first, before any implementation, ours or a user's, runs.

    @operation(dense=True, check=one_system)
    def solve(a, b): ...

With dense arguments only, they see the last axes, those of one array (`core_ndims`).
"""

from __future__ import annotations

import numbers

import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax._errors import ShapeError, message
from tanjax.arrays import is_structured, shape as shape_of


def described(x: PyTree) -> str:
    """Return the type for messages: the class of a structured array, the dtype of a dense one."""
    kind = type(x).__name__ if is_structured(x) else str(jnp.result_type(x))
    return f"{kind}{list(shape_of(x))}"


def inner_dimensions(name: str, a: PyTree, b: PyTree) -> None:
    """Raise `ShapeError` unless the last axis of `a` fits the first of `b`."""
    p, q = shape_of(a), shape_of(b)
    if len(p) not in (1, 2) or len(q) not in (1, 2) or p[-1] != q[0]:
        raise ShapeError(
            f"{name}: cannot multiply {described(a)} with {described(b)}.\n"
            "Hint: the last axis of the left operand must match the first axis of the right one."
        )


def one_shape(name: str, a: PyTree, b: PyTree, hint: str = "") -> None:
    """Raise `ShapeError` unless two arrays have one shape."""
    if shape_of(a) != shape_of(b):
        text = f"{name}: shapes {shape_of(a)} and {shape_of(b)} differ."
        raise ShapeError(message(text, hint=hint))


def pairing(name: str, a: PyTree, b: PyTree) -> None:
    """Raise `ShapeError` unless two arrays have one shape, for products entry by entry."""
    product = "the product of matrices is `a @ b` or `tj.dot`."
    one_shape(name, a, b, hint=f"this is the sum of the products of entries; {product}")


def elementwise(name: str, a: PyTree, b: PyTree) -> None:
    """Raise `ShapeError` unless two structured arrays have one shape; a dense one broadcasts."""
    if is_structured(a) and is_structured(b):
        return one_shape(name, a, b)
    try:
        jnp.broadcast_shapes(shape_of(a), shape_of(b))
    except ValueError:
        raise ShapeError(f"{name}: shapes {shape_of(a)} and {shape_of(b)} do not fit.") from None
    return None


def axes(name: str, a: PyTree) -> None:
    """Raise `ShapeError` unless an array has the two axes of a matrix."""
    if len(shape_of(a)) < 2:
        raise ShapeError(f"{name}: needs a matrix, got {described(a)}.")


def square(name: str, a: PyTree) -> None:
    """Raise `ShapeError` unless an array is a square matrix."""
    shape = shape_of(a)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ShapeError(f"{name}: needs a square matrix, got {described(a)}.")


def one_system(name: str, a: PyTree, b: PyTree) -> None:
    """Raise `ShapeError` unless `a` is a square matrix and `b` has right-hand sides of its size."""
    square(name, a)
    if len(shape_of(b)) not in (1, 2) or shape_of(b)[0] != shape_of(a)[0]:
        given, matrix = list(shape_of(b)), list(shape_of(a))
        raise ShapeError(f"{name}: the right-hand side {given} does not fit a matrix {matrix}.")


def whole_number(name: str, parameter: str, value: object) -> None:
    """Raise unless a value is a whole number of Python or NumPy."""
    if not isinstance(value, numbers.Integral):
        hint = "`tj.linalg.fractional_matrix_power(a, t)` takes others."
        raise _no_number(name, parameter, "whole", value, hint)


def real_number(name: str, parameter: str, value: object) -> None:
    """Raise unless a value is a real number of Python or NumPy."""
    if not isinstance(value, numbers.Real):
        hint = "for a traced one write `tj.linalg.expm(t * tj.linalg.logm(a))`."
        raise _no_number(name, parameter, "real", value, hint)


def tolerance(name: str, parameter: str, value: object) -> None:
    """Raise unless a value is a real number of Python or NumPy, or `None`."""
    if value is not None and not isinstance(value, numbers.Real):
        hint = f"`float({parameter})`; `jax.numpy.linalg` takes a traced one, of a dense array."
        raise _no_number(name, parameter, "real", value, hint)


def _no_number(name: str, parameter: str, kind: str, value: object, hint: str) -> TypeError:
    what = f"{name}: `{parameter}` is static, a {kind} number of Python, not {value!r}."
    return TypeError(message(what, hint=hint))


def quadratic(name: str, a: PyTree, x: PyTree) -> None:
    """Raise `ShapeError` unless `a` is a square matrix and `x` a vector of its size."""
    if len(shape_of(x)) != 1 or shape_of(a) != shape_of(x) * 2:
        raise ShapeError(
            f"{name}: needs a square matrix and a vector, got {shape_of(a)} and {shape_of(x)}."
        )


def sylvester(name: str, a: PyTree, b: PyTree, q: PyTree) -> None:
    """Raise `ShapeError` unless `a`, `b` are square and `q` fits their sizes; also batches."""
    p, s, r = shape_of(a), shape_of(b), shape_of(q)
    fits = min(map(len, (p, s, r))) >= 2 and p[-1] == p[-2] == r[-2] and s[-1] == s[-2] == r[-1]
    if not fits:
        raise ShapeError(
            f"{name}: shapes {list(p)}, {list(s)} and {list(r)} do not fit.\n"
            "Hint: `a` is (m, m), `b` is (n, n), `q` is (m, n)."
        )


def lyapunov(name: str, a: PyTree, q: PyTree) -> None:
    """Raise `ShapeError` unless `a` and `q` are square matrices of one size, or batches of them."""
    p, r = shape_of(a), shape_of(q)
    if min(len(p), len(r)) < 2 or not p[-1] == p[-2] == r[-1] == r[-2]:
        raise ShapeError(
            f"{name}: shapes {list(p)} and {list(r)} do not fit.\n"
            "Hint: both are square matrices of one size."
        )
