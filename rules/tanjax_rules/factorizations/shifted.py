r"""Kronecker products and sums plus a multiple of the identity, by the eigenvectors of the factors.

With $K_i = V_i \Lambda_i V_i^H$ is $\bigotimes K_i + c I = V(\bigotimes \Lambda_i + c)V^H$, where
$V = \bigotimes V_i$ is never formed: $O(\sum n_i^3 + n \sum n_i)$ for a system of $n = \prod n_i$
equations; so it is of a Kronecker sum, with sums of the eigenvalues. $\bigotimes K_i + \bigotimes
D_i$ with diagonal $D_i$, each of one sign $\sigma_i$, is $S(\bigotimes \tilde K_i + \sigma I)S$,
$S = \bigotimes |D_i|^{1/2}$, $\tilde K_i = |D_i|^{-1/2} K_i |D_i|^{-1/2}$. With a complex $c$ the
matrix is not Hermitian, and has no root. The terms must say what they are: the multiple of the
identity is `c * tj.Identity(n)`; for a `Diagonal` that is no Kronecker product no such form exists.

A function $F = V f(\Lambda) V^H$ moves with one factor by divided differences. For the eigenvalues
$\lambda_{oi}$, with $o$ for all other factors, it is $V (g_o f[\lambda_{oi}, \lambda_{oj}]
(V_k^H \dot K_k V_k)_{ij}) V^H$, where $g_o$ is the factor from all others. No quotient has a gap
between eigenvalues as its divisor.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree, Shaped

import tanjax as tj
from tanjax.kernels import exported
from tanjax.typing import Columns, Function, Natural, Pullback, Scalar, SquareMatrix, Vector

from ..shapes import columns_at_once
from .eigh import outer, outer_sum
from .factorize import defined, factorize_dense
from .gauge import composed

if TYPE_CHECKING:
    from tanjax.testing import Case

SquareSum = Shaped[tj.tangents.Sum | tj.KroneckerSum, "n n"]


@exported
class Shifted(NamedTuple):
    """`product + shift I`, with Hermitian factors."""

    product: tj.Kronecker | tj.KroneckerSum
    shift: Scalar

    @property
    def T(self) -> Shifted:
        return self._replace(product=self.product.mT)

    def times(self, x: Natural) -> Natural:
        return self.product @ x + self.shift.astype(x.dtype) * x


@exported
class Spectra(NamedTuple):
    """The eigenvalues and eigenvectors of each factor."""

    values: tuple[Vector, ...]
    vectors: tuple[SquareMatrix, ...]


# -- sums with this form ---------------------------------------------------------------------------


def shifted(a: SquareSum) -> tuple[Shifted, Vector | None] | None:
    """Return `(m, s)` with `a = S m S`, `s` the diagonal of `S` (`None` for ones), else `None`."""
    terms = list(_flat(a))
    shifts = [c for t in terms if (c := _multiple(t)) is not None]
    rest = [t for t in terms if _multiple(t) is None]
    shift = sum(shifts[1:], shifts[0]) if shifts else jnp.zeros((), a.dtype)
    if not all(map(_is_hermitian, rest)):
        return None
    if len(rest) == 1 and isinstance(rest[0], tj.Kronecker | tj.KroneckerSum):
        return Shifted(rest[0], shift), None
    if not rest or not all(map(functools.partial(_alike, rest[0]), rest)):
        return None
    if (product := _kronecker_sum(rest)) is not None:
        return Shifted(product, shift), None
    return _scaled_by_diagonals(*rest) if len(rest) == 2 and not shifts else None


def _flat(a: Natural) -> Iterator[Natural]:
    if not isinstance(a, tj.tangents.Sum):
        yield a
        return
    for term in a.terms:
        yield from _flat(term)


def _multiple(a: Natural) -> Scalar | None:
    """Return `c` of `c I`, if the type has it."""
    if isinstance(a, tj.Identity):
        return jnp.ones((), a.dtype)
    if isinstance(a, tj.Scaled) and (inner := _multiple(a.matrix)) is not None:
        return a.factor * inner
    return None


def _is_hermitian(a: Natural) -> bool:
    return tj.rules.is_structured(a) and a.is_hermitian


def _alike(a: Natural, b: Natural) -> bool:
    """True if both are Kronecker products with factors of the same sizes."""
    both = isinstance(a, tj.Kronecker) and isinstance(b, tj.Kronecker)
    return both and [f.shape for f in a.factors] == [f.shape for f in b.factors]


def _kronecker_sum(terms: Sequence[tj.Kronecker]) -> tj.KroneckerSum | None:
    """Return the Kronecker sum of Kronecker products of one factor and identities."""
    parts: dict[int, SquareMatrix] = {}
    for term in terms:
        multiples = [_multiple(f) for f in term.factors]
        places = [i for i, c in enumerate(multiples) if c is None] or [0]
        if len(places) > 1:
            return None
        (i,) = places
        one = term.factors[i]
        for c in (*multiples[:i], *multiples[i + 1 :]):
            one = tj.linalg.multiply(one, c)
        parts[i] = tj.linalg.add(parts[i], one) if i in parts else one
    zero = lambda f: tj.Diagonal(jnp.zeros(f.shape[0], f.dtype))
    return tj.KroneckerSum(*(parts.get(i, zero(f)) for i, f in enumerate(terms[0].factors)))


def _scaled_by_diagonals(a: tj.Kronecker, b: tj.Kronecker) -> tuple[Shifted, Vector] | None:
    """Return `a + b` as a scaled sum, if one has diagonal factors, each of one sign."""
    for product, noise in ((a, b), (b, a)):
        if all(isinstance(f, tj.Diagonal) or _multiple(f) is not None for f in noise.factors):
            diagonals = [jnp.real(f.diagonal()) for f in noise.factors]
            signs = [jnp.sign(jnp.sum(d)) for d in diagonals]
            roots = [jnp.sqrt(d * sign) for d, sign in zip(diagonals, signs, strict=True)]
            factors = map(_divided, product.factors, roots)
            return Shifted(tj.Kronecker(*factors), math.prod(signs)), outer(roots)
    return None


def _divided(a: SquareMatrix, root: Vector) -> SquareMatrix:
    """Return `a` with its rows and columns divided by the entries of a vector."""
    if isinstance(a, tj.Diagonal | tj.Identity):
        return tj.Diagonal(a.diagonal() / root**2)
    dense = tj.destructure(a) / root / root[:, None]
    return tj.Hermitian(dense) if jnp.iscomplexobj(dense) else tj.Symmetric(dense)


# -- eigenvalues and eigenvectors ------------------------------------------------------------------


def _spectra(m: Shifted) -> Spectra:
    """Decompose each factor; eigenvectors are constants, as first derivatives do not need them."""
    return Spectra(*zip(*map(_eigen, m.product.factors), strict=True))


def _eigen(a: Natural) -> tuple[Vector, SquareMatrix]:
    if isinstance(a, tj.Symmetric | tj.Hermitian):
        return _eigen_of_full(a.data)
    found = tj.linalg.eigh(a, invariant=True)
    return found.eigenvalues, jax.tree.map(lax.stop_gradient, found.eigenvectors)


@tj.rules.custom_jvp
def _eigen_of_full(a: SquareMatrix) -> tuple[Natural, Natural]:
    return tuple(tj.linalg.eigh(a, invariant=True))


@_eigen_of_full.defjvp
def _eigen_of_full_jvp(
    primals: tuple[SquareMatrix], tangents: tuple[SquareMatrix]
) -> tuple[tuple[Natural, Natural], tuple[Natural, Natural]]:
    w, v = tj.linalg.eigh(
        *primals
    )  # for equal eigenvalues the second derivative is nan, as required
    moved = tangents[0] @ v
    return (w, v), (jnp.real(jnp.sum(v.conj() * moved, axis=-2)), jnp.zeros_like(v))


def _values(m: Shifted, spectra: Spectra) -> Vector:
    """Return the eigenvalues of the whole."""
    if isinstance(m.product, tj.Kronecker):
        return outer(spectra.values) + m.shift
    return outer_sum(spectra.values) + m.shift


def _vectors(spectra: Spectra) -> tj.Kronecker:
    return tj.Kronecker(*spectra.vectors)


# -- results from them -----------------------------------------------------------------------------


def _solve(matrix: PyTree, parts: Spectra, b: Natural, transposed: bool) -> Natural:
    """Return `V (Λ + c)⁻¹ Vᴴ b`, or with the conjugate of `V`; differentiated by the matrix."""
    m, scale = matrix
    values, v = lax.stop_gradient(_values(m, parts)), _vectors(parts)

    def by_vectors(y: Natural, conjugate: bool) -> Natural:
        u = v.conj() if conjugate else v
        return u @ ((u.conj().mT @ y) / values[:, None])

    def at_once(y: Natural) -> Natural:
        y = y.astype(jnp.result_type(values, v.dtype, y))
        return lax.custom_linear_solve(
            (m.T if transposed else m).times,
            y,
            lambda _, r: by_vectors(r, transposed),
            lambda _, r: by_vectors(r, not transposed),
        )

    return _between(scale, functools.partial(columns_at_once, at_once), b)


def _between(scale: Vector | None, function: Function, b: Natural) -> Natural:
    """Return `S⁻¹ function(S⁻¹ b)`."""
    if scale is None:
        return function(b)
    return function(b / scale[:, None]) / scale[:, None]


def _slogdet(matrix: PyTree, parts: Spectra) -> tuple[Scalar, Scalar]:
    m, scale = matrix
    values = _values(m, parts)
    size = jnp.abs(values)
    safe = jnp.where(size == 0, jnp.ones_like(size), size)
    sign, logarithm = jnp.prod(values / safe.astype(values.dtype)), jnp.sum(jnp.log(size))
    return sign, logarithm if scale is None else logarithm + 2 * jnp.sum(jnp.log(scale))


def _inv_quad(matrix: PyTree, parts: Spectra, b: Natural) -> Natural:
    m, scale = matrix
    b = b if scale is None else b / scale[:, None]
    dtype = jnp.result_type(*jax.tree.leaves((m, parts)), b)
    return _paired_solution(m, parts, b.astype(dtype))


@tj.rules.custom_jvp
def _paired_solution(m: Shifted, parts: Spectra, b: Natural) -> Natural:
    """Return `bᴴ a⁻¹ b`; its derivative uses the same solution."""
    return _dot(b, _solve((m, None), parts, b, False))


@_paired_solution.defjvp
def _paired_solution_jvp(
    primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]
) -> tuple[Natural, Natural]:
    (m, parts, b), (m_dot, _, b_dot) = primals, tangents
    x = _solve((m, None), parts, b, False)
    moved = jax.jvp(lambda a: a.times(x), (m,), (m_dot,))[1]
    return _dot(b, x), _dot(x, b_dot) + _dot(b_dot, x) - _dot(x, moved)


def _dot(x: Natural, y: Natural) -> Natural:
    return jnp.sum(x.conj() * y, axis=(-2, -1))


def _root(matrix: PyTree, parts: Spectra, z: Natural, adjoint: bool) -> Natural:
    """Apply the Hermitian root of the matrix between the two factors `S`, and `S`."""
    m, scale = matrix
    z = z.astype(jnp.result_type(*jax.tree.leaves((m, parts)), z))
    times = functools.partial(columns_at_once, lambda y: _root_times(m, parts, y))
    if scale is None:
        return times(z)
    return times(scale[:, None] * z) if adjoint else scale[:, None] * times(z)


@tj.rules.custom_jvp
def _root_times(m: Shifted, parts: Spectra, z: Columns) -> Columns:
    return _by_values(jnp.sqrt(_values(m, parts)), _vectors(parts), z)


def _by_values(values: Vector, v: tj.Kronecker, z: Columns) -> Columns:
    return v @ (values[:, None] * (v.conj().mT @ z))


@_root_times.defjvp
def _root_times_jvp(
    primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]
) -> tuple[Columns, Columns]:
    (m, _, z), (m_dot, _, z_dot) = primals, tangents
    live = _live(m)  # for second derivatives
    v, root = _vectors(live), jnp.sqrt(_values(m, live))
    inner = v.conj().mT @ z
    quotient = lambda x, y: 1 / (jnp.sqrt(x) + jnp.sqrt(y))
    moved = m_dot.shift.astype(root.dtype) * inner / (2 * root[:, None])
    for k, along in enumerate(_moved(m, m_dot, live, quotient)):
        rows = _by_others(inner, m, k)
        moved = moved + _from_others(along(lambda p, w: p @ w, rows), m, k)
    return _by_values(root, v, z), _by_values(root, v, z_dot) + v @ moved


def _inverse_diagonal(matrix: PyTree, parts: Spectra) -> Vector:
    m, scale = matrix
    found = _inverse_diagonal_between(m, parts)
    return found if scale is None else found / scale**2


@tj.rules.custom_jvp
def _inverse_diagonal_between(m: Shifted, parts: Spectra) -> Vector:
    return _squares(parts.vectors) @ (1 / _values(m, parts))


def _squares(vectors: Sequence[SquareMatrix]) -> tj.Kronecker:
    """Return the squared sizes of the entries of eigenvectors."""
    return tj.Kronecker(*(jnp.abs(tj.destructure(v)) ** 2 for v in vectors))


@_inverse_diagonal_between.defjvp
def _inverse_diagonal_jvp(
    primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]
) -> tuple[Vector, Vector]:
    (m, _), (m_dot, _) = primals, tangents
    live = _live(m)
    values, squares = _values(m, live), _squares(live.vectors)
    moved = squares @ (-m_dot.shift / values**2)
    for k, along in enumerate(_moved(m, m_dot, live, lambda x, y: -1 / (x * y))):
        v = live.vectors[k]
        rows = along(lambda p, _, v=v: tj.linalg.diagonal(v @ p @ v.conj().mT)[:, None], None)
        rows = rows if jnp.iscomplexobj(values) else jnp.real(rows)
        beside = [*squares.factors]
        beside[k] = tj.Identity(v.shape[0], values.dtype)
        moved = moved + tj.Kronecker(*beside) @ _from_others(rows, m, k)[:, 0]
    return squares @ (1 / values), moved


# -- the derivative of a function by one factor ----------------------------------------------------


def _live(m: Shifted) -> Spectra:
    """Return eigenvectors that second derivatives see."""
    return Spectra(*zip(*map(tj.linalg.eigh, m.product.factors), strict=True))


def _moved(
    m: Shifted, m_dot: Shifted, spectra: Spectra, differences: Callable[[Array, Array], Array]
) -> Iterator[Callable[[Function, Natural | None], Natural]]:
    """Yield for each factor a map: `function(g_o f[λ_oi, λ_oj] (Vᴴ K̇ V)_ij, rows_o)` for every `o`.

    It handles as many `o` at a time as take the memory of a vector of the whole.
    """
    values = _values(m, spectra)[:, None]
    pairs = zip(m.product.factors, m_dot.product.factors, spectra.vectors, strict=True)
    for k, (factor, factor_dot, v) in enumerate(pairs):
        inner = v.conj().mT @ jax.jvp(lambda f, v=v: f @ v, (factor,), (factor_dot,))[1]
        at = _by_others(values, m, k)[..., 0]
        if isinstance(m.product, tj.Kronecker):
            weights = outer(w for i, w in enumerate(spectra.values) if i != k)
        else:
            weights = jnp.ones(at.shape[0], at.dtype)
        many = max(1, at.shape[0] // max(at.shape[1], 1))

        def along(
            function: Function,
            rows: Natural | None,
            inner: Natural = inner,
            at: Natural = at,
            weights: Natural = weights,
            many: int = many,
        ) -> Natural:
            @jax.checkpoint
            def one(given: PyTree) -> Natural:
                x, g, w = given
                if isinstance(inner, tj.Diagonal):
                    return function(tj.Diagonal(g * differences(x, x) * inner.diag), w)
                return function(g * differences(x[:, None], x[None, :]) * tj.destructure(inner), w)

            return lax.map(one, (at, weights, rows), batch_size=many)

        yield along


def _by_others(x: Columns, m: Shifted, k: int) -> Shaped[Array, "o i c"]:
    """Return rows of the whole as rows of factor `k`, for each index of all others."""
    sizes = [f.shape[0] for f in m.product.factors]
    moved = jnp.moveaxis(x.reshape(*sizes, x.shape[-1]), k, -2)
    return moved.reshape(x.shape[0] // max(sizes[k], 1), sizes[k], x.shape[-1])


def _from_others(x: Shaped[Array, "o i c"], m: Shifted, k: int) -> Columns:
    """Invert `_by_others`."""
    sizes = [f.shape[0] for f in m.product.factors]
    beside = sizes[:k] + sizes[k + 1 :]
    moved = jnp.moveaxis(x.reshape(*beside, sizes[k], x.shape[-1]), -2, k)
    return moved.reshape(x.shape[0] * x.shape[1], x.shape[-1])


# -- the factorization -----------------------------------------------------------------------------

_PLAN = tj.linalg.FactorizationPlan(
    _solve, _slogdet, _root, inv_quad=_inv_quad, diagonal_of_inverse=_inverse_diagonal
)
_WITHOUT_ROOT = tj.linalg.FactorizationPlan(_solve, _slogdet, diagonal_of_inverse=_inverse_diagonal)
HINT = (
    "write a multiple of the identity as `c * tj.Identity(n)`, with factors of types that are "
    "Hermitian, such as `tj.Symmetric(factor.to_dense())` of a Toeplitz factor; or give a `solver`"
)


@tj.factorize.implementation(tj.tangents.Sum, differentiate=True)
@tj.factorize.implementation(tj.KroneckerSum, differentiate=True)
def factorize_sum(a: SquareSum) -> tj.linalg.Factorization:
    """Factorise; eigenvalues carry the derivative of the determinant, eigenvectors are constants.

    The determinant is the same for equal eigenvalues and independent of the vectors: `invariant`.
    """
    found = shifted(a)
    if found is None:
        return factorize_dense(tj.rules.densified(a, "factorize", HINT))
    plan = _WITHOUT_ROOT if jnp.iscomplexobj(found[0].shift) else _PLAN
    return tj.linalg.Factorization(found, _spectra(found[0]), plan, a.shape[0])


# -- rules -----------------------------------------------------------------------------------------


@tj.solve.implementation(tj.tangents.Sum, tj.Dense)
@tj.solve.implementation(tj.KroneckerSum, tj.Dense)
def solve_sum(a: SquareSum, b: Columns) -> Columns:
    if shifted(a) is None:
        return tj.solve.primal(tj.rules.densified(a, "solve", HINT), b)
    return tj.factorize(a).solve(b)


@tj.solve.natural_rule(tj.tangents.Sum, tj.Dense)
@tj.solve.natural_rule(tj.KroneckerSum, tj.Dense)
def solve_sum_rule(a: SquareSum, b: Columns) -> tuple[Columns, Pullback]:
    """The rule of any matrix, with one eigendecomposition for both directions."""
    f = tj.factorize(a)
    x = f.solve(b)

    def solve_sum_pullback(x_bar: Columns) -> tuple[SquareMatrix, Columns]:
        w = f.solve(x_bar, transposed=True)
        return tj.Outer(-w, x), w

    return x, solve_sum_pullback


@tj.logdet.implementation(tj.tangents.Sum, differentiate=True)
@tj.logdet.implementation(tj.KroneckerSum, differentiate=True)
def logdet_sum(a: SquareSum) -> Scalar:
    if shifted(a) is None:
        return tj.logdet(tj.rules.densified(a, "logdet", HINT))
    return tj.factorize(a).logdet()


@tj.linalg.slogdet.implementation(tj.tangents.Sum, differentiate=True)
@tj.linalg.slogdet.implementation(tj.KroneckerSum, differentiate=True)
def slogdet_sum(a: SquareSum) -> tj.linalg.SlogdetResult:
    if shifted(a) is None:
        return tj.linalg.slogdet(tj.rules.densified(a, "slogdet", HINT))
    return tj.factorize(a).slogdet()


@tj.linalg.eigh.implementation(tj.tangents.Sum, differentiate=True)
def eigh_sum(a: Shaped[tj.tangents.Sum, "n n"], *, invariant: bool = False) -> tj.linalg.EighResult:
    found = shifted(a)
    if found is None or found[1] is not None:
        return tj.linalg.eigh(tj.rules.densified(a, "eigh", HINT), invariant=invariant)
    values, vectors = tj.linalg.eigh(found[0].product, invariant=invariant)
    return tj.linalg.EighResult(values + found[0].shift, vectors)


@tj.linalg.eigvalsh.implementation(tj.tangents.Sum, differentiate=True)
def eigvalsh_sum(a: Shaped[tj.tangents.Sum, "n n"]) -> Vector:
    found = shifted(a)
    if found is None or found[1] is not None:
        return tj.linalg.eigvalsh(tj.rules.densified(a, "eigvalsh", HINT))
    return tj.linalg.eigvalsh(found[0].product) + found[0].shift


# -- cases -----------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Real and complex factors, nested sums, one system and several."""
    from tanjax.testing import Case, Samples

    s = Samples(17)
    real = tj.Kronecker(tj.Symmetric(s.definite(2)), tj.Symmetric(s.definite(2)))
    mixed = tj.Kronecker(tj.Hermitian(s.definite(2, complex=True)), tj.Diagonal(s.positive(2)))
    shift = tj.Scaled(tj.Identity(4), s.positive())
    one, two = (
        tj.tangents.Sum(real, shift),
        tj.tangents.Sum(tj.tangents.Sum(tj.Identity(4), mixed), shift),
    )
    noise = tj.tangents.Sum(
        real, tj.Kronecker(tj.Diagonal(s.positive(2)), tj.Diagonal(s.positive(2)))
    )
    laplacian = tj.KroneckerSum(tj.Symmetric(s.definite(2)), tj.Diagonal(s.positive(2)))
    yield Case(tj.solve, one, s.normal(4))
    yield Case(tj.solve, two, s.complex(4, 2))
    yield Case(tj.solve, laplacian, s.normal(4))
    yield composed(Case(tj.logdet, one))
    yield composed(Case(tj.linalg.slogdet, two))
    for a in (one, noise, laplacian):
        yield composed(Case(tj.linalg.inv_quad_logdet, a, s.normal(4)).declare(reference=defined))
