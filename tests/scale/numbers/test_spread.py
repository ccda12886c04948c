"""Numbers too far apart for one exponent: every rule against NumPy's long doubles.

A long double of x86-64 reaches from 2^-16382 to 2^16384, so that NumPy's function of the same name
says what is right, and nothing of the library is used for it.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax import lax
from jax.scipy import special

from tanjax import _compat
from tanjax.scale.graph._build import build
from tanjax.scale.laws._law import LAWS
from tanjax.scale.magnitudes._evaluate import evaluate
from tanjax.scale.numbers._wide import Wide, normalised

pytestmark = pytest.mark.skipif(
    np.finfo(np.longdouble).maxexp < 16384, reason="long doubles have the range of doubles here"
)

POWERS = np.array([[-2500, -600, 0, 40], [900, 3, 3000, -1100], [0, 2, 1, -70]])
FRACTIONS = np.array([[0.7, 0.9, 0.6, -0.8], [0.55, -0.51, 0.75, 0.95], [-0.5, 0.5, 0.99, 0.75]])
X = Wide(FRACTIONS, POWERS)
Y = Wide(FRACTIONS[::-1], POWERS[:, ::-1] + np.array([[7], [-3], [1]]))
P = Wide(np.abs(FRACTIONS), POWERS)
Q = Wide(np.abs(FRACTIONS[::-1]), POWERS[:, ::-1] // 2)
T = Wide(np.array([-1e4, -800.0, -50.0, -1e-3, 0.0, 1e-9, 2.0, 30.0, 650.0, 711.0, 1e4]))
SMALL = normalised(Wide(np.array([1e-300, 0.3, -0.9, 1e-5]), np.array([-3000, 0, 0, -40])))
PLACES, INDEX = np.array([[0], [2], [1]]), np.array([0, 2, 2])


def exactly(x):
    """A `Wide` as long doubles."""
    parts = np.real(x.array), np.imag(x.array)
    real, imaginary = (np.ldexp(np.asarray(p, np.longdouble), x.exponent) for p in parts)
    return real + 1j * imaginary if np.iscomplexobj(x.array) else real


def by_two(f, start):
    return lambda x: lax.reduce_window(x, start, f, (1, 2), (1, 1), "VALID")


def conv(a, b):
    return lax.conv_general_dilated(a[:, None], b[None, None], (1,), "VALID")[:, 0]


def scattered(x, u, *functions):
    """What functions of NumPy make of rows 0, 2 and 2 of `x` and the rows of `u`."""
    for f in functions:
        out = x.copy()
        f.at(out, INDEX, u)
        yield out


def rounded(x):
    """To 20 bits of mantissa after the first."""
    mantissa, power = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(mantissa, 21)), power - 21)


def by_float(f, slope):
    """A function of SciPy that is linear at zero."""
    return lambda x: np.where(abs(x) < 1e-18, x * np.longdouble(slope), f(x.astype(float)))


def pooled_gradient(x, y):
    out = np.zeros_like(x)
    for i, j in np.ndindex(y.shape):
        out[i, j + (x[i, j + 1] > x[i, j])] += y[i, j]
    return out


def horner(x):
    c = np.ones(4, np.longdouble)
    for i in range(5):
        c = c * x[i % 3] + 1
    return c


def doubled(c):
    while c < 10**9:
        c = c * c * 2
    return c


def of_special(m, x):
    return (
        *(m.i0e(x), m.i1e(x), m.zeta(2 + x, 2.0), m.polygamma(1, x)),
        *(m.gammainc(2.0, x), m.gammaincc(2.0, x), m.betainc(2.0, 3.0, x)),
    )


# Functions of a namespace, `jnp` or `np`, and of operands.
ALIKE = {
    "arithmetic": (
        lambda n, x, y: (x + y, x - y, x * y, x / y, x * 3.0, n.square(x), -x, abs(x), n.sign(x)),
        *(X, Y),
    ),
    "powers": (
        lambda n, x, y: (*(x**k for k in (2, 5, -1, -4)), y**101, y**-12),
        *(X, Wide(FRACTIONS, POWERS // 50)),
    ),
    "polynomial": (lambda n, x: n.polyval(n.array([2.0, -3.0, 0.5]), x), X),
    "roots": (lambda n, x: (n.sqrt(x), n.cbrt(x), x**2.5, x**-0.3, x**0.0), P),
    "pow of many": (lambda n, x: n.power(x, n.array([[3.0, 0.25, -2.0, 10.0]] * 3)), P),
    "order": (
        lambda n, x, y: (n.maximum(x, y), n.minimum(x, y), n.fmod(x, y), n.where(x > y, x, y)),
        *(X, Y),
    ),
    "comparison": (
        lambda n, x, y: (x < y, x <= y, x > y, x >= y, x == x * 1.0, x != y, n.isfinite(x)),
        *(X, Y),
    ),
    "rounding": (lambda n, x: (n.floor(x), n.ceil(x), n.round(x)), X),
    "exp": (
        lambda n, x: (
            *(n.exp(x), n.exp2(x), n.expm1(x), 1 / (1 + n.exp(x)), n.tanh(1 + n.exp(x))),
            *(n.sinh(x), n.cosh(x), n.log(n.cosh(x) + 1)),
        ),
        T,
    ),
    "log": (lambda n, x: (n.log(x), n.log2(x), n.log1p(x), n.arcsinh(x)), P),
    "acosh": (lambda n, x: n.arccosh(1 + x), Wide(np.ones(3), np.array([0, 700, 3000]))),
    "odd": (
        lambda n, x: (n.sin(x), n.tan(x), n.arctan(x), n.arcsin(x), n.arctanh(x)),
        SMALL,
    ),
    "even": (lambda n, x: (n.cos(x), n.arccos(x)), SMALL),
    "tanh": (lambda n, x: n.tanh(x), X),
    "atan2": (lambda n, y, x: (n.arctan2(y, x), n.arctan2(y, abs(y))), X, Q),
    "shapes": (
        lambda n, x, y: (
            *(x.T, x.reshape(2, 6), x[::-1], x[:, 1:], n.squeeze(x[:1]), x[None]),
            *(n.concatenate([x, y], 1), n.stack([x, y]), n.tile(x, (2, 1)), *n.split(x, 2, 1)),
            *(n.broadcast_to(x, (2, 3, 4)), n.pad(x, ((1, 0), (0, 2)), constant_values=3.0)),
            *(x[INDEX, INDEX + 1], n.take_along_axis(x, PLACES, 1)),
        ),
        *(X, Y),
    ),
    "sorting": (
        lambda n, x: (
            *(n.sort(x, 1), n.argsort(x.ravel()), n.argmax(x, 1), n.argmin(x, 0)),
            *(n.max(x, 0), n.min(x)),
        ),
        X,
    ),
    "sums": (
        lambda n, x: (
            *(n.sum(x), n.sum(x, 1), n.sum(x, 0), n.cumsum(x, 1), n.mean(x, 1), n.trace(x)),
            *(n.prod(x), n.prod(x, 1), n.cumprod(x, 1)),
        ),
        P,
    ),
    "contractions": (
        lambda n, x, y: (
            *(x @ y.T, x[0] @ y[1], n.einsum("ij,ij->i", x, y), n.outer(x[1], y[0])),
            *(n.einsum("ij,kj->kji", x, y), x.T @ n.ones(3), n.sum(x @ y.T) - n.sum(x)),
        ),
        *(P, Q),
    ),
    "parts": (
        lambda n, x: (
            *(*n.frexp(x), n.ldexp(x, n.array([[3, -2000, 900, 0]] * 3))),
            n.ldexp(x, 5) / x,
        ),
        X,
    ),
}
# A function of JAX's arrays, the same on long doubles, and operands.
OTHERS = {
    "rsqrt": (lax.rsqrt, lambda x: 1 / np.sqrt(x), P),
    "logistic": (lax.logistic, lambda x: 1 / (1 + np.exp(-x)), T),
    "clamp": (
        lambda x, y: lax.clamp(-abs(y), x, abs(y)),
        lambda x, y: np.clip(x, -abs(y), abs(y)),
        *(X, Y),
    ),
    "total order": (
        lambda x, y: (lax.lt_to_p.bind(x, y), lax.le_to_p.bind(x, x), lax.eq_to_p.bind(x, y)),
        lambda x, y: (x < y, x <= x, x == y),
        *(X, Y),
    ),
    "selection": (
        lambda x, y: lax.select_n(jnp.array([[0, 1, 2, 1]] * 3, "i4"), x, y, x * y),
        lambda x, y: np.choose([[0, 1, 2, 1]] * 3, [x, y, x * y]),
        *(X, Y),
    ),
    "conversion": (
        lambda x: (
            *(x.astype("i4"), x.astype(bool), x.astype("f4"), x.astype("c16").real),
            jnp.imag(lax.complex(x, x)),
        ),
        lambda x: (np.trunc(np.clip(x, -(2**31), 2**31 - 1)), x != 0, x, x, x),
        X,
    ),
    "precision": (lambda x: lax.reduce_precision(x, 11, 20), rounded, X),
    "erf": (
        lambda x: (special.erf(x), lax.erf_inv(x)),
        lambda x: (
            by_float(scipy.special.erf, 2 / np.sqrt(np.pi))(x),
            by_float(scipy.special.erfinv, np.sqrt(np.pi) / 2)(x),
        ),
        SMALL,
    ),
    "erfc": (
        special.erfc,
        lambda x: scipy.special.erfcx(x.astype(float)) * np.exp(-x * x),
        Wide(np.array([-3.0, 0.5, 5.0, 25.7, 30.0, 100.0])),
    ),
    "gamma": (
        lambda x: (special.gammaln(x), special.digamma(x)),
        lambda x: (
            [-np.log(x[0]), np.log(np.longdouble(24)), x[2] * (np.log(x[2]) - 1)],
            [-1 / x[0], scipy.special.digamma(5.0), np.log(x[2])],
        ),
        Wide(np.array([0.5, 0.625, 0.5]), np.array([-3000, 3, 4000])),
    ),
    "pieces": (
        lambda x: (lax.stop_gradient(x), *jnp.unstack(x), *lax.split(x, (1, 2), 0)),
        lambda x: (x, *x, x[:1], x[1:]),
        X,
    ),
    "tile": (
        lambda x: lax.tile(x, (2, 1)) if hasattr(lax, "tile") else jnp.tile(x, (2, 1)),
        lambda x: np.tile(x, (2, 1)),
        X,
    ),
    "slices": (
        lambda x, y: (
            lax.dynamic_slice(x, (1, 2), (2, 2)),
            lax.dynamic_update_slice(x, y[:2, :2], (1, 2)),
            x.at[jnp.array([0, 7])].get(mode="fill", fill_value=5.0),
        ),
        lambda x, y: (
            x[1:, 2:],
            np.block([[x[:1]], [x[1:, :2], y[:2, :2]]]),
            np.stack([x[0], np.full(4, 5)]),
        ),
        *(X, Y),
    ),
    "largest": (
        lambda x: (
            *(*lax.top_k(x, 2), lax.cummax(x, 1), lax.cummin(x, 0)),
            *(by_two(lax.max, -jnp.inf)(x), by_two(lax.min, jnp.inf)(x)),
        ),
        lambda x: (
            *(-np.sort(-x, 1)[:, :2], np.argsort(-x, 1)[:, :2]),
            *(np.maximum.accumulate(x, 1), np.minimum.accumulate(x, 0)),
            *(np.maximum(x[:, 1:], x[:, :-1]), np.minimum(x[:, 1:], x[:, :-1])),
        ),
        X,
    ),
    "from the end": (
        lambda x: (lax.cumsum(x, 0, reverse=True), lax.cumprod(x, 0, reverse=True)),
        lambda x: (x[::-1].cumsum(0)[::-1], x[::-1].cumprod(0)[::-1]),
        P,
    ),
    "windows": (
        lambda x: (
            *(by_two(lax.add, 0.0)(x), by_two(lax.add, 2.0)(x), by_two(lax.mul, 1.0)(x)),
            *(by_two(lax.max, 2.0)(x), lax.reduce(x, 3.0, lax.mul, (1,))),
            *(lax.reduce(x, 0.5, lax.max, (0,)), lax.reduce(x, 1.0, lax.add, (1,))),
        ),
        lambda x: (
            *(x[:, 1:] + x[:, :-1], x[:, 1:] + x[:, :-1] + 2, x[:, 1:] * x[:, :-1]),
            *(np.maximum(np.maximum(x[:, 1:], x[:, :-1]), 2), 3 * x.prod(1)),
            *(np.maximum(x.max(0), 0.5), x.sum(1) + 1),
        ),
        P,
    ),
    "pooled gradient": (
        lambda x, y: jax.vjp(by_two(lax.max, -jnp.inf), x)[1](y[:, 1:])[0],
        lambda x, y: pooled_gradient(x, y[:, 1:]),
        *(X, P),
    ),
    "pooled tangent": (
        lambda x, y: jax.jvp(by_two(lax.max, -jnp.inf), (x,), (y,))[1],
        lambda x, y: np.where(x[:, 1:] > x[:, :-1], y[:, 1:], y[:, :-1]),
        *(X, Y),
    ),
    "scatters": (
        lambda x, y: (
            *(x.at[INDEX].add(y), x.at[INDEX].subtract(-y), x.at[INDEX].mul(y)),
            *(x.at[INDEX].min(y), x.at[INDEX].max(y), x.at[jnp.array([1, 9, 0])].set(y)),
        ),
        lambda x, y: (
            *scattered(x, y, np.add, np.add, np.multiply, np.minimum, np.maximum),
            np.stack([y[2], y[0], x[2]]),
        ),
        *(P, Q),
    ),
    "convolution": (
        conv,
        lambda a, b: np.stack([np.correlate(row, b, "valid") for row in a]),
        *(P, Wide(np.array([0.75, 0.5]), np.array([-800, 900]))),
    ),
    "loops": (
        lambda x: (
            *lax.scan(lambda c, r: (c * r, c + r), jnp.ones(4), x),
            lax.fori_loop(0, 5, lambda i, c: c * x[i % 3] + 1, jnp.ones(4)),
            jax.vmap(lambda a: lax.while_loop(lambda c: c < 1e9, lambda c: c * c * 2, a))(
                1 + x.ravel()
            ),
        ),
        lambda x: (
            *(x[0] * x[1] * x[2], np.stack([1 + x[0], x[0] + x[1], x[0] * x[1] + x[2]])),
            *(horner(x), [doubled(c) for c in 1 + x.ravel()]),
        ),
        P,
    ),
    "within float64": (
        functools.partial(of_special, special),
        lambda x: of_special(scipy.special, x.astype(float)),
        Wide(np.array([0.5, 0.6, 0.75]), np.array([-300, -1, 0])),
    ),
    "log of sum": (
        lambda x: lax.cumlogsumexp(x, 0),
        lambda x: np.log(np.exp(x).cumsum()),
        Wide(np.array([1.0, 700.0, 720.0])),
    ),
    "bits": (
        lambda x: (lax.bitcast_convert_type(x, jnp.int64), lax.nextafter(x, jnp.full_like(x, 9.0))),
        lambda x: (x.astype(float).view(np.int64), np.nextafter(x.astype(float), 9.0)),
        Wide(np.array([0.5, -0.75, 0.6]), np.array([900, 0, -900])),
    ),
    "symmetric outer": (
        lambda x, y: (
            _compat.symmetric_outer(x, y),
            _compat.symmetric_outer(x[None], y[None])[0],
        ),
        lambda x, y: (x @ y.T + y @ x.T,) * 2,
        *(P, Q),
    ),
    "reflections": (
        lambda x: lax.linalg.householder_product(x, jnp.array([0.5])),
        lambda x: np.array([[0.5], [x[1, 0] / -2]]),
        Wide(np.array([[0.5], [0.75]]), np.array([[3000], [-2]])),
    ),
}
CASES = OTHERS | {
    name: (functools.partial(f, jnp), functools.partial(f, np), *args)
    for name, (f, *args) in ALIKE.items()
}


def graph_of(f, *args):
    shapes = [jax.ShapeDtypeStruct(np.shape(a.array), a.array.dtype) for a in args]
    with jax.numpy_rank_promotion("allow"):
        return build(jax.make_jaxpr(f)(*shapes))


def run(f, *args):
    graph = graph_of(f, *args)
    return graph, evaluate(graph, args)


def assert_close(got, want, where, tolerance=2e-11):
    assert np.shape(got.array) == np.shape(want), where
    if got.array.dtype.kind in "biu":
        np.testing.assert_array_equal(got.array, np.asarray(want).astype(got.array.dtype), where)
    else:
        want = np.asarray(want, np.longdouble)
        assert (abs(exactly(got) - want) <= tolerance * abs(want)).all(), where


@pytest.mark.parametrize("name", CASES)
def test_every_entry_is_right_at_any_distance(name):
    f, exact, *args = CASES[name]
    graph, found = run(f, *args)
    assert [(s.node.primitive, s.reason) for s in found.skipped] == []
    wants = exact(*map(exactly, args))
    wants = wants if isinstance(wants, tuple) else [wants]
    assert len(found.outputs) == len(wants)
    for i, (got, want) in enumerate(zip(found.outputs, wants, strict=True)):
        assert_close(got, want, f"{name} {i}")
        magnitude = found.magnitudes[graph.outputs[i].value.index]
        sizes = abs(np.asarray(want, np.longdouble))
        if sizes.any():
            ends = [float(np.log2(end(sizes[sizes > 0]))) for end in (np.min, np.max)]
            assert [magnitude.low, magnitude.high] == pytest.approx(ends, rel=1e-9, abs=1e-9)


def test_every_rule_has_such_a_case_or_refuses():
    """It has a form for numbers far apart, which is called above, or knows no numbers."""
    refusing = {name for name, law in LAWS.items() if law.evaluate and not law.spread}
    assert not refusing - set(NOT_FLOATING.split())
    seen = set()
    for f, _, *args in CASES.values():
        graph, _ = run(f, *args)
        on_floats = [n for n in graph.walk() if any(use.value.is_floating for use in n.uses)]
        seen |= {node.primitive for node in on_floats}
    called = {LAWS[name].spread for name in seen & set(LAWS)}
    assert {name for name, law in LAWS.items() if law.spread and law.spread not in called} <= (
        UNCALLED
    )


# Of integers, booleans and keys, and without operands.
NOT_FLOATING = """
    and clz empty empty2 iota iota_2x32_shape lu_pivots_to_permutation mulhi not or platform_index
    population_count random_bits random_clone random_fold_in random_seed random_split random_unwrap
    random_wrap reduce_and reduce_or reduce_xor rng_bit_generator shift_left shift_right_arithmetic
    shift_right_logical threefry2x32 xor zeros_like"""
# No public function of every JAX leads to them; linear algebra and what JAX runs have own tests
# (`laws/test_linalg.py`, `laws/test_by_jax.py`).
UNCALLED = {
    *("broadcast_to", "conj", "log2", "one_minus_square", "tile", "triangular_solve", "schur"),
    *("cholesky", "eig", "eigh", "fft", "geqrf", "qr", "svd", "tanjax_lu", "lu", "geqp3"),
    *("tridiagonal_solve", "hessenberg", "tridiagonal", "ormqr", "cholesky_update"),
    *("random_gamma", "select_and_scatter", "igamma_grad_a", "approx_top_k"),
}


def test_result_without_such_a_form_is_unknown_and_says_why():
    matrix = normalised(Wide(np.array([[1.0, 0.1], [0.1, 1.0]]), np.array([[3000, 0], [0, 0]])))
    _, found = run(lax.linalg.hessenberg, matrix)
    assert not found.complete
    assert found.outputs[0] is None
    assert any("out of the range of float64" in s.reason for s in found.skipped)


def joined(n, x, y):
    return lax.complex(x, y) if n is jnp else x + 1j * y


Z = np.array([2e3 + 1j, -2e3 + 2j, 1 + 2j, 1e-9 + 1e-9j, 700 + 0.1j, 800 - 3j])
OF_EXPONENTIALS = {
    "itself": lambda n, e: e,
    "product": lambda n, e: e * e * (2 + 0j) / 2,
    "quotient": lambda n, e: 1 / e,
    "powers": lambda n, e: e**5,
    "root": lambda n, e: n.exp(n.log(e) / 2),
    "square root": lambda n, e: n.sqrt(e * n.conj(e)),
    "power": lambda n, e: e ** (0.25 + 0j),
    "by components": lambda n, e: joined(n, n.real(e), n.imag(e)),
    "size": lambda n, e: joined(n, abs(e), 0 * abs(e)),
    "sums": lambda n, e: n.sum(n.stack([e, e, -e]), 0),
    "logistic": lambda n, e: 1 / (1 + 1 / e),
    "hyperbolic": lambda n, e: n.cosh(n.log(e)) * 2,
    "turned": lambda n, e: n.cos(n.log(e) * 1j) * 2,
    "expm1": lambda n, e: n.expm1(n.log(e)) + 1,
    "log1p": lambda n, e: n.exp(n.log1p(e - 1)),
}


@pytest.mark.parametrize("name", OF_EXPONENTIALS)
def test_complex_exponentials(name):
    f = OF_EXPONENTIALS[name]
    graph = build(jax.make_jaxpr(lambda z: f(jnp, jnp.exp(z)))(Z))
    found = evaluate(graph, [Z])
    assert found.complete
    there = Z.real > (-100 if "1" in name else -np.inf)  # else nothing is left of it beside 1
    want = f(np, np.exp(Z.astype(np.clongdouble)))[there]
    assert (abs(exactly(found.outputs[0])[there] - want) <= 1e-10 * abs(want)).all()


def test_a_complex_number_whose_parts_are_too_far_apart_is_unknown():
    _, found = run(lambda x, y: lax.complex(x, y), X, P)
    assert found.complete  # fractions of one size
    tiny = normalised(Wide(np.abs(FRACTIONS), POWERS - 2000))
    _, found = run(lambda x, y: (lax.complex(x, y), x * y), X, tiny)
    assert [x is None for x in found.outputs] == [True, False]
    assert not found.complete


def test_systems_of_huge_matrices():
    """The triangles of an LU factorisation are at two exponents in one matrix."""
    matrix = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -0.2], [0.5, -0.2, 2.0]])
    right = np.array([1.0, -2.0, 0.5])
    for power in (3000, -3000):
        for f in (jnp.linalg.solve, lambda a, b: jnp.linalg.inv(a) @ b):
            _, found = run(f, Wide(matrix, power), Wide(right, 5))
            (got,) = found.outputs
            assert found.complete
            want = np.linalg.solve(matrix, right)
            np.testing.assert_allclose(got.array * 2.0 ** (got.exponent + power - 5), want, 1e-12)
        band = np.array([1.0, 2.0, 3.0])
        solve = lambda a, b: lax.linalg.tridiagonal_solve(a, 9 * a, a, b[:, None])
        _, found = run(solve, Wide(band, power), Wide(right, 5))
        full = np.diag(9 * band) + np.diag(band[1:], -1) + np.diag(band[:-1], 1)
        scaled = found.outputs[0].array[:, 0] * 2.0 ** (found.outputs[0].exponent + power - 5)
        np.testing.assert_allclose(scaled, np.linalg.solve(full, right), 1e-12)


def test_bits_of_numbers_out_of_range_are_those_that_their_type_has():
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    graph = build(jax.make_jaxpr(lambda x: lax.bitcast_convert_type(x * x, jnp.int32))(shape))
    assert evaluate(graph, [np.float32(1e10)]).complete
    for x, held in ((1e30, np.inf), (1e-30, 0.0)):
        (bits,) = evaluate(graph, [np.float32(x)]).outputs
        assert bits.array == np.float32(held).view(np.int32)


def test_numbers_with_an_exponent_each_cost_more():
    """A loop that ordinary numbers run to its end is sampled, as it would take too long."""
    loop = lambda x: lax.fori_loop(0, 1500, lambda _, c: -c, x)
    for x, sampled in ((Wide(FRACTIONS), False), (X, True)):
        _, found = run(loop, x)
        assert found.complete
        assert found.estimated == sampled
        assert_close(found.outputs[0], exactly(x), "negated twice")


def test_blocks_far_from_each_other_meet():
    """Each of the two fits in a block; what is made of both does not."""
    x, y = Wide(np.array([1.0, 3.0])), Wide(np.array([0.5, 0.75]), 5000)
    mask = np.array([1.0, 0.0])

    def f(x, y):
        joined = jnp.concatenate([x, y]), jnp.stack([x, y]), lax.pad(x, y[0], ((1, 0, 0),))
        chosen = jnp.where(mask > 0, x, y), jnp.minimum(x, y * mask), x.at[0].set(y[0])
        sums = x + y * mask, x - y * mask, x.at[0].add(y[1]), x.at[:1].multiply(y[:1])
        grown = lax.scan(lambda c, _: (c * y[1], c), x[0], None, length=3)[1]
        return *joined, *chosen, *sums, grown, lax.dynamic_update_slice(x, y[:1], (1,))

    _, found = run(f, x, y)
    assert found.complete
    (a, b), (c, d) = exactly(x), exactly(y)
    wants = [
        *([a, b, c, d], [[a, b], [c, d]], [c, a, b]),
        *([a, d], [a, 0], [c, b]),
        *([a + c, b], [a - c, b], [a + d, b], [a * c, b]),
        *([a, a * d, a * d * d], [a, c]),
    ]
    for i, (got, want) in enumerate(zip(found.outputs, wants, strict=True)):
        assert_close(got, want, f"{i}")


@pytest.mark.parametrize("f", [lax.max, lax.min])
def test_nan_is_the_larger_and_the_smaller_of_any_two_numbers(f):
    nan = Wide(np.array([np.nan, 0.5, np.nan]), np.array([0, 3000, 0]))
    one = Wide(np.array([0.5, np.nan, np.nan]), np.array([-3000, 0, 3000]))
    graph = build(jax.make_jaxpr(f)(jnp.ones(3), jnp.ones(3)))
    (found,) = evaluate(graph, [nan, one]).outputs
    assert np.isnan(np.asarray(found.array)).all()
