"""The shipped operations: names, signatures, and dense implementations.

The rule packs in `rules/` hold the implementations for structured arrays and the derivatives. They
use the same public decorators as third parties.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Float, Inexact, Shaped

from tanjax import kernels as dense
from tanjax._typing import (
    AnyArray,
    Arraylike,
    Axis,
    Columns,
    Function,
    Matrix,
    Natural,
    Order,
    Scalar,
    SquareMatrix,
    Vector,
)
from tanjax.arrays import is_structured
from tanjax.quantities import Quantity, UnitFunction, graphed, labelled
from tanjax.registry import operation
from tanjax.units.signatures import not_linear

from . import _batched as batched, _checks as checks, _norms as norms


def unit_of_det(raw: Function, a: Quantity) -> Quantity:
    """Return the determinant of a quantity: its unit to the power of the number of rows."""
    if not a.label.is_linear:
        raise not_linear("det", "a", a.label)
    n = a.shape[-1]  # the product of many numbers may overflow or underflow
    return labelled(graphed(raw, max(2, n), spread=True)(a.stored), a.label**n)


# -- arithmetic ----------------------------------------------------------------------------------


@operation(dense=True, check=checks.inner_dimensions, units="a: u, b: v -> u*v", core_ndims=(2, 2))
def matmul(a: Shaped[AnyArray, "*m k"], b: Shaped[AnyArray, " k *n"]) -> Natural:
    r"""`a @ b` for matrices and vectors of any type.

    **Shapes:** `(m, k)` or `(k,)` with `(k, n)` or `(k,)`; batches of matrices broadcast.
    **Cost:** that of `apply` of the structured side, $O(kn)$ for a `Diagonal`.
    **Raises:** `ShapeError` if a structured argument does not fit the other.
    **Derivative:** $\bar A = \bar C B^\top$, $\bar B = A^\top \bar C$ (no conjugation).
    """
    return jnp.matmul(a, b)


@operation(dense=True, check=checks.elementwise, units="a: u, b: u -> u", core_ndims="elementwise")
def add(a: Arraylike, b: Arraylike) -> Natural:
    r"""`a + b`, with broadcasting of scalars.

    The result keeps a type if the types allow it. Otherwise two structured arrays give a lazy
    `Sum`, and a structured and a dense array give a dense one. **Cost:** that of adding the fields.
    **Raises:** `ShapeError` if two structured arrays differ in shape.
    **Derivative:** $\bar a = \bar c$, $\bar b = \bar c$, summed where broadcast.
    """
    return jnp.add(a, b)


@operation(dense=True, check=checks.elementwise, units="a: u, b: u -> u", core_ndims="elementwise")
def subtract(a: Arraylike, b: Arraylike) -> Natural:
    r"""`a - b`, with broadcasting of scalars; `add(a, negative(b))` for structured arrays.

    **Derivative:** $\bar a = \bar c$, $\bar b = -\bar c$, summed where broadcast.
    """
    return jnp.subtract(a, b)


@operation(dense=True, units="a: u -> u kept")
def negative(a: Shaped[AnyArray, "*shape"]) -> Shaped[AnyArray, "*shape"]:
    r"""`-a`, of the type of `a` or one that can express it. **Derivative:** $\bar a = -\bar c$."""
    return jnp.negative(a)


@operation(
    dense=True, check=checks.elementwise, units="a: u, b: v -> u*v", core_ndims="elementwise"
)
def multiply(a: Arraylike, b: Arraylike) -> Natural:
    r"""`a * b`, by a scalar or entry by entry.

    By a scalar the result keeps its type or is `Scaled`. Entry by entry a `Diagonal`, `Triangular`,
    `Fill` or `Zero` keeps its zeros; other structured arguments are densified.
    **Raises:** `ShapeError` if two structured arrays differ in shape.
    **Derivative:** $\bar a = \bar c \odot b$, $\bar b = \bar c \odot a$, summed where broadcast.
    """
    return jnp.multiply(a, b)


@operation(
    dense=True, check=checks.elementwise, units="a: u, b: v -> u/v", core_ndims="elementwise"
)
def divide(a: Arraylike, b: Arraylike) -> Natural:
    r"""`a / b`, by a scalar or entry by entry.

    Division by zero gives `inf` or `nan`, as in JAX.
    **Derivative:** $\bar a = \bar c \oslash b$, $\bar b = -\bar c \odot a \oslash b^2$, summed
    where broadcast.
    """
    return jnp.divide(a, b)


# -- shape and reductions ------------------------------------------------------------------------


@operation(dense=True, check=checks.axes, units="a: U -> U kept", core_ndims=(2,))
def transpose(a: Shaped[AnyArray, "*batch m n"]) -> Shaped[AnyArray, "*batch n m"]:
    r"""The transposed matrix, `(n, m)` of `(m, n)`, without conjugation.

    For structured arrays it relabels the fields, without cost.

    **Derivative:** $\bar A = \bar C^\top$.
    """
    return jnp.matrix_transpose(a)


@operation(dense=True, check=checks.axes, units="a: U -> U kept", core_ndims=(2,))
def diagonal(a: Shaped[AnyArray, "*batch m n"]) -> Shaped[AnyArray, "*batch min(m,n)"]:
    """The main diagonal of a matrix `(..., m, n)`, shape `(..., min(m, n))`.

    **Derivative:** the cotangent on the diagonal, as a `Diagonal`.
    """
    return jnp.diagonal(a, axis1=-2, axis2=-1)


@operation(dense=True, check=checks.axes, units="a: u -> u", core_ndims=(2,))
def trace(a: Matrix) -> Scalar:
    r"""The sum of the main diagonal of `(..., m, n)`, for each matrix.

    **Derivative:** $\bar A = \bar y I$.
    """
    return jnp.trace(a, axis1=-2, axis2=-1)


@operation(dense=True, units="a: u -> u", batched=batched.total)
def sum(a: Natural, *, axis: Axis = None) -> Natural:
    """The sum of all entries (`axis=None`, a scalar) or along one axis; of a batch, any axes.

    **Cost:** that of the type's `total`, or of a product with ones along an axis.
    **Raises:** `ShapeError` if `axis` is out of range.
    **Derivative:** the cotangent, broadcast (as an `Outer` with ones).
    """
    return jnp.sum(a, axis=axis)


@operation(dense=True, check=checks.pairing, units="a: u, b: v -> u*v", batched=batched.pairing)
def pairing(a: Shaped[AnyArray, "*shape"], b: Shaped[AnyArray, "*shape"]) -> Scalar:
    r"""`sum(a * b)` over all entries of two arrays of one shape, without conjugation.

    The pairing of a natural cotangent with a natural tangent. `tj.vdot` conjugates `a`.

    **Cost:** that of the thinner side. **Raises:** `ShapeError` if the shapes differ.
    **Derivative:** $\bar a = \bar y b$, $\bar b = \bar y a$.
    """
    checks.pairing("pairing", a, b)
    return jnp.sum(jnp.multiply(a, b))


def _unit_of_norm(raw: Any, a: Quantity) -> Quantity:
    """Return a norm in the unit of the entries; order 0 is a count."""
    counts = raw.keywords["ord"] == 0 and raw.keywords["ord"] is not False
    return UnitFunction("norm", raw, f"a: u -> {'-' if counts else 'u'}", names=("a",))(a)


@operation(
    dense=True, static=("ord", "axis", "keepdims"), units=_unit_of_norm, batched=batched.norm
)
def norm(
    a: Natural, ord: Order = None, axis: Axis = None, keepdims: bool = False
) -> Float[AnyArray, " ..."]:
    r"""A norm of an array, a real scalar; along axes, of vectors or matrices.

    **Arguments:** `ord`: of matrices `None` or `"fro"`, `"nuc"`, 1, -1, 2, -2, `inf`, `-inf`; of
    vectors any number. `axis`, `keepdims`: as in NumPy; they densify structured arrays.
    **Cost:** that of the entries, or of the singular values (`"nuc"`, 2, -2): by factors for
    `Kronecker`, in $O((m + n) r^2)$ for `LowRank`. **Raises:** `ShapeError` for an order that the
    array does not have.
    **Derivative:** of the Frobenius norm $\bar A = \bar y\, \overline{A} / \|A\|$ (the second
    overline conjugates); `"nuc"`: $\bar y\,\overline{U V^H}$; a subgradient at kinks. The Frobenius
    and the Euclidean norm have 0 at $A = 0$.
    """
    return norms.norm(a, ord, axis, keepdims)


@operation(dense=True, check=checks.quadratic, units="a: u, x: v -> u*v^2", core_ndims=(2, 1))
def quadratic_form(a: SquareMatrix, x: Vector) -> Scalar:
    r"""`x @ a @ x` for a square matrix and a vector `(n,)`, or batches, without conjugation.

    **Cost:** one product `a @ x`. **Raises:** `ShapeError` if a structured `a` does not fit.
    **Derivative:** $\bar A = \bar y x x^\top$ (an `Outer`), $\bar x = \bar y (A + A^\top) x$.
    """
    return x @ (a @ x)


# -- linear algebra ------------------------------------------------------------------------------


@operation(dense=True, check=checks.one_system, units="a: u, b: v -> v/u", core_ndims=(2, 2))
def solve(a: SquareMatrix, b: Columns) -> Columns:
    r"""The `x` with `a @ x = b`: `a` is `(..., n, n)`, `b` a vector `(n,)` or `(..., n, k)`.

    **Cost:** $O(nk)$ for `Diagonal`, $O(n^2k)$ for `Triangular`. For a band of width $b$
    (`Tridiagonal`, `SymTridiagonal`, `Banded`), $O(nb(b + k))$ with row exchanges. By factors for
    `Kronecker`, by Woodbury for `LowRankUpdate`, one LU factorisation for `Symmetric` and dense
    matrices. For a Hermitian `Kronecker` plus `c * tj.Identity(n)`, by the eigenvectors of the
    factors.
    **Solvers:** `solver`, one of lineax, with its `options`: `"preconditioner"` (one of our
    matrices, a `tj.factorize(...)`, or an operator of lineax) and `"y0"`. Iterative solvers only
    multiply, and treat each column of `b` separately; direct ones densify structured matrices with
    a warning. `lineax.CG` promises that `a` is positive definite. Tolerances count in the displayed
    units of `a` and `b`. The derivative solves once more, with the same solver.
    **Raises:** `ShapeError` if a structured `a` is not square or does not fit `b`. A singular
    matrix gives `inf` or `nan`, as in JAX. A solver that misses its tolerance raises
    `ConvergenceError` (in a traced program, when it runs), or gives `nan` with `throw=False`.
    **Derivative:** with $w = A^{-\top}\bar x$: $\bar A = -w x^\top$ (an `Outer`), $\bar b = w$.
    **References:** Giles 2008, section 2.3.1.
    """
    return jnp.linalg.solve(a, b)


@operation(dense=True, check=checks.square, units="a: u -> 1/u", core_ndims=(2,))
def inv(a: SquareMatrix) -> Inexact[AnyArray, "n n"]:
    r"""The inverse `c` of a square matrix, of a type that can express it.

    Prefer `solve`, which needs no inverse. **Raises:** `ShapeError` if a structured `a` is not
    square. **Derivative:** $\bar A = -C^\top \bar C C^\top$. **References:** Giles 2008, 2.2.3.
    """
    return jnp.linalg.inv(a)


@operation(dense=True, check=checks.square, units="a: 1 -> 1", core_ndims=(2,))
def logdet(a: SquareMatrix) -> Float[AnyArray, ""]:
    r"""`log(abs(det(a)))` of a square matrix, without the sign.

    **Cost:** $O(n)$ for `Diagonal` and `Triangular`, $O(nb^2)$ for a band of width $b$ with its
    gradient, by factors for `Kronecker`, by the determinant lemma for `LowRankUpdate`.
    **Estimators:** `estimator`, such as `tj.bridges.matfree.Lanczos(order, samples, key)`, for
    positive definite matrices that are only multiplied. It is any pytree with methods `logdet(a)`
    and `cotangent(a, y_bar)`.
    **Raises:** `ShapeError` if a structured `a` is not square.
    **Derivative:** $\bar A = \bar y A^{-\top}$. **References:** Giles 2008, 2.2.4.
    """
    return jnp.linalg.slogdet(a).logabsdet


class SlogdetResult(NamedTuple):
    """The result of `slogdet`: `sign`, of the dtype of the matrix, and the real `logabsdet`."""

    sign: Inexact[AnyArray, ""]
    logabsdet: Float[AnyArray, ""]


@operation(dense=True, check=checks.square, units="a: 1 -> (-, 1)", core_ndims=(2,))
def slogdet(a: SquareMatrix) -> SlogdetResult:
    r"""Sign (for complex matrices phase) and `log(abs(det(a)))`, as a `SlogdetResult`.

    **Cost, errors:** those of `logdet`. A singular matrix has sign 0 and logarithm `-inf`.
    **Derivative:** with $s$ the sign, $\bar A = (\bar y - i\,\mathrm{Re}(i \bar s s)) A^{-\top}$;
    $\bar y A^{-\top}$ for a real matrix.
    """
    return SlogdetResult(*dense.sign_and_logarithm(a))


@operation(dense=True, check=checks.square, units=unit_of_det, core_ndims=(2,))
def det(a: SquareMatrix) -> Scalar:
    r"""The determinant of a square matrix.

    **Raises:** `ShapeError` if a structured `a` is not square.
    **Cost:** that of `logdet`. If a pivot is zero, the derivative takes one SVD.
    **Derivative:** $\bar A = \bar y \det(A) A^{-\top}$; the adjugate if $A$ is singular.
    """
    return dense.det(a)


@operation(dense=True, check=checks.square, units="a: u -> u^1/2", core_ndims=(2,))
def cholesky(a: SquareMatrix) -> Inexact[AnyArray, "n n"]:
    r"""The lower triangular `l` with `l @ l^H = a`, for a Hermitian positive definite `a`.

    **Derivative:** $\bar A = \tfrac12 L^{-\top}(\Phi + \Phi^\top)L^{-1}$, $\Phi$ the lower part of
    $L^\top \bar L$ with halved diagonal. **References:** Murray 2016; Giles 2008.
    """
    return jnp.linalg.cholesky(a)


@operation(dense=True, units="a: u, b: v -> u*v", core_ndims=(2, 2))
def kron(a: Shaped[AnyArray, "m n"], b: Shaped[AnyArray, "p q"]) -> Shaped[AnyArray, "m*p n*q"]:
    """The Kronecker product of `(m, n)` and `(p, q)`, shape `(mp, nq)`.

    Dense for dense arguments; otherwise a `Kronecker`, which keeps the factors (two `Diagonal`s
    give a `Diagonal`). For a batch, the product of each pair of matrices.
    **Raises:** `ShapeError` if a structured call has an argument that is not a matrix.
    **Derivative:** the cotangent, contracted with the other factor.
    """
    return jnp.kron(a, b)


def vdot(a: Natural, b: Natural) -> Scalar:
    """Return `pairing` with the first array conjugated, as NumPy's function of this name."""
    return pairing(a.conj() if is_structured(a) else jnp.conj(a), b)


# The functions of NumPy and JAX that an operation implements, by namespace.
BY_NAME: dict[str, dict[str, Function]] = {
    "numpy": {
        "add": add,
        "subtract": subtract,
        "negative": negative,
        "multiply": multiply,
        "divide": divide,
        "true_divide": divide,
        "matmul": matmul,
        "dot": batched.refused("dot", matmul),
        "kron": batched.refused("kron", kron),
        "sum": sum,
        "vdot": vdot,
        "transpose": batched.refused("transpose", transpose),
        "matrix_transpose": transpose,
    },
    "linalg": {
        "norm": norm,
        "solve": solve,
        "inv": inv,
        "det": det,
        "slogdet": slogdet,
        "cholesky": cholesky,
        "matmul": matmul,
        "matrix_transpose": transpose,
    },
}
