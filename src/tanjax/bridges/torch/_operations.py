"""Which function of tanjax an operation of ATen is, for structured arrays and quantities.

Each function takes payloads and the arguments of the schema, and returns `NotImplemented` for a
case that has no structure. What torch promises, holds: eigenvalues ascend and singular values
descend, also where a structure has another order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import torch

from tanjax import dispatch
from tanjax.arrays import (
    array_type,
    densified,
    is_quantity,
    is_structured,
    stored_of,
    unitful,
)

from ._calls import call_of
from ._dtypes import jax_dtype
from ._structural import Structural

aten = torch.ops.aten
OPERATIONS: dict[Any, Callable[..., Any]] = {
    aten.mm: dispatch.matmul,
    aten.bmm: dispatch.matmul,
    aten.mv: dispatch.matmul,
    aten.matmul: dispatch.matmul,
    aten.dot: dispatch.dot,
    aten.t: dispatch.transpose,
    aten.neg: dispatch.negative,
    aten.trace: dispatch.trace,
    aten.linalg_matrix_exp: dispatch.expm,
    aten.kron: dispatch.kron,
    aten.inverse: dispatch.inv,
    aten.linalg_inv: dispatch.inv,
    aten.linalg_det: dispatch.det,
    aten.det: dispatch.det,
    aten.logdet: dispatch.logdet,
}


def _is(*ops: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        OPERATIONS.update(dict.fromkeys(ops, function))
        return function

    return register


# -- arithmetic ----------------------------------------------------------------------------------


def _times(factor: Any, a: Any) -> Any:
    return a if isinstance(factor, (int, float)) and factor == 1 else dispatch.multiply(a, factor)


@_is(aten.add)
def add(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    """`a + alpha b`."""
    return dispatch.add(a, _times(alpha, b))


@_is(aten.sub, aten.subtract)
def sub(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    """`a - alpha b`."""
    return dispatch.subtract(a, _times(alpha, b))


@_is(aten.rsub)
def rsub(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    """`b - alpha a`."""
    return dispatch.subtract(b, _times(alpha, a))


@_is(aten.mul, aten.multiply)
def mul(a: Any, b: Any) -> Any:
    """`a b`, entry by entry or by a number."""
    return dispatch.multiply(a, b)


@_is(aten.div, aten.divide, aten.true_divide)
def div(a: Any, b: Any, *, rounding_mode: Any = None) -> Any:
    """`a / b`, entry by entry or by a number."""
    return dispatch.divide(a, b) if rounding_mode is None else NotImplemented


@_is(aten.addmm, aten.addmv, aten.baddbmm)
def addmm(bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """`beta bias + alpha a b`."""
    product = _times(alpha, dispatch.matmul(a, b))
    return product if beta == 0 else dispatch.add(_times(beta, bias), product)


@_is(aten.linear)
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """`x weightᵀ + bias`."""
    product = dispatch.matmul(x, dispatch.transpose(weight))
    return product if bias is None else dispatch.add(product, bias)


@_is(aten.zero)
def zero(a: Any) -> Any:
    """Zero of the same type."""
    return dispatch.multiply(a, 0.0)


# -- shape and reductions ------------------------------------------------------------------------


@_is(aten.transpose)
def transpose(a: Any, dim0: int, dim1: int) -> Any:
    """The transpose; other axes are nobody's structure."""
    last = {dim0 % a.ndim, dim1 % a.ndim}
    if len(last) == 1:
        return a
    return dispatch.transpose(a) if last == {a.ndim - 1, a.ndim - 2} else NotImplemented


@_is(aten.permute)
def permute(a: Any, dims: Sequence[int]) -> Any:
    """The same array, or the transpose."""
    order = [d % a.ndim for d in dims]
    if order == list(range(a.ndim)):
        return a
    swapped = [*range(a.ndim - 2), a.ndim - 1, a.ndim - 2]
    return dispatch.transpose(a) if order == swapped and a.ndim > 1 else NotImplemented


@_is(aten.sum)
def sum(a: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sum of all entries, or along axes."""
    if dtype is not None and jax_dtype(dtype) != a.dtype:
        return NotImplemented
    if dim is None or dim == []:
        total = dispatch.sum(a)
        return total.reshape((1,) * a.ndim) if keepdim else total
    axes = tuple(sorted(d % a.ndim for d in ([dim] if isinstance(dim, int) else dim)))
    total = dispatch.sum(a, axis=axes[0] if len(axes) == 1 else axes)
    return (
        jnp.expand_dims(total, axes)
        if keepdim and isinstance(total, jax.Array)
        else (NotImplemented if keepdim else total)
    )


@_is(aten.diagonal, aten.linalg_diagonal)
def diagonal(a: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The main diagonal of the last two axes."""
    last = {dim1 % a.ndim, dim2 % a.ndim} == {a.ndim - 1, a.ndim - 2}
    return dispatch.diagonal(a) if last and offset == 0 else NotImplemented


@_is(aten.linalg_vector_norm)
def vector_norm(
    a: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """The root of the sum of squares of all entries."""
    of_all = dim is None or sorted(d % a.ndim for d in dim) == list(range(a.ndim))
    return (
        dispatch.norm(a)
        if ord == 2 and of_all and not keepdim and dtype is None
        else NotImplemented
    )


# -- solves and factorisations -------------------------------------------------------------------


def _info(a: Any) -> jax.Array:
    return jnp.zeros(a.shape[:-2], jnp.int32)


def _quietly_dense(a: Any) -> Any:
    return array_type(a).destructure(a) if is_structured(a) else a  # type: ignore[union-attr]


@_is(aten.linalg_inv_ex)
def inv_ex(a: Any, *, check_errors: bool = False) -> Any:
    """The inverse, and that nothing went wrong: what did is nan."""
    return dispatch.inv(a), _info(a)


@_is(aten._linalg_solve_ex)
def solve_ex(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """The solution; the factors are for those who ask for them, and cost nothing under a trace."""
    return (solve(a, b, left=left), *_factors(a), _info(a))


def solve(a: Any, b: Any, *, left: bool = True) -> Any:
    """The solution alone."""
    if left:
        return dispatch.solve(a, b)
    return dispatch.transpose(dispatch.solve(dispatch.transpose(a), dispatch.transpose(b)))


def _factors(a: Any) -> Any:
    value = stored_of(a)
    matrix, pivots = call_of(aten.linalg_lu_factor_ex.default)(_quietly_dense(value))[:2]
    return (unitful(matrix, a.label) if is_quantity(a) else matrix), pivots


@_is(aten._linalg_det)
def det(a: Any) -> Any:
    """The determinant, and factors as above."""
    return (dispatch.det(a), *_factors(a))


@_is(aten._linalg_slogdet)
def slogdet(a: Any) -> Any:
    """Sign and logarithm of the determinant, and factors as above."""
    return (*dispatch.slogdet(a), *_factors(a))


@_is(aten.linalg_solve_triangular)
def solve_triangular(
    a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """The solution of a triangular system."""
    solve = dispatch.solve_triangular
    if left:
        return solve(a, b, lower=not upper, unit_diagonal=unitriangular)
    b = dispatch.transpose(b)
    x = solve(a, b, lower=not upper, unit_diagonal=unitriangular, trans=1)
    return dispatch.transpose(x)


@_is(aten.cholesky, aten.linalg_cholesky)
def cholesky(a: Any, upper: bool = False) -> Any:
    """The lower factor, or its conjugate transpose."""
    factor = dispatch.cholesky(a)
    return factor if not upper else adjoint(factor)


def adjoint(a: Any) -> Any:
    """The conjugate transpose."""
    if jnp.issubdtype(a.dtype, jnp.complexfloating):
        a = a.conj() if is_structured(a) else jnp.conj(a)
    return dispatch.transpose(a)


@_is(aten.linalg_cholesky_ex)
def cholesky_ex(a: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    """The factor, and 1 where the matrix was not positive definite."""
    factor = cholesky(a, upper)
    pivots = dispatch.diagonal(factor)
    pivots = stored_of(pivots)
    return factor, jnp.any(jnp.isnan(pivots), -1).astype(jnp.int32)


@_is(aten._linalg_eigh)
def eigh(a: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    """Eigenvalues, ascending, and eigenvectors."""
    if not compute_v:
        return dispatch.eigvalsh(a), jnp.zeros((0,), a.dtype)
    values, vectors = dispatch.eigh(a)
    if not is_structured(vectors):
        return values, vectors
    order = jnp.argsort(stored_of(values), -1)
    vectors = densified(vectors, "linalg.eigh", "ask for `eigvalsh`, or take `tj.eigh`")
    return _in_order(values, order), jnp.take_along_axis(vectors, order[..., None, :], -1)


def _in_order(values: Any, order: jax.Array) -> Any:
    if is_quantity(values):
        return unitful(jnp.take_along_axis(values.stored, order, -1), values.label)
    return jnp.take_along_axis(values, order, -1)


@_is(aten._linalg_svd)
def svd(a: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None) -> Any:
    """Singular values, descending, with their vectors."""
    if not compute_uv:
        values = dispatch.svd(a, compute_uv=False)
        order = jnp.argsort(-stored_of(values), -1)
        none = jnp.zeros((0,), a.dtype)
        return none, _in_order(values, order), none
    if full_matrices:
        return NotImplemented
    u, values, vh = dispatch.svd(a, full_matrices=False)
    order = jnp.argsort(-stored_of(values), -1)
    hint = "ask for `svdvals`, or take `tj.svd`"
    u, vh = (densified(x, "linalg.svd", hint) if is_structured(x) else x for x in (u, vh))
    u = jnp.take_along_axis(u, order[..., None, :], -1)
    return u, _in_order(values, order), jnp.take_along_axis(vh, order[..., :, None], -2)


@_is(aten.linalg_qr)
def qr(a: Any, mode: str = "reduced") -> Any:
    """The factors of Gram and Schmidt."""
    if mode == "r":
        return jnp.zeros((0,), a.dtype), dispatch.qr(a, mode="r")
    return tuple(dispatch.qr(a, mode=mode))


@_is(aten.linalg_pinv)
def pinv(a: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    """The pseudo-inverse."""
    return dispatch.pinv(a, rtol) if atol is None else NotImplemented


@_is(aten.linalg_matrix_power, aten.matrix_power)
def matrix_power(a: Any, n: int) -> Any:
    """`a` to the power of a whole number."""
    return dispatch.matrix_power(a, n)


# -- copies --------------------------------------------------------------------------------------


@_is(aten.clone, aten.alias, aten.lift_fresh, aten._conj, aten.conj_physical)
def clone(a: Any, *, memory_format: Any = None) -> Any:
    """The same array: arrays of JAX never change."""
    return a


@_is(aten._conj, aten.conj_physical)
def conj(a: Any) -> Any:
    """The complex conjugate."""
    return a.conj()


@_is(aten._to_copy)
def to_copy(a: Any, *, dtype: Any = None, **_: Any) -> Any:
    """The same array in another dtype."""
    return a if dtype is None else a.astype(jax_dtype(dtype))


@_is(aten.copy)
def copy(a: Any, b: Any, non_blocking: bool = False) -> Any:
    """What a write of `b` into `a` leaves there, if it fits."""
    return b


_STATES: ContextVar[bool] = ContextVar("states", default=False)


@contextlib.contextmanager
def states() -> Iterator[None]:
    """While it is active, `zeros_like` and its kin make states of optimisers."""
    token = _STATES.set(True)
    try:
        yield
    finally:
        _STATES.reset(token)


@_is(aten.zeros_like)
def zeros_like(a: Any, *, dtype: Any = None, **_: Any) -> Any:
    """A step of nothing, in stored coordinates; of a quantity, zero in its unit."""
    if is_quantity(a) and not is_structured(a.stored):
        return unitful(jnp.zeros(a.shape, a.dtype if dtype is None else jax_dtype(dtype)), a.label)
    if not _STATES.get():  # one of torch's own definitions asks, for a matrix
        made = jnp.zeros(a.shape, a.dtype if dtype is None else jax_dtype(dtype))
        return unitful(made, a.label) if is_quantity(a) else made
    value = stored_of(a)
    step = Structural.of(value)
    wanted = jnp.dtype(a.dtype) if dtype is None else jax_dtype(dtype)
    leaves = [jnp.zeros(jnp.shape(x), wanted) for x in step.leaves]
    return Structural(leaves, step.model, a.label if is_quantity(a) else step.unit, value)


@_is(aten.ones_like)
def ones_like(a: Any, *, dtype: Any = None, **_: Any) -> Any:
    """Pure numbers, also of a quantity: with them torch begins a backward pass."""
    return jnp.ones(a.shape, a.dtype if dtype is None else jax_dtype(dtype))


@_is(aten.full_like)
def full_like(a: Any, fill_value: Any, *, dtype: Any = None, **_: Any) -> Any:
    """A state of an optimiser: the number in every stored coordinate."""
    if is_quantity(a):
        return NotImplemented
    if not _STATES.get():
        return zeros_like(a, dtype=dtype) + fill_value
    step = zeros_like(a, dtype=dtype)
    return Structural([x + fill_value for x in step.leaves], step.model, step.unit, a)


@_is(aten.empty_like)
def empty_like(a: Any, *, dtype: Any = None, **options: Any) -> Any:
    """As `zeros_like`."""
    return zeros_like(a, dtype=dtype)
