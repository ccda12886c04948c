r"""Eigenvalues and eigenvectors of symmetric tridiagonal matrices, by divide and conquer.

Without one entry beside the diagonal a tridiagonal matrix is two. It is put together again by an
outer product, and the eigenvalues of $\mathrm{diag}(\delta) + \rho z z^\top$ are the roots of a
secular equation (`secular`). Eigenvectors that are computed from these roots and `z` are orthogonal
only if the roots are exact; so they are computed from the `z` for which they are (Gu, Eisenstat),
which differs by rounding errors. No cluster of eigenvalues is special: the vectors are orthogonal,
and the residual is of the order of $\epsilon\|T\|$, for every matrix. Most of the work is products.

Poles with a weight of rounding errors keep their eigenvectors. Of poles that are equal up to
rounding errors, a reflection gives all weight to one, and the others keep theirs. Shapes do not
depend on how many these are: they are masked.

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

# Blocks of this size are not divided: LAPACK takes a millisecond for one, and every level of the
# division takes a second to compile.
SMALLEST = 128

Vector = Float[DenseArray, " n"]


def tridiagonal_eigenpairs(
    diag: Vector, off: Float[DenseArray, " m"], smallest: int = SMALLEST
) -> tuple[Vector, Float[DenseArray, "n n"]]:
    r"""Ascending eigenvalues, and eigenvectors as columns; nan if an entry is not finite.

    $4n^3/3$ operations of products, and $O(n^2)$ of others for every level.
    """
    n = diag.shape[0]
    if n == 0:
        return diag, jnp.zeros((0, 0), diag.dtype)
    levels = 0 if export.is_symbolic_dim(n) else max(0, math.ceil(math.log2(n / smallest)))
    size = -(-n // 2**levels)
    diag, off, exponent, lost = in_range(diag, off)
    # What fills the last blocks has larger eigenvalues than the matrix, and no neighbours.
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
    """The blocks on the diagonal, dense."""
    beside = off.reshape(-1, size)[:, : size - 1]
    embedded = lambda x, offset: jax.vmap(functools.partial(jnp.diag, k=offset))(x)
    if size == 1:
        return diag.reshape(-1, 1, 1)
    return embedded(diag.reshape(-1, size), 0) + embedded(beside, 1) + embedded(beside, -1)


class Deflation(NamedTuple):
    """What is left of `z`, and the reflection that took the rest out of it.

    `leader`: the pole to which the weight of a group of equal poles went. `mirror`: the vectors of
    the reflections, one for each group, with the squares of their lengths at every pole.
    """

    z: Vector
    kept: Bool[DenseArray, " n"]
    leader: Integer[DenseArray, " n"]
    mirror: Vector
    squares: Vector


def _deflated(d: Vector, z: Vector, rho: Scalar) -> Deflation:
    """What changes the matrix by rounding errors: weights become zero, near poles equal."""
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
    """The factors of two blocks and the entry between them, from those of the blocks."""
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
    """The eigenvectors of the matrix of which the roots are the exact eigenvalues."""
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
    """Back to the eigenvectors of the blocks, from those that the reflections made of them."""
    safe = jnp.where(left.squares == 0, jnp.ones_like(left.squares), left.squares)
    products = jnp.zeros_like(u).at[left.leader].add(left.mirror[:, None] * u)
    return u - (2 * left.mirror / safe)[:, None] * products[left.leader]
