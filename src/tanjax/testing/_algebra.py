"""The closed algebra: the result type of every operation on every pair of array types.

No entry is written by hand. A cell is the call itself, traced on one sample of each type while the
densify policy is `"error"`, so that the table shows the types that users' programs get:

    python -m tanjax rules --algebra --markdown

Sharp edges: a sample stands for its type. The documentation of the rules covers results that depend
on the fields: blocks of other shapes, factors of other types, complex numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from tanjax import arrays as types, operations as ops
from tanjax._errors import NoRuleError, ShapeError
from tanjax._typing import Primal
from tanjax.arrays import densify, is_structured

DENSE, DENSIFIES, REFUSED = "dense", "**densifies**", "refused"
SCALAR = 1.5

Cells = dict[tuple[str, ...], str]

BINARY: dict[str, Callable[[Primal, Primal], Primal]] = {
    "A @ B": ops.matmul,
    "A + B": ops.add,
    "A - B": ops.subtract,
    "A * B": ops.multiply,
    "solve(A, B)": ops.solve,
}
UNARY: dict[str, Callable[[Primal], Primal]] = {
    "c * A": lambda a: ops.multiply(SCALAR, a),
    "A / c": lambda a: ops.divide(a, SCALAR),
    "-A": ops.negative,
    "A.mT": ops.transpose,
    "A.H": lambda a: a.H,
    "inv(A)": ops.inv,
    "kron(A, A)": lambda a: ops.kron(a, a),
}


def algebra_samples() -> dict[str, types.AbstractArray]:
    """Return one 4 × 4 matrix of every type: real (`Hermitian`: complex), regular if possible."""
    array: Any = np.array  # constructors accept NumPy's arrays, but are annotated with JAX's
    v, off = array([4.0, 3.0, 5.0, 6.0]), array([1.0, 0.5, -1.0])
    full = np.diag(v) + np.outer([1.0, 0.0, -1.0, 0.5], [0.5, 1.0, 1.0, -1.0])
    block, thin = full[:2, :2], array([[1.0], [-1.0], [0.5], [2.0]])
    diagonal = types.Diagonal(v)
    rows, columns = array([0, 1, 1, 2, 3]), array([0, 0, 1, 2, 3])
    return {
        "Diagonal": diagonal,
        "Symmetric": types.Symmetric(full),
        "Hermitian": types.Hermitian(full + 1j * full.T),
        "Triangular": types.Triangular(full),
        "Toeplitz": types.Toeplitz(array([0.5, -1.0, 0.3, 4.0, 1.0, 0.2, 0.1])),
        "Circulant": types.Circulant(array([4.0, 1.0, -0.5, 0.3])),
        "Permutation": types.Permutation([2, 0, 3, 1]),
        "Tridiagonal": types.Tridiagonal(off, v, off[::-1]),
        "SymTridiagonal": types.SymTridiagonal(v, off),
        "Banded": types.Banded(array([off[[0, 0, 1, 2]], v, off[[2, 1, 0, 0]]]), 1, 1),
        "Sparse": types.Sparse(np.append(v, 2.0), np.stack([rows, columns], 1), (4, 4)),
        "Scaled": types.Scaled(full, array(2.0)),
        "c·Identity": types.Scaled(types.Identity(4), array(2.0)),
        "Kronecker": types.Kronecker(block, types.Diagonal(v[:2])),
        "BlockDiagonal": types.BlockDiagonal(block, types.Diagonal(v[:2])),
        "LowRank": types.LowRank(thin, thin[::-1]),
        "LowRankUpdate": types.LowRankUpdate(diagonal, thin, array([0.5])),
        "Fill": types.Fill(1.5, (4, 4)),
        "Identity": types.Identity(4),
        "Zero": types.Zero((4, 4)),
    }


def outcome(function: Callable[..., Primal], *args: Primal) -> str:
    """Return the type of the result, `dense`, or that an argument is densified or refused."""
    try:
        with densify("error"):
            out: Any = jax.eval_shape(function, *args)
    except NoRuleError:
        return DENSIFIES
    except ShapeError:
        return REFUSED
    return kind_of(out)


def kind_of(out: Primal) -> str:
    """Return the name of the type of a result, as in the table."""
    if isinstance(out, types.Scaled) and isinstance(out.matrix, types.Identity):
        return "c·Identity"
    return type(out).__name__ if is_structured(out) else DENSE


def algebra() -> Cells:
    """Return a table of result types by `(operation, type)` or `(operation, type, type)`."""
    samples = algebra_samples()
    cells: Cells = {(op, a): outcome(f, x) for op, f in UNARY.items() for a, x in samples.items()}
    for op, function in BINARY.items():
        for a, x in samples.items():
            cells |= {(op, a, b): outcome(function, x, y) for b, y in samples.items()}
    return cells


def algebra_tables() -> Iterator[tuple[str, list[list[str]]]]:
    """Yield a title and the rows of each table; the first row is its head."""
    cells, kinds = algebra(), list(algebra_samples())
    yield "One array", [["A", *UNARY], *([a, *(cells[op, a] for op in UNARY)] for a in kinds)]
    for op in BINARY:
        rows = [[a, *(cells[op, a, b] for b in kinds)] for a in kinds]
        yield f"`{op}`", [["A \\ B", *kinds], *rows]


def algebra_markdown() -> str:
    """Return the page of the documentation."""
    parts = [INTRODUCTION]
    for title, (head, *rows) in algebra_tables():
        lines = [head, ["---"] * len(head), *rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append(f"## {title}\n\n{table}\n")
    return "\n".join(parts)


INTRODUCTION = """\
# The closed algebra

This page shows the type of the result of an operation on two array types.
`python -m tanjax rules --algebra --markdown` generates it: it traces every call on a 4 × 4 sample
of each type. A test compares the results with dense ones.

- A name: the result has this type, without a dense array. `Sum` is lazy: it multiplies, transposes
  and is differentiated term by term. A system with a `Sum` densifies, except
  [by factors](large.md#kronecker-products-and-sums-by-their-factors) or with `solver=`.
- dense: a dense array; one argument already stores as many numbers.
- **densifies**: an argument loses its structure, under the policy of `tj.densify`.

`c·Identity` is `c * tj.Identity(n)`. `Scaled` holds a dense matrix here; with a structured one the
number moves to the outside of a product. Blocks and factors of differing shapes densify one side.

Some cells keep less than they could, on purpose:

- A sum with a `LowRank` is a `LowRankUpdate` only beside a `Diagonal` or the identity: Woodbury
  divides by the base, which may be singular where the sum is not. If your base is regular, write
  `tj.LowRankUpdate(base, u, None, v)`.
- The element-wise product of two `LowRank`s densifies: its rank is the product of their ranks.
- A `Permutation` times a banded or sparse type is dense. The result cannot be a `Sparse`: its
  places would be known only at run time, but those of a `Sparse` are in its type.

Where a system **densifies**, its solution is full and the right-hand side densifies. The matrix
itself keeps its structure: a band is solved in its band, a `Kronecker` by factors. Only `Sparse`,
`LowRank`, `Fill` and `Zero` densify themselves: iterate instead, with
`solver=lineax.CG(...)` or `lineax.GMRES(...)`.
"""
