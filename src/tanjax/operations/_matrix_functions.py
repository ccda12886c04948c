"""Functions of matrices and matrix equations: names, signatures, and effects on units.

    X = tj.linalg.sqrtm(A)
    P = tj.linalg.solve_discrete_lyapunov(A, Q)

`tanjax.kernels` implements them for dense arrays, the rule packs for structured ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped

from tanjax import kernels as dense
from tanjax._typing import AnyArray, Arraylike, Function
from tanjax.quantities import Quantity, graphed, labelled
from tanjax.registry import operation
from tanjax.units.signatures import not_linear

from . import _checks as checks
from ._factorization_checks import of_hermitian, product_of_hermitian

# A square matrix, or a batch of dense ones.
Square: TypeAlias = Shaped[AnyArray, "*batch n n"]


def unit_of_power(raw: Any, a: Quantity, *rest: Arraylike) -> Quantity:
    """Raise a quantity to a power, and its unit to the same power."""
    power = raw.keywords["t" if "t" in raw.keywords else "n"]
    if not a.label.is_linear:
        raise not_linear(raw.__name__, "a", a.label)
    exact = Fraction(power).limit_denominator(1000)  # a third for `1 / 3`
    return labelled(graphed(raw, max(2, abs(power)), spread=True)(a.stored), a.label**exact)


@operation(dense=True, check=checks.square, units="a: 1 -> 1", core_ndims=(2,))
def expm(a: Square) -> Square:
    r"""The matrix exponential of `(..., n, n)`, by balancing, scaling and squaring.

    Entries of a matrix of states in units far apart keep their digits: a diagonal similarity with
    powers of two first scales the matrix well.

    **Cost:** $O(n)$ for `Diagonal`; one `eigh` for `Symmetric`, `Hermitian` and `SymTridiagonal`
    (its functions are `Symmetric`). For dense matrices about $(20 + 2s)\,n^3$ operations,
    $s = \log_2(\|A\|_1 / 5.4)$ of the balanced matrix; nan beyond $s = 32$.
    **Units:** pure numbers only. **Raises:** `ShapeError` if `a` is not square.
    **Derivative:** $\bar A = L(A^\top, \bar X)$ with the Fréchet derivative $L$. Both modes compute
    it by a forward pass through the algorithm, which stores none of its squares.
    **References:** Osborne 1960; Higham 2005; Al-Mohy and Higham 2009.
    """
    return dense.exponential(a)


@operation(dense=True, check=checks.square, units="a: u -> u^1/2", core_ndims=(2,))
def sqrtm(a: Square, *, upper_triangular: bool = False) -> Square:
    r"""The principal square root of `(..., n, n)`: eigenvalues in the right half plane.

    A real matrix gives a real root. A real matrix with negative eigenvalues has no real principal
    root and gives nan: convert it to complex to get the complex root. `upper_triangular=True` saves
    the Schur factorisation of a matrix that is upper triangular.

    **Cost:** $O(n)$ for `Diagonal`, one `eigh` for `Symmetric` and `Hermitian`, by factors for
    `Kronecker`; a complex Schur factorisation for dense ones (on CPU only).
    **Raises:** `ShapeError` if `a` is not square.
    **Derivative:** the $W$ with $X^\top W + W X^\top = \bar X$; `inf` or nan if `a` is singular.
    **References:** Björck and Hammarling 1983.
    """
    return dense.square_root(a, upper_triangular=upper_triangular)


@operation(dense=True, check=checks.square, units="a: 1 -> 1", core_ndims=(2,))
def logm(a: Square, *, upper_triangular: bool = False) -> Square:
    r"""The principal logarithm of `(..., n, n)`: imaginary parts of eigenvalues within $\pi$.

    A real matrix gives a real logarithm, or nan if it has negative eigenvalues. A singular one
    gives nan or `-inf`. **Units:** pure numbers only. `upper_triangular` and cost as for `sqrtm`,
    with some square roots of the triangular factor.
    **Raises:** `ShapeError` if `a` is not square.
    **Derivative:** $\bar A = L_{\exp}(X^\top, \cdot)^{-1} \bar X$, by the roots that gave $X$.
    **References:** Al-Mohy and Higham 2012; Al-Mohy, Higham and Relton 2013.
    """
    return dense.logarithm(a, upper_triangular=upper_triangular)


@operation(
    dense=True,
    check=checks.square,
    static={"t": checks.real_number},
    units=unit_of_power,
    core_ndims=(2,),
)
def fractional_matrix_power(a: Square, t: float, *, upper_triangular: bool = False) -> Square:
    r"""The principal power $A^t$ of `(..., n, n)` for a Python number `t`, as in `scipy.linalg`.

    A whole `t` is `matrix_power`. For a traced `t` write `tj.linalg.expm(t * tj.linalg.logm(a))`.
    Negative eigenvalues of a real matrix give nan, as in `sqrtm`.
    **Units:** $u^t$, with `t` rounded to a denominator of at most 1000. **Cost:** one `logm` and
    `expm`.
    **Raises:** `ShapeError` if `a` is not square; `TypeError` if `t` is traced or not a real
    number.
    **Derivative:** that of $A^k \exp((t - k)\log A)$, with $k$ the whole number next to $t$.
    """
    return dense.fractional_power(a, t, upper_triangular=upper_triangular)


@operation(
    dense=True,
    check=checks.square,
    static={"n": checks.whole_number},
    units=unit_of_power,
    core_ndims=(2,),
)
def matrix_power(a: Square, n: int) -> Square:
    r"""The power $A^n$ of `(..., n, n)` for a whole Python number; of the inverse if negative.

    It keeps every array type whose products do. A power of a band is a wider band. It is dense if
    `n` times the width reaches that of the matrix, or if `n` is negative. **Units:** $u^n$.
    **Raises:** `ShapeError` if `a` is not square; `TypeError` if `n` is not a whole number.
    **Cost:** $O(\log n)$ products. **Derivative:** that of these products.
    """
    return jnp.linalg.matrix_power(a, n)


@operation(dense=True, check=of_hermitian, units="a: 1 -> 1", core_ndims=(2, 0))
def funm_hermitian(a: Square, func: Function, *, symmetrize_input: bool = True) -> Square:
    r"""$U\,\mathrm{diag}(f(\lambda))\,U^H$ of a Hermitian (or real symmetric) `(..., n, n)`.

    **Arguments:** `a`: for a dense matrix, the Hermitian part counts. `func`: from eigenvalues to
    values, each separately, such as `jnp.exp`; JAX must be able to differentiate it. If it closes
    over arrays, JAX differentiates with respect to these, too. `tj.rules.WithDifferences` gives it
    divided differences in closed form. `symmetrize_input=False`: a dense `a` is Hermitian. This
    saves a pass and is not checked, as in `jax.numpy.linalg.eigh`; derivatives are the same.

    Safe at equal eigenvalues: derivatives are divided differences with their limits,
    $\bar A = U (f[\lambda_i, \lambda_j] \odot U^H \bar X U) U^H$, also of second order.
    **Units:** pure numbers. **Cost:** one `eigh`; a second derivative $n^3$ values of $f''$.
    **Raises:** `ShapeError` if a structured `a` is not square or not Hermitian by its type, or
    `func` changes shapes.
    **References:** Daleckii and Krein 1965; Higham 2008, section 3.2.
    """
    return dense.of_hermitian(a, func, symmetrize_input)


@operation(dense=True, check=product_of_hermitian, units="a: 1, b: v -> v", core_ndims=(2, 2))
def funm_multiply(
    a: Square, b: Shaped[AnyArray, "*_ n k"] | Shaped[AnyArray, " n"], func: Function
) -> Shaped[AnyArray, "*_ n k"] | Shaped[AnyArray, " n"]:
    r"""`funm_hermitian(a, func) @ b`, without forming that matrix: `b` is `(n,)` or `(..., n, k)`.

        y = tj.linalg.funm_multiply(A, b, jnp.sqrt)  # a Gaussian sample with the covariance A

    Use it if you need only products with a root, an exponential or another function. Besides one
    `eigh` it takes $O(n^2 k)$. Its gradient takes two products of $n^3$, that of the matrix four.
    **Arguments, units of `a`, safety at equal eigenvalues:** as `funm_hermitian`. `b` may have any
    unit, which the result has. `func` decides about an eigenvalue that is negative only by
    rounding: nan for `jnp.sqrt`.
    **Raises:** `ShapeError` as `funm_hermitian`, and if `b` does not fit.
    **Derivative:** $\bar A = U (f[\lambda_i, \lambda_j] \odot (U^H \bar y)(U^\top b)^\top) U^H$,
    its Hermitian part; $\bar b = f(A)^\top \bar y$. Second derivatives with respect to `a`, and to
    arrays that `func` closes over, need distinct eigenvalues.
    **References:** Daleckii and Krein 1965; Higham 2008, sections 3.2 and 13.
    """
    return dense.multiply_hermitian(a, b, func)


@operation(dense=True, check=checks.sylvester, units="a: u, b: u, q: v -> v/u", core_ndims=(2,))
def solve_sylvester(
    a: Shaped[AnyArray, "*_ m m"], b: Shaped[AnyArray, "*_ n n"], q: Shaped[AnyArray, "*_ m n"]
) -> Shaped[AnyArray, "*_ m n"]:
    r"""The `x` with `a x + x b = q`, for `a` `(..., m, m)`, `b` `(..., n, n)`, `q` `(..., m, n)`.

    Unique if no eigenvalue of `a` is minus one of `b`; else `inf` or nan.
    **Cost:** two complex Schur factorisations (CPU only), or `eigh` if both matrices are
    `Diagonal`, `Symmetric` or `Hermitian`. **Raises:** `ShapeError` if shapes do not fit.
    **Derivative:** with $A^\top W + W B^\top = \bar X$ by the same factors: $\bar Q = W$,
    $\bar A = -W X^\top$, $\bar B = -X^\top W$. **References:** Bartels and Stewart 1972.
    """
    checks.sylvester("solve_sylvester", a, b, q)
    return dense.sylvester(a, b, q)


@operation(dense=True, check=checks.lyapunov, units="a: u, q: v -> v/u", core_ndims=(2,))
def solve_lyapunov(
    a: Shaped[AnyArray, "*_ n n"], q: Shaped[AnyArray, "*_ n n"]
) -> Shaped[AnyArray, "*_ n n"]:
    r"""The `x` with `a x + x a^H = q`: `scipy.linalg.solve_continuous_lyapunov`, with its sign.

    The covariance of $dx = A x\,dt + dw$ is `solve_lyapunov(A, -Q)`. A `Symmetric` or `Hermitian`
    `q` gives an `x` of that type. **Cost:** one complex Schur factorisation (CPU only), or `eigh`.
    **Raises:** `ShapeError` if shapes do not fit.
    **Derivative:** with $A^\top W + W \overline A = \bar X$: $\bar Q = W$, and for real matrices
    $\bar A = -W X^\top - W^\top X$.
    """
    checks.lyapunov("solve_lyapunov", a, q)
    return dense.lyapunov(a, q)


@operation(dense=True, check=checks.lyapunov, units="a: 1, q: v -> v", core_ndims=(2,))
def solve_discrete_lyapunov(
    a: Shaped[AnyArray, "*_ n n"], q: Shaped[AnyArray, "*_ n n"]
) -> Shaped[AnyArray, "*_ n n"]:
    r"""The `x` with `x - a x a^H = q`: `scipy.linalg.solve_discrete_lyapunov`, with its sign.

    It is the covariance of $x_{k+1} = A x_k + w_k$. Unique if no product of two eigenvalues of `a`
    (one conjugated) is 1. **Units:** `a` is a pure number. **Cost, errors:** those of
    `solve_lyapunov`.
    **Derivative:** with $W - A^\top W \overline A = \bar X$: $\bar Q = W$, and for real matrices
    $\bar A = W A X^\top + W^\top A X$. **References:** Kitagawa 1977.
    """
    checks.lyapunov("solve_discrete_lyapunov", a, q)
    return dense.discrete_lyapunov(a, q)


def complex_sqrtm(a: Square) -> Square:
    """Return the complex root, as SciPy does, so that negative eigenvalues have one."""
    return sqrtm(a.astype(np.promote_types(a.dtype, np.complex64)))


# The functions of JAX that an operation implements for structured arrays, by namespace.
OF_MATRICES: dict[str, dict[str, Function]] = {
    "linalg": {"matrix_power": matrix_power},
    "scipy.linalg": {"expm": expm, "sqrtm": complex_sqrtm, "solve_sylvester": solve_sylvester},
}


def _sqrtm_with_derivative(raw: Function) -> Function:
    """Return `jax.scipy.linalg.sqrtm`, always complex, with the derivative that JAX lacks."""

    @functools.wraps(raw)
    def call(A: Arraylike, blocksize: int = 1) -> AnyArray:
        if blocksize > 1:
            return raw(A, blocksize)  # which raises
        (A,) = dense.inexact(A)
        return sqrtm(A.astype(np.promote_types(A.dtype, np.complex64)))

    return call


def _sylvester_with_derivative(raw: Function) -> Function:
    """Return JAX's `solve_sylvester` with the derivative that its Schur method lacks."""

    @functools.wraps(raw)
    def call(
        A: Arraylike, B: Arraylike, C: Arraylike, *, method: str = "schur", tol: float = 1e-8
    ) -> AnyArray:
        if method != "schur":
            return raw(A, B, C, method=method, tol=tol)
        return solve_sylvester(A, B, C)

    return call


# Replacements for JAX's functions without a derivative: same signatures and results.
DIFFERENTIABLE: dict[str, Callable[[Function], Function]] = {
    "scipy.linalg.sqrtm": _sqrtm_with_derivative,
    "scipy.linalg.solve_sylvester": _sylvester_with_derivative,
}
