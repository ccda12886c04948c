"""Norms of structured arrays: by their entries, by their singular values, by their parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.kernels import diagonal_padding
from tanjax.typing import Axis, DenseArray, Natural, Order, Pullback, Scalar

from ..bands import Band, widths
from ..stacked import of_each_block
from .gauge import composed, whole
from .svd import thin_core

if TYPE_CHECKING:
    from tanjax.testing import Case


_SPECTRAL = ("nuc", 2, -2)
_WITH_VALUES = (tj.Diagonal, tj.Identity, tj.Circulant, tj.SymTridiagonal)


@tj.operation(dense=True, units="a: u -> u")
def frobenius(a: Natural) -> Natural:
    r"""Return the root of the sum of all squares, the default norm.

    **Derivative:** $\bar y\,\overline{A} / \|A\|$, and 0 at 0.
    """
    return tj.norm(a)


@frobenius.implementation(tj.AbstractArray)
def frobenius_norm(a: Shaped[tj.AbstractArray, " ..."]) -> Scalar:
    return jnp.sqrt(jnp.real(a.inner_product(a.conj())))


@frobenius.natural_rule(tj.AbstractArray)
def frobenius_rule(a: Shaped[tj.AbstractArray, " ..."]) -> tuple[Scalar, Pullback]:
    y = frobenius.primal(a)

    def frobenius_pullback(y_bar: Natural) -> Natural:
        safe = jnp.where(y == 0, jnp.ones_like(y), y)
        return tj.linalg.multiply(
            a.conj(), jnp.where(y == 0, jnp.zeros_like(y), y_bar / safe).astype(a.dtype)
        )

    return y, frobenius_pullback


@tj.norm.implementation(tj.AbstractArray, differentiate=True)
def norm(
    a: Shaped[tj.AbstractArray, " ..."],
    ord: Order = None,
    axis: Axis = None,
    keepdims: bool = False,
) -> Natural:
    """Return the norm by the singular values, if they are cheap, or by the dense array."""
    if axis is not None or keepdims or a.ndim != 2:
        hint = "leave out `axis` and `keepdims`" if a.ndim == 2 else "take a vector as it is"
        return tj.norm(tj.rules.densified(a, "norm", hint), ord, axis, keepdims)
    if ord in (None, "fro"):
        return frobenius(a)
    if ord in _SPECTRAL and isinstance(a, _WITH_VALUES):
        return _of_values(tj.linalg.svd(a, False, False), ord)
    return tj.norm(tj.rules.densified(a, "norm", "use order 'fro'"), ord)


def _check_order(ord: Order) -> None:
    """Raise `ShapeError` unless matrices have a norm of this order."""
    if ord not in (None, "fro", *_SPECTRAL, 1, -1, math.inf, -math.inf):
        raise tj.ShapeError(
            f"norm: matrices have no norm of order {ord!r}.\n"
            "Hint: None, 'fro', 'nuc', 1, -1, 2, -2, inf or -inf."
        )


def _of_values(s: Shaped[DenseArray, " k"], ord: Order) -> Scalar:
    """Return the norm by all singular values, which are smooth functions where two are equal."""
    if ord == "nuc":
        return jnp.sum(s)
    return jnp.max(s, initial=0) if ord == 2 else jnp.min(s)


def _has_all(a: Natural, parts: Sequence[Natural], join: Callable[[list[int]], int]) -> bool:
    """True if the parts' singular values are all those of the whole; otherwise others are zero."""
    return min(a.shape) == join([min(p.shape) for p in parts])


@tj.norm.implementation(tj.Symmetric, differentiate=True)
@tj.norm.implementation(tj.Hermitian, differentiate=True)
@tj.norm.implementation(tj.Triangular, differentiate=True)
def norm_full(
    a: Shaped[tj.Symmetric | tj.Hermitian | tj.Triangular, " ..."],
    ord: Order = None,
    axis: Axis = None,
    keepdims: bool = False,
) -> Natural:
    if axis is None and not keepdims and ord in (None, "fro"):
        return frobenius(a)
    return tj.norm(whole(a), ord, axis, keepdims)


@tj.norm.implementation(tj.Diagonal, differentiate=True)
@tj.norm.implementation(tj.Identity, differentiate=True)
def norm_diagonal(
    a: Shaped[tj.Diagonal | tj.Identity, " ..."],
    ord: Order = None,
    axis: Axis = None,
    keepdims: bool = False,
) -> Natural:
    """Return the norm; the sum of a row or a column is its one entry."""
    _check_order(ord)
    if axis is not None or keepdims or ord in (None, "fro", *_SPECTRAL):
        return norm(a, ord, axis, keepdims)
    size = jnp.abs(a.diagonal())
    return jnp.max(size, initial=0) if ord > 0 else jnp.min(size)


@tj.norm.implementation(tj.Scaled, differentiate=True)
def norm_scaled(
    a: Shaped[tj.Scaled, " ..."], ord: Order = None, axis: Axis = None, keepdims: bool = False
) -> Natural:
    if axis is not None or keepdims or ord in (None, "fro"):
        return norm(a, ord, axis, keepdims)
    return tj.norm(a.matrix, ord) * jnp.abs(a.factor)


@tj.norm.implementation(tj.Kronecker, differentiate=True)
def norm_kronecker(
    a: Shaped[tj.Kronecker, " ..."], ord: Order = None, axis: Axis = None, keepdims: bool = False
) -> Natural:
    """Return the product of the factors' norms; the least singular value may be 0 instead."""
    if axis is not None or keepdims or ord in (None, "fro"):
        return norm(a, ord, axis, keepdims)
    if ord == -2 and not _has_all(a, a.factors, math.prod):
        return jnp.zeros((), jnp.finfo(a.dtype).dtype)
    return math.prod(tj.norm(f, ord) for f in a.factors)


@tj.norm.implementation(tj.BlockDiagonal, differentiate=True)
def norm_blocks(
    a: Shaped[tj.BlockDiagonal, " ..."],
    ord: Order = None,
    axis: Axis = None,
    keepdims: bool = False,
) -> Natural:
    _check_order(ord)
    if axis is not None or keepdims or ord in (None, "fro"):
        return norm(a, ord, axis, keepdims)
    if ord == -2 and min(a.shape) != sum(map(min, a.block_shapes)):
        return jnp.zeros((), jnp.finfo(a.dtype).dtype)
    (each,) = of_each_block(a, lambda b: (tj.norm(b, ord)[None],))
    if ord == "nuc":
        return jnp.sum(each)
    return jnp.max(each) if ord > 0 else jnp.min(each)


@tj.norm.implementation(tj.Circulant, differentiate=True)
def norm_circulant(
    a: Shaped[tj.Circulant, " ..."], ord: Order = None, axis: Axis = None, keepdims: bool = False
) -> Natural:
    """Return the norm; every row and every column has the same entries."""
    if axis is not None or keepdims or ord not in (1, -1, math.inf, -math.inf):
        return norm(a, ord, axis, keepdims)
    return jnp.sum(jnp.abs(a.column))


@tj.norm.implementation(tj.LowRank, differentiate=True)
def norm_low_rank(
    a: Shaped[tj.LowRank, " ..."], ord: Order = None, axis: Axis = None, keepdims: bool = False
) -> Natural:
    """Return the norm of the core between two unitary factors, with zeros added."""
    if axis is not None or keepdims or ord not in _SPECTRAL:
        return norm(a, ord, axis, keepdims)
    _, _, core = thin_core(a)
    if ord == -2 and min(core.shape) != min(a.shape):
        return jnp.zeros((), jnp.finfo(a.dtype).dtype)
    return tj.norm(core, ord)


@tj.norm.implementation(tj.Sparse, differentiate=True)
def norm_sparse(
    a: Shaped[tj.Sparse, " ..."], ord: Order = None, axis: Axis = None, keepdims: bool = False
) -> Natural:
    """Return the norm; orders 1 and infinity sum stored sizes along columns or rows."""
    if axis is not None or keepdims or ord not in (1, -1, math.inf, -math.inf):
        return norm(a, ord, axis, keepdims)
    along = int(abs(ord) == 1)
    sizes = jnp.abs(a.values)
    sums = jnp.zeros(a.shape[along], sizes.dtype).at[a.indices[:, along]].add(sizes)
    return jnp.max(sums, initial=0) if ord > 0 else jnp.min(sums)


@tj.norm.implementation(tj.Tridiagonal, differentiate=True)
@tj.norm.implementation(tj.SymTridiagonal, differentiate=True)
@tj.norm.implementation(tj.Banded, differentiate=True)
def norm_band(a: Band, ord: Order = None, axis: Axis = None, keepdims: bool = False) -> Natural:
    """Return the norm; orders 1 and infinity sum the sizes of diagonals along columns or rows."""
    if axis is not None or keepdims or ord not in (1, -1, math.inf, -math.inf):
        return norm(a, ord, axis, keepdims)
    n, (lower, upper) = a.shape[0], widths(a)
    turned = 1 if abs(ord) == 1 else -1  # the diagonal k has its entries in columns k, k + 1, ...
    sums = sum(
        jnp.pad(jnp.abs(a.off_diagonal(k)), diagonal_padding(n, turned * k))
        for k in range(-lower, upper + 1)
    )
    return jnp.max(sums, initial=0) if ord > 0 else jnp.min(sums)


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Every order of every type that computes it without the dense array."""
    from tanjax.testing import Case, Samples

    s = Samples(16)
    a: Any
    symmetric, diagonal = tj.Symmetric(s.normal(2, 2)), tj.Diagonal(s.normal(2))
    hermitian, low_rank = tj.Hermitian(s.complex(2, 2)), tj.LowRank(s.normal(2, 1), s.normal(3, 1))
    kronecker = tj.Kronecker(s.normal(2, 1), symmetric)
    blocks = tj.BlockDiagonal(symmetric, tj.Diagonal(s.positive(1)))
    scaled = tj.Scaled(symmetric, -s.positive())
    for a in (hermitian, low_rank):
        yield Case(frobenius, a)
    inf = math.inf
    for ord, a in (
        (-inf, diagonal),
        (2, hermitian),
        (2, low_rank),
        (inf, scaled),
        ("nuc", kronecker),
        (1, blocks),
        (-1, tj.Sparse(s.normal(3), [[0, 0], [1, 0], [1, 1]], (2, 2))),
        (1, tj.Banded(s.normal(3, 3), 2, 0)),
        (inf, tj.Tridiagonal(s.normal(2), s.normal(3), s.normal(2))),
        (2, tj.SymTridiagonal(s.normal(3), s.normal(2))),
        ("nuc", tj.Circulant(s.normal(3))),
        (-inf, tj.Circulant(s.normal(3))),
        ("nuc", tj.LowRankUpdate(tj.Identity(3), s.normal(3, 1), None)),
        (3, s.normal(3)),
        (None, s.normal(3)),
        ("nuc", s.normal(3, 2)),
        ("nuc", s.complex(3, 2)),
        (-2, s.complex(3, 3)),
        (-2, s.normal(2, 3)),
        (2, kronecker),
        ("nuc", tj.BlockDiagonal(s.normal(2, 1), s.normal(1, 2), s.normal(2, 2))),
        ("nuc", tj.LowRank(s.normal(4, 2), s.normal(2, 2))),
        (2, tj.LowRankUpdate(tj.Identity(3), s.normal(3, 2), None)),
        (2, tj.LowRank(s.complex(3, 2)[:, [0, 1, 0]], s.normal(2, 3))),  # a column twice; one real
    ):
        yield composed(Case(tj.norm, a, ord=ord))
    yield composed(Case(tj.norm, s.normal(2, 3, 2), ord=2, axis=(-2, -1)))
