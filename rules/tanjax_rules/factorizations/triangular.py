"""QR and LU decompositions, triangular systems.

For dense arrays these are JAX's, which differentiates them in both modes. A type has its own if its
factors consist of those of its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import PyTree, Shaped

import tanjax as tj
from tanjax.typing import Columns, Factor, Natural

from ..shapes import all_square
from ..stacked import of_each_block
from .gauge import composed, whole

if TYPE_CHECKING:
    from tanjax.testing import Case


# -- qr ------------------------------------------------------------------------------------------


@tj.linalg.qr.implementation(tj.Symmetric, differentiate=True)
@tj.linalg.qr.implementation(tj.Hermitian, differentiate=True)
@tj.linalg.qr.implementation(tj.Triangular, differentiate=True)
def qr(
    a: Shaped[tj.Symmetric | tj.Hermitian | tj.Triangular, "m n"], mode: str = "reduced"
) -> tj.linalg.QRResult | Natural:
    """Return the QR decomposition; an upper triangular matrix is its own `R`."""
    if not (isinstance(a, tj.Triangular) and not a.lower):
        return tj.linalg.qr(whole(a), mode)
    return a if mode == "r" else tj.linalg.QRResult(tj.Identity(a.shape[0], a.dtype), a)


@tj.linalg.qr.implementation(tj.Diagonal, differentiate=True)
@tj.linalg.qr.implementation(tj.Identity, differentiate=True)
def qr_diagonal(
    a: Shaped[tj.Diagonal | tj.Identity, "m n"], mode: str = "reduced"
) -> tj.linalg.QRResult | Natural:
    return a if mode == "r" else tj.linalg.QRResult(tj.Identity(a.shape[0], a.dtype), a)


@tj.linalg.qr.implementation(tj.Scaled, differentiate=True)
def qr_scaled(a: Shaped[tj.Scaled, "m n"], mode: str = "reduced") -> tj.linalg.QRResult | Natural:
    if mode == "r":
        return tj.linalg.multiply(tj.linalg.qr(a.matrix, mode), a.factor)
    q, r = tj.linalg.qr(a.matrix, mode)
    return tj.linalg.QRResult(q, tj.linalg.multiply(r, a.factor))


@tj.linalg.qr.implementation(tj.Kronecker, differentiate=True)
def qr_kronecker(
    a: Shaped[tj.Kronecker, "m n"], mode: str = "reduced"
) -> tj.linalg.QRResult | Natural:
    """Factors that are wide have an `R` that is, and then the product is not triangular."""
    if not _are_tall((f.shape for f in a.factors), mode):
        return _qr_formed(a, mode)
    results = [tj.linalg.qr(f, mode) for f in a.factors]
    if mode == "r":
        return tj.Kronecker(*results)
    return tj.linalg.QRResult(*(tj.Kronecker(*same) for same in zip(*results, strict=True)))


@tj.linalg.qr.implementation(tj.BlockDiagonal, differentiate=True)
def qr_blocks(
    a: Shaped[tj.BlockDiagonal, "m n"], mode: str = "reduced"
) -> tj.linalg.QRResult | Natural:
    """Blocks that are wide have an `R` that is, too."""
    if not _are_tall(a.block_shapes, mode):
        return _qr_formed(a, mode)
    if mode == "r":
        return a.each(lambda b: tj.linalg.qr(b, mode))
    return tj.linalg.QRResult(*of_each_block(a, lambda b: tj.linalg.qr(b, mode)))


def _are_tall(shapes: Iterable[Sequence[int]], mode: str) -> bool:
    """Return whether `R` of every part is square."""
    return all(m == n or (m > n and mode != "complete") for m, n in shapes)


def _qr_formed(a: Natural, mode: str) -> tj.linalg.QRResult | Natural:
    hint = "decompose parts that are not wide, with mode='reduced'"
    return tj.linalg.qr(tj.rules.densified(a, "qr", hint), mode)


# -- lu ------------------------------------------------------------------------------------------


@tj.linalg.lu.implementation(tj.Symmetric, differentiate=True)
@tj.linalg.lu.implementation(tj.Hermitian, differentiate=True)
@tj.linalg.lu.implementation(tj.Triangular, differentiate=True)
def lu(a: Shaped[tj.Symmetric | tj.Hermitian | tj.Triangular, "n n"]) -> tj.linalg.LUResult:
    if not (isinstance(a, tj.Triangular) and not a.lower):
        return tj.linalg.LUResult(*tj.linalg.lu(whole(a)))
    return lu_diagonal(a)


@tj.linalg.lu.implementation(tj.Diagonal, differentiate=True)
@tj.linalg.lu.implementation(tj.Identity, differentiate=True)
def lu_diagonal(a: Shaped[tj.Diagonal | tj.Identity | tj.Triangular, "n n"]) -> tj.linalg.LUResult:
    identity = tj.Identity(a.shape[0], a.dtype)
    return tj.linalg.LUResult(identity, identity, a)


@tj.linalg.lu.implementation(tj.Scaled, differentiate=True)
def lu_scaled(a: Shaped[tj.Scaled, "n n"]) -> tj.linalg.LUResult:
    f = tj.linalg.lu(a.matrix)
    return tj.linalg.LUResult(f.P, f.L, tj.linalg.multiply(f.U, a.factor))


@tj.linalg.lu.implementation(tj.Kronecker, differentiate=True)
def lu_kronecker(a: Shaped[tj.Kronecker, "n n"]) -> tj.linalg.LUResult:
    if not all_square(a.factors):
        raise _not_square(a)
    results = [tj.linalg.lu(f) for f in a.factors]
    return tj.linalg.LUResult(*(tj.Kronecker(*same) for same in zip(*results, strict=True)))


@tj.linalg.lu.implementation(tj.BlockDiagonal, differentiate=True)
def lu_blocks(a: Shaped[tj.BlockDiagonal, "n n"]) -> tj.linalg.LUResult:
    if not a.has_square_blocks:
        raise _not_square(a)
    return tj.linalg.LUResult(*of_each_block(a, tj.linalg.lu))


def _not_square(a: Natural) -> tj.ShapeError:
    return tj.ShapeError(f"lu: the parts of a {type(a).__name__} must be square matrices.")


# -- triangular systems ----------------------------------------------------------------------------


@tj.linalg.solve_triangular.implementation(tj.AbstractArray, tj.Dense, differentiate=True)
def solve_triangular(
    a: Shaped[tj.AbstractArray, "... m n"],
    b: Natural,
    *,
    trans: Factor | str = 0,
    lower: Factor | None = None,
    unit_diagonal: bool = False,
) -> Columns:
    """Solve as `solve` does for a triangular type."""
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise tj.ShapeError(
            f"solve_triangular: `trans` is 0, 1, 2, 'N', 'T' or 'C', got {trans!r}."
        )
    _check_triangular(a, lower, unit_diagonal)
    if trans not in (0, "N"):
        a = a.mT if trans in (1, "T") else a.conj().mT
    return tj.solve(a, b)


def _check_triangular(a: Natural, lower: bool | None, unit_diagonal: bool) -> None:
    """Raise `ShapeError` unless the type of `a` is triangular as the keywords require."""
    if isinstance(a, tj.Kronecker | tj.BlockDiagonal):
        parts = a.factors if isinstance(a, tj.Kronecker) else a.blocks
        for part in parts if isinstance(parts, tuple) else (parts[0],):  # a stack has equal ones
            _check_triangular(part, lower, unit_diagonal)
        return
    if isinstance(a, tj.Scaled) and not unit_diagonal:
        _check_triangular(a.matrix, lower, unit_diagonal)
        return
    name = type(a).__name__
    if isinstance(a, tj.Triangular):
        if lower is not None and bool(lower) != a.lower:
            side = "lower" if a.lower else "upper"
            raise tj.ShapeError(
                f"solve_triangular: the matrix is {side} triangular, and lower={lower} is asked "
                "for.\nHint: leave `lower` out; transpose with `trans`."
            )
        if unit_diagonal and not a.unit_diagonal:
            raise tj.ShapeError(
                "solve_triangular: `unit_diagonal=True` for a Triangular with a diagonal.\n"
                "Hint: `tj.Triangular(data, unit_diagonal=True)`."
            )
        return
    if not isinstance(a, tj.Diagonal | tj.Identity) or unit_diagonal:
        raise tj.ShapeError(
            f"solve_triangular: {name} is not triangular by its type.\n"
            "Hint: `tj.solve` takes every type; `tj.Triangular(dense)` takes a triangle."
        )


# -- cases ---------------------------------------------------------------------------------------


def _of_kronecker(a: Natural, mode: str) -> PyTree:
    """Recover 2 x 2 factors from the product, up to a positive factor."""
    return jnp.kron(jnp.linalg.qr(a[::2, ::2] / a[0, 0])[1], jnp.linalg.qr(a[:2, :2])[1])


def cases() -> Iterator[Case]:
    """Every type with factors of its own; dense arrays, tall and wide, complex."""
    from tanjax.testing import Case, Samples

    s = Samples(13)
    diagonal = tj.Diagonal(s.positive(2))
    upper, lower = tj.Triangular(s.regular(2), lower=False), tj.Triangular(s.regular(2))
    kronecker = tj.Kronecker(s.regular(2), lower)
    blocks = tj.BlockDiagonal(s.regular(2), diagonal)
    scaled = tj.Scaled(s.regular(2), s.positive())
    for a in (s.normal(2, 3, 2), s.normal(2, 3), lower):
        yield composed(Case(tj.linalg.qr, a))
    yield composed(Case(tj.linalg.qr, kronecker, mode="r").declare(reference=_of_kronecker))
    for a in (blocks, scaled):
        yield composed(Case(tj.linalg.qr, a, mode="r"))
    for a in (upper, diagonal):
        yield composed(
            Case(tj.linalg.qr, a).declare(
                reference=lambda a, mode: tj.linalg.QRResult(jnp.eye(a.shape[0]), a)
            )
        )
    itself = lambda a: tj.linalg.LUResult(jnp.eye(a.shape[0]), jnp.eye(a.shape[0]), a)
    yield composed(Case(tj.linalg.lu, diagonal).declare(reference=itself))
    for a in (s.normal(3, 2), s.complex(2, 2), lower, upper, scaled, kronecker, blocks):
        yield composed(Case(tj.linalg.lu, a))
    yield composed(Case(tj.linalg.solve_triangular, s.regular(2), s.normal(2, 2), lower=True))
    batch = jnp.stack([s.regular(2), s.regular(2)])
    yield composed(Case(tj.linalg.solve_triangular, batch, s.normal(2, 2, 1), lower=True))
    complex_lower = tj.Triangular(s.regular(2, complex=True))
    for a, trans in ((lower, 1), (complex_lower, 2)):
        b = s.complex(2) if jnp.iscomplexobj(a.data) else s.normal(2)
        yield composed(Case(tj.linalg.solve_triangular, a, b, trans=trans, lower=True))
