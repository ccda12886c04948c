r"""Eigenvalues and eigenvectors of symmetric tridiagonal matrices, by divide and conquer.

Without one entry beside the diagonal, a tridiagonal matrix is two independent blocks. An outer
product joins them again: the eigenvalues of $\mathrm{diag}(\delta) + \rho z z^\top$ are the roots
of a secular equation (`secular`).

Eigenvectors from these roots and `z` are orthogonal only if the roots are exact. Therefore the
eigenvectors use another `z`, for which the computed roots are exact (Gu, Eisenstat). The two differ
by rounding errors. Clusters of eigenvalues need no special case: for every matrix the vectors are
orthogonal, and the residual is of the order of $\epsilon\|T\|$. Most of the work is products.

Poles with a weight of rounding errors keep their eigenvectors. If poles are equal up to rounding
errors, a reflection moves all weight to one of them, and the others keep their eigenvectors. These
poles are masked, so shapes do not depend on their number.

**References:** Cuppen 1981; Gu and Eisenstat 1995; Rutter 1994 (LAPACK's `stedc`).
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import export, lax
from jaxtyping import Bool, Float, Integer, PyTree

from tanjax import _compat
from tanjax._typing import DenseArray, Scalar

from ._secular import Poles, roots
from ._sturm import in_range, times_power

# Blocks of this size stay whole: LAPACK takes a millisecond for a block, and every level of the
# division takes a second to compile.
SMALLEST = 128

Vector = Float[DenseArray, " n"]


def tridiagonal_eigenpairs(
    diag: Vector, off: Float[DenseArray, " m"], smallest: int = SMALLEST
) -> tuple[Vector, Float[DenseArray, "n n"]]:
    r"""Return ascending eigenvalues, and eigenvectors as columns; nan if an entry is not finite.

    **Cost:** $4n^3/3$ operations in products, and $O(n^2)$ other operations per level.
    """
    n = diag.shape[0]
    if n == 0:
        return diag, jnp.zeros((0, 0), diag.dtype)
    levels = 0 if export.is_symbolic_dim(n) else max(0, math.ceil(math.log2(n / smallest)))
    size = -(-n // 2**levels)
    diag, off, exponent, lost = in_range(diag, off)
    # The padding has larger eigenvalues than the matrix, and no off-diagonal entries.
    diag = jnp.pad(diag, (0, size * 2**levels - n), constant_values=8)
    off = jnp.pad(off, (0, diag.shape[0] - off.shape[0]))
    torn = off[size - 1 : -1 : size]
    at = jnp.arange(torn.shape[0]) * size + size
    diag = diag.at[at].add(-jnp.abs(torn)).at[at - 1].add(-jnp.abs(torn))
    v, w = lax.linalg.eigh(_blocks(diag, off, size), symmetrize_input=False)
    for level in range(levels):
        half = size * 2**level
        halves = w.reshape(-1, 2, half), v.reshape(-1, 2, half, half)
        w, v = jax.vmap(_merged)(*halves, off[half - 1 :: 2 * half])
    w, v = times_power(w[0, :n], exponent), v[0, :n, :n]
    return jnp.where(lost, jnp.nan, w), jnp.where(lost, jnp.nan, v)


def _blocks(diag: Vector, off: Vector, size: int) -> Float[DenseArray, "b k k"]:
    """Return the blocks on the diagonal as dense arrays."""
    beside = off.reshape(-1, size)[:, : size - 1]
    embedded = lambda x, offset: jax.vmap(functools.partial(jnp.diag, k=offset))(x)
    if size == 1:
        return diag.reshape(-1, 1, 1)
    return embedded(diag.reshape(-1, size), 0) + embedded(beside, 1) + embedded(beside, -1)


class Deflation(NamedTuple):
    """The deflated `z`, and the reflections that deflated it.

    `leader`: the pole that took the weight of its group of equal poles. `mirror`: the vectors of
    the reflections, one for each group. `squares`: their squared lengths, at every pole.
    """

    z: Vector
    kept: Bool[DenseArray, " n"]
    leader: Integer[DenseArray, " n"]
    mirror: Vector
    squares: Vector


def _deflated(d: Vector, z: Vector, rho: Scalar) -> Deflation:
    """Deflate: set tiny weights to zero and near poles equal, within rounding of the matrix."""
    limit = 8 * float(jnp.finfo(d.dtype).eps)
    index = jnp.arange(d.shape[0])
    tiny = rho * jnp.abs(z) <= limit
    z = jnp.where(tiny, jnp.zeros_like(z), z)

    def join(group: PyTree, pole: PyTree) -> PyTree:
        first, leader = group
        at, alone, i = pole
        opens = ~alone & (at - first > limit)
        first, leader = jnp.where(opens, at, first), jnp.where(opens, i, leader)
        return (first, leader), jnp.where(alone, i, leader)

    nothing = _compat.align((jnp.full_like(d[0], -jnp.inf), jnp.zeros_like(index[0])), (d, z, rho))
    leader = lax.scan(join, nothing, (d, tiny, index))[1]
    of_groups = lambda x: jnp.zeros_like(x).at[leader].add(x)[leader]
    follows = leader != index
    shared = of_groups(follows.astype(index.dtype)) > 0
    sign = jnp.where(z < 0, -jnp.ones_like(z), 1)
    length = jnp.sqrt(of_groups(z * z))
    mirror = jnp.where(shared, z + jnp.where(follows, 0, sign * length), 0)
    z = jnp.where(follows, 0, jnp.where(shared, -sign * length, z))
    return Deflation(z, ~tiny & ~follows, leader, mirror, of_groups(mirror * mirror))


def _merged(
    w: Float[DenseArray, "2 half"], v: Float[DenseArray, "2 half half"], beta: Scalar
) -> tuple[Vector, Float[DenseArray, "n n"]]:
    """Return the eigenpairs of two blocks with the entry between them, from those of the blocks."""
    n = w.size
    rho = 2 * jnp.abs(beta)
    order = jnp.argsort(w.reshape(n))
    d = w.reshape(n)[order]
    sign = jnp.where(beta < 0, -jnp.ones_like(beta), 1)
    z = jnp.concatenate([v[0, -1], sign * v[1, 0]])[order] * math.sqrt(0.5)
    left = _deflated(d, z, rho)
    first = jnp.argsort(~left.kept, stable=True)
    poles = Poles(d[first], rho * left.z[first] ** 2, left.kept[first])
    origin, offset = roots(poles)
    values = jnp.where(poles.active, origin + offset, poles.at)
    ascending = jnp.argsort(values)
    u = _vectors(poles, left.z[first], origin, offset)[:, ascending]
    u = _reflected(jnp.zeros_like(u).at[first].set(u), left)
    u = jnp.zeros_like(u).at[order].set(u)
    return values[ascending], (v @ u.reshape(2, n // 2, n)).reshape(n, n)


def _vectors(poles: Poles, z: Vector, origin: Vector, offset: Vector) -> Float[DenseArray, "n n"]:
    """Return the eigenvectors of the matrix whose exact eigenvalues are the computed roots."""
    at, _, active = poles
    both = active[:, None] & active
    same = jnp.eye(len(at), dtype=bool)
    gaps = jnp.where(both, (at[:, None] - origin) - offset, 1)
    apart = jnp.where(both & ~same, at[:, None] - at, 1)
    exact = jnp.sqrt(jnp.abs(jnp.prod(gaps / apart, axis=1)))
    exact = jnp.where(z < 0, -exact, exact)
    u = jnp.where(both, exact[:, None] / gaps, jnp.where(same, jnp.ones_like(gaps), 0))
    return u / jnp.sqrt(jnp.sum(u * u, axis=0))


def _reflected(u: Float[DenseArray, "n n"], left: Deflation) -> Float[DenseArray, "n n"]:
    """Apply the reflections: from the reflected basis back to the eigenvectors of the blocks."""
    safe = jnp.where(left.squares == 0, jnp.ones_like(left.squares), left.squares)
    products = jnp.zeros_like(u).at[left.leader].add(left.mirror[:, None] * u)
    return u - (2 * left.mirror / safe)[:, None] * products[left.leader]
