"""Factorizations of matrices: LU, Cholesky, QR, eigenvalues, singular values.

Torch saves factors for its own derivative formulas, so they have torch's form. Pivots count from
one, in int32, and `info` gives the pivot that failed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch
from jax import lax
from jax.typing import DTypeLike

from tanjax_torch.arguments._promotion import category
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, is_traced, real_dtype, require


def matrix(what: str, a: Array, square: bool = True) -> None:
    """**Raises:** `RuntimeError` unless `a` is a (square) matrix of floating numbers."""
    require(
        a.ndim >= 2,
        f"{what}: The input tensor A must have at least 2 dimensions.",
    )
    require(
        not square or a.shape[-1] == a.shape[-2],
        f"{what}: A must be batches of square matrices, but they are {a.shape[-2]} by "
        f"{a.shape[-1]} matrices",
    )
    require(
        category(a.dtype) >= 2 and a.dtype.itemsize >= 4,
        f"{what}: Expected a floating point or complex tensor as input. Got {a.dtype}",
    )


def adjoint(a: Array) -> Array:
    """The conjugate transpose."""
    return jnp.conj(jnp.swapaxes(a, -1, -2))


def none_of(dtype: DTypeLike) -> Array:
    """The empty array that torch returns for a result that was not requested."""
    return jnp.zeros(0, dtype)


def lu_factors(a: Array) -> tuple[Array, Array, Array]:
    """Return LU, pivots counted from one, and the first pivot that is zero."""
    n = min(a.shape[-2:])
    lu, pivots, _ = lax.linalg.lu(a)
    zero = jnp.diagonal(lu, 0, -2, -1) == 0
    info = (
        jnp.where(jnp.any(zero, -1), jnp.argmax(zero, -1) + 1, 0) if n else jnp.zeros(a.shape[:-2])
    )
    return lu, pivots.astype(jnp.int32) + 1, info.astype(jnp.int32)


@implements(aten.linalg_lu_factor_ex)
def linalg_lu_factor_ex(
    A: Array, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Array, Array, Array]:
    matrix("torch.linalg.lu_factor", A, square=False)
    require(pivot, "linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    return lu_factors(A)


def permutation_of(pivots: Array, m: int) -> Array:
    """The permutation `p` with `A[p] = L U`."""
    return lax.linalg.lu_pivots_to_permutation(pivots.astype(jnp.int32) - 1, m)


@implements(aten.lu_unpack)
def lu_unpack(
    LU_data: Array, LU_pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Array, Array, Array]:
    require(LU_pivots.dtype == jnp.int32, "torch.lu_unpack: LU_pivots is expected to be int32")
    m, n = LU_data.shape[-2:]
    k, dtype = min(m, n), LU_data.dtype
    p = lower = upper = none_of(dtype)
    if unpack_data:
        lower = jnp.tril(LU_data[..., :k], -1) + jnp.eye(m, k, dtype=dtype)
        upper = jnp.triu(LU_data[..., :k, :])
    if unpack_pivots:
        order = permutation_of(LU_pivots, m)
        rows = jnp.arange(m, dtype=order.dtype)
        p = (rows[:, None] == order[..., None, :]).astype(dtype)
    return p, lower, upper


@implements(aten.linalg_lu)
def linalg_lu(A: Array, *, pivot: bool = True) -> tuple[Array, Array, Array]:
    lu, pivots, _ = linalg_lu_factor_ex(A, pivot=pivot)
    return lu_unpack(lu, pivots)


def _failing_minor(a: Array) -> Array:
    """The order of the first leading minor that is not positive, by elimination."""

    def eliminate(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, info = state
        column = lax.dynamic_index_in_dim(rest, k, -1, keepdims=False)
        pivot = lax.dynamic_index_in_dim(column, k, -1, keepdims=False)
        info = jnp.where((info == 0) & ~(pivot.real > 0), k + 1, info)
        scaled = column / pivot[..., None]
        return rest - scaled[..., :, None] * jnp.conj(column)[..., None, :], info

    start = jnp.zeros(a.shape[:-2], jnp.int32)
    full = jnp.tril(a) + adjoint(jnp.tril(a, -1))
    return lax.fori_loop(0, a.shape[-1], eliminate, (full, start))[1]


@implements(aten.linalg_cholesky_ex.default)
def linalg_cholesky_ex(
    self: Array, *, upper: bool = False, check_errors: bool = False
) -> tuple[Array, Array]:
    matrix("linalg.cholesky", self)
    a = adjoint(self) if upper else self
    lower = jnp.tril(lax.linalg.cholesky(a, symmetrize_input=False))
    if not lower.size:
        return self, jnp.zeros(self.shape[:-2], jnp.int32)
    failed = jnp.any(jnp.isnan(lower), (-2, -1))
    minor = lax.cond(
        jnp.any(failed), _failing_minor, lambda a: jnp.zeros(a.shape[:-2], jnp.int32), a
    )
    return adjoint(lower) if upper else lower, jnp.where(failed, minor, 0)


@implements(aten.cholesky, eager=True)
def cholesky(self: Array, upper: bool = False) -> Array:
    factor, info = _cholesky(self, upper=upper)
    check_errors(info, "cholesky", is_matrix=self.ndim == 2)
    return factor


_cholesky = jax.jit(linalg_cholesky_ex, static_argnames="upper")


@implements(aten._linalg_check_errors, eager=True)
def check_errors(info: Array, api_name: str, *, is_matrix: bool) -> None:
    """Torch's own check of `info`, and its error; nothing can be checked under a trace."""
    if not is_traced(info):
        torch._linalg_check_errors(
            torch.from_dlpack(jax.device_get(info).copy()), api_name, is_matrix=is_matrix
        )


@implements(aten.linalg_qr)
def linalg_qr(A: Array, mode: str = "reduced") -> tuple[Array, Array]:
    matrix("linalg.qr", A, square=False)
    known = ("reduced", "complete", "r")
    require(mode in known, f"qr received unrecognized mode '{mode}' but expected one of {known}")
    if mode == "r":
        return none_of(A.dtype), jnp.linalg.qr(A, mode="r")
    q, r = jnp.linalg.qr(A, mode=mode)
    return q, r


@implements(aten._linalg_eigh.default)
def linalg_eigh(A: Array, UPLO: str = "L", compute_v: bool = True) -> tuple[Array, Array]:
    matrix("linalg.eigh", A)
    require(UPLO.upper() in ("L", "U"), f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    a = A if UPLO.upper() == "L" else adjoint(A)
    if compute_v:
        vectors, values = lax.linalg.eigh(a, lower=True, symmetrize_input=False)
        return values.astype(real_dtype(A.dtype)), vectors
    full = jnp.tril(a) + adjoint(jnp.tril(a, -1))
    return jnp.linalg.eigvalsh(full), none_of(A.dtype)


@implements(aten.linalg_eig.default)
def linalg_eig(self: Array) -> tuple[Array, Array]:
    matrix("linalg.eig", self)
    values, vectors = jnp.linalg.eig(self)
    return values, vectors


@implements(aten.linalg_eigvals, aten._linalg_eigvals)
def linalg_eigvals(self: Array) -> Array:
    matrix("linalg.eigvals", self)
    return jnp.linalg.eigvals(self)


@implements(aten._linalg_svd.default)
def linalg_svd(
    A: Array, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Array, Array, Array]:
    matrix("linalg.svd", A, square=False)
    if not compute_uv:
        none = none_of(A.dtype)
        return none, jnp.linalg.svd(A, compute_uv=False), none
    u, s, vh = jnp.linalg.svd(A, full_matrices=full_matrices)
    return u, s, vh


@implements(aten.linalg_householder_product)
def linalg_householder_product(input: Array, tau: Array) -> Array:
    return lax.linalg.householder_product(input, tau)


@implements(aten.geqrf.default)
def geqrf(self: Array) -> tuple[Array, Array]:
    matrix("geqrf", self, square=False)
    a, tau = jnp.linalg.qr(self, mode="raw")
    return jnp.swapaxes(a, -1, -2), tau


@implements(aten.ormqr)
def ormqr(
    self: Array, input2: Array, input3: Array, left: bool = True, transpose: bool = False
) -> Array:
    return lax.linalg.ormqr(self, input2, input3, left=left, transpose=transpose)
