"""The function of tanjax for each operation of ATen on structured arrays and quantities.

Each function takes payloads and the arguments of the schema, and returns `NotImplemented` for a
case that has no structure. Results keep torch's order, also where a structure has another one:
eigenvalues ascend and singular values descend.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from types import NotImplementedType

import jax
import jax.numpy as jnp
import torch

from tanjax import operations as ops
from tanjax.arrays import array_type, densified, is_structured
from tanjax.quantities import is_quantity, stored_of, unitful
from tanjax_torch._typing import (
    Dims,
    Dtype,
    Function,
    Number,
    Op,
    Payload,
    Payloadlike,
    Payloads,
    Tolerance,
)
from tanjax_torch.arguments._dtypes import jax_dtype
from tanjax_torch.table._calls import call_of

from ._structural import Structural

aten = torch.ops.aten
OPERATIONS: dict[Op, Function] = {
    aten.mm: ops.matmul,
    aten.bmm: ops.matmul,
    aten.mv: ops.matmul,
    aten.matmul: ops.matmul,
    aten.dot: ops.pairing,
    aten.t: ops.transpose,
    aten.neg: ops.negative,
    aten.trace: ops.trace,
    aten.linalg_matrix_exp: ops.expm,
    aten.kron: ops.kron,
    aten.inverse: ops.inv,
    aten.linalg_inv: ops.inv,
    aten.linalg_det: ops.det,
    aten.det: ops.det,
    aten.logdet: ops.logdet,
}


def _is(*ops: Op) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        OPERATIONS.update(dict.fromkeys(ops, function))
        return function

    return register


# -- arithmetic ----------------------------------------------------------------------------------


def _times(factor: Number, a: Payload) -> Payload:
    return a if isinstance(factor, (int, float)) and factor == 1 else ops.multiply(a, factor)


@_is(aten.add)
def add(a: Payload, b: Payload, *, alpha: Number = 1) -> Payload:
    """`a + alpha b`."""
    return ops.add(a, _times(alpha, b))


@_is(aten.sub, aten.subtract)
def sub(a: Payload, b: Payload, *, alpha: Number = 1) -> Payload:
    """`a - alpha b`."""
    return ops.subtract(a, _times(alpha, b))


@_is(aten.rsub)
def rsub(a: Payload, b: Payload, *, alpha: Number = 1) -> Payload:
    """`b - alpha a`."""
    return ops.subtract(b, _times(alpha, a))


@_is(aten.mul, aten.multiply)
def mul(a: Payload, b: Payload) -> Payload:
    """`a b`, entry by entry or by a number."""
    return ops.multiply(a, b)


@_is(aten.div, aten.divide, aten.true_divide)
def div(a: Payload, b: Payload, *, rounding_mode: str | None = None) -> Payloadlike:
    """`a / b`, entry by entry or by a number."""
    return ops.divide(a, b) if rounding_mode is None else NotImplemented


@_is(aten.addmm, aten.addmv, aten.baddbmm)
def addmm(bias: Payload, a: Payload, b: Payload, *, beta: Number = 1, alpha: Number = 1) -> Payload:
    """`beta bias + alpha a b`."""
    product = _times(alpha, ops.matmul(a, b))
    return product if beta == 0 else ops.add(_times(beta, bias), product)


@_is(aten.linear)
def linear(x: Payload, weight: Payload, bias: Payload | None = None) -> Payload:
    """`x weightᵀ + bias`."""
    product = ops.matmul(x, ops.transpose(weight))
    return product if bias is None else ops.add(product, bias)


@_is(aten.zero)
def zero(a: Payload) -> Payload:
    """Zero of the same type."""
    return ops.multiply(a, 0.0)


# -- shape and reductions ------------------------------------------------------------------------


@_is(aten.transpose)
def transpose(a: Payload, dim0: int, dim1: int) -> Payloadlike:
    """The transpose of the matrix; an exchange with other axes has no structure."""
    last = {dim0 % a.ndim, dim1 % a.ndim}
    if len(last) == 1:
        return a
    return ops.transpose(a) if last == {a.ndim - 1, a.ndim - 2} else NotImplemented


@_is(aten.permute)
def permute(a: Payload, dims: Sequence[int]) -> Payloadlike:
    """The same array, or the transpose."""
    order = [d % a.ndim for d in dims]
    if order == list(range(a.ndim)):
        return a
    swapped = [*range(a.ndim - 2), a.ndim - 1, a.ndim - 2]
    return ops.transpose(a) if order == swapped and a.ndim > 1 else NotImplemented


@_is(aten.sum)
def sum(a: Payload, dim: Dims = None, keepdim: bool = False, *, dtype: Dtype = None) -> Payloadlike:
    """The sum of all entries, or along axes."""
    if dtype is not None and jax_dtype(dtype) != a.dtype:
        return NotImplemented
    if dim is None or dim == []:
        total = ops.sum(a)
        return total.reshape((1,) * a.ndim) if keepdim else total
    axes = tuple(sorted(d % a.ndim for d in ([dim] if isinstance(dim, int) else dim)))
    total = ops.sum(a, axis=axes[0] if len(axes) == 1 else axes)
    return (
        jnp.expand_dims(total, axes)
        if keepdim and isinstance(total, jax.Array)
        else (NotImplemented if keepdim else total)
    )


@_is(aten.diagonal, aten.linalg_diagonal)
def diagonal(a: Payload, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Payloadlike:
    """The main diagonal of the last two axes."""
    last = {dim1 % a.ndim, dim2 % a.ndim} == {a.ndim - 1, a.ndim - 2}
    return ops.diagonal(a) if last and offset == 0 else NotImplemented


@_is(aten.linalg_vector_norm)
def vector_norm(
    a: Payload,
    ord: Number = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: Dtype = None,
) -> Payloadlike:
    """The root of the sum of squares of all entries."""
    of_all = dim is None or sorted(d % a.ndim for d in dim) == list(range(a.ndim))
    return ops.norm(a) if ord == 2 and of_all and not keepdim and dtype is None else NotImplemented


# -- solves and factorisations -------------------------------------------------------------------


def _info(a: Payload) -> jax.Array:
    return jnp.zeros(a.shape[:-2], jnp.int32)


def _quietly_dense(a: Payload) -> Payload:
    return array_type(a).destructure(a) if is_structured(a) else a  # type: ignore[union-attr]


@_is(aten.linalg_inv_ex)
def inv_ex(a: Payload, *, check_errors: bool = False) -> tuple[Payload, jax.Array]:
    """The inverse, and an `info` of 0: failures show as NaN."""
    return ops.inv(a), _info(a)


@_is(aten._linalg_solve_ex)
def solve_ex(a: Payload, b: Payload, *, left: bool = True, check_errors: bool = False) -> Payloads:
    """The solution, factors and `info`; under a trace XLA drops unused factors."""
    return (solve(a, b, left=left), *_factors(a), _info(a))


def solve(a: Payload, b: Payload, *, left: bool = True) -> Payload:
    """The solution alone."""
    if left:
        return ops.solve(a, b)
    return ops.transpose(ops.solve(ops.transpose(a), ops.transpose(b)))


def _factors(a: Payload) -> tuple[Payload, jax.Array]:
    value = stored_of(a)
    matrix, pivots = call_of(aten.linalg_lu_factor_ex.default)(_quietly_dense(value))[:2]
    return (unitful(matrix, a.label) if is_quantity(a) else matrix), pivots


@_is(aten._linalg_det)
def det(a: Payload) -> Payloads:
    """The determinant, and factors as above."""
    return (ops.det(a), *_factors(a))


@_is(aten._linalg_slogdet)
def slogdet(a: Payload) -> Payloads:
    """Sign and logarithm of the determinant, and factors as above."""
    return (*ops.slogdet(a), *_factors(a))


@_is(aten.linalg_solve_triangular)
def solve_triangular(
    a: Payload, b: Payload, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Payload:
    """The solution of a triangular system."""
    solve = ops.solve_triangular
    if left:
        return solve(a, b, lower=not upper, unit_diagonal=unitriangular)
    b = ops.transpose(b)
    x = solve(a, b, lower=not upper, unit_diagonal=unitriangular, trans=1)
    return ops.transpose(x)


@_is(aten.cholesky, aten.linalg_cholesky)
def cholesky(a: Payload, upper: bool = False) -> Payload:
    """The lower factor, or its conjugate transpose."""
    factor = ops.cholesky(a)
    return factor if not upper else adjoint(factor)


def adjoint(a: Payload) -> Payload:
    """The conjugate transpose."""
    if jnp.issubdtype(a.dtype, jnp.complexfloating):
        a = a.conj() if is_structured(a) else jnp.conj(a)
    return ops.transpose(a)


@_is(aten.linalg_cholesky_ex)
def cholesky_ex(
    a: Payload, *, upper: bool = False, check_errors: bool = False
) -> tuple[Payload, jax.Array]:
    """The factor, and 1 where the matrix is not positive definite."""
    factor = cholesky(a, upper)
    pivots = ops.diagonal(factor)
    pivots = stored_of(pivots)
    return factor, jnp.any(jnp.isnan(pivots), -1).astype(jnp.int32)


@_is(aten._linalg_eigh)
def eigh(a: Payload, UPLO: str = "L", compute_v: bool = True) -> tuple[Payload, Payload]:
    """Eigenvalues, ascending, and eigenvectors."""
    if not compute_v:
        return ops.eigvalsh(a), jnp.zeros((0,), a.dtype)
    values, vectors = ops.eigh(a)
    if not is_structured(vectors):
        return values, vectors
    order = jnp.argsort(stored_of(values), -1)
    vectors = densified(vectors, "linalg.eigh", "ask for `eigvalsh`, or take `tj.linalg.eigh`")
    return _in_order(values, order), jnp.take_along_axis(vectors, order[..., None, :], -1)


def _in_order(values: Payload, order: jax.Array) -> Payload:
    if is_quantity(values):
        return unitful(jnp.take_along_axis(values.stored, order, -1), values.label)
    return jnp.take_along_axis(values, order, -1)


@_is(aten._linalg_svd)
def svd(
    a: Payload, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> Payloads | NotImplementedType:
    """Singular values, descending, with their vectors."""
    if not compute_uv:
        values = ops.svd(a, compute_uv=False)
        order = jnp.argsort(-stored_of(values), -1)
        none = jnp.zeros((0,), a.dtype)
        return none, _in_order(values, order), none
    if full_matrices:
        return NotImplemented
    u, values, vh = ops.svd(a, full_matrices=False)
    order = jnp.argsort(-stored_of(values), -1)
    hint = "ask for `svdvals`, or take `tj.linalg.svd`"
    u, vh = (densified(x, "linalg.svd", hint) if is_structured(x) else x for x in (u, vh))
    u = jnp.take_along_axis(u, order[..., None, :], -1)
    return u, _in_order(values, order), jnp.take_along_axis(vh, order[..., :, None], -2)


@_is(aten.linalg_qr)
def qr(a: Payload, mode: str = "reduced") -> Payloads:
    """The factors of Gram and Schmidt."""
    if mode == "r":
        return jnp.zeros((0,), a.dtype), ops.qr(a, mode="r")
    return tuple(ops.qr(a, mode=mode))


@_is(aten.linalg_pinv)
def pinv(
    a: Payload, *, atol: Tolerance = None, rtol: Tolerance = None, hermitian: bool = False
) -> Payloadlike:
    """The pseudo-inverse."""
    return ops.pinv(a, rtol) if atol is None else NotImplemented


@_is(aten.linalg_matrix_power, aten.matrix_power)
def matrix_power(a: Payload, n: int) -> Payload:
    """`a` to the power of a whole number."""
    return ops.matrix_power(a, n)


# -- copies --------------------------------------------------------------------------------------


@_is(aten.clone, aten.alias, aten.lift_fresh, aten._conj, aten.conj_physical)
def clone(a: Payload, *, memory_format: torch.memory_format | None = None) -> Payload:
    """The same array: arrays of JAX never change."""
    return a


@_is(aten._conj, aten.conj_physical)
def conj(a: Payload) -> Payload:
    """The complex conjugate."""
    return a.conj()


@_is(aten._to_copy)
def to_copy(a: Payload, *, dtype: Dtype = None, **_: object) -> Payload:
    """The same array in another dtype."""
    return a if dtype is None else a.astype(jax_dtype(dtype))


@_is(aten.copy)
def copy(a: Payload, b: Payload, non_blocking: bool = False) -> Payload:
    """Return the value of `a` after `b` is written into it, if it fits."""
    return b


_STATES: ContextVar[bool] = ContextVar("states", default=False)


@contextlib.contextmanager
def states() -> Iterator[None]:
    """Let `zeros_like` and its kin make states of optimisers, in the `with` block."""
    token = _STATES.set(True)
    try:
        yield
    finally:
        _STATES.reset(token)


@_is(aten.zeros_like)
def zeros_like(a: Payload, *, dtype: Dtype = None, **_: object) -> Payload:
    """Zeros in the unit of a quantity; a state of an optimiser is in stored coordinates."""
    if is_quantity(a) and not is_structured(a.stored):
        return unitful(jnp.zeros(a.shape, a.dtype if dtype is None else jax_dtype(dtype)), a.label)
    if not _STATES.get():  # for torch's own definitions: a matrix
        made = jnp.zeros(a.shape, a.dtype if dtype is None else jax_dtype(dtype))
        return unitful(made, a.label) if is_quantity(a) else made
    value = stored_of(a)
    step = Structural.of(value)
    wanted = jnp.dtype(a.dtype) if dtype is None else jax_dtype(dtype)
    leaves = [jnp.zeros(jnp.shape(x), wanted) for x in step.leaves]
    return Structural(leaves, step.model, a.label if is_quantity(a) else step.unit, value)


@_is(aten.ones_like)
def ones_like(a: Payload, *, dtype: Dtype = None, **_: object) -> Payload:
    """Pure numbers, also of a quantity: with them torch begins a backward pass."""
    return jnp.ones(a.shape, a.dtype if dtype is None else jax_dtype(dtype))


@_is(aten.full_like)
def full_like(a: Payload, fill_value: Number, *, dtype: Dtype = None, **_: object) -> Payloadlike:
    """The number in every entry; in a state of an optimiser, in every stored coordinate."""
    if is_quantity(a):
        return NotImplemented
    if not _STATES.get():
        return zeros_like(a, dtype=dtype) + fill_value
    step = zeros_like(a, dtype=dtype)
    return Structural([x + fill_value for x in step.leaves], step.model, step.unit, a)


@_is(aten.empty_like)
def empty_like(a: Payload, *, dtype: Dtype = None, **options: object) -> Payload:
    """As `zeros_like`."""
    return zeros_like(a, dtype=dtype)
