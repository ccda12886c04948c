"""Matrices made of parts: their factors consist of those of the parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import PyTree, Shaped

import tanjax as tj
from tanjax.typing import Function, Natural, Scalar, Vector

from ..shapes import columns_at_once
from .eigh import outer
from .factorize import root_of_diagonal


def what_parts_have(
    plan: tj.linalg.FactorizationPlan, *parts: tj.linalg.Factorization
) -> tj.linalg.FactorizationPlan:
    """Return the plan; it has a root, and the inverse's diagonal, only if every part has one."""
    if not all(f.has_root for f in parts):
        plan = plan._replace(root=None)
    if not all(f.plan.diagonal_of_inverse for f in parts):
        plan = plan._replace(diagonal_of_inverse=None)
    return plan


def root_of(f: tj.linalg.Factorization, adjoint: bool) -> tj.linalg.Root:
    """Return the root of a part, or its adjoint."""
    return f.root().H if adjoint else f.root()


# -- multiples ------------------------------------------------------------------------------------


def _slogdet_scaled(matrix: PyTree, parts: Sequence[PyTree]) -> tuple[Scalar, Scalar]:
    inner, factor = parts
    own = tj.linalg.slogdet(tj.Diagonal(jnp.broadcast_to(factor, (inner.n,))))
    sign, logarithm = inner.slogdet()
    return sign * own.sign, logarithm + own.logabsdet


def _root_of_scaled(matrix: PyTree, parts: Sequence[PyTree], z: Natural, adjoint: bool) -> Natural:
    inner, factor = parts
    return root_of_diagonal(tj.Diagonal(factor[None]), (), root_of(inner, adjoint) @ z, adjoint)


_SCALED = tj.linalg.FactorizationPlan(
    lambda _, parts, b, transposed: parts[0].solve(b, transposed=transposed) / parts[1],
    _slogdet_scaled,
    _root_of_scaled,
    diagonal_of_inverse=lambda _, parts: parts[0].diagonal_of_inverse() / parts[1],
)


@tj.factorize.implementation(tj.Scaled, differentiate=True)
def factorize_scaled(a: Shaped[tj.Scaled, "n n"]) -> tj.linalg.Factorization:
    inner = tj.factorize(a.matrix)
    plan = what_parts_have(_SCALED, inner)
    return tj.linalg.Factorization(None, (inner, a.factor), plan, a.shape[0])


# -- Kronecker products ---------------------------------------------------------------------------


def _along_axes(
    function: Function, parts: Sequence[tj.linalg.Factorization], columns: Natural
) -> Natural:
    """Apply `function(part, columns)` along each part's own axis, the first part last."""

    def all_axes(y: Natural) -> Natural:
        x = y.reshape(*(f.n for f in parts), y.shape[1])
        for axis, f in reversed(list(enumerate(parts))):
            moved = jnp.moveaxis(x, axis, 0)
            out = function(f, moved.reshape(f.n, moved.size // max(f.n, 1)))
            x = jnp.moveaxis(out.reshape(moved.shape), 0, axis)
        return x.reshape(y.shape)

    return columns_at_once(all_axes, columns)


def _slogdet_kronecker(matrix: PyTree, parts: Sequence[PyTree]) -> tuple[Scalar, Scalar]:
    n = 1
    for f in parts:
        n *= f.n
    return together([(f.slogdet(), n // max(f.n, 1)) for f in parts])


def together(results: Sequence[tuple[tj.linalg.SlogdetResult, int]]) -> tuple[Scalar, Scalar]:
    """Return the result for a product of determinants, each with its multiplicity."""
    (first, count), *rest = results
    sign, logarithm = first.sign**count, first.logabsdet * count
    for part, count in rest:
        sign, logarithm = sign * part.sign**count, logarithm + part.logabsdet * count
    return sign, logarithm


_KRONECKER = tj.linalg.FactorizationPlan(
    lambda _, parts, b, transposed: _along_axes(
        lambda f, y: f.solve(y, transposed=transposed), parts, b
    ),
    _slogdet_kronecker,
    lambda _, parts, z, adjoint: _along_axes(lambda f, y: root_of(f, adjoint) @ y, parts, z),
    diagonal_of_inverse=lambda _, parts: outer(f.diagonal_of_inverse() for f in parts),
)


@tj.factorize.implementation(tj.Kronecker, differentiate=True)
def factorize_kronecker(a: Shaped[tj.Kronecker, "n n"]) -> tj.linalg.Factorization:
    _check_parts("Kronecker factor", a.factors)
    parts = tuple(map(tj.factorize, a.factors))
    return tj.linalg.Factorization(None, parts, what_parts_have(_KRONECKER, *parts), a.shape[0])


# -- blocks ---------------------------------------------------------------------------------------


# A factorization of each block, or of a stack one, whose leaves have a leading axis.
Blocks: TypeAlias = Sequence[tj.linalg.Factorization] | tj.linalg.Factorization


def _block_by_block(function: Function, parts: Blocks, columns: Natural) -> Natural:
    if isinstance(parts, tj.linalg.Factorization):
        count = jax.tree.leaves(parts)[0].shape[0]
        rows = lambda y: y.reshape(count, parts.n, y.shape[1])
        of_all = lambda y: jax.vmap(function)(parts, rows(y)).reshape(y.shape)
        return columns_at_once(of_all, columns)
    start, out = 0, []
    for f in parts:
        out.append(function(f, columns[..., start : start + f.n, :]))
        start += f.n
    return jnp.concatenate(out, axis=-2)


def _inverse_diagonal_of_blocks(matrix: PyTree, parts: Sequence[PyTree]) -> Vector:
    if isinstance(parts, tj.linalg.Factorization):
        return jax.vmap(lambda f: f.diagonal_of_inverse())(parts).reshape(-1)
    return jnp.concatenate([f.diagonal_of_inverse() for f in parts])


def _slogdet_blocks(matrix: PyTree, parts: Sequence[PyTree]) -> tuple[Scalar, Scalar]:
    if isinstance(parts, tj.linalg.Factorization):
        sign, logarithm = jax.vmap(lambda f: f.slogdet())(parts)
        fixed = sign if jnp.iscomplexobj(sign) else jax.lax.stop_gradient(sign)
        return jnp.prod(fixed), jnp.sum(logarithm)
    return together([(f.slogdet(), 1) for f in parts])


_BLOCKS = tj.linalg.FactorizationPlan(
    lambda _, parts, b, transposed: _block_by_block(
        lambda f, y: f.solve(y, transposed=transposed), parts, b
    ),
    _slogdet_blocks,
    lambda _, parts, z, adjoint: _block_by_block(lambda f, y: root_of(f, adjoint) @ y, parts, z),
    diagonal_of_inverse=_inverse_diagonal_of_blocks,
)


@tj.factorize.implementation(tj.BlockDiagonal, differentiate=True)
def factorize_blocks(a: Shaped[tj.BlockDiagonal, "n n"]) -> tj.linalg.Factorization:
    if not isinstance(a.blocks, tuple):
        _check_parts("block", (a.blocks,))
        of_all = jax.vmap(tj.factorize)(a.blocks.array)
        return tj.linalg.Factorization(None, of_all, what_parts_have(_BLOCKS, of_all), a.shape[0])
    _check_parts("block", a.blocks)
    parts = tuple(map(tj.factorize, a.blocks))
    return tj.linalg.Factorization(None, parts, what_parts_have(_BLOCKS, *parts), a.shape[0])


def _check_parts(what: str, parts: Sequence[PyTree]) -> None:
    for part in parts:
        if part.shape[0] != part.shape[1]:
            raise tj.ShapeError(
                f"factorize ({what}): needs a square matrix, got {list(part.shape)}."
            )
