"""The array types that the construction of a dense matrix shows.

`a + a.T`, `b @ b.T`, `x[:, None] * x` are symmetric, `jnp.diag(d)` is diagonal, `jnp.tril(a)`
triangular, `jnp.kron(a, b)` a Kronecker product, `c * jnp.eye(n)` a multiple of the identity. This
module reads only equations, never numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import _marks, arrays, operations as tj
from tanjax._typing import Matrix
from tanjax.jaxprs import nested_jaxprs

from .._equations import Equation, Literal, Operand, Variable
from ._definitions import Walk, is_product

Build = Callable[[], Matrix]

_LARGEST = 4096  # rows of the largest mask that is evaluated
_ODD = ("sin", "tan", "sinh", "tanh", "asin", "atan", "asinh", "atanh", "cbrt", "erf", "sign")
_EVEN = ("abs", "cos", "cosh", "square")
_ELEMENTWISE = (
    *_ODD, *_EVEN, "exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "logistic", "erfc",
    "lgamma", "digamma", "floor", "ceil", "conj", "real", "acos", "acosh",
)  # fmt: skip
_MOST_DEEP = 50


def structured(walk: Walk, x: Variable) -> tuple[str, Build] | None:
    """Return the array type that the construction of a dense matrix shows, and its constructor."""
    if x.kind is not None or len(x.skeleton.aval.shape) != 2:
        return None
    if not jnp.issubdtype(x.skeleton.aval.dtype, jnp.inexact):
        return None
    made = walk.origin(x)
    if made is None:
        return None
    value = lambda: walk.value(x)
    found = _diagonal(walk, x, made) or _identity(walk, x)
    if found is None and (lower := _triangle(made)) is not None:
        found = "Triangular", lambda: arrays.Triangular(value(), lower=lower)
    if found is None and _is_kron(made):
        a, b = made.inputs
        found = "Kronecker", lambda: arrays.Kronecker(walk.value(a), walk.value(b))
    if found is None and _parity(walk, x) == 1:
        found = "Symmetric", lambda: arrays.Symmetric(value())
    return found


def _is_square(x: Operand) -> bool:
    shape = _shape(x)
    return len(shape) == 2 and shape[0] == shape[1]


def _shape(x: Operand) -> tuple[int, ...]:
    if isinstance(x, Literal):
        return np.shape(x.value)
    return () if x.kind is not None else tuple(x.skeleton.aval.shape)


def _is_jax(equation: Equation | None, *names: str) -> bool:
    return equation is not None and equation.kind == "primitive" and equation.name in names


# -- diagonal, triangular, Kronecker -----------------------------------------------------------


def _diagonal(walk: Walk, x: Variable, made: Equation) -> tuple[str, Build] | None:
    """Recognise `jnp.diag(d)` on the main diagonal, with no more rows than entries."""
    if not _is_jax(made, "_diag", "diag", "diagflat") or len(made.inputs) != 1:
        return None
    (entries,) = made.inputs
    if _shape(x) != _shape(entries) * 2:
        return None
    return "Diagonal", lambda: arrays.Diagonal(walk.value(entries))


def _is_kron(made: Equation) -> bool:
    return _is_jax(made, "kron") and [len(_shape(v)) for v in made.inputs] == [2, 2]


def _triangle(made: Equation) -> bool | None:
    """Return `True` if a mask keeps the lower triangle, `False` for the upper, else `None`.

    The equation does not show the diagonal where it starts, so the mask is applied to ones.
    """
    if not _is_jax(made, "tril", "triu") or len(made.inputs) != 1 or not _is_square(made.inputs[0]):
        return None
    (n, _), inner = _shape(made.inputs[0]), nested_jaxprs(made.eqn)
    if not inner or n > _LARGEST or inner[0].consts:
        return None
    ones = np.ones((n, n), made.eqn.invars[0].aval.dtype)
    with _marks.scope(on=False), jax.ensure_compile_time_eval():
        kept = np.asarray(jax.core.eval_jaxpr(inner[0].jaxpr, [], ones)[0])
    outside = np.triu(kept, 1) if made.name == "tril" else np.tril(kept, -1)
    return None if outside.any() else made.name == "tril"


# -- multiples of the identity -----------------------------------------------------------------


def _identity(walk: Walk, x: Operand) -> tuple[str, Build] | None:
    """Recognise `jnp.eye(n)`, and its product with a number."""
    if _is_eye(walk, x):
        assert isinstance(x, Variable)
        n, dtype = _shape(x)[0], x.skeleton.aval.dtype
        return "Identity", lambda: arrays.Identity(n, dtype)
    made = walk.origin(x, "mul")
    if not _is_jax(made, "mul") or made is None:
        return None
    a, b = made.inputs
    for factor, eye in ((a, b), (b, a)):
        if _shape(factor) == () and _is_eye(walk, eye):
            n, dtype = _shape(eye)[0], eye.skeleton.aval.dtype  # type: ignore[union-attr]
            make = lambda factor=factor, n=n, dtype=dtype: tj.multiply(
                arrays.Identity(n, dtype), jnp.asarray(walk.value(factor), dtype)
            )
            return "Scaled", make
    return None


def _is_eye(walk: Walk, x: Operand) -> bool:
    """True if counted rows and columns are compared and the answer is converted to numbers."""
    made = walk.origin(x, "convert_element_type")
    if not _is_jax(made, "convert_element_type") or not _is_square(x) or made is None:
        return False
    equal = walk.origin(made.inputs[0], "eq")
    if not _is_jax(equal, "eq") or equal is None:
        return False
    return {_counts(walk, v) for v in equal.inputs} == {0, 1}


def _counts(walk: Walk, x: Operand) -> int | None:
    """Return the axis along which a matrix counts from zero."""
    made = walk.origin(x, "iota", "add")
    if _is_jax(made, "add") and made is not None:
        zeros = [v for v in made.inputs if isinstance(v, Literal) and np.all(v.value == 0)]
        rest = [v for v in made.inputs if isinstance(v, Variable)]
        return _counts(walk, rest[0]) if len(zeros) == len(rest) == 1 else None
    return made.eqn.params["dimension"] if _is_jax(made, "iota") and made is not None else None


# -- symmetric ---------------------------------------------------------------------------------


def _parity(walk: Walk, x: Operand, depth: int = 0) -> int:
    """Return 1 for a symmetric matrix or a scalar, -1 for an antisymmetric one, otherwise 0."""
    if _shape(x) == () and (isinstance(x, Literal) or x.kind is None):
        return 1
    if depth > _MOST_DEEP or not _is_square(x):
        return 0
    made = walk.origin(x)
    if made is None:
        return 0
    if is_product(made) or _is_jax(made, "dot_general"):
        return int(_is_gram(walk, made))
    if made.kind == "operation" and made.target is tj.transpose:
        return _parity(walk, made.inputs[0], depth + 1)
    if made.kind != "primitive":
        return 0
    if _diagonal(walk, x, made) or _is_eye(walk, x):  # type: ignore[arg-type]
        return 1
    of = lambda v: _parity(walk, v, depth + 1)
    if _is_kron(made):
        return of(made.inputs[0]) * of(made.inputs[1])
    return _of_primitive(walk, made, of)


def _of_primitive(walk: Walk, made: Equation, of: Callable[[Operand], int]) -> int:
    name, inputs = made.name, made.inputs
    if name in ("neg", "transpose", "convert_element_type", "copy"):
        return of(inputs[0])
    if name in _ELEMENTWISE:
        parity = of(inputs[0])
        return parity if parity == 1 or name in _ODD else int(parity == -1 and name in _EVEN)
    if name == "integer_pow":
        parity = of(inputs[0])
        return parity if made.eqn.params["y"] % 2 else parity**2
    if name not in ("add", "sub", "mul", "div", "max", "min", "pow") or len(inputs) != 2:
        return 0
    a, b = inputs
    if _is_crossed(walk, a, b):
        return {"add": 1, "mul": 1, "sub": -1, "max": 1, "min": 1}.get(name, 0)
    first, second = of(a), of(b)
    if name in ("mul", "div"):
        return first * second
    same = first if first == second else 0
    return same if name in ("add", "sub") else int(same == 1)


def _is_crossed(walk: Walk, a: Operand, b: Operand) -> bool:
    """True if one is the transpose of the other: matrices, or a column and a row."""
    if _is_transpose(walk, a, b) or _is_transpose(walk, b, a):
        return True
    first, second = walk.origin(a, "broadcast_in_dim"), walk.origin(b, "broadcast_in_dim")
    if first is None or second is None or first.inputs[0] is not second.inputs[0]:
        return False
    if len(_shape(first.inputs[0])) != 1:
        return False
    axes = [e.eqn.params["broadcast_dimensions"] for e in (first, second)]
    return sorted(axes) == [(0,), (1,)] and set(_shape(a)) | {1} == set(_shape(b)) | {1}


def _is_transpose(walk: Walk, a: Operand, b: Operand) -> bool:
    """True if `a` was made as the transpose of `b`."""
    made = walk.origin(a, "transpose")
    return made is not None and made.inputs[0] is b and len(_shape(b)) == 2


def _is_gram(walk: Walk, made: Equation) -> bool:
    """Recognise `b @ b.T`, `b.T @ b`, or a product of both over the same axis."""
    a, b = made.inputs
    if is_product(made):
        return _is_transpose(walk, a, b) or _is_transpose(walk, b, a)
    axes, batch = made.eqn.params["dimension_numbers"]
    return a is b and len(_shape(a)) == 2 and axes[0] == axes[1] and not any(batch)


def is_transpose(walk: Walk, a: Operand, b: Operand) -> bool:
    """True if one of two matrices was made as the transpose of the other."""
    return _is_transpose(walk, a, b) or _is_transpose(walk, b, a)
