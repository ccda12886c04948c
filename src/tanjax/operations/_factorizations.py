"""Factorizations and related operations: names, signatures, dense implementations.

As in `_operations`, the rule pack `tanjax_rules.factorizations` holds the implementations for
structured arrays and the derivatives.

Sharp edges. Factors of a matrix are not unique, and not differentiable if the matrix has equal
eigenvalues or singular values: see the derivatives of `eigh` and `svd`. The factors of a structured
matrix come in the order of its structure, not sorted, so that they keep the structure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Inexact, Integer, PyTree, Shaped

from tanjax import kernels as dense
from tanjax._typing import AnyArray, Factor, Function, Natural, Order
from tanjax.quantities import UnitFunction
from tanjax.registry import operation

from . import _checks, _factorization_checks as checks
from ._factorization import Factorization, batched_factorization, units_of_factorization
from ._operations import BY_NAME


def by_flags(choose: Callable[..., str], *names: str) -> Function:
    """Return the unit function of an operation whose unit signature depends on static arguments."""

    def call(raw: Any, *args: PyTree) -> PyTree:
        return UnitFunction(raw.__name__, raw, choose(**raw.keywords), names=names)(*args)

    return call


class EighResult(NamedTuple):
    """The result of `eigh`: real `eigenvalues` `(..., n)` and `eigenvectors`, the columns."""

    eigenvalues: Float[AnyArray, "*batch n"]
    eigenvectors: Inexact[AnyArray, "*batch n n"]


class SVDResult(NamedTuple):
    """The result of `svd`: `a = U @ diag(S) @ Vh`, with `S` real and not negative."""

    U: Natural
    S: Natural
    Vh: Natural


class QRResult(NamedTuple):
    """The result of `qr`: `a = Q @ R`, `Q` with orthonormal columns, `R` upper triangular."""

    Q: Natural
    R: Natural


class LUResult(NamedTuple):
    """The result of `lu`: `a = P @ L @ U`, a permutation, unit lower and upper triangular."""

    P: Natural
    L: Natural
    U: Natural


@operation(dense=True, check=checks.hermitian, units="a: u -> (u, 1)", core_ndims=(2,))
def eigh(a: Shaped[AnyArray, "*batch n n"], *, invariant: bool = False) -> EighResult:
    r"""Eigenvalues and eigenvectors of a Hermitian matrix, as an `EighResult`.

    **Arguments:** `a`, `(..., n, n)`: the Hermitian part of a dense one counts. `invariant`: a
    promise about the loss, see below.

    **Order:** ascending for dense, `Symmetric`, `Hermitian` and `SymTridiagonal` arrays, whose
    eigenvectors are dense. A `Diagonal`, `Identity`, `Kronecker`, `BlockDiagonal` or `Scaled` gives
    them in the order of its structure, with eigenvectors of its type. Eigenvalues carry the unit;
    eigenvectors have none.

    **Cost:** $O(n^3)$; by factors for `Kronecker`, by blocks for `BlockDiagonal`. For a
    `SymTridiagonal` $4n^3/3$ operations of products and $O(n^2)$ others; gradients go to its
    diagonals only. Compilation takes a second or two for every halving of `n` down to 128.
    **Raises:** `ShapeError` if a structured `a` is not square or not Hermitian by its type.

    **Derivative:** $\bar A = V(\mathrm{diag}\,\bar\lambda + F \circ \mathrm{skew}(V^H \bar V))V^H$
    with $F_{ij} = 1/(\lambda_j - \lambda_i)$. Eigenvalues closer than $16 \epsilon \|A\|$
    count as equal, and their eigenvectors have no derivative. The loss still has one if it depends
    on equal eigenvalues symmetrically, and on their eigenvectors only through the projector.
    Reverse mode checks that in the cotangent: within equal eigenvalues $\bar\lambda$ is constant
    and $V^H\bar V$ Hermitian. Then $F = 0$ there is right; otherwise the gradient is `nan`. So that
    no other loss passes by chance, the basis of these eigenvectors is turned while differentiating.
    If the cotangent of the eigenvectors is zero in every entry, they count as unused. The gradient
    is then that of `eigvalsh`, and `nan` if one and the same number has two cotangents. Forward
    mode and second derivatives do not see the loss: tangents of the eigenvectors of equal
    eigenvalues are `nan` there. `invariant=True` promises that the loss has the property above and
    skips the check in both modes. If the promise is wrong, so is the gradient.

    **References:** Giles 2008, 3.1; Magnus 1985; Gu and Eisenstat 1995 (tridiagonal).
    """
    return EighResult(*jnp.linalg.eigh(a))


@operation(dense=True, check=checks.hermitian, units="a: u -> u", core_ndims=(2,))
def eigvalsh(a: Shaped[AnyArray, "*batch n n"]) -> Float[AnyArray, "*batch n"]:
    r"""Eigenvalues of a Hermitian matrix `(..., n, n)`, real, ascending for every type.

    **Cost:** $O(n^3)$; by factors for `Kronecker`, by blocks for `BlockDiagonal`, $O(n \log n)$ for
    `Diagonal`. For `SymTridiagonal`, bisection takes $O(n^2)$ with $O(n)$ memory; differentiation
    costs one `eigh`. **Raises:** `ShapeError` as `eigh`.
    **Derivative:** $\bar A = V\,\mathrm{diag}(\bar\lambda)V^H$, finite for every matrix. At equal
    eigenvalues it is the derivative of every symmetric function of them. For other functions it is
    a directional derivative (a subgradient for `eigvalsh(a)[-1]`).
    """
    return jnp.linalg.eigvalsh(a)


@operation(
    dense=True,
    static=("full_matrices", "compute_uv"),
    check=checks.matrix,
    units=by_flags(
        lambda *, compute_uv=True, **_: "a: u -> (1, u, 1)" if compute_uv else "a: u -> u", "a"
    ),
    core_ndims=(2,),
)
def svd(
    a: Shaped[AnyArray, "*batch m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> SVDResult | Natural:
    r"""The singular value decomposition of `(..., m, n)`, as an `SVDResult`, or `S` alone.

    **Arguments:** `full_matrices`: square `U` and `Vh`; otherwise $k = \min(m, n)$ columns and
    rows. `compute_uv=False`: the singular values only. `invariant`: as in `eigh`.

    **Order:** descending for arrays that store all entries. `Diagonal`, `Identity`, `Kronecker`,
    `BlockDiagonal` and `Scaled` give factors of their type, in the order of the structure. These,
    and `LowRank` of rank $r$ (in $O((m + n) r^2)$), may give fewer triples than $k$: the omitted
    singular values are zero. The values alone of a `Circulant` and of a real `SymTridiagonal` are
    the absolute eigenvalues: in the order of the Fourier transform, and descending. Singular values
    carry the unit.

    **Raises:** `ShapeError` if a structured `a` is not a matrix.

    **Derivative:** let $P = U^H \dot A V$ with the thin factors. Its Hermitian part is divided by
    $\sigma_j - \sigma_i$ and its skew part by $\sigma_j + \sigma_i$. The same holds for full
    matrices, where only the span of the added columns counts. Equal and zero singular values are
    treated as `eigh` treats equal eigenvalues: right for a loss that does not depend on the choice
    of the vectors, `nan` for others. Vectors with zero cotangents count as unused. For the values
    alone it is $U\,\mathrm{diag}(\bar s)V^H$, always finite.

    **References:** Giles 2008, 3.2; Wan and Zhang 2019.
    """
    if not compute_uv:
        return jnp.linalg.svd(a, compute_uv=False)
    return SVDResult(*jnp.linalg.svd(a, full_matrices=full_matrices))


@operation(
    dense=True,
    static=("mode",),
    check=checks.matrix,
    units=by_flags(lambda *, mode="reduced": "a: u -> u" if mode == "r" else "a: u -> (1, u)", "a"),
    core_ndims=(2,),
)
def qr(a: Shaped[AnyArray, "*batch m n"], mode: str = "reduced") -> QRResult | Natural:
    r"""The QR decomposition of `(..., m, n)`, as a `QRResult`, or `R` alone for `mode="r"`.

    **Arguments:** `mode`: `"reduced"` ($k = \min(m, n)$ columns of `Q`), `"complete"` or `"r"`.
    **Types:** a `Kronecker` gives Kronecker factors. A `BlockDiagonal` gives blocks if its blocks
    are not wide. An upper `Triangular` and a `Diagonal` give themselves as `R`. `R` carries the
    unit.
    **Raises:** `ShapeError` if a structured `a` is not a matrix.
    **Derivative:** that of JAX; it needs the first $k$ columns to be independent, otherwise `nan`.
    """
    checks.known_mode(mode)
    result = jnp.linalg.qr(a, mode=mode)
    return result if mode == "r" else QRResult(*result)


@operation(dense=True, check=checks.square_or_dense, units="a: u -> (1, 1, u)", core_ndims=(2,))
def lu(a: Shaped[AnyArray, "*batch m n"]) -> LUResult:
    r"""The LU decomposition with partial pivoting of `(..., m, n)`, as an `LUResult`.

    **Types:** `Kronecker` and `BlockDiagonal` give factors of their type (pivots within a factor or
    block). An upper `Triangular` and a `Diagonal` give themselves as `U`. Structured arrays must be
    square. `U` carries the unit. **Cost:** $2n^3/3$. **Derivative:** that of JAX, for a fixed
    permutation.
    """
    return LUResult(*jax.scipy.linalg.lu(a))


@operation(
    dense=True,
    static={"rtol": _checks.tolerance},
    check=checks.matrix,
    units="a: u -> 1/u",
    core_ndims=(2,),
)
def pinv(
    a: Shaped[AnyArray, "*batch m n"], rtol: Factor | None = None
) -> Inexact[AnyArray, "*batch n m"]:
    r"""The Moore-Penrose inverse of `(..., m, n)`, of a type that can express it.

    **Arguments:** `rtol`: singular values below `rtol` times the largest count as zero (default
    $10 \max(m, n)\,\epsilon$); for factors and blocks, the largest of the same factor.
    **Cost:** one thin SVD; $O((m + n) r^2)$ for `LowRank`, by factors and blocks.
    **Derivative:** at constant rank, with $C = A^+$: $\bar A = -C^\top\bar C C^\top + \dots$
    **References:** Golub and Pereyra 1973.
    """
    return dense.pseudo_inverse(a, rtol)


@operation(
    dense=True,
    static={"rcond": _checks.tolerance},
    check=checks.least_squares,
    units="a: u, b: v -> v/u",
    core_ndims=(2, 2),
)
def lstsq(
    a: Shaped[AnyArray, "... m n"], b: Natural, rcond: Factor | None = None
) -> Inexact[AnyArray, " ..."]:
    r"""The `x` of least norm that minimises $\|A x - b\|$: `pinv(a) @ b`.

    **Arguments:** `a`, `(..., m, n)`; `b`, `(m,)` or `(..., m, k)`; `rcond` as `rtol` of `pinv`.
    **Cost:** that of `pinv`. **Raises:** `ShapeError` if a structured `a` does not fit `b`.
    **Derivative:** at constant rank, with $w = A^{+\top}\bar x$ and the residual $r = b - Ax$:
    $\bar A = -w x^\top + r (A^+ w)^\top + (A^{+\top}x)((I - A^+A)\bar x)^\top$ (an `Outer`; real
    case), $\bar b = w$. **References:** Golub and Pereyra 1973.
    """
    return jnp.matmul(dense.pseudo_inverse(a, rcond), b)


def _triangular_units(*, unit_diagonal: bool = False, **_: PyTree) -> str:
    return "a: 1, b: v -> v" if unit_diagonal else "a: u, b: v -> v/u"


@operation(
    dense=True,
    check=_checks.one_system,
    units=by_flags(_triangular_units, "a", "b"),
    core_ndims=(2, 2),
)
def solve_triangular(
    a: Shaped[AnyArray, "... n n"],
    b: Natural,
    *,
    trans: Factor | str = 0,
    lower: Factor | None = None,
    unit_diagonal: bool = False,
) -> Inexact[AnyArray, " ..."]:
    r"""The `x` with `a @ x = b` for a triangular `a`, `(..., n, n)`; reads only that triangle.

    **Arguments:** `b`, `(n,)` or `(..., n, k)`; `trans`: 0 or `"N"`, 1 or `"T"`, 2 or `"C"`: solve
    with `a`, its transpose, its conjugate transpose; `lower` (default: upper for dense arrays, the
    triangle of a `Triangular`); `unit_diagonal`: the diagonal counts as ones.
    **Raises:** `ShapeError` for a structured `a` that is not triangular, or in another triangle.
    **Derivative:** that of `solve`, on the triangle. **References:** Giles 2008, 2.3.1.
    """
    code = checks.transposition(trans)
    flags: dict[str, PyTree] = {"trans": code, "lower": bool(lower), "unit_diagonal": unit_diagonal}
    solve = lambda a, b: jax.scipy.linalg.solve_triangular(a, b, **flags)
    if jnp.ndim(b) == 1:
        return jnp.vectorize(solve, signature="(n,n),(n)->(n)")(a, b)
    return jnp.vectorize(solve, signature="(n,n),(n,k)->(n,k)")(a, b)


# -- numbers ---------------------------------------------------------------------------------------


@operation(dense=True, static=("p",), check=checks.not_empty, units="a: u -> 1", core_ndims=(2,))
def condition_number(
    a: Shaped[AnyArray, "*batch m n"], p: Order = None
) -> Float[AnyArray, "*batch"]:
    r"""The condition number `norm(a, p) * norm(inv(a), p)` of `(..., n, n)`; without a unit.

    **Arguments:** `p`: an order of `norm`; `None` and 2 are $\sigma_{\max}/\sigma_{\min}$, -2 its
    inverse, both also for matrices that are not square. A singular matrix gives `inf`. (`tj.cond`
    is the branch; `tanjax.numpy.linalg.cond` is this function.)
    **Derivative:** that of its norms; a subgradient if extreme singular values are equal.
    """
    if p not in (None, 2, -2):
        return jnp.linalg.cond(a, p)
    largest, least = dense.spectral_norm(a, 2), dense.spectral_norm(a, -2)
    ratio = least / largest if p == -2 else largest / least
    return jnp.where(largest == 0, jnp.inf, ratio)


@operation(
    dense=True,
    static={"rtol": _checks.tolerance},
    check=checks.matrix,
    units="a: u -> -",
    core_ndims=(2,),
)
def matrix_rank(
    a: Shaped[AnyArray, "*batch m n"], rtol: Factor | None = None
) -> Integer[AnyArray, "*batch"]:
    r"""The number of singular values of `(..., m, n)` above `rtol` times the largest.

    **Arguments:** `rtol`, default $\max(m, n)\,\epsilon$. **Cost:** that of the singular values.
    **Derivative:** none: the rank is a step function.
    """
    s = jnp.linalg.svd(a, compute_uv=False)
    return checks.count_rank(s, jnp.shape(a)[-2:], rtol)


# -- factor once, solve many -----------------------------------------------------------------------


@operation(
    dense=True,
    generic=False,
    check=_checks.square,
    units=units_of_factorization,
    core_ndims=(2,),
    batched=batched_factorization,
)
def factorize(a: Shaped[AnyArray, "... n n"]) -> Factorization:
    r"""Factorise a square matrix once, for many solutions, determinants and roots.

    **Arguments:** `a`, `(n, n)`, of any type; a dense one also `(..., n, n)`.
    **Returns:** a `Factorization` `f`, a pytree: `f.solve(b)`, `f.logdet()`, `f.slogdet()`,
    `f.inv_quad(b)`, `f.diagonal_of_inverse()`, and `f.root() @ z` of a definite matrix.
    `Symmetric` and `Hermitian` with `definite=True` use Cholesky, `LowRankUpdate` uses Woodbury.
    `Diagonal`, `Circulant` and `Permutation` need no factor. Bands, `Kronecker` and
    `BlockDiagonal` factorise their bands, factors and blocks. `KroneckerSum`, and a Hermitian
    `Kronecker` plus `c * tj.Identity(n)` or a `Kronecker` of `Diagonal`s, use the eigenvectors of
    the factors. Other matrices use LU.
    **Cost:** one factorisation, for all values and derivatives to any order.
    **Raises:** `ShapeError` if a structured `a` is not square. A singular or indefinite matrix
    gives `inf` or `nan`, as `solve` does.
    **Derivative:** by the matrix, through the natural rules of `solve` and `logdet`; the factors
    are constants. **References:** Giles 2008, 2.2.4 and 2.3.1.
    """
    raise NotImplementedError


@operation(dense=True, check=_checks.one_system, units="a: 1, b: v -> (v^2, 1)", core_ndims=(2, 2))
def inv_quad_logdet(a: Shaped[AnyArray, "... n n"], b: Natural) -> tuple[Natural, Natural]:
    r"""`(b^H a^-1 b, log(abs(det(a))))` by one factorisation.

    **Arguments:** `a`, `(..., n, n)`; `b`, `(n,)` or `(..., n, k)`: the result sums over its
    columns. `estimator` as in `logdet`, `solver` and `options` as in `solve`; by default the
    estimator's own solver.
    **Cost:** that of `factorize` and one solve. **Raises:** `ShapeError` as `solve`.
    **Derivative:** $\bar A = -\bar q\,w w^\top + \bar y A^{-\top}$ with $w = A^{-1}b$ (real
    symmetric case).
    """
    f = factorize(a)
    return f.inv_quad(b), f.logdet()


# Names of these functions in NumPy and JAX; `_as_numpy` has those with stricter contracts.
BY_NAME["linalg"] |= {
    "eigvalsh": eigvalsh,
    "qr": qr,
    "cond": condition_number,
    "matrix_rank": matrix_rank,
}
