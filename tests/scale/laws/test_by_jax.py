"""Primitives that JAX runs for the planner: draws, other generators, and those without a law."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import mlir

import tanjax as tj
from tanjax.scale.graph._build import build
from tanjax.scale.magnitudes._evaluate import evaluate
from tanjax.scale.numbers._wide import Wide, as_float

pytestmark = [pytest.mark.core, pytest.mark.slow]

GENERATORS = ["threefry2x32", "rbg", "unsafe_rbg"]


def run(f, *args):
    """The results of a run on numbers, none of which is skipped, and the graph."""
    graph = build(jax.make_jaxpr(f)(*args))
    found = evaluate(graph, jax.tree.leaves(args))
    assert [(s.node.primitive, s.reason) for s in found.skipped] == []
    return [np.asarray(as_float(x)) for x in found.outputs]


def used(key):
    """What programs do with keys: split, fold, stack, choose, wrap, draw."""
    a, b = jax.random.split(jax.random.fold_in(key, 3))
    both = jnp.stack([a, b, jax.random.clone(key)])
    chosen = jnp.where(jnp.array([True, False]), both[:2], both[1:])
    again = jax.random.wrap_key_data(jax.random.key_data(b), impl=jax.random.key_impl(key))
    numbers = jax.vmap(lambda k: jax.random.normal(k, (4,)))(chosen)
    return jax.random.bits(again, (3,)), numbers, jax.random.key_data(both)


@pytest.mark.parametrize("name", GENERATORS)
def test_bits_are_those_of_the_program(name):
    key = jax.random.key(7, impl=name)
    bits, numbers, words = run(used, key)
    want = jax.jit(used)(key)
    np.testing.assert_array_equal(bits, want[0])
    np.testing.assert_allclose(numbers, want[1], 1e-5, 1e-6)
    if name != "threefry2x32":  # whose keys are one integer here
        np.testing.assert_array_equal(words, want[2])


def test_bits_in_the_older_order_of_counters():
    with jax.threefry_partitionable(False):
        key = jax.random.key(7)
        bits, *_ = run(used, key)
        np.testing.assert_array_equal(bits, jax.jit(used)(key)[0])


@pytest.mark.parametrize("shape", [(), (3, 2)])
@pytest.mark.parametrize("draw", [jax.random.gamma, jax.random.loggamma])
def test_draws_from_a_gamma_distribution_are_those_of_the_program(draw, shape):
    f = lambda key, a: draw(key, a)
    args = jax.random.key(2), jnp.full(shape, 0.3, jnp.float32)
    np.testing.assert_allclose(run(f, *args)[0], jax.jit(f)(*args), 1e-5)


@pytest.mark.parametrize(
    "draw",
    [
        lambda key, s: s * jax.random.gamma(key, 2.0, (3,), s.dtype),
        lambda key, s: s * jax.random.beta(key, 2.0, 3.0, (3,), s.dtype),
        lambda key, s: s * jax.random.dirichlet(key, jnp.ones(3, s.dtype), (2,), s.dtype),
        lambda key, s: s * jax.random.t(key, 3.0, (3,), s.dtype),
        lambda key, s: s * jax.random.chisquare(key, 3.0, shape=(3,), dtype=s.dtype),
        lambda key, s: s * jax.random.ball(key, 3, shape=(2,), dtype=s.dtype),
    ],
    ids=["gamma", "beta", "dirichlet", "t", "chisquare", "ball"],
)
@pytest.mark.parametrize("name", ["threefry2x32", "rbg"])
def test_programs_that_draw_are_planned_without_a_warning(draw, name):
    """The square of 1e30 times a number that is drawn, on calls with other keys and numbers."""
    f = lambda key, s: jnp.sqrt(draw(key, s) ** 2)
    compiled = tj.jit(f)
    for i, size in enumerate((1.0, 2.5, 1e30)):
        key, s = jax.random.key(i, impl=name), jnp.float32(size)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = compiled(key, s)
        want = np.abs(np.asarray(jax.jit(draw)(key, jnp.float32(1.0)), float)) * float(s)
        np.testing.assert_allclose(np.asarray(got, float), want, 1e-4)


def test_draws_too_many_to_be_run_are_bounded():
    draw = lambda key, a: jax.random.gamma(key, a) / 1e30 * 1e30
    for a in (0.1, 3.0, 1e4):
        view = tj.scale_graph(draw)(jax.random.key(0), jnp.full(3_000_000, a, jnp.float32))
        (node,) = [n for n in view.graph.walk() if n.primitive == "random_gamma"]
        top = view.plan.magnitudes[node.outputs[0].index].high
        numbers = jax.random.gamma(jax.random.key(1), a, (20_000,), jnp.float32)
        assert np.log2(float(numbers.max())) <= top <= np.log2(a) + 12


def test_draws_whose_parameter_leaves_the_range_are_said():
    """Bounds of their magnitudes are known, and no number is."""
    draw = lambda key, s: jnp.exp(-jax.random.gamma(key, s * s, dtype=s.dtype) / s**2)
    with pytest.warns(
        tj.errors.ScaleWarning, match=r"`random_gamma` at .* out of the range of float32"
    ):
        tj.jit(draw)(jax.random.key(1), jnp.float32(1e25))


def test_bits_of_a_generator_of_xla():
    f = lambda key: lax.rng_bit_generator(key, (3,))
    key = jnp.arange(4, dtype=jnp.uint32)
    for got, want in zip(run(f, key), jax.jit(f)(key), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("size", [1.0, 1e-200, 1e200])
def test_rare_factorisations_are_those_of_jax(size):
    a = size * np.random.default_rng(3).normal(size=(5, 5))
    symmetric = a + a.T
    for got, want in zip(run(lax.linalg.schur, a), jax.jit(lax.linalg.schur)(a), strict=True):
        np.testing.assert_allclose(got, want, 1e-8, 1e-10 * np.abs(want).max())
    if size == 1.0:  # rows at the numbers themselves
        for f in (lax.linalg.hessenberg, lax.linalg.tridiagonal):
            f = lambda a, f=f: f(a) if f is lax.linalg.hessenberg else f(a, lower=True)
            for got, want in zip(run(f, symmetric), jax.jit(f)(symmetric), strict=True):
                np.testing.assert_allclose(got, want, 1e-8, 1e-10)


def test_schur_form_of_numbers_too_far_apart():
    a = np.random.default_rng(3).normal(size=(3, 3)).round(3)
    powers = np.array([[3000, 3000, 0], [3000, 3000, 0], [0, 0, 0]])
    f = lambda a: lax.linalg.schur(a)
    found = evaluate(build(jax.make_jaxpr(f)(a)), [Wide(a, powers)])
    want = f(np.where(powers, a, 0.0))[0]
    got = found.outputs[0].array * np.exp2(np.asarray(found.outputs[0].exponent) - 3000.0)
    np.testing.assert_allclose(got, want, 1e-9, 1e-12)


@pytest.mark.parametrize("f", [lax.approx_max_k, lax.approx_min_k])
@pytest.mark.parametrize("axis", [0, 1])
def test_approximate_extremes(f, axis):
    x = np.random.default_rng(0).permutation(24.0 * np.arange(24)).reshape(6, 4).astype(np.float32)
    call = lambda x: f(x, 3, reduction_dimension=axis)
    for got, want in zip(run(call, x), jax.jit(call)(x), strict=True):
        np.testing.assert_array_equal(got, want)
    powers = np.where(x > 200, 3000, -3000)
    found = evaluate(build(jax.make_jaxpr(call)(np.float64(x))), [Wide(np.float64(x) + 1, powers)])
    np.testing.assert_array_equal(found.outputs[1].array, jax.jit(call)(x)[1])


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_approximate_extremes_are_planned(size):
    x = jnp.array([3.0, 1.0, 4.0, 1.5], jnp.float32) * jnp.float32(size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = tj.jit(lambda x: jnp.sqrt(lax.approx_max_k(x * x, 2)[0]))(x)
    np.testing.assert_allclose(np.asarray(got, float), np.array([4.0, 3.0]) * size, 1e-6)


# -- primitives without a law ---------------------------------------------------------------------

STRANGE = Primitive("test_strange")
STRANGE.def_impl(lambda x: x * x)
STRANGE.def_abstract_eval(lambda x: x)
mlir.register_lowering(STRANGE, mlir.lower_fun(lambda x: x * x, multiple_results=False))


def behind(x):
    y = STRANGE.bind(x)
    return jnp.sqrt(y * y)


def calls_of(f, *sizes):
    """The warnings of each call with other numbers."""
    compiled, said = tj.jit(f), []
    for size in sizes:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled(jnp.array([1.0, 2.0], jnp.float32) * jnp.float32(size))
        said.append([str(w.message) for w in caught])
    return said


def test_numbers_behind_a_primitive_without_a_law_are_seen_where_it_is_in_range():
    assert calls_of(behind, 1.0, 2.0, 3.0) == [[], [], []]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = tj.jit(behind)(jnp.float32(1e15))
    assert float(got) == pytest.approx(1e30, rel=1e-6)


def test_a_primitive_without_a_law_some_of_whose_results_vanish_is_said():
    with pytest.warns(tj.errors.ScaleWarning, match=r"`test_strange` at .*no rule"):
        tj.jit(behind)(jnp.array([1.0, 1e-25], jnp.float32))


@pytest.mark.parametrize("size", [1e25, 1e-25])
def test_a_primitive_without_a_law_is_said_once_where_it_leaves_the_range(size):
    said = calls_of(behind, size, 1.5 * size, 1.0, 2 * size)
    assert [len(x) for x in said] == [1, 0, 0, 0]
    assert "`test_strange` at" in said[0][0]
    assert "no rule" in said[0][0]
