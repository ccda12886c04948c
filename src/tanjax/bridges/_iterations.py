"""The solvers of `tj.solve(a, b, solver=...)`: lineax on numbers, by the form of the matrix.

Iterative solvers get the matrix as a function that multiplies. Direct solvers get the entries,
which densifies a structured matrix with the usual warning. Neither is differentiated: the natural
rule of `solve` surrounds them. A solution that was not reached is an error, or `nan`.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax
from jaxtyping import Array, Bool, Inexact, PyTree

from tanjax import _compat
from tanjax._errors import ShapeError, describe, message, not_solved
from tanjax._typing import Columns, DenseArray, DType, Function, SquareMatrix
from tanjax.arrays import (
    Diagonal,
    Hermitian,
    Identity,
    Symmetric,
    Triangular,
    densified,
    destructure,
    is_structured,
)
from tanjax.operations import Factorization

_DIRECT = (
    lineax.AutoLinearSolver,
    lineax.Cholesky,
    lineax.Diagonal,
    lineax.LU,
    lineax.QR,
    lineax.SVD,
    lineax.Triangular,
    lineax.Tridiagonal,
)
_SLACK = 100.0  # the residual may exceed the updated residual by this factor

Options = dict[str, PyTree]  # a preconditioner, a first guess


class Multiply(eqx.Module):
    """A matrix, or the inverse of a factorised one, as a function of a vector."""

    matrix: PyTree
    transposed: bool = eqx.field(static=True, default=False)

    def __call__(self, vector: Inexact[Array, " n"]) -> Inexact[Array, " n"]:
        matrix, vector = _compat.align((self.matrix, vector))
        if isinstance(matrix, Factorization):
            out = matrix.solve(vector, transposed=self.transposed)
        else:
            matrix = matrix.mT if self.transposed else matrix
            with jax.numpy_dtype_promotion("standard"):  # of integers, or real and complex
                out = matrix.apply(vector) if is_structured(matrix) else jnp.matmul(matrix, vector)
        return out.astype(vector.dtype)


def solved(
    convert: Function,
    a: SquareMatrix,
    b: Columns,
    solver: object,
    options: Options,
    throw: bool,
) -> DenseArray:
    """Return `a⁻¹ b` by a solver of lineax, column by column. `convert` is `to_lineax`."""
    if not isinstance(solver, lineax.AbstractLinearSolver):
        raise TypeError(
            message(
                f"solve: `solver` must be a solver of lineax, got {solver!r}.",
                hint="`lineax.CG(rtol=1e-6, atol=1e-6)` for a positive definite matrix.",
            )
        )
    # Refuse options that lineax would ignore; other solvers check their own options.
    unknown = sorted(set(options) - {"preconditioner", "y0"})
    if unknown and type(solver).__module__.startswith("lineax."):
        raise TypeError(
            message(
                f"solve: {type(solver).__name__} has no option {unknown[0]!r}.",
                hint='the options are `"preconditioner"` and `"y0"`, a first guess.',
            )
        )
    b = destructure(b) if is_structured(b) else jnp.asarray(b)
    dtype = jnp.result_type(a.dtype, b.dtype)
    dtype = dtype if jnp.issubdtype(dtype, jnp.inexact) else jnp.result_type(float)
    if not b.size:
        return b.astype(dtype)
    a, b = _compat.align((a, b))  # inside of `shard_map`
    column = b.astype(dtype) if b.ndim == 1 else b[:, 0].astype(dtype)
    like = jax.eval_shape(lambda v: v, column)
    operator = _operator(convert, a, solver, like)
    known = dict(options)
    start = known.pop("y0", None)
    if "preconditioner" in known:
        known["preconditioner"] = _preconditioner(known["preconditioner"], like)
    one = functools.partial(_one_column, operator, solver, known)
    given = () if start is None else (_first_guess(start, b.shape, dtype),)
    columns = (b.astype(dtype), *given)
    x, reached = one(*columns) if b.ndim == 1 else jax.vmap(one, 1, (1, 0))(*columns)
    if throw:
        # Raise on all devices if the solution failed on one of them.
        failed = ~jnp.all(reached)
        text = not_solved(type(solver).__name__)
        axes = tuple(sorted(_compat.varying_axes(failed)))
        if not axes:
            return eqx.error_if(x, failed, text)
        # Both branches of Equinox' check must vary over devices alike, but that of the error does
        # not.
        failed = jax.lax.psum(failed.astype(jnp.int32), axes) > 0
        zero = eqx.error_if(jnp.zeros((), x.dtype), failed, text)
        return jnp.add(*_compat.align((x, zero)))
    return jnp.where(reached, x, jnp.full_like(x, jnp.nan))


def _first_guess(start: PyTree, shape: tuple[int, ...], dtype: DType) -> DenseArray:
    start = destructure(start) if is_structured(start) else jnp.asarray(start)
    if start.shape != shape:
        raise ShapeError(
            f"solve: the option `y0` has shape {start.shape}, the solution has {shape}."
        )
    return start.astype(dtype)


def _one_column(
    operator: lineax.AbstractLinearOperator,
    solver: lineax.AbstractLinearSolver,
    options: Options,
    b: Inexact[Array, " n"],
    start: Inexact[Array, " n"] | None = None,
) -> tuple[Inexact[Array, " n"], Bool[Array, ""]]:
    """Return the solution, and whether it was reached."""
    options = options if start is None else {**options, "y0": start}
    # The solver itself, and not `lineax.linear_solve`: that is a primitive with derivatives of its
    # own, which are not needed here. It traces the solver later, when dtypes no longer mix.
    with jax.numpy_dtype_promotion("standard"):
        x, result, _ = solver.compute(solver.init(operator, options), b, options)
    reached = (result == lineax.RESULTS.successful) & jnp.all(jnp.isfinite(x))
    return x, reached & _is_solved(operator, solver, b, x)


def _is_solved(
    operator: lineax.AbstractLinearOperator,
    solver: lineax.AbstractLinearSolver,
    b: Inexact[Array, " n"],
    x: Inexact[Array, " n"],
) -> Bool[Array, ""]:
    """True if the true residual meets the solver's tolerance; solvers test an updated residual.

    With an indefinite preconditioner CG stops at once and reports success. With a tolerance below
    the rounding of the dtype, the updated residual falls and the true residual does not.
    """
    if isinstance(solver, _DIRECT):
        return jnp.asarray(True)
    residual = b - operator.mv(x)
    # For a matrix with nan, conjugate gradients on the normal equations make no step and report
    # success at zero. The residual shows it.
    finite = jnp.all(jnp.isfinite(residual))
    # A least-squares solution of a singular matrix satisfies the normal equations, not these.
    judged = solver.inner_solver if isinstance(solver, lineax.Normal) else solver
    rtol, atol, norm = (getattr(judged, k, None) for k in ("rtol", "atol", "norm"))
    if rtol is None or atol is None or not callable(norm):
        return finite
    scale = (atol + rtol * jnp.abs(b)).astype(jnp.finfo(b.dtype).dtype)
    residual = jnp.abs(residual)
    fits = norm(jnp.where(residual == 0, residual, residual / scale)) <= _SLACK
    return finite & (fits | ((atol == 0) & (rtol == 0)))


# -- the operator ----------------------------------------------------------------------------------


def _operator(
    convert: Function,
    a: SquareMatrix,
    solver: lineax.AbstractLinearSolver,
    like: jax.ShapeDtypeStruct,
) -> lineax.AbstractLinearOperator:
    """Return the matrix in the form that its solver needs; CG and Cholesky imply definite."""
    if isinstance(solver, _DIRECT):
        operator = convert(_entries(a, like.dtype))
    else:
        operator = _function(Multiply(a), like)
    if isinstance(solver, lineax.CG | lineax.Cholesky):
        operator = lineax.TaggedLinearOperator(operator, lineax.positive_semidefinite_tag)
    return operator


def _function(f: Function, like: jax.ShapeDtypeStruct) -> lineax.AbstractLinearOperator:
    return lineax.FunctionLinearOperator(f, like, closure_convert=False)


def _entries(a: SquareMatrix, dtype: DType) -> SquareMatrix:
    """Return a matrix in a type whose entries lineax can store, in the dtype of its vector."""
    if not is_structured(a):
        return jnp.asarray(a, dtype)
    if type(a) not in (Diagonal, Identity, Triangular, Symmetric, Hermitian):
        dense = densified(a, "solve", "choose an iterative solver, which only multiplies")
        is_real = not jnp.issubdtype(dense.dtype, jnp.complexfloating)
        definite = is_real and bool(getattr(a, "definite", False))
        a = Symmetric(dense, definite=True) if definite else jnp.asarray(dense)
    return a if a.dtype == dtype else a.astype(dtype)


def _preconditioner(p: PyTree, like: jax.ShapeDtypeStruct) -> lineax.AbstractLinearOperator:
    """Return a preconditioner as an operator; lineax requires a tag as positive definite."""
    if not isinstance(p, lineax.AbstractLinearOperator):
        (n,) = like.shape
        shape = (p.n, p.n) if isinstance(p, Factorization) else getattr(p, "shape", None)
        if not isinstance(p, Multiply) and shape != (n, n):
            raise ShapeError(
                message(
                    f"solve: the preconditioner {describe(p)} does not fit a matrix {[n, n]}.",
                    hint="it is like the inverse: one of our matrices, a `tj.factorize(...)` of "
                    "one like the matrix, or an operator of lineax.",
                )
            )
        p = _function(p if isinstance(p, Multiply) else Multiply(p), like)
    return lineax.TaggedLinearOperator(p, lineax.positive_semidefinite_tag)


def transposed(options: Options) -> Options:
    """Return the options for the transposed system: a first guess is for another solution."""
    options = {k: v for k, v in options.items() if k != "y0"}
    p = options.get("preconditioner")
    if isinstance(p, lineax.AbstractLinearOperator):
        options["preconditioner"] = p.transpose()
    elif isinstance(p, Multiply):
        options["preconditioner"] = Multiply(p.matrix, not p.transposed)
    elif p is not None:
        options["preconditioner"] = Multiply(p, transposed=True)
    return options
