"""Numbers too far apart for one exponent: every rule against decimals of 60 digits."""

from __future__ import annotations

import cmath
import decimal
import math
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from spread_cases import CASES, CONTEXT, FRACTIONS, LN2, POWERS, P, X, decimals
from tanjax.scale.graph._graph import build
from tanjax.scale.laws._law import LAWS
from tanjax.scale.magnitudes._evaluate import evaluate
from tanjax.scale.numbers._wide import Wide, normalised


@pytest.fixture(autouse=True)
def any_range():
    with decimal.localcontext(CONTEXT):
        yield


def graph_of(f, *args):
    shapes = [jax.ShapeDtypeStruct(np.shape(a.array), a.array.dtype) for a in args]
    with jax.numpy_rank_promotion("allow"):
        return build(jax.make_jaxpr(f)(*shapes))


def run(f, *args):
    graph = graph_of(f, *args)
    return graph, evaluate(graph, args)


def assert_close(got, want, where, tolerance="2e-11"):
    assert np.shape(got.array) == want.shape, where
    if got.array.dtype.kind in "biu":
        np.testing.assert_array_equal(got.array, want.astype(got.array.dtype), where)
        return
    for a, b in zip(decimals(got).ravel(), want.ravel(), strict=True):
        b = Decimal(b)
        assert abs(a - b) <= Decimal(tolerance) * abs(b), (where, a, b)


@pytest.mark.parametrize("name", CASES)
def test_every_entry_is_right_at_any_distance(name):
    f, exact, *args = CASES[name]
    graph, found = run(f, *args)
    assert [(s.node.primitive, s.reason) for s in found.skipped] == []
    wants = (exact or f)(*map(decimals, args))
    wants = wants if isinstance(wants, tuple | list) else [wants]
    assert len(found.outputs) == len(wants)
    for i, (got, want) in enumerate(zip(found.outputs, wants, strict=True)):
        want = np.asarray(want, object)
        assert_close(got, want, f"{name} {i}")
        magnitude = found.magnitudes[graph.outputs[i].value.index]
        if sizes := [abs(Decimal(d)) for d in want.ravel() if d != 0]:
            assert magnitude.low == pytest.approx(float(min(sizes).ln() / LN2), rel=1e-9, abs=1e-9)
            assert magnitude.high == pytest.approx(float(max(sizes).ln() / LN2), rel=1e-9, abs=1e-9)


def test_every_rule_has_such_a_case_or_refuses():
    """Either it has a form for numbers far apart, and is called above, or it says it has none."""
    refusing = {name for name, law in LAWS.items() if law.evaluate and not law.spread}
    assert not refusing - set(f"{NOT_FLOATING} {REFUSING}".split())
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
    random_wrap reduce_and reduce_or reduce_xor shift_left shift_right_arithmetic
    shift_right_logical threefry2x32 xor zeros_like"""
REFUSING = """
    cholesky eig eigh fft geqrf lu qr svd tanjax_lu tridiagonal_solve"""
# No public function of every JAX leads to them; systems have a test of their own.
UNCALLED = {
    *("broadcast_to", "conj", "log2", "one_minus_square", "tile", "triangular_solve"),
}


def test_what_has_no_such_form_is_unknown_and_says_why():
    matrix = normalised(Wide(np.array([[1.0, 0.1], [0.1, 1.0]]), np.array([[3000, 0], [0, 0]])))
    for f in (jnp.linalg.cholesky, jnp.fft.fft, jnp.linalg.eigvalsh, lax.linalg.lu):
        _, found = run(f, matrix)
        assert not found.complete
        assert found.outputs[0] is None
        assert any("too far apart" in s.reason for s in found.skipped)


def parts(z):
    return decimals(Wide(z.array.real, z.exponent)), decimals(Wide(z.array.imag, z.exponent))


Z = np.array([1e5 + 1j, -1e5 + 2j, 1 + 2j, 1e-9 + 1e-9j, 700 + 0.1j, 800 - 3j])
# Of exp(z): a function, and the real part and phase of the exponent of its value.
OF_EXPONENTIALS = {
    "itself": (lambda e: e, lambda z: z),
    "product": (lambda e: e * e * (2 + 0j) / 2, lambda z: 2 * z),
    "quotient": (lambda e: 1 / e, lambda z: -z),
    "powers": (lambda e: lax.integer_pow(e, 5), lambda z: 5 * z),
    "root": (lambda e: jnp.exp(jnp.log(e) / 2), lambda z: z / 2),
    "square root": (lambda e: jnp.sqrt(e * jnp.conj(e)), lambda z: z.real + 0j),
    "power": (lambda e: e ** (0.25 + 0j), lambda z: z / 4),
    "by components": (lambda e: lax.complex(jnp.real(e), jnp.imag(e)), lambda z: z),
    "size": (lambda e: lax.complex(abs(e), 0 * abs(e)), lambda z: z.real + 0j),
    "sums": (lambda e: jnp.sum(jnp.stack([e, e, -e]), 0), lambda z: z),
    "logistic": (lambda e: 1 / (1 + 1 / e), None),
    "hyperbolic": (lambda e: jnp.cosh(jnp.log(e)) * 2, None),
    "turned": (lambda e: jnp.cos(jnp.log(e) * 1j) * 2, None),
    "expm1": (lambda e: jnp.expm1(jnp.log(e)) + 1, lambda z: z),
    "log1p": (lambda e: jnp.exp(jnp.log1p(e - 1)), lambda z: z),
}


@pytest.mark.parametrize("name", OF_EXPONENTIALS)
def test_complex_exponentials(name):
    f, exponent = OF_EXPONENTIALS[name]
    graph = build(jax.make_jaxpr(lambda z: f(jnp.exp(z)))(Z))
    found = evaluate(graph, [Z])
    assert found.complete
    for i, z in enumerate(Z):
        if "1" in name and z.real < -100:  # nothing is left of it beside 1
            continue
        got = tuple(part[i] for part in parts(found.outputs[0]))
        if exponent is not None:
            want = polar(exponent(z))
        elif name == "logistic":
            want = polar(z) if z.real < -100 else (1, 0) if z.real > 100 else logistic(z)
        else:
            want = [a + b for a, b in zip(polar(z), polar(-z), strict=True)]
        size = max(map(abs, want))
        assert all(abs(a - b) <= Decimal("1e-10") * size for a, b in zip(got, want, strict=True))


def polar(z):
    size = Decimal(z.real).exp()
    return size * Decimal(math.cos(z.imag)), size * Decimal(math.sin(z.imag))


def logistic(z):
    value = 1 / (1 + cmath.exp(-z))
    return Decimal(value.real), Decimal(value.imag)


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
        assert_close(found.outputs[0], decimals(x), "negated twice")


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
    (a, b), (c, d) = decimals(x), decimals(y)
    wants = [
        *([a, b, c, d], [[a, b], [c, d]], [c, a, b]),
        *([a, d], [a, 0], [c, b]),
        *([a + c, b], [a - c, b], [a + d, b], [a * c, b]),
        *([a, a * d, a * d * d], [a, c]),
    ]
    for i, (got, want) in enumerate(zip(found.outputs, wants, strict=True)):
        assert_close(got, np.array(want, object), f"{i}")
