"""Bounds in log2: every number that a program makes lies inside, and the bounds say something."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax import lax

from scale_facts import magnitudes_of
from tanjax.scale.graph._build import build
from tanjax.scale.graph._graph import Magnitude
from tanjax.scale.laws._law import LAWS
from tanjax.scale.magnitudes._evaluate import evaluate
from tanjax.scale.magnitudes._intervals import bound, unsupported
from tanjax.scale.numbers import _interval_record

pytestmark = pytest.mark.core

TOLERANCE = 1e-6  # bits; rounding of float64 is far below


def bounded(f, *args, given=None, **options):
    """The graph of a program, and the magnitudes of its values."""
    graph = build(jax.make_jaxpr(f)(*args))
    return graph, bound(graph, args if given is None else given, **options)


def results_of(f, *args, **options):
    """The magnitudes of the results of a program."""
    graph, found = bounded(f, *args, **options)
    return [found[use.value.index] for use in graph.outputs]


def assert_inside(f, *args, estimate=0.0, **options):
    """All magnitudes inside their bounds (with `cancellation`), but for what is estimated."""
    graph, found = bounded(f, *args, cancellation=True, **options)
    run, compared = evaluate(graph, jax.tree.leaves(args)), 0
    for value, m, seen in zip(graph.values, found, run.magnitudes, strict=True):
        if value.is_floating and None not in (m, seen):
            compared += value.kind == "result"
            where = value.node.primitive if value.node else value.kind
            assert seen.is_zero or m.low - TOLERANCE <= seen.low, (where, m, seen)
            assert seen.is_zero or seen.high <= m.high + TOLERANCE + estimate, (where, m, seen)
    return compared


def high(f, *args, **options):
    return results_of(f, *args, **options)[0].high


def low(f, *args, **options):
    return results_of(f, *args, **options)[0].low


# -- every number lies inside --------------------------------------------------------------------

UNARY = [
    jnp.negative, jnp.abs, jnp.sign, jnp.square, jnp.sqrt, lax.rsqrt, jnp.cbrt, jnp.exp, jnp.exp2,
    jnp.expm1, jnp.log, jnp.log1p, jnp.sin, jnp.cos, jnp.tan, jnp.sinh, jnp.cosh, jnp.tanh,
    jnp.arcsin, jnp.arccos, jnp.arctan, jnp.arcsinh, jnp.arctanh, jax.nn.sigmoid, lax.erf,
    lax.erfc, lax.erf_inv, jnp.floor, jnp.ceil, jnp.round, lambda x: x**3, lambda x: x**-2,
    lambda x: 1 + x * x, lambda x: -x * x, lambda x: jnp.arccosh(1 + x * x), jnp.sum, jnp.prod,
    jnp.max, jnp.min, jnp.cumsum, lambda x: lax.cumprod(x), lambda x: lax.cummax(x),
    lambda x: jnp.dot(x, x), jax.nn.softmax, jax.nn.logsumexp, lambda x: x[::-1], jnp.sort,
    lambda x: jnp.outer(x, x) @ x, lambda x: lax.bessel_i0e(x), lambda x: lax.bessel_i1e(x),
    lambda x: lax.lgamma(1e-3 + x * x), lambda x: lax.digamma(1e-3 + x * x), lax.cumlogsumexp,
    lambda x: jnp.linalg.norm(x), lambda x: jnp.clip(x, -2.0, 3.0), lambda x: x.at[0].add(x[1]),
    lambda x: jnp.where(x > 1, x, 2 * x), lambda x: x[jnp.array([0, 2, 2])], jnp.mean,
    lambda x: jnp.abs(jnp.fft.fft(x)), lambda x: lax.complex(x, 2 * x[::-1]).real, jnp.var,
    lambda x: jnp.abs(lax.complex(x, x[::-1]) / lax.complex(1 + x, x)),
    lambda x: jnp.abs(lax.complex(x, x[::-1]) ** 3),
]  # fmt: skip
BINARY = [
    jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.maximum, jnp.minimum, jnp.arctan2, lax.rem,
    lambda x, y: jnp.abs(x) ** jnp.clip(y, -5, 5), jnp.hypot, jnp.convolve,
    lambda x, y: jnp.concatenate([x, y]), lambda x, y: jnp.where(x > y, x, y), jnp.dot,
]  # fmt: skip


def spread(x):
    """Any result as an array of three entries."""
    x = jnp.ravel(x)
    return jnp.concatenate([x, x, x])[:3]


entries = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 2.0, 0.5]),
    st.builds(
        lambda sign, e, m: sign * m * 2.0**e,
        st.sampled_from([-1.0, 1.0]), st.integers(-30, 12), st.floats(1.0, 2.0),
    ),
)  # fmt: skip
arrays = st.lists(entries, min_size=3, max_size=3)
steps = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)),
    min_size=1, max_size=8,
)  # fmt: skip


def program(plan):
    """A straight-line program, each line of which applies a function to earlier results."""

    def f(*values):
        values = list(values)
        for which, i, j in plan:
            which %= len(UNARY) + 3 * len(BINARY)
            x, y = values[i % len(values)], values[j % len(values)]
            if which < len(UNARY):
                values.append(spread(UNARY[which](x)))
            else:
                values.append(spread(BINARY[(which - len(UNARY)) % len(BINARY)](x, y)))
        return values[-1]

    return f


@pytest.fixture
def worst_case(monkeypatch):
    """Sums of mixed signs by the worst case, so that no bound is an estimate."""
    monkeypatch.setattr(_interval_record, "MIXED_SIGNS", 1.0)


def test_random_programs_stay_inside(monkeypatch):
    """The law of this module: what a program computes lies inside the bounds."""
    monkeypatch.setattr(_interval_record, "MIXED_SIGNS", 1.0)

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(arrays, arrays, steps)
    def run(x, y, plan):
        assert_inside(program(plan), jnp.array(x), jnp.array(y))

    run()


@pytest.mark.parametrize("size", [0.3, 3.0, 40.0])
def test_every_function_stays_inside(worst_case, size):
    """Each function once, on numbers below and above 1 and in both signs."""
    x = size * jnp.array([0.9, -0.3, 0.51])
    for f in UNARY:
        assert assert_inside(f, x)
    for f in BINARY:
        assert assert_inside(f, x, x[::-1] - 0.1)


def test_the_random_sum_is_within_its_allowance():
    """With mixed signs √k is expected: no sum of k terms is further off than another √k."""
    x = jnp.linspace(-1.0, 3.0, 64)
    for f in (jnp.sum, lambda x: x @ x[::-1], jnp.cumsum):
        assert_inside(f, x, estimate=3.0)
    assert high(jnp.sum, x) == pytest.approx(math.log2(3.0) + 3.0)


# -- what signs are for ----------------------------------------------------------------------------

WIDE = Magnitude(-20.0, 30.0)
X = jax.ShapeDtypeStruct((1000,), jnp.float32)


def of(f, which, m=WIDE):
    return which(f, X, given=[m])


def test_exponentials_of_negative_numbers_are_at_most_one():
    assert of(lambda x: jnp.exp(-(x**2)), high) == 0.0
    assert of(lambda x: jnp.exp(-x * x), high) <= 0.0
    assert of(lambda x: jnp.exp(-jnp.abs(x)), high) == 0.0
    assert of(jax.nn.sigmoid, high) <= 0.0
    assert of(lambda x: 1 / (1 + jnp.exp(-x)), high, Magnitude(-20.0, 6.0)) <= 0.0


def test_softmax_is_at_most_one_and_logsumexp_finite():
    assert of(jax.nn.softmax, high) <= 0.0
    assert of(jax.nn.logsumexp, high) <= 32.0


def test_sums_of_one_sign_keep_their_lower_bound():
    assert of(lambda x: 1 + x * x, low) == 0.0
    assert of(lambda x: jnp.sqrt(x * x + 1e-6), low) == pytest.approx(math.log2(1e-6) / 2, abs=1e-4)
    assert of(lambda x: jnp.linalg.norm(x), low) == -20.0
    assert of(lambda x: jnp.sum(jnp.abs(x)), high) == pytest.approx(30 + math.log2(1000))


def test_a_cancellation_leaves_no_lower_bound_but_the_last_place():
    difference = lambda x: x - x[::-1]
    assert of(difference, low) == -math.inf
    assert low(difference, X, given=[WIDE], cancellation=True) == -43.0
    # A chain of sums is no worse.
    twice = lambda x: difference(difference(x))
    assert low(twice, X, given=[Magnitude(0.0, 1.0)], cancellation=True) == -23.0


def test_the_reciprocal_of_a_difference_is_estimated_not_infinite():
    assert of(lambda x: 1 / (x - x[::-1]), high) == 20.0
    assert high(lambda x: 1 / (x - x[::-1]), X, given=[WIDE], cancellation=True) == 43.0


def test_random_numbers_are_bounded_though_bits_are_unknown():
    assert high(lambda key: jax.random.uniform(key, (9,)), jax.random.key(0)) <= 1.0
    assert 2.0 < high(lambda key: jax.random.normal(key, (9,)), jax.random.key(0)) < 4.0


# -- what is known beforehand ----------------------------------------------------------------------


def test_measured_magnitudes_are_kept_and_used():
    graph = build(jax.make_jaxpr(lambda x: jnp.exp(x) * 2.0)(X))
    inner = graph.nodes[0].outputs[0]
    measured = magnitudes_of(graph, [(inner, Magnitude(-1.0, 5.0, True))])
    found = bound(graph, [None], measured)
    assert found[inner.index] == Magnitude(-1.0, 5.0, True)
    assert found[graph.outputs[0].value.index] == Magnitude(0.0, 6.0)


def test_inputs_and_constants_are_measured():
    table = np.array([[0.0, 4.0], [2.0, 1.0]], np.float32)
    x = np.array([2.0, 0.0], np.float32)
    graph, found = bounded(lambda x: table @ x, x)
    assert found[graph.inputs[0].index] == Magnitude(1.0, 1.0, True)
    assert found[graph.constants[0].index] == Magnitude(0.0, 2.0, True)
    assert found[graph.outputs[0].value.index] == Magnitude(1.0, 4.0)


def test_arrays_that_are_moved_together_keep_their_own_bounds():
    found = results_of(lambda x, y: jax.device_put((x, 4 * y)), 1.0, 1.0)
    assert [m.high for m in found] == [0.0, 2.0]


def test_unknown_inputs_leave_unknown_results():
    found = results_of(lambda x, y: (x * y, jnp.tanh(y)), X, X, given=[None, WIDE])
    assert [m is None for m in found] == [True, False]


def test_zero_infinite_and_nan_inputs_do_no_harm():
    x = np.array([0.0, np.inf, np.nan, 2.0])
    assert results_of(lambda x: x * x, x) == [Magnitude(2.0, 2.0)]
    assert results_of(lambda x: x * x, np.zeros(3))[0].is_zero
    assert high(lambda x: jnp.max(x, initial=-jnp.inf), np.array([-4.0])) == 2.0


def test_number_beyond_any_float_is_bounded_and_infinity_unknown():
    """x^(2^40) has a logarithm; exp of it has none."""

    def power(x):
        for _ in range(40):
            x = x * x
        return x

    assert of(power, high, Magnitude(0.0, 1.0)) == 2.0**40
    assert results_of(lambda x: jnp.exp(power(x)), X, given=[Magnitude(0.0, 1.0)]) == [None]


# -- loops and branches ----------------------------------------------------------------------------


def loop(n, body):
    return lambda x: lax.fori_loop(0, n, lambda i, x: body(x), x)


def test_loops_of_constant_growth_are_continued_exactly(worst_case):
    assert of(loop(100, lambda x: 2 * x), high) == pytest.approx(130.0)
    assert of(loop(100, lambda x: x / 4), low) == pytest.approx(-220.0)
    for body in (lambda x: 1.5 * x, lambda x: x + 1, lambda x: x * 0.7, lambda x: 0.9 * x + 0.1):
        assert_inside(loop(50, body), jnp.array([1.0, 2.0, 0.25]))
    assert_inside(
        lambda x: lax.fori_loop(0, 27, lambda i, c: c * x[i % 3], 1.0), jnp.array([1.0, 3.0, 2.0])
    )


def test_linear_growth_costs_the_logarithm():
    assert of(loop(1000, lambda x: x + 1.0), high, Magnitude(0.0, 0.0)) == pytest.approx(
        math.log2(1001), abs=0.01
    )


def test_growth_of_one_carry_reaches_the_next():
    """Position and velocity: constant acceleration makes a square."""
    move = lambda c: (c[0] + c[1], c[1] + 1.0)
    m = results_of(lambda x, v: loop(1000, move)((x, v)), 0.0, 0.0)[0]
    assert math.log2(1000**2 / 2) <= m.high <= math.log2(1000**2) + 0.1


def test_growth_that_accelerates_is_not_continued():
    assert of(loop(1000, lambda x: x * x), high) == 240.0


def test_a_stable_loop_stays(worst_case):
    for body in (jnp.sin, lambda x: jnp.tanh(x + 1), lambda x: jnp.minimum(2 * x, 8.0)):
        assert_inside(loop(30, body), jnp.array([1.0, -2.0, 0.3]))
    assert of(loop(10**6, lambda x: jnp.tanh(3 * x)), high) == 30.0


def test_a_fall_by_cancellation_is_not_continued():
    f = loop(1000, lambda x: 0.9 * x + 0.1 * x[::-1])
    assert low(f, X, given=[Magnitude(0.0, 1.0)], cancellation=True) > -200.0


def test_while_loops_with_a_counter_know_how_often_they_run():
    count = lambda x, n: lax.fori_loop(0, n, lambda i, x: 2 * x, x)
    assert high(count, 1.0, 70) == pytest.approx(71.0, abs=1.1)
    unknown = lambda x: lax.while_loop(lambda x: x < 1e20, lambda x: 2 * x, x)
    assert high(unknown, 1.0) == 3.0  # the range of the first passes
    assert_inside(count, jnp.array([1.0, 3.0]), 40)


def test_nested_loops_branches_and_calls(worst_case):
    inner = loop(5, lambda x: 1.5 * x)
    assert_inside(loop(4, inner), jnp.array([1.0, 3.0]))
    assert_inside(loop(3, jax.jit(lambda x: jnp.sin(x) + 2)), jnp.array([1.0, -3.0]))
    choose = lambda x: lax.cond(x[0] > 0, lambda x: x * 1e10, lambda x: x * 1e-10, x)
    assert_inside(choose, jnp.array([1.0, -3.0]))
    assert_inside(jax.checkpoint(lambda x: jnp.exp(-x * x)), jnp.array([1.0, -3.0]))
    assert_inside(
        lambda x: lax.scan(lambda c, y: (c * y, c + y), 1.0, x), jnp.array([1.0, 3.0, 2.0])
    )
    assert of(choose, high) == pytest.approx(30 + math.log2(1e10))


def test_gradients_of_a_network_stay_inside(worst_case):
    def loss(w, x):
        for _ in range(3):
            x = jax.nn.relu(jnp.tanh(x @ w))
        return jnp.mean(jax.nn.log_softmax(x) ** 2)

    w = jnp.linspace(-1.0, 1.3, 9).reshape(3, 3)
    assert assert_inside(jax.value_and_grad(loss), w, w[::-1] * 0.7) > 30


def test_collectives_count_their_devices():
    mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    f = jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=spec("i"), out_specs=spec())
    assert high(f, jnp.ones(8)) == 2.0


# -- completeness ----------------------------------------------------------------------------------

# Results of these are integers (bounded by their dtype), tokens, or unknown.
UNSUPPORTED = {
    "after_all", "and", "argmax", "argmin", "axis_index", "clz", "custom_linear_solve",
    "igamma_grad_a", "igammac", "mulhi", "not", "or", "polygamma", "population_count",
    "ragged_all_to_all",
    "reduce", "reduce_window", "reduce_xor", "rng_bit_generator", "select_and_scatter",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "stage", "xor", "zeta",
}  # fmt: skip
ONLY_IN_JAX_0_12 = {"polynomial"}


def test_every_primitive_has_a_rule_or_is_listed():
    missing = set(unsupported())
    assert missing - ONLY_IN_JAX_0_12 == UNSUPPORTED - (UNSUPPORTED - missing)
    assert {"reduce", "zeta"} <= missing


def test_a_primitive_without_a_rule_is_unknown_not_wrong():
    assert results_of(lambda x: lax.zeta(x, 2.0) + 1.0, jnp.array([3.0])) == [None]


# -- planted bugs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mul", "sub", "exp", "reduce_sum", "dot_general", "div", "tanh"])
def test_a_wrong_rule_is_found(monkeypatch, name):
    """The checks of this file fail when a rule says one bit too little."""
    right = LAWS[name].bound
    narrow = lambda r: r._replace(plus_high=r.plus_high - 1.0, minus_high=r.minus_high - 1.0)
    wrong = lambda node, rs: [narrow(r) for r in right(node, rs)]
    monkeypatch.setitem(LAWS, name, dataclasses.replace(LAWS[name], bound=wrong))
    x, y = jnp.array([0.9, 0.9, -0.1]), jnp.array([0.1, 0.9, 0.9])
    programs = {
        "mul": jnp.multiply, "div": jnp.divide, "sub": lambda x, y: x - (-y),
        "exp": lambda x, y: jnp.exp(x), "reduce_sum": lambda x, y: jnp.sum(x * x),
        "dot_general": lambda x, y: x @ x, "tanh": lambda x, y: jnp.tanh(9 * y),
    }  # fmt: skip
    with pytest.raises(AssertionError):
        assert_inside(programs[name], x, y)


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: x @ x, [[1.0, -3.0], [2.0, 5.0]]),  # of a matrix, not of one vector
        (lambda x: lax.dot_general(x, x, (((1,), (0,)), ((), ()))), [[1.0, -3.0], [2.0, 5.0]]),
    ],
)
def test_bounds_of_a_product_with_itself_allow_cancellation(f, x):
    """Only the product of a vector with itself has no negative terms."""
    x = jnp.array(x)
    assert low(f, x, cancellation=True) < -50
    assert low(lambda x: x @ x, x[0], cancellation=True) > 0


def test_bounds_of_a_maximum_and_a_minimum_know_of_zero():
    x, zero = jnp.array([100.0, -200.0]), jnp.zeros(2)
    assert assert_inside(lambda x, y: 1 + jnp.maximum(x, y), x, zero)
    assert assert_inside(lambda x, y: 1 + jnp.maximum(y, x), x, zero)
    assert assert_inside(lambda x, y: jnp.minimum(x, y) - 1, x, zero)
    assert assert_inside(lambda x, y: jnp.minimum(y, x) - 1, x, zero)
