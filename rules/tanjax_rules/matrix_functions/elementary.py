r"""Exponential, logarithm, square root and fractional powers, on types that keep their structure.

A function of a matrix keeps more structure than the inverse does: a matrix that commutes with `A`
commutes with `f(A)`. Functions differ only in their values at eigenvalues. So each type is treated
once, for all functions:

| type | `f(A)` |
|---|---|
| `Diagonal`, `Identity` | `f` of the entries |
| `Symmetric`, `Hermitian` | by eigenvalues, and of the same type |
| `SymTridiagonal` | `Symmetric`, as of a matrix of that type: all entries of `f(A)` differ |
| `Triangular` | triangular, without a Schur factorisation |
| `BlockDiagonal` | block by block |
| `Scaled` | that of the matrix with the factor in it |

A complex `Symmetric` matrix is not Hermitian: its function is that of a general matrix, and
symmetric.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import lax
from jaxtyping import PyTree, Shaped

import tanjax as tj
from tanjax.typing import DenseArray, Function, Pullback, Scalar, SquareMatrix

from ..dtypes import floating
from ..shapes import DenseColumns, FullStorage, SquareDiagonal, SquareTriangular
from ..stacked import split, stacked

if TYPE_CHECKING:
    from tanjax.testing import Case

# Square matrices of the types that several functions share.
Batch: TypeAlias = Shaped[DenseArray, "*batch n n"]
DenseSquare: TypeAlias = Shaped[DenseArray, "n n"]
SquareIdentity: TypeAlias = Shaped[tj.Identity, "n n"]
SquareBlocks: TypeAlias = Shaped[tj.BlockDiagonal, "n n"]
SquareScaled: TypeAlias = Shaped[tj.Scaled, "n n"]
SquareTridiagonal: TypeAlias = Shaped[tj.SymTridiagonal, "n n"]

ELEMENTARY = (tj.linalg.expm, tj.linalg.logm, tj.linalg.sqrtm, tj.linalg.fractional_matrix_power)

# -- the exponential of a dense matrix -------------------------------------------------------------


@tj.linalg.expm.natural_rule(tj.Dense)
def expm_rule(a: Batch) -> tuple[Batch, Pullback]:
    r"""$L(A^\top, \cdot)$ by a forward pass, which keeps no squares (reverse AD keeps them all)."""
    x = tj.linalg.expm.primal(a)
    return x, lambda x_bar: frechet(jnp.matrix_transpose(a), x_bar)


@tj.linalg.expm.natural_pushforward(tj.Dense)
def expm_pushforward(a: Batch) -> tuple[Batch, Function]:
    return tj.linalg.expm.primal(a), lambda a_dot: frechet(a, a_dot)


def frechet(a: Batch, e: Batch) -> Batch:
    """Return the derivative of the exponential at `a` in the direction `e`."""
    return jax.jvp(tj.linalg.expm.primal, (a,), (e.astype(a.dtype),))[1]


# -- by entries, by eigenvalues --------------------------------------------------------------------


def of_eigenvalues(op: tj.rules.Operation, t: float | None = None) -> Function:
    """Return the scalar function of an operation on matrices."""
    if t is not None:
        return power(t)
    return {tj.linalg.expm: jnp.exp, tj.linalg.logm: jnp.log, tj.linalg.sqrtm: jnp.sqrt}[op]


def power(t: float) -> Function:
    """Return `x` to the power `t`; a whole power of a negative number is real."""
    if float(t).is_integer():
        return lambda x: lax.integer_pow(x, int(t))
    if float(t) == 0.5:
        return jnp.sqrt
    return lambda x: x ** jnp.asarray(float(t), x.dtype)


def register_elementary(op: tj.rules.Operation) -> None:
    """Register the implementations of one function for all types that keep their structure."""

    @op.implementation(tj.Diagonal, differentiate=True)
    def diagonal(
        a: SquareDiagonal, *, t: float | None = None, upper_triangular: bool = False
    ) -> SquareDiagonal:
        return tj.Diagonal(of_eigenvalues(op, t)(a.diag))

    @op.implementation(tj.Identity)
    def identity(
        a: SquareIdentity, *, t: float | None = None, upper_triangular: bool = False
    ) -> SquareMatrix:
        if op is tj.linalg.expm:
            return tj.Diagonal(jnp.full(a.n, jnp.e, a.dtype))
        return tj.Zero(a.shape, a.dtype) if op is tj.linalg.logm else a

    @op.implementation(tj.Symmetric, differentiate=True)
    @op.implementation(tj.Hermitian, differentiate=True)
    def hermitian(
        a: FullStorage, *, t: float | None = None, upper_triangular: bool = False
    ) -> FullStorage:
        if isinstance(a, tj.Symmetric) and jnp.iscomplexobj(a.data):
            return tj.Symmetric(op(a.data, **statics(op, t)), "mean")
        a = floating(a)
        f = of_eigenvalues(op, t)
        if f is jnp.sqrt:
            f = sqrt_above(noise(a.data))
        definite = a.definite and op is not tj.linalg.logm
        values = tj.linalg.funm_hermitian(a.data, f, symmetrize_input=False)
        return a.replace(data=hermitian_part(values), definite=definite)

    @op.implementation(tj.SymTridiagonal, differentiate=True)
    def tridiagonal(
        a: SquareTridiagonal, *, t: float | None = None, upper_triangular: bool = False
    ) -> SquareMatrix:
        return op(tj.Symmetric(a.to_dense()), **statics(op, t))


def register_by_parts(op: tj.rules.Operation) -> None:
    """Register the implementations for types whose parts are other matrices."""

    @op.implementation(tj.Triangular, differentiate=True)
    def triangular(
        a: SquareTriangular, *, t: float | None = None, upper_triangular: bool = False
    ) -> SquareTriangular:
        dense = a.to_dense()
        how = statics(op, t, upper_triangular=True)
        upper = op(dense.T if a.lower else dense, **how)
        unit = a.unit_diagonal and op in (tj.linalg.sqrtm, tj.linalg.fractional_matrix_power)
        return tj.Triangular(upper.T if a.lower else upper, a.lower, unit)

    @op.implementation(tj.BlockDiagonal, differentiate=True)
    def blocks(
        a: SquareBlocks, *, t: float | None = None, upper_triangular: bool = False
    ) -> SquareMatrix:
        if op is tj.linalg.expm and not a.has_square_blocks:
            return op(tj.rules.densified(a, "expm", "its blocks are not square"))
        check_square_blocks(op.name, a)
        return a.each(lambda b: op(b, **statics(op, t)))

    @op.implementation(tj.Scaled, differentiate=True)
    def scaled(
        a: SquareScaled, *, t: float | None = None, upper_triangular: bool = False
    ) -> SquareMatrix:
        whole = tj.linalg.multiply(a.matrix, a.factor)
        if isinstance(whole, tj.Scaled):
            whole = tj.rules.densified(whole, op.name, "give the factor to a field of the matrix")
        return op(whole, **statics(op, t))


@tj.rules.custom_jvp
def hermitian_part(a: DenseSquare) -> DenseSquare:
    """Return the Hermitian part of a matrix that is Hermitian up to rounding.

    Tangents are Hermitian up to rounding, too, and pass unchanged. A pass over a matrix and its
    transpose is slow, so it is done once, and not again for each use.
    """
    return lax.optimization_barrier((a + jnp.conj(a.T)) / 2)


@hermitian_part.defjvp
def _(primals: tuple[DenseSquare], tangents: tuple[DenseSquare]) -> tuple[DenseSquare, DenseSquare]:
    return hermitian_part(*primals), *tangents


def statics(
    op: tj.rules.Operation, t: float | None, *, upper_triangular: bool = False
) -> dict[str, PyTree]:
    """Return the keywords of an operation for the parts of a matrix."""
    if op is tj.linalg.expm:
        return {}
    keywords: dict[str, PyTree] = {"upper_triangular": upper_triangular}
    return keywords if t is None else {"t": t, **keywords}


def check_square_blocks(name: str, a: Shaped[tj.BlockDiagonal, "m n"]) -> None:
    """Raise `ShapeError` unless every block is square, and so has its own function."""
    if not a.has_square_blocks:
        raise tj.ShapeError(f"{name}: a BlockDiagonal needs square blocks, got {a}.")


def noise(data: DenseSquare) -> Scalar:
    """Return how far below zero rounding moves a zero eigenvalue of a semidefinite matrix."""
    eps = jnp.finfo(data.dtype).eps
    return 4 * eps * data.shape[-1] * jnp.linalg.norm(lax.stop_gradient(data))


def sqrt_above(noise: Scalar) -> Function:
    """Return the square root that is zero at eigenvalues that are negative by rounding."""
    root = lambda x: jnp.sqrt(jnp.where((x < 0) & (x >= -noise), 0, x))
    return tj.rules.WithDifferences(root, lambda x, y: 1 / (root(x) + root(y)))


for _operation in ELEMENTARY:
    register_elementary(_operation)
    register_by_parts(_operation)

# -- any function of a Hermitian matrix ------------------------------------------------------------


@tj.linalg.funm_hermitian.implementation(tj.Diagonal, differentiate=True)
def function_of_diagonal(
    a: SquareDiagonal, func: Function, *, symmetrize_input: bool = True
) -> SquareDiagonal:
    a = floating(a)
    values = func(jnp.real(a.diag))
    return tj.Diagonal(values.astype(np.promote_types(values.dtype, a.dtype)))


@tj.linalg.funm_hermitian.implementation(tj.Symmetric, differentiate=True)
@tj.linalg.funm_hermitian.implementation(tj.Hermitian, differentiate=True)
def function_of_hermitian(
    a: FullStorage, func: Function, *, symmetrize_input: bool = True
) -> SquareMatrix:
    """Return a matrix of the same type; dense for complex values of a Hermitian matrix."""
    f = tj.linalg.funm_hermitian(a.data, func, symmetrize_input=False)
    real = not jnp.iscomplexobj(jax.eval_shape(lambda x: func(x), jnp.real(jnp.diagonal(a.data))))
    return type(a)(f, "mean") if real or isinstance(a, tj.Symmetric) else f


@tj.linalg.funm_hermitian.implementation(tj.SymTridiagonal, differentiate=True)
def function_of_tridiagonal(
    a: SquareTridiagonal, func: Function, *, symmetrize_input: bool = True
) -> SquareMatrix:
    return tj.linalg.funm_hermitian(tj.Symmetric(a.to_dense()), func)


@tj.linalg.funm_hermitian.implementation(tj.BlockDiagonal, differentiate=True)
def function_of_blocks(
    a: SquareBlocks, func: Function, *, symmetrize_input: bool = True
) -> SquareBlocks:
    check_square_blocks("funm_hermitian", a)
    of_block = lambda b: tj.linalg.funm_hermitian(b, func, symmetrize_input=symmetrize_input)
    return a.each(of_block)


# -- times columns ---------------------------------------------------------------------------------


@tj.linalg.funm_multiply.implementation(tj.Diagonal, tj.Dense, differentiate=True)
def multiply_function_of_diagonal(
    a: SquareDiagonal, b: DenseColumns, func: Function
) -> DenseColumns:
    return tj.matmul(tj.linalg.funm_hermitian(a, func), b)


@tj.linalg.funm_multiply.implementation(tj.Symmetric, tj.Dense, differentiate=True)
@tj.linalg.funm_multiply.implementation(tj.Hermitian, tj.Dense, differentiate=True)
def multiply_function_of_hermitian(a: FullStorage, b: DenseColumns, func: Function) -> DenseColumns:
    return tj.linalg.funm_multiply(a.data, b, func)


@tj.linalg.funm_multiply.implementation(tj.SymTridiagonal, tj.Dense, differentiate=True)
def multiply_function_of_tridiagonal(
    a: SquareTridiagonal, b: DenseColumns, func: Function
) -> DenseColumns:
    return tj.linalg.funm_multiply(a.to_dense(), b, func)


@tj.linalg.funm_multiply.implementation(tj.BlockDiagonal, tj.Dense, differentiate=True)
def multiply_function_of_blocks(a: SquareBlocks, b: DenseColumns, func: Function) -> DenseColumns:
    check_square_blocks("funm_multiply", a)
    of_block = lambda block, rows: tj.linalg.funm_multiply(block, rows, func)
    batch = stacked(a)
    if batch is not None:
        return jax.vmap(of_block)(batch, split(b, batch)).reshape(b.shape)
    return jnp.concatenate([*map(of_block, a.blocks, a.rows_of(b))])


# -- cases ---------------------------------------------------------------------------------------


def logarithm_by_integral(a: DenseSquare) -> DenseSquare:
    r"""The definition $\int_0^1 (A - I)\,(I + x (A - I))^{-1} dx$, by forty values."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    eye = jnp.eye(len(a), dtype=a.dtype)
    part = lambda x: jnp.linalg.solve(eye + x.astype(a.dtype) * (a - eye), a - eye)
    parts = jax.vmap(part)(jnp.asarray((nodes + 1) / 2))
    return jnp.tensordot(jnp.asarray(weights / 2, a.dtype), parts, 1)


def definition_of(op: tj.rules.Operation) -> Function:
    """Return the definition of a function of a general matrix, which JAX can differentiate."""
    if op is tj.linalg.expm:
        return jsl.expm
    if op is tj.linalg.logm:
        return logarithm_by_integral
    return lambda a, t=0.5: jsl.expm(t * logarithm_by_integral(a))


# Stages that one case of an implementation for many functions covers for all of them.
ASKED_ONCE = (
    *("linearize", "fields", "natural", "hessian", "vmap", "one argument", "checkpoint", "scan"),
    *("public lowering", "sensitivity", "promises", "memory", "variants", "dtype"),
)


def cases() -> Iterator[Case]:
    """General matrices against integrals; every type, in all modes for one function of each."""
    from tanjax.testing import Case, Samples

    s = Samples(21)
    symmetric, hermitian = tj.Symmetric(s.definite(3)), tj.Hermitian(s.definite(2, complex=True))
    blocks = tj.BlockDiagonal(tj.Symmetric(s.definite(2)), tj.Diagonal(s.positive(1)))
    types = (
        (tj.Diagonal(s.positive(2)), tj.linalg.logm),
        (tj.Identity(2), tj.linalg.logm),
        (symmetric, tj.linalg.sqrtm),
        (tj.SymTridiagonal(3 + s.positive(3), s.normal(2)), tj.linalg.expm),
        (tj.Triangular(s.regular(2)), tj.linalg.sqrtm),
        (blocks, tj.linalg.expm),
        (tj.Scaled(tj.Symmetric(s.definite(2)), s.positive()), tj.linalg.fractional_matrix_power),
    )
    skip: tuple[str, ...]
    for op in ELEMENTARY:
        keywords = {"t": 0.3} if op is tj.linalg.fractional_matrix_power else {}
        for a, thorough in types:
            skip = ("variants",) if op is thorough else ASKED_ONCE
            yield Case(op, a, **keywords).declare(skip=skip)
    far = jnp.asarray([64.0, 1.0, 1 / 8], complex)  # with a balanced exponential
    for op, a in (
        (tj.linalg.expm, s.regular(3, complex=True) * far / far[:, None]),
        (tj.linalg.sqrtm, s.regular(2)),
        (tj.linalg.logm, s.regular(2, complex=True)),
    ):  # a keyword of these promises something about values, so it is no variant
        skip = () if op is tj.linalg.expm else ("variants",)
        yield Case(op, a).declare(reference=definition_of(op), skip=skip)
    cosine = jax.tree_util.Partial(jnp.cos)  # a function that is a pytree
    tridiagonal = tj.SymTridiagonal(s.normal(3), s.normal(2))
    for cased in (tj.Diagonal(s.positive(2)), hermitian, tridiagonal, blocks):
        yield Case(tj.linalg.funm_hermitian, cased, cosine).declare(skip=ASKED_ONCE)
        yield Case(tj.linalg.funm_multiply, cased, s.normal(cased.shape[0], 2), cosine).declare(
            skip=ASKED_ONCE
        )
    yield Case(tj.linalg.funm_multiply, symmetric, s.normal(3), cosine)
    # Arrays that a function holds are arguments, too.
    decay = jax.tree_util.Partial(lambda c, x: c[0] * x * jnp.exp(-c[1] * x), s.positive(2))
    wave = jax.tree_util.Partial(lambda c, x: jnp.exp(1j * c * x), s.positive())
    yield Case(tj.linalg.funm_multiply, symmetric, s.normal(3, 2), decay)
    for matrix, b, held in (
        (hermitian, s.complex(2, 2), decay),
        (symmetric, s.complex(3, 1), wave),
    ):
        yield Case(tj.linalg.funm_multiply, matrix, b, held).declare(skip=ASKED_ONCE)
