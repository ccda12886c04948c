"""Factorisations, triangular systems and Fourier transforms on numbers with an exponent.

A factorisation is homogeneous: of `A·2^s`, Cholesky's factor has exponent s/2, singular values and
eigenvalues s, orthogonal factors 0. Where two factors are packed into one matrix (LU), each has its
own exponent. LAPACK through NumPy and SciPy; a matrix that is not positive definite gives NaN as in
JAX, and no error.

    >>> _packed(np.ones((2, 2)), 700, 0).exponent
    array([[701, 701],
           [  1, 701]])

Sharp edges: signs of vectors and the order of operations are LAPACK's; they may differ from those
of another backend, their magnitudes do not. A matrix of numbers too far apart for one exponent is
refused, but for the triangle of a packed one that is meant.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from tanjax import _compat
from tanjax._jaxpr_types import JaxEquation

from ..graph import _lu
from ..graph._graph import Exponents, Node
from ..numbers._interval_record import INFINITY, Record, Records, span
from ..numbers._spread import is_spread
from ..numbers._wide import Apart, Exponent, Numbers, Wide, align, in_float64, normalised, scaled
from . import _rows as rows
from ._forms import dtype_of
from ._indexing import permutation
from ._law import LAWS, known, law
from ._powers_of_two import convert


def _cube(node: Node, xs: list[Wide]) -> float:
    """About the work of a factorisation, at NumPy's speed."""
    shape = xs[0].array.shape
    return xs[0].array.size * shape[-1] + 50 * math.prod(shape[:-2])


def _matrices(array: Numbers) -> np.ndarray:
    return array.reshape(-1, *array.shape[-2:])


def _packed(array: np.ndarray, upper: Exponent, lower: Exponent) -> Wide:
    """Two triangles in one matrix, the diagonal in the upper one, with an exponent each."""
    rows, columns = array.shape[-2:]
    below = np.tri(rows, columns, -1, bool)
    powers = np.where(np.broadcast_to(below, array.shape), lower, upper)
    return normalised(Wide(array, powers if upper != lower else upper))


def _triangle(x: Wide, lower: bool, unit: bool) -> Wide:
    """The part of a matrix that a triangular solve reads; zeros elsewhere."""
    rows, columns = x.array.shape[-2:]
    keep = np.tri(rows, columns, -1 if unit else 0, bool)
    if not lower:
        keep = ~np.tri(rows, columns, 0 if unit else -1, bool)
    x = normalised(Wide(np.where(keep, x.array, 0.0), x.exponent))
    if is_spread(x):
        raise Apart
    return x


def _bounds(node: Node, high: float, factors: float) -> Records:
    """Values up to 2^high in real results of one dimension less, factors in the others."""
    rank = len(node.uses[0].value.aval.shape)
    return [
        span(-INFINITY, high if len(out.aval.shape) < rank else factors) for out in node.outputs
    ]


def _spectral(node: Node, records: Records) -> Records:
    if records[0] is None:
        return [None] * len(node.outputs)
    shape = node.uses[0].value.aval.shape
    # At most the Frobenius norm.
    return _bounds(node, records[0].high + math.log2(max(math.prod(shape[-2:]), 1)) / 2, 0.0)


def _rows_of_bits(node: Node) -> float:
    """log2 of the number of rows, by which the factors of `lu` are expected to grow."""
    return math.log2(max(node.uses[0].value.aval.shape[-2], 1))


def _orthogonal(node: Node, records: Records) -> Records:
    if records[0] is None:
        return [None] * len(node.outputs)
    # Columns of R are as long as those of A; reflectors and Q have entries up to 1, taus up to 2.
    return _bounds(node, 1.0, max(records[0].high + _rows_of_bits(node) / 2, 0.0))


def _half(node: Node, a: Record) -> Record:
    return span(-INFINITY, a.high / 2)  # the squares of a row add up to the diagonal entry


@law("cholesky", "a: u -> u^1/2", work=_cube, bound=known(_half))
def cholesky(node: Node, xs: list[Wide]) -> list[Wide]:
    half, odd = divmod(xs[0].exponent, 2)
    array = scaled(np.asarray(xs[0].array), odd)
    if node.params.get("symmetrize_input"):
        array = (array + np.conj(np.swapaxes(array, -1, -2))) / 2
    out = np.empty_like(array)
    for one, result in zip(_matrices(array), _matrices(out), strict=True):
        try:
            result[...] = np.linalg.cholesky(one)
        except np.linalg.LinAlgError:
            result[...] = np.nan
    return [Wide(out, half)]


def _solve_units(equation: JaxEquation) -> str:
    # Of a unit diagonal, `a` is a factor packed together with another one, which has a unit.
    return f"a: {'*' if equation.params['unit_diagonal'] else 'u'}, b: v -> " + (
        "v" if equation.params["unit_diagonal"] else "v/u"
    )


@law("triangular_solve", _solve_units, rows=rows.triangular_solve, work=_cube, spread=True)
def triangular_solve(node: Node, xs: list[Wide]) -> list[Wide]:
    p = node.params
    if is_spread(xs[1]):
        raise Apart
    matrix = _triangle(xs[0], p["lower"], p["unit_diagonal"])
    a, power = np.asarray(matrix.array), xs[1].exponent - matrix.exponent
    if p["unit_diagonal"]:
        a, power = np.asarray(in_float64(matrix)), xs[1].exponent
    b, lower = np.asarray(xs[1].array), p["lower"]
    if p["transpose_a"]:
        a, lower = np.swapaxes(a, -1, -2), not lower
    if p["conjugate_a"]:
        a = np.conj(a)
    if not p["left_side"]:
        a, b, lower = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower
    x = _substitute(a, b, lower, p["unit_diagonal"])
    return [Wide(x if p["left_side"] else np.swapaxes(x, -1, -2), power)]


def _substitute(a: np.ndarray, b: np.ndarray, lower: bool, unit: bool) -> np.ndarray:
    """Forward or backward substitution; a zero on the diagonal gives infinities, no error."""
    x = np.zeros(b.shape, np.result_type(a, b))
    size = a.shape[-1]
    for i in range(size) if lower else range(size - 1, -1, -1):
        known = slice(0, i) if lower else slice(i + 1, size)
        row = b[..., i, :] - np.einsum("...k,...kn->...n", a[..., i, known], x[..., known, :])
        x[..., i, :] = row if unit else row / a[..., i, i, None]
    return x


def lu(node: Node, xs: list[Wide]) -> list[Wide]:
    import scipy.linalg

    array = np.asarray(xs[0].array)
    rows, columns = array.shape[-2:]
    out = np.empty_like(array)
    pivots = np.empty((*array.shape[:-2], min(rows, columns)), np.int32)
    flat = pivots.reshape(-1, pivots.shape[-1])
    for i, one in enumerate(_matrices(array)):
        getrf = scipy.linalg.get_lapack_funcs("getrf", (one,))
        _matrices(out)[i], flat[i], _ = getrf(one)
    packed = _packed(out, xs[0].exponent, 0)
    return [packed, Wide(pivots), Wide(permutation(pivots, rows).astype(np.int32))]


@law("qr", "a: u -> (1, u, -)", work=_cube, bound=_orthogonal)
def qr(node: Node, xs: list[Wide]) -> list[Wide]:
    array = np.asarray(xs[0].array)
    full = node.params["full_matrices"]
    if node.params.get("pivoting"):
        import scipy.linalg

        mode = "full" if full else "economic"
        found = [scipy.linalg.qr(one, mode=mode, pivoting=True) for one in _matrices(array)]
        q, r, order = (np.stack(part) for part in zip(*found, strict=True))
        batch = array.shape[:-2]
        order = order.reshape(*batch, -1).astype(dtype_of(node, 2))
        q, r = q.reshape(*batch, *q.shape[1:]), r.reshape(*batch, *r.shape[1:])
        return [Wide(q), Wide(r, xs[0].exponent), Wide(order)]
    q, r = np.linalg.qr(array, "complete" if full else "reduced")
    return [Wide(q), Wide(r, xs[0].exponent)]


@law(
    "householder_product",
    "a: *, b: 1 -> 1",
    rows=rows.at_zero,
    work=_cube,
    spread=True,
    bound=known(lambda node, a, taus: span(-INFINITY, 0.0)),
)
def householder_product(node: Node, xs: list[Wide]) -> list[Wide]:
    """The first columns of a product of reflections `1 - tau v v*`."""
    reflections = _triangle(xs[0], True, True)  # above them, there may be another factor
    a, taus = (np.asarray(in_float64(x)) for x in (reflections, xs[1]))
    rows, columns = a.shape[-2:]
    out = np.zeros_like(a)
    out[..., :, :] = np.eye(rows, columns)
    for i in range(taus.shape[-1] - 1, -1, -1):
        v = np.where(np.arange(rows) > i, a[..., :, i], 0.0)
        v[..., i] = 1.0
        along = np.einsum("...i,...ij->...j", np.conj(v), out)
        out = out - taus[..., i, None, None] * v[..., :, None] * along[..., None, :]
    return [Wide(out)]


@law("geqrf", "a: u -> (u, 1)", rows=rows.at_zero, work=_cube, bound=_orthogonal)
def geqrf(node: Node, xs: list[Wide]) -> list[Wide]:
    import scipy.linalg

    array = np.asarray(xs[0].array)
    found = [scipy.linalg.get_lapack_funcs("geqrf", (one,))(one)[:2] for one in _matrices(array)]
    packed, taus = (np.stack(part) for part in zip(*found, strict=True))
    factors = _packed(packed.reshape(array.shape), xs[0].exponent, 0)
    return [factors, Wide(taus.reshape(*array.shape[:-2], -1))]


@law("svd", "a: u -> (u, 1, 1)", work=lambda node, xs: 10 * _cube(node, xs), bound=_spectral)
def svd(node: Node, xs: list[Wide]) -> list[Wide]:
    p, power = node.params, xs[0].exponent
    if p.get("subset_by_index") is not None:
        raise NotImplementedError("svd of a subset")
    if not p["compute_uv"]:
        return [Wide(np.linalg.svd(xs[0].array, compute_uv=False), power)]
    u, s, vh = np.linalg.svd(xs[0].array, full_matrices=p["full_matrices"])
    return [Wide(s, power), Wide(u), Wide(vh)]


@law("eigh", "a: u -> (1, u)", work=lambda node, xs: 10 * _cube(node, xs), bound=_spectral)
def eigh(node: Node, xs: list[Wide]) -> list[Wide]:
    if (some := node.params.get("subset_by_index")) and some != (0, xs[0].array.shape[-1]):
        raise NotImplementedError("eigh of a subset")
    array = np.asarray(xs[0].array)
    try:
        w, v = np.linalg.eigh(array, "L" if node.params["lower"] else "U")
    except np.linalg.LinAlgError:
        w, v = np.full(array.shape[:-1], np.nan), np.full(array.shape, np.nan)
    return [Wide(v), Wide(w, xs[0].exponent)]


@law("eig", "a: u -> (u, 1, 1)", work=lambda node, xs: 30 * _cube(node, xs))
def eig(node: Node, xs: list[Wide]) -> list[Wide]:
    if node.params["compute_left_eigenvectors"]:
        raise NotImplementedError("left eigenvectors")
    w, v = np.linalg.eig(xs[0].array)
    out = [Wide(w.astype(np.complex128), xs[0].exponent)]
    return [*out, Wide(v.astype(np.complex128))][: len(node.outputs)]


@law("tridiagonal_solve", "dl: u, d: u, du: u, b: v -> v/u", work=_cube)
def tridiagonal_solve(node: Node, xs: list[Wide]) -> list[Wide]:
    (low, diagonal, high), power = align(xs[:3])
    size = diagonal.shape[-1]
    matrix = np.zeros((*np.shape(diagonal), size), np.result_type(diagonal))
    i = np.arange(size)
    matrix[..., i, i] = diagonal
    matrix[..., i[1:], i[:-1]] = low[..., 1:]
    matrix[..., i[:-1], i[1:]] = high[..., :-1]
    return [Wide(np.linalg.solve(matrix, np.asarray(xs[3].array)), xs[3].exponent - power)]


# Of their results nothing is known but that the numbers themselves are needed.
law("schur", "a: u -> (u, 1)")
law("geqp3 hessenberg tridiagonal ormqr cholesky_update", "*x: - -> -")


# -- two factors in one array (`graph/_lu.py`) ----------------------------------------------------


def _lu_bound(node: Node, records: Records) -> Records:
    a, pivots = records[0], [None] * (len(node.outputs) - 3)
    packed = a and span(-INFINITY, max(a.high + _rows_of_bits(node), 0.0))
    return [packed, *pivots, packed, packed]


def _replayed(node: Node, operands: list[Array], e: Exponents) -> list[Array]:
    packed, *pivots = _compat.bind(node.equation, operands)
    below = np.tril(np.ones(packed.shape[-2:], bool), -1)
    exponent = e.of(node.uses[0])
    whole = jnp.where(below, packed, convert(packed, exponent)) if exponent else packed
    return [whole, *pivots, packed, packed]


@law(
    _lu.NAME,
    "a: u -> (u, -, -)",
    rows=rows.factors,
    bound=_lu_bound,
    replay=_replayed,
    work=_cube,
)
def factors(node: Node, xs: list[Wide]) -> list[Wide]:
    """The two triangles; the packed array only where it is read."""
    packed, *pivots = lu(node, xs)
    triangles = np.tril(packed.array, -1), np.triu(packed.array)  # its exponent may be an array
    whole = packed if node.outputs[0].uses else Wide(np.zeros_like(packed.array))
    return [whole, *pivots, *(Wide(a, packed.exponent) for a in triangles)]


LAWS["lu"] = LAWS[_lu.NAME]  # for units: in a graph it has more results
