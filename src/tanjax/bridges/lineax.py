"""Linear solves by lineax, of structured matrices and quantities.

`A x = b` with `A` in `[A]` and `b` in `[b]` has `x` in `[b]/[A]`. `linear_solve` takes our matrices
(dense, structured, quantities of either) or lineax's operators. It passes their structure to lineax
as tags, so that lineax selects the right solver.

    x = linear_solve(tj.Symmetric(k, definite=True) * (N / m), load * N).value  # in metres

Sharp edges. lineax has no storage for some types (Kronecker, low rank, blocks). They become
functions that multiply: right for its iterative solvers, but its direct solvers form them column by
column. `tj.solve` solves them from their structure. lineax has no tag for complex Hermitian
matrices that are not definite: they get no tag.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax._errors import UnitError, message
from tanjax._typing import Columns, DenseArray, Matrix, SquareMatrix
from tanjax.arrays import (
    AbstractArray,
    Diagonal,
    Hermitian,
    Identity,
    Scaled,
    Symmetric,
    SymTridiagonal,
    Triangular,
    Tridiagonal,
    is_hermitian,
    is_quantity,
    is_structured,
    split_unit,
)
from tanjax.units import Unit, one

from ._charts import labelled, number_in
from ._missing import missing

try:
    import lineax
except ImportError as error:
    raise missing("lineax") from error


class _Product(eqx.Module):
    """A matrix of a type without storage in lineax, as a function of a vector."""

    matrix: PyTree

    def __call__(self, vector: PyTree) -> PyTree:
        return self.matrix.apply(vector)


def to_lineax(matrix: PyTree) -> lineax.AbstractLinearOperator:
    """Return one of our matrices as an operator of lineax, with tags of its type.

    `Diagonal`, `Identity`, `Triangular`, `Tridiagonal`, `SymTridiagonal`, `Symmetric`, real
    `Hermitian`, `Scaled` and dense matrices keep their storage. Real `Symmetric` and `Hermitian`
    are tagged positive semidefinite if they promise to be definite. Other types become functions.
    They are tagged symmetric if their type is, or if `transposed` returns the array itself, and
    positive semidefinite if a static field `definite` promises more. An operator of lineax is
    returned unchanged.

    **Raises:** `UnitError` for a quantity: an operator cannot store a unit.
    """
    if isinstance(matrix, lineax.AbstractLinearOperator):
        return matrix
    if is_quantity(matrix):
        raise UnitError(
            message(
                f"to_lineax: an operator of lineax cannot be in {matrix.unit}.",
                hint="`linear_solve` takes quantities; or convert `q.value` and keep the unit.",
            )
        )
    if not is_structured(matrix):
        return lineax.MatrixLinearOperator(jnp.asarray(matrix))
    if type(matrix) is Diagonal:
        return lineax.DiagonalLinearOperator(matrix.diag)
    if type(matrix) is Identity:
        return lineax.IdentityLinearOperator(jax.ShapeDtypeStruct((matrix.n,), matrix.dtype))
    if type(matrix) is Scaled:
        return to_lineax(matrix.matrix) * matrix.factor
    tags = _tags(matrix)
    if type(matrix) in (Tridiagonal, SymTridiagonal):
        lower, diag, upper = (matrix.off_diagonal(k) for k in (-1, 0, 1))
        three = lineax.TridiagonalLinearOperator(diag, lower, upper)
        return lineax.TaggedLinearOperator(three, tags) if tags else three
    if type(matrix) in (Triangular, Symmetric, Hermitian) and tags:
        return lineax.MatrixLinearOperator(matrix.to_dense(), tags)
    vector = jax.ShapeDtypeStruct(matrix.shape[-1:], matrix.dtype)
    # A Module needs no closure conversion, which would hide the matrix from `from_lineax`.
    return lineax.FunctionLinearOperator(_Product(matrix), vector, tags, closure_convert=False)


def _tags(matrix: PyTree) -> tuple[PyTree, ...]:
    if type(matrix) is Triangular:
        side = lineax.lower_triangular_tag if matrix.lower else lineax.upper_triangular_tag
        return (side, lineax.unit_diagonal_tag) if matrix.unit_diagonal else (side,)
    # To lineax "symmetric" is A = Aᵀ also for complex matrices, and definite ones count as such.
    is_real = not jnp.issubdtype(matrix.dtype, jnp.complexfloating)
    is_definite = is_real and bool(getattr(matrix, "definite", False))
    if not (is_definite or (is_real and is_hermitian(matrix)) or _is_its_transpose(matrix)):
        return ()
    symmetric = lineax.symmetric_tag
    return (symmetric, lineax.positive_semidefinite_tag) if is_definite else (symmetric,)


def _is_its_transpose(matrix: PyTree) -> bool:
    """True if the type is symmetric: `transposed` returns the array itself."""
    has_transpose = type(matrix).transposed is not AbstractArray.transposed
    return has_transpose and matrix.transposed() is matrix


def from_lineax(operator: lineax.AbstractLinearOperator, definite: bool = False) -> PyTree:
    """Return an operator of lineax as one of our matrices, in the type of its tags.

    **Arguments:** `definite=True` promises that an operator tagged as positive semidefinite is
    regular; the tag alone covers singular ones.

    **Returns:** `Identity`, `Diagonal`, `Triangular`, `Tridiagonal`, `SymTridiagonal`, `Symmetric`,
    or a dense matrix; a function made by `to_lineax` gives its original matrix.
    """
    if isinstance(operator, lineax.FunctionLinearOperator) and type(operator.fn) is _Product:
        return operator.fn.matrix
    if isinstance(operator, lineax.IdentityLinearOperator):
        (leaf,) = jax.tree.leaves(operator.in_structure())
        return Identity(operator.in_size(), leaf.dtype)
    if lineax.is_diagonal(operator):
        return Diagonal(lineax.diagonal(operator))
    definite = definite and lineax.is_positive_semidefinite(operator)
    if lineax.is_tridiagonal(operator):
        diag, below, above = lineax.tridiagonal(operator)
        if lineax.is_symmetric(operator):
            return SymTridiagonal(diag, below, definite and not jnp.iscomplexobj(diag))
        return Tridiagonal(below, diag, above)
    dense = operator.as_matrix()
    for lower, is_triangular in (
        (True, lineax.is_lower_triangular),
        (False, lineax.is_upper_triangular),
    ):
        if is_triangular(operator):
            return Triangular(dense, lower, lineax.has_unit_diagonal(operator))
    if lineax.is_symmetric(operator) and not jnp.iscomplexobj(dense):
        return Symmetric(dense, "mean", definite)
    return dense


def linear_solve(
    operator: Matrix | lineax.AbstractLinearOperator,
    vector: PyTree,
    solver: lineax.AbstractLinearSolver | None = None,
    *,
    options: dict[str, PyTree] | None = None,
    **rest: PyTree,
) -> lineax.Solution:
    """Run `lineax.linear_solve` on structured matrices and quantities.

    **Arguments:** `operator`: a matrix (dense, structured, or a quantity of either) or an operator
    of lineax, which is dimensionless. `vector`: a quantity or a plain array; for an operator of
    lineax a tree in one unit. The rest as in `lineax.linear_solve`. If you choose `CG` or
    `Cholesky`, you promise that a matrix is positive definite, as in `tj.solve`; an operator of
    lineax promises it by its tag. `options["y0"]`, a first guess, may be a quantity.

    **Returns:** a `lineax.Solution`, its `value` in `[b]/[A]`; plain if both are plain.

    **Raises:** `UnitError` for a tree of vectors in several units.
    """
    matrix, of_matrix = split_unit(operator)
    numbers, of_vector = _one_unit(vector)
    plain = of_vector is None and not is_quantity(operator)
    unit = None if plain else (of_vector or one) / of_matrix
    options = dict(options or {})
    if "y0" in options:
        options["y0"] = jax.tree.map(
            lambda y: number_in("linear_solve: y0", y, unit), options["y0"], is_leaf=is_structured
        )
    converted = to_lineax(matrix)
    if converted is not matrix and isinstance(solver, lineax.CG | lineax.Cholesky):
        converted = lineax.TaggedLinearOperator(converted, lineax.positive_semidefinite_tag)
    solution = lineax.linear_solve(
        converted,
        numbers,
        lineax.AutoLinearSolver(well_posed=True) if solver is None else solver,
        options=options,
        **rest,
    )
    value = jax.tree.map(lambda x: labelled(x, unit), solution.value)
    return eqx.tree_at(lambda s: s.value, solution, value)


def _one_unit(vector: PyTree) -> tuple[PyTree, Unit | None]:
    """Return the numbers of a vector, or of a tree of them, and their common unit."""
    leaves, tree = jax.tree.flatten(vector, is_leaf=is_structured)
    first = next((x.label for x in leaves if is_quantity(x)), None)
    done = [jnp.asarray(number_in("linear_solve: a part of the vector", x, first)) for x in leaves]
    return jax.tree.unflatten(tree, done), first


def solve(
    a: SquareMatrix,
    b: Columns,
    solver: lineax.AbstractLinearSolver,
    options: dict[str, PyTree] | None = None,
    throw: bool = True,
) -> DenseArray:
    """Return the numbers of `tj.solve(a, b, solver=...)`, without units and derivative.

    For authors of rules. **Arguments, errors:** as in `tj.solve`; `a`, dense or structured,
    `(n, n)`; `b`, `(n,)` or `(n, k)`, each column solved for itself.
    **Returns:** a dense array like `b`. **Cost:** one product with `a` per step, and one more.
    """
    from ._iterations import solved

    return solved(to_lineax, a, b, solver, options or {}, throw)


def transposed_options(options: dict[str, PyTree]) -> dict[str, PyTree]:
    """Return the options for the transposed matrix: its preconditioner, and no first guess."""
    from ._iterations import transposed

    return transposed(options)
