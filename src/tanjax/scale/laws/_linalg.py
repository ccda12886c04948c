"""Factorisations, triangular systems and Fourier transforms on numbers with an exponent.

A factorisation is homogeneous: for `A·2^s`, Cholesky's factor has exponent s/2, singular values and
eigenvalues s, orthogonal factors 0. If two factors are packed into one matrix (LU), each has its
own exponent. LAPACK runs through NumPy and SciPy; a matrix that is not positive definite gives NaN
as in JAX, and no error. If the numbers of a matrix are too far apart for one exponent:

| primitive | computation |
| --- | --- |
| Cholesky | the matrix with a diagonal of ones, by powers of two for its rows and columns |
| QR, LU | the matrix with columns of one size; LU by elimination where that is not enough |
| triangular and tridiagonal systems | elimination, each number with its exponent |
| SVD, eigenvalues | numbers below 2^-1000 of the largest as zeros: rounding errors are larger |

    >>> _packed(np.ones((2, 2)), 700, 0).exponent
    array([[701, 701],
           [  1, 701]])

Sharp edges: signs of vectors and the order of operations are LAPACK's. They may differ from those
of another backend; magnitudes do not. Elimination refuses matrices of more than 256 rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

from tanjax import _compat
from tanjax._dtype_range import normal_range
from tanjax._jaxpr_types import JaxEquation

from ..graph._graph import Exponents, Node, Value
from ..numbers._elimination import eliminate, solve_triangle
from ..numbers._interval_record import INFINITY, Record, Records, span
from ..numbers._spread import at_largest, is_spread, parts_of
from ..numbers._wide import Apart, Exponent, Numbers, Wide, align, in_float64, normalised, scaled
from . import _lu, _rows as rows, _vanish as vanish
from ._by_jax import homogeneous, in_double
from ._forms import dtype_of
from ._indexing import permutation
from ._law import LAWS, Evaluate, Many, known, law, spread_form
from ._powers_of_two import convert

# A share of the largest in a column; below it, products leave float64
# (`test_systems_in_any_units`).
_LEAST = 2.0**-500
_MOST = 256  # rows of an elimination, 0.3 s of the first call's budget


def _cube(node: Node, xs: list[Wide]) -> float:
    """Return about the work of a factorisation, at NumPy's speed."""
    shape = xs[0].array.shape
    return xs[0].array.size * shape[-1] + 50 * math.prod(shape[:-2])


def _matrices(array: Numbers) -> np.ndarray:
    return array.reshape(-1, *array.shape[-2:])


def _packed(array: np.ndarray, upper: Exponent, lower: Exponent) -> Wide:
    """Return a matrix of two triangles, the diagonal in the upper one, with an exponent each."""
    rows, columns = array.shape[-2:]
    below = np.tri(rows, columns, -1, bool)
    powers = np.where(np.broadcast_to(below, array.shape), lower, upper)
    return normalised(Wide(array, powers if np.any(upper != lower) else upper))


def _triangle(x: Wide, lower: bool, unit: bool) -> Wide:
    """Return the part of a matrix that a triangular solve reads; zeros elsewhere."""
    rows, columns = x.array.shape[-2:]
    keep = np.tri(rows, columns, -1 if unit else 0, bool)
    if not lower:
        keep = ~np.tri(rows, columns, 0 if unit else -1, bool)
    return normalised(Wide(np.where(keep, x.array, 0.0), x.exponent))


def _transposed(x: Wide) -> Wide:
    power = np.swapaxes(x.exponent, -1, -2) if is_spread(x) else x.exponent
    return Wide(np.swapaxes(x.array, -1, -2), power)


def _of_largest(*powers: int, axes: tuple[int, ...] = (-2, -1)) -> Callable[[Evaluate], Evaluate]:
    """Return a form of a rule for blocks, which runs at the largest exponent along `axes`.

    **Arguments:** `powers`: how many times this exponent each result has.
    """

    def form(rule: Evaluate) -> Evaluate:
        def run(node: Node, xs: list[Wide]) -> list[Wide]:
            if axes != (-2, -1) and node.params.get("pivoting"):  # compares the columns
                return _of_largest(*powers)(rule)(node, xs)
            array, top = at_largest(xs[0], axes)
            results = []
            for x, power in zip(rule(node, [Wide(array)]), powers, strict=False):
                more = power * (top if x.array.ndim == top.ndim else top[..., 0])
                results.append(Wide(x.array, x.exponent + more) if power else x)
            return results

        return run

    return form


def _bounds(node: Node, high: float, factors: float) -> Records:
    """Bound results of one dimension less by 2^high, the others by 2^factors."""
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
    """Return log2 of the number of rows: the expected growth of the factors of `lu`."""
    return math.log2(max(node.uses[0].value.aval.shape[-2], 1))


def _orthogonal(node: Node, records: Records) -> Records:
    if records[0] is None:
        return [None] * len(node.outputs)
    # Columns of R are as long as those of A; reflectors and Q have entries up to 1, taus up to 2.
    return _bounds(node, 1.0, max(records[0].high + _rows_of_bits(node) / 2, 0.0))


def _upper(place: int) -> Callable[[Value], Sequence[Value]]:
    """Return the upper factor, the result at `place`; the other factor has numbers up to 1."""
    return lambda value: [value] if value.node and value is value.node.outputs[place] else []


def _half(node: Node, a: Record) -> Record:
    return span(-INFINITY, a.high / 2)  # the squares of a row add up to the diagonal entry


@law(
    "cholesky",
    "a: u -> u^1/2",
    work=_cube,
    spread=True,
    bound=known(_half),
    vanish=vanish.FACTORS,
    products=lambda value: (value, value),  # make the matrix
)
def cholesky(node: Node, xs: list[Wide]) -> list[Wide]:
    fraction, powers = parts_of(xs[0])
    # No entry is larger than the root of the product of those on the diagonal beside it.
    half = np.diagonal(powers, axis1=-2, axis2=-1)[..., None] // 2
    array = scaled(fraction, powers - half - np.swapaxes(half, -1, -2))
    if node.params.get("symmetrize_input"):
        array = (array + np.conj(np.swapaxes(array, -1, -2))) / 2
    out = np.empty_like(array)
    for one, result in zip(_matrices(array), _matrices(out), strict=True):
        try:
            result[...] = np.linalg.cholesky(one)
        except np.linalg.LinAlgError:
            result[...] = np.nan
    return [Wide(out, np.broadcast_to(half, out.shape))]


def _solve_units(equation: JaxEquation) -> str:
    # With a unit diagonal, `a` is packed together with another factor, which has a unit.
    return f"a: {'*' if equation.params['unit_diagonal'] else 'u'}, b: v -> " + (
        "v" if equation.params["unit_diagonal"] else "v/u"
    )


@law("triangular_solve", _solve_units, rows=rows.triangular_solve, work=_cube, spread=True,
     vanish=vanish.SUBSTITUTION, many=Many.SOLVED)  # fmt: skip
def triangular_solve(node: Node, xs: list[Wide]) -> list[Wide]:
    p = node.params
    a, b, lower, unit = xs[0], xs[1], p["lower"], p["unit_diagonal"]
    a = _triangle(a, lower, unit)
    if p["conjugate_a"]:
        a = Wide(np.conj(a.array), a.exponent)
    if p["transpose_a"]:
        a, lower = _transposed(a), not lower
    if p["left_side"]:
        return [_solved(a, b, lower, unit)]
    return [_transposed(_solved(_transposed(a), _transposed(b), not lower, unit))]


def products_leave(
    node: Node, xs: list[Wide], x: Wide, exponents: tuple[int, int]
) -> tuple[Wide, int]:
    """Return a solution, NaN where its product with a number beside the diagonal is lost.

    A product is lost if it overflows. It is also lost if the number of the solution is flushed
    although the product counts beside the largest of the right-hand side.

    **Arguments:** `exponents`: of the right-hand side and the solution.

    **Returns:** also how many numbers are lost.
    """
    p, dtype = node.params, dtype_of(node)
    smallest, largest = normal_range(dtype)
    by_rows = p["left_side"] is p["transpose_a"]  # x_j meets row j of the matrix, or column j
    across, along = (-2, -1) if p["left_side"] else (-1, -2)
    tops = np.max(_logs(_triangle(xs[0], p["lower"], True)), -1 if by_rows else -2)
    logs = _logs(x)
    products = np.expand_dims(tops, along) + logs
    digits = jnp.finfo(dtype).nmant + 1
    counts = products > np.max(_logs(xs[1]), across, keepdims=True) - digits
    bad = (logs < smallest + exponents[1]) & counts
    bad = np.isfinite(products) & (bad | (products > largest + exponents[0]))
    if not np.any(bad):
        return x, 0
    return Wide(np.where(bad, np.nan, x.array), x.exponent), int(np.count_nonzero(bad))


def _logs(x: Wide) -> np.ndarray:
    return np.where(x.array == 0, -np.inf, np.log2(np.abs(x.array)) + x.exponent)


def _solved(a: Wide, b: Wide, lower: bool, unit: bool) -> Wide:
    if not (is_spread(a) or is_spread(b)):
        array = scaled(a.array, a.exponent) if unit else a.array
        x = _substitute(np.asarray(array), np.asarray(b.array), lower, unit)
        if np.all(np.isfinite(x)):
            return Wide(x, b.exponent if unit else b.exponent - a.exponent)
    return solve_triangle(a, b, lower, unit)


def _substitute(a: np.ndarray, b: np.ndarray, lower: bool, unit: bool) -> np.ndarray:
    """Substitute forward or backward; a zero on the diagonal gives infinities, no error."""
    x = np.zeros(b.shape, np.result_type(a, b))
    size = a.shape[-1]
    for i in range(size) if lower else range(size - 1, -1, -1):
        known = slice(0, i) if lower else slice(i + 1, size)
        row = b[..., i, :] - np.einsum("...k,...kn->...n", a[..., i, known], x[..., known, :])
        x[..., i, :] = row if unit else row / a[..., i, i, None]
    return x


def lu(node: Node, xs: list[Wide]) -> list[Wide]:
    import scipy.linalg

    array, power = xs[0].array, xs[0].exponent
    if is_spread(xs[0]):  # columns of one size have the same pivots
        array, power = at_largest(xs[0], (-2,))
        if np.any((np.abs(array) < _LEAST) & (xs[0].array != 0)):
            return _eliminated(xs[0])
    array = np.asarray(array)
    rows, columns = array.shape[-2:]
    out = np.empty_like(array)
    pivots = np.empty((*array.shape[:-2], min(rows, columns)), np.int32)
    flat = pivots.reshape(-1, pivots.shape[-1])
    for i, one in enumerate(_matrices(array)):
        getrf = scipy.linalg.get_lapack_funcs("getrf", (one,))
        _matrices(out)[i], flat[i], _ = getrf(one)
    return [_packed(out, power, 0), *_orders(pivots, rows)]


def _eliminated(x: Wide) -> list[Wide]:
    shape = x.array.shape
    if max(shape[-2:]) > _MOST:
        raise Apart
    pairs = zip(*(_matrices(a) for a in parts_of(x)), strict=True)
    found = [eliminate(Wide(*pair)) for pair in pairs]
    array, power = (
        np.stack(a).reshape(shape) for a in zip(*(w[:2] for w, _ in found), strict=True)
    )
    pivots = np.stack([pivots for _, pivots in found]).reshape(*shape[:-2], -1)
    return [Wide(array, power), *_orders(pivots, shape[-2])]


def _orders(pivots: np.ndarray, rows: int) -> list[Wide]:
    return [Wide(pivots), Wide(permutation(pivots, rows).astype(np.int32))]


@law(
    "qr",
    "a: u -> (1, u, -)",
    work=_cube,
    spread=_of_largest(0, 1, 0, axes=(-2,)),  # columns of any size have the same Q
    bound=_orthogonal,
    vanish=vanish.FACTORS,
    products=_upper(1),
)
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
    """Return the first columns of a product of reflections `1 - tau v v*`."""
    reflections = _triangle(xs[0], True, True)  # above them, there may be another factor
    a, taus = (np.asarray(in_float64(x, tiny=True)) for x in (reflections, xs[1]))
    rows, columns = a.shape[-2:]
    out = np.zeros_like(a)
    out[..., :, :] = np.eye(rows, columns)
    for i in range(taus.shape[-1] - 1, -1, -1):
        v = np.where(np.arange(rows) > i, a[..., :, i], 0.0)
        v[..., i] = 1.0
        along = np.einsum("...i,...ij->...j", np.conj(v), out)
        out = out - taus[..., i, None, None] * v[..., :, None] * along[..., None, :]
    return [Wide(out)]


@law("geqrf", "a: u -> (u, 1)", rows=rows.at_zero, work=_cube, spread=True, bound=_orthogonal,
     vanish=vanish.FACTORS)  # fmt: skip
def geqrf(node: Node, xs: list[Wide]) -> list[Wide]:
    import scipy.linalg

    array, power = at_largest(xs[0], (-2,))
    found = [scipy.linalg.get_lapack_funcs("geqrf", (one,))(one)[:2] for one in _matrices(array)]
    packed, taus = (np.stack(part) for part in zip(*found, strict=True))
    factors = _packed(packed.reshape(array.shape), power, 0)
    return [factors, Wide(taus.reshape(*array.shape[:-2], -1))]


@law("svd", "a: u -> (u, 1, 1)", work=lambda node, xs: 10 * _cube(node, xs), bound=_spectral,
     spread=_of_largest(1, 0, 0), vanish=vanish.FACTORS)  # fmt: skip
def svd(node: Node, xs: list[Wide]) -> list[Wide]:
    p, power = node.params, xs[0].exponent
    if p.get("subset_by_index") is not None:
        return homogeneous(1, 0, 0)(node, xs)
    if not p["compute_uv"]:
        return [Wide(np.linalg.svd(xs[0].array, compute_uv=False), power)]
    u, s, vh = np.linalg.svd(xs[0].array, full_matrices=p["full_matrices"])
    return [Wide(s, power), Wide(u), Wide(vh)]


@law("eigh", "a: u -> (1, u)", work=lambda node, xs: 10 * _cube(node, xs), bound=_spectral,
     spread=_of_largest(0, 1), vanish=vanish.FACTORS)  # fmt: skip
def eigh(node: Node, xs: list[Wide]) -> list[Wide]:
    if (some := node.params.get("subset_by_index")) and some != (0, xs[0].array.shape[-1]):
        return homogeneous(0, 1)(node, xs)
    array = np.asarray(xs[0].array)
    try:
        w, v = np.linalg.eigh(array, "L" if node.params["lower"] else "U")
    except np.linalg.LinAlgError:
        w, v = np.full(array.shape[:-1], np.nan), np.full(array.shape, np.nan)
    return [Wide(v), Wide(w, xs[0].exponent)]


@law("eig", "a: u -> (u, 1, 1)", work=lambda node, xs: 30 * _cube(node, xs),
     spread=_of_largest(1, 0, 0), eigenvalues=True)  # fmt: skip
def eig(node: Node, xs: list[Wide]) -> list[Wide]:
    if node.params["compute_left_eigenvectors"]:
        return homogeneous(1, 0, 0)(node, xs)
    w, v = np.linalg.eig(xs[0].array)
    out = [Wide(w.astype(np.complex128), xs[0].exponent)]
    return [*out, Wide(v.astype(np.complex128))][: len(node.outputs)]


def _of_diagonals(low: Numbers, diagonal: Numbers, high: Numbers) -> np.ndarray:
    size = diagonal.shape[-1]
    matrix = np.zeros((*np.shape(diagonal), size), np.result_type(diagonal))
    i = np.arange(size)
    matrix[..., i, i] = diagonal
    matrix[..., i[1:], i[:-1]] = low[..., 1:]
    matrix[..., i[:-1], i[1:]] = high[..., :-1]
    return matrix


@law("tridiagonal_solve", "dl: u, d: u, du: u, b: v -> v/u", work=_cube)
def tridiagonal_solve(node: Node, xs: list[Wide]) -> list[Wide]:
    diagonals, power = align(xs[:3])
    matrix = _of_diagonals(*diagonals)
    return [Wide(np.linalg.solve(matrix, np.asarray(xs[3].array)), xs[3].exponent - power)]


@spread_form("tridiagonal_solve")
def _tridiagonal_apart(node: Node, xs: list[Wide]) -> list[Wide]:
    fractions, powers = zip(*map(parts_of, xs[:3]), strict=True)
    matrix = Wide(_of_diagonals(*fractions), _of_diagonals(*powers))
    packed, _, order = _eliminated(matrix)
    rows = np.asarray(order.array)[..., None]
    fraction, power = (np.take_along_axis(a, rows, -2) for a in parts_of(xs[3]))
    y = solve_triangle(_triangle(packed, True, True), Wide(fraction, power), lower=True, unit=True)
    return [solve_triangle(_triangle(packed, False, False), y, lower=False, unit=False)]


law("schur", "a: u -> (u, 1)", work=_cube, evaluate=homogeneous(1, 0), spread=_of_largest(1, 0))
law("geqp3 hessenberg tridiagonal ormqr cholesky_update", "*x: - -> -", work=_cube, spread=True,
    evaluate=in_double)  # fmt: skip


# -- two factors in one array (`_lu.py`) ----------------------------------------------------------


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
    spread=True,
    vanish=vanish.FACTORS,
    products=_upper(-1),
)
def factors(node: Node, xs: list[Wide]) -> list[Wide]:
    """Return the two triangles, and the packed array only where it is read."""
    packed, *pivots = lu(node, xs)
    triangles = np.tril(packed.array, -1), np.triu(packed.array)  # its exponent may be an array
    whole = packed if node.outputs[0].uses else Wide(np.zeros_like(packed.array))
    return [whole, *pivots, *(Wide(a, packed.exponent) for a in triangles)]


LAWS["lu"] = LAWS[_lu.NAME]  # for units: in a graph it has more results
