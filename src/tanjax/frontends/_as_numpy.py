"""`eigh`, `svd` and `pinv` with NumPy's contracts: sorted, by the rank of the whole matrix.

The operations keep structure instead: the order of the structure, the rank of each block. Code for
`numpy.linalg` expects the largest singular value in `s[0]`. `tanjax.numpy`, NumPy's protocols and
`tj.lift` therefore call the functions here. They sort the operation's values. They densify vectors,
with a `DensifyWarning`, unless these are a permutation.

    numpy.linalg.svd(tj.Diagonal(jnp.array([1.0, -3.0])))[1]  # [3. 1.]
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Shaped

from tanjax import operations as ops
from tanjax._typing import AnyArray, DenseArray, Factor, Natural
from tanjax.arrays import (
    Diagonal,
    Hermitian,
    Identity,
    LowRank,
    Permutation,
    Scaled,
    Symmetric,
    Triangular,
    densified,
    is_structured,
)
from tanjax.operations import BY_NAME, EighResult, SVDResult, refused, transpose

_HINT = "use tanjax's operation, which keeps the order and the ranks of the structure"


def eigh(a: Shaped[AnyArray, "*batch n n"]) -> EighResult:
    """Return ascending eigenvalues and eigenvectors in their order; it raises as `eigh`."""
    w, v = ops.eigh(a)
    if not is_structured(v):
        return EighResult(w, v)
    order = jnp.argsort(w, -1)
    w = jnp.take_along_axis(w, order, -1)
    if isinstance(v, Identity):
        return EighResult(w, transpose(Permutation(order, v.dtype)))
    return EighResult(w, _columns(_dense("eigh", v), order))


def svd(
    a: Shaped[AnyArray, "*batch m n"], full_matrices: bool = True, compute_uv: bool = True
) -> SVDResult | Natural:
    """Return descending singular values, and vectors in their order."""
    if not compute_uv:
        return singular_values(a)
    u, s, vh = ops.svd(a, full_matrices)
    if not (is_structured(u) or is_structured(vh)):
        return SVDResult(u, s, vh)
    count = s.shape[-1]
    if count != min(a.shape[-2:]):
        return ops.svd(_dense("svd", a), full_matrices)
    order = jnp.argsort(-s, -1)
    places = lambda k: jnp.concatenate(
        [order, jnp.broadcast_to(jnp.arange(count, k), (*s.shape[:-1], k - count))], -1
    )
    u = _columns(_dense("svd", u), places(u.shape[-1]))
    vh = jnp.take_along_axis(_dense("svd", vh), places(vh.shape[-2])[..., None], -2)
    return SVDResult(u, jnp.take_along_axis(s, order, -1), vh)


def singular_values(a: Shaped[AnyArray, "*batch m n"]) -> DenseArray:
    """Return as many values as the smaller side has, adding the zeros that the operation omits."""
    s = -jnp.sort(-ops.svd(a, compute_uv=False))
    missing = min(a.shape[-2:]) - s.shape[-1]
    return jnp.pad(s, (*[(0, 0)] * (s.ndim - 1), (0, missing)))


def pinv(a: Shaped[AnyArray, "*batch m n"], rtol: Factor | None = None) -> Natural:
    """Return `pinv`, with `rtol` relative to the largest singular value of the whole."""
    return ops.pinv(a if has_one_rank(a) else _dense("pinv", a), rtol)


def diagonal(a: Natural, offset: int = 0) -> Natural:
    """Return the entries `a[..., i, i + offset]`."""
    if offset == 0:
        return ops.diagonal(a)
    if is_structured(a) and a.ndim == 2:
        return a.off_diagonal(offset)
    return jnp.diagonal(_dense("diagonal", a), offset, -2, -1)


def trace(a: Natural, offset: int = 0) -> Natural:
    """Return the sum of `diagonal(a, offset)`."""
    return ops.trace(a) if offset == 0 else jnp.sum(diagonal(a, offset), -1)


def has_one_rank(a: Natural) -> bool:
    """True if the operation compares singular values with the largest of the whole matrix, too."""
    if isinstance(a, Scaled):
        return not is_structured(a.matrix) or has_one_rank(a.matrix)
    return isinstance(a, Diagonal | Identity | Symmetric | Hermitian | Triangular | LowRank)


def _dense(name: str, x: Natural) -> DenseArray:
    return densified(x, f"linalg.{name}", _HINT) if is_structured(x) else x


def _columns(x: DenseArray, order: DenseArray) -> DenseArray:
    return jnp.take_along_axis(x, order[..., None, :], -1)


# Names of these functions in NumPy and JAX.
BY_NAME["linalg"] |= {"eigh": eigh, "svd": svd, "pinv": pinv, "diagonal": diagonal, "trace": trace}
BY_NAME["numpy"] |= {"diagonal": refused("diagonal", diagonal), "trace": refused("trace", trace)}
