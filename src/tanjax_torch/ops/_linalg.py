"""Systems of equations, determinants, inverses and functions of matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from tanjax import kernels, operations as ops
from tanjax_torch.arguments._promotion import category
from tanjax_torch.table._registry import implements

from ._factorizations import adjoint, lu_factors, matrix, none_of, permutation_of
from ._tools import Array, aten, integers, real_dtype, require, same_dtype


def _batched(a: Array, b: Array) -> tuple[Array, Array]:
    """Matrices with one batch shape."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return (
        jnp.broadcast_to(a, (*batch, *a.shape[-2:])),
        jnp.broadcast_to(b, (*batch, *b.shape[-2:])),
    )


def triangular(
    a: Array,
    b: Array,
    *,
    upper: bool,
    left: bool = True,
    unit: bool = False,
    transpose: bool = False,
    conjugate: bool = False,
) -> Array:
    """`a x = b`, or `x a = b`, for a triangular `a`."""
    a, b = _batched(a, b)
    if not b.size:
        return b
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=left,
        lower=not upper,
        transpose_a=transpose,
        conjugate_a=conjugate,
        unit_diagonal=unit,
    )


@implements(aten.linalg_solve_triangular)
def linalg_solve_triangular(
    self: Array, B: Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    same_dtype("linalg.solve_triangular", self, B)
    matrix("linalg.solve_triangular", self)
    n = B.shape[-2 if left else -1]
    fits = n == self.shape[-1]
    require(fits, f"linalg.solve_triangular: incompatible shapes {self.shape} and {B.shape}")
    return triangular(self, B, upper=upper, left=left, unit=unitriangular)


@implements(aten.triangular_solve.default)
def triangular_solve(
    self: Array,
    A: Array,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Array, Array]:
    require(self.ndim >= 2, "torch.triangular_solve: Expected b to have at least 2 dimensions")
    matrix("triangular_solve", A)
    a, b = _batched(A, self)
    return triangular(a, b, upper=upper, transpose=transpose, unit=unitriangular), a


@implements(aten.linalg_lu_solve)
def linalg_lu_solve(
    LU: Array, pivots: Array, B: Array, *, left: bool = True, adjoint: bool = False
) -> Array:
    same_dtype("linalg.lu_solve", LU, B)
    n = LU.shape[-1]
    require(B.shape[-2 if left else -1] == n, "linalg.lu_solve: B has the wrong size")
    order = permutation_of(pivots, n)
    if not left:
        turned = jnp.conj(jnp.swapaxes(B, -1, -2))
        return jnp.conj(jnp.swapaxes(_lu_solved(LU, order, turned, not adjoint), -1, -2))
    return _lu_solved(LU, order, B, adjoint)


def _lu_solved(lu: Array, order: Array, b: Array, adjoint: bool) -> Array:
    lu, b = _batched(lu, b)
    order = jnp.broadcast_to(order, (*b.shape[:-2], order.shape[-1]))
    if not adjoint:
        b = jnp.take_along_axis(b, order[..., None], -2)
        return triangular(lu, triangular(lu, b, upper=False, unit=True), upper=True)
    turned: dict[str, bool] = {"transpose": True, "conjugate": True}
    x = triangular(lu, b, upper=True, **turned)
    x = triangular(lu, x, upper=False, unit=True, **turned)
    return jnp.take_along_axis(x, jnp.argsort(order, -1)[..., None], -2)


@implements(aten._linalg_solve_ex.default)
def linalg_solve_ex(
    A: Array, B: Array, *, left: bool = True, check_errors: bool = False
) -> tuple[Array, Array, Array, Array]:
    matrix("linalg.solve", A)
    same_dtype("linalg.solve", A, B)
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])
    require(
        left or not vector,
        "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False.",
    )
    b = B[..., None] if vector else B
    fits = b.shape[-2 if left else -1] == A.shape[-1]
    require(fits, f"linalg.solve: Incompatible shapes of A and B: {A.shape} and {B.shape}")
    lu, pivots, info = lu_factors(A)
    x = linalg_lu_solve(lu, pivots, b, left=left)
    return (x[..., 0] if vector else x), lu, pivots, info


@implements(aten.linalg_inv_ex.default)
def linalg_inv_ex(A: Array, *, check_errors: bool = False) -> tuple[Array, Array]:
    matrix("linalg.inv", A)
    lu, pivots, info = lu_factors(A)
    identity = jnp.broadcast_to(jnp.eye(A.shape[-1], dtype=A.dtype), A.shape)
    return linalg_lu_solve(lu, pivots, identity), info


def _sign_of_order(pivots: Array) -> Array:
    """-1 for an odd number of exchanges."""
    rows = jnp.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)
    return 1 - 2 * (jnp.sum(pivots != rows, -1, dtype=jnp.int32) % 2)


def _factorized(a: Array, contiguous: bool) -> tuple[Array, Array, Array]:
    """LU of a matrix as torch saves it: of the transpose for a real, contiguous one."""
    return lu_factors(jnp.swapaxes(a, -1, -2) if contiguous and category(a.dtype) < 3 else a)


@implements(aten._linalg_det.default, layout=True)
def linalg_det(A: Array, *, contiguous: bool = True) -> tuple[Array, Array, Array]:
    matrix("linalg.det", A)
    lu, pivots, _ = _factorized(A, contiguous)
    diagonal = jnp.diagonal(lu, 0, -2, -1)
    sign = _sign_of_order(pivots).astype(A.dtype)
    return _det(sign * jnp.prod(diagonal, -1), A), lu, pivots


@kernels.custom_jvp
def _det(value: Array, a: Array) -> Array:
    return value


@_det.defjvp
def _det_slope(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """The derivative of `ops.det`, since the factors of a singular matrix do not determine it."""
    return _det(*primals), jax.jvp(ops.det, primals[1:], tangents[1:])[1]


@implements(aten._linalg_slogdet.default, layout=True)
def linalg_slogdet(A: Array, *, contiguous: bool = True) -> tuple[Array, Array, Array, Array]:
    matrix("linalg.slogdet", A)
    lu, pivots, _ = _factorized(A, contiguous)
    diagonal = jnp.diagonal(lu, 0, -2, -1)
    sign = _sign_of_order(pivots).astype(A.dtype) * jnp.prod(jnp.sign(diagonal), -1)
    return sign, jnp.sum(jnp.log(jnp.abs(diagonal)), -1), lu, pivots


@implements(aten.cholesky_solve)
def cholesky_solve(self: Array, input2: Array, upper: bool = False) -> Array:
    same_dtype("cholesky_solve", self, input2)
    require(min(self.ndim, input2.ndim) >= 2, "cholesky_solve: b should have at least 2 dimensions")
    a = adjoint(input2) if upper else input2
    half = triangular(a, self, upper=False)
    return triangular(a, half, upper=False, transpose=True, conjugate=True)


@implements(aten.cholesky_inverse)
def cholesky_inverse(self: Array, upper: bool = False) -> Array:
    matrix("cholesky_inverse", self)
    identity = jnp.broadcast_to(jnp.eye(self.shape[-1], dtype=self.dtype), self.shape)
    return cholesky_solve(identity, self, upper)


@implements(aten.linalg_matrix_exp)
def linalg_matrix_exp(self: Array) -> Array:
    matrix("linalg.matrix_exp", self)
    return ops.expm(self)


def _tolerance(x: ArrayLike, s: Array) -> Array:
    return jnp.asarray(x).astype(s.dtype)


@implements(aten.linalg_pinv.atol_rtol_tensor)
def linalg_pinv(
    self: Array, *, atol: Array | None = None, rtol: Array | None = None, hermitian: bool = False
) -> Array:
    matrix("linalg.pinv", self, square=hermitian)
    m, n = self.shape[-2:]
    if not self.size:
        return jnp.zeros((*self.shape[:-2], n, m), self.dtype)
    if hermitian:
        u, s = jnp.linalg.eigh(self, symmetrize_input=False)[::-1]
        size, vh = jnp.abs(s), adjoint(u)
    else:
        u, s, vh = jnp.linalg.svd(self, full_matrices=False)
        size = s
    eps = jnp.finfo(self.dtype).eps * max(m, n)
    absolute = _tolerance(0 if atol is None else atol, s)
    given = rtol is not None or atol is not None
    relative = _tolerance((0 if given else eps) if rtol is None else rtol, s)
    if rtol is None and atol is not None:
        relative = jnp.where(absolute > 0, 0, eps).astype(s.dtype)
    largest = jnp.max(size, -1)
    kept = size > jnp.maximum(absolute, relative * largest)[..., None]
    inverse = jnp.where(kept, 1 / jnp.where(kept, s, 1), 0).astype(self.dtype)
    return _pinv(jnp.matmul(adjoint(vh) * inverse[..., None, :], adjoint(u)), self)


@kernels.custom_jvp
def _pinv(value: Array, a: Array) -> Array:
    return value


@_pinv.defjvp
def _pinv_slope(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """The derivative at constant rank (Golub and Pereyra 1973).

    It also exists for equal singular values, where the SVD has none.
    """
    p, a = _pinv(*primals), primals[1]
    turned, product = adjoint(tangents[1]), jnp.matmul
    by_rows = product(product(turned, adjoint(p)), p)
    by_columns = product(p, product(adjoint(p), turned))
    within = product(product(p, tangents[1]), p)
    outside = by_rows - product(p, product(a, by_rows)) + by_columns
    return p, outside - product(product(by_columns, a), p) - within


@implements(aten.linalg_lstsq.default, static=("rcond",), eager=True)
def linalg_lstsq(
    self: Array, b: Array, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Array, Array, Array, Array]:
    matrix("linalg.lstsq", self, square=False)
    same_dtype("linalg.lstsq", self, b)
    m, n = self.shape[-2:]
    known = (None, "gels", "gelsy", "gelsd", "gelss")
    require(driver in known, f"linalg.lstsq: parameter `driver` should be one of {known[1:]}")
    vector = b.ndim == 1 or (self.ndim - 1 == b.ndim and b.shape == self.shape[:-1])
    a, right = _batched(self, b[..., None] if vector else b)
    require(right.shape[-2] == m, "linalg.lstsq: input and other have incompatible shapes")
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    cut = jnp.finfo(a.dtype).eps * max(m, n) if rcond is None else rcond
    largest = jnp.max(s, -1, keepdims=True) if s.shape[-1] else s
    kept = s > cut * largest
    if driver == "gels":
        kept = jnp.ones_like(kept)
    scaled = jnp.matmul(adjoint(u), right) * jnp.where(kept, 1 / s, 0)[..., None].astype(a.dtype)
    x = jnp.matmul(adjoint(vh), scaled)
    rank = jnp.sum(kept, -1)
    residuals = none_of(real_dtype(a.dtype))
    if m > n and (driver == "gels" or (driver and driver != "gelsy" and jnp.all(rank == n))):
        residuals = jnp.sum(jnp.abs(jnp.matmul(a, x) - right) ** 2, -2)
    return (
        x[..., 0] if vector else x,
        residuals,
        none_of(integers(rank).dtype) if driver == "gels" else integers(rank),
        s if driver in ("gelsd", "gelss") else none_of(s.dtype),
    )
