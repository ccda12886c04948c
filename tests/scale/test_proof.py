"""Proofs: what is proved holds for any numbers in the windows, and ordinary programs are proved."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from scale_facts import exponents_at
from tanjax.scale import proof
from tanjax.scale.graph._graph import Exponents, Magnitude, build
from tanjax.scale.laws._law import LAWS
from tanjax.scale.magnitudes._evaluate import evaluate
from tanjax.scale.numbers import Window, _interval_record
from tanjax.scale.numbers._range import range_of
from tanjax.scale.proof import counting, expected, proves, widest
from tanjax.scale.replay._rewrites import guarded

pytestmark = pytest.mark.core

X, XS = np.float32(1), np.linspace(0.5, 2, 9, dtype=np.float32)


def graph_of(f, *args):
    return build(jax.make_jaxpr(f)(*args))


def near_one(graph):
    return [Magnitude(-1.0, 1.0, True) if v.is_floating else None for v in graph.inputs]


def of(f, *args):
    graph = graph_of(f, *args)
    return widest(graph, Exponents.none(graph), near_one(graph))


def reach(f, *args):
    """How many bits beyond numbers near 1 a program is proved."""
    found = of(f, *args)
    return None if found is None else found[0].high - 1.0


def numbers(dtype, *values):
    return np.array(values).astype(dtype)


def test_ordinary_programs_have_wide_windows():
    assert of(lambda x, y: x * y + 1, X, X) == [Window(-41.0, 41.0, True)] * 2
    for f in (jnp.tanh, lambda x: x / 3, lambda x: x + x[::-1], jnp.sqrt, jnp.sum):
        assert reach(f, XS) == 40.0
    assert reach(lambda x: x**3, XS) == 40.0
    assert reach(jax.nn.softmax, XS) == 2.0
    assert reach(lambda x, y: jnp.linalg.norm(x - y), XS, XS) == 16.0


def test_a_program_that_needs_more_has_a_narrower_window():
    power = lambda n: reach(lambda x: x**n, X)
    assert [power(n) for n in (2, 8, 40)] == [40.0, 6.0, 2.0]
    assert reach(jnp.exp, X) == 2.0  # exp(88) is the last in float32
    assert reach(lambda x: x * x, np.float16(1)) == 2.0


def test_exponents_of_the_plan_move_the_window():
    graph = graph_of(lambda x: x * x, X)
    seen = [Magnitude(63.0, 63.0, True)]
    assert widest(graph, Exponents.none(graph), seen) == [Window(62.5, 63.5, True)]
    values = [(v, 60 if v.node is None else 120) for v in graph.values]
    uses = [(use, exponent) for value, exponent in values for use in value.uses]
    high = widest(graph, exponents_at(graph, values + uses), seen)[0].high
    assert 79.0 <= high <= 103.0


def test_what_cannot_be_proved_is_not():
    assert of(lambda x: 1 + x * x, X) is not None
    assert of(lambda x, y: 1 / (x * x - y * y) ** 6, X, X) is None  # a cancellation
    assert of(lambda x: lax.fori_loop(0, 1000, lambda i, c: c * x, x), X) is None
    assert of(lambda x: jnp.linalg.inv(x), np.eye(3, dtype=np.float32)) is None
    assert of(lambda x: jax.pure_callback(np.asarray, jax.typeof(x), x) * 2, jnp.float32(1)) is None


def test_a_proof_that_fails_takes_two_runs_of_bounds(monkeypatch):
    """Where those around the very numbers do not hold, none that are wider are tried."""
    tries, holds = [], proof._holds
    monkeypatch.setattr(proof, "_holds", lambda *a: tries.append(1) or holds(*a))
    graph = build(jax.make_jaxpr(lambda x: x * x)(jnp.float32(1)))
    assert widest(graph, Exponents.none(graph), [Magnitude(100.0, 100.0)]) is None
    assert len(tries) == 2


def test_flags_indices_and_counts_may_be_anything():
    branch = lambda x, p: lax.cond(p, lambda x: x**4, lambda x: x / 2, x)
    assert of(branch, X, True)[0].high == 17.0
    assert of(lambda x, p: jnp.where(p, x * x, x), X, True) == [Window(-41.0, 41.0, True), None]
    assert of(lambda x, i: jnp.log(x[i] * x[i]), XS, 1)[0].high == 41.0
    power = lambda x, n: lax.fori_loop(0, n, lambda i, c: c * x, x)
    assert of(power, X, 3) is None


def test_loops():
    power = lambda x, y: lax.fori_loop(0, 10, lambda i, c: c * y, x)
    assert reach(power, X, X) == 6.0
    stable = lambda x: lax.fori_loop(0, 1000, lambda i, c: jnp.maximum(jnp.tanh(c), 0.5), x)
    assert reach(stable, X) == 40.0
    search = lambda x: lax.while_loop(lambda c: c < 10, lambda c: jnp.maximum(c, 5.0), x)
    assert reach(search, X) == 40.0


def test_the_numbers_that_xla_joins_are_proved_too():
    """`x / y / z` is `x / (y * z)` to XLA, which may leave the range though no value does."""
    seen = [Magnitude(0.0, 80.0, True)] * 2
    graph = graph_of(lambda y, z: 1e20 / y / z, X, X)
    none = Exponents.none(graph)
    assert widest(graph, none, seen) is None
    hidden = none._replace(guarded=frozenset(node.index for node in graph.walk()))
    assert widest(graph, hidden, [Magnitude(0.0, 60.0, True)] * 2) is not None


def test_a_numerator_that_no_bound_holds_is_no_reason_to_hide_it():
    """`m / h / (sqrt(v) + c)` is `m / (h * (sqrt(v) + c))`: the numerator is as it was."""
    graph = graph_of(lambda m, h, v: (m - v) / h / (jnp.sqrt(v) + 1e-8), X, X, X)
    first, last = (node.uses for node in graph.nodes if node.primitive == "div")
    bounds = [Magnitude(-3.0, 3.0)] * len(graph.values)
    bounds[first[0].value.index] = Magnitude(-np.inf, 4.0)
    assert not guarded(graph, bounds, Exponents.none(graph))
    bounds[last[1].value.index] = Magnitude(-125.0, 4.0)
    assert guarded(graph, bounds, Exponents.none(graph))


def test_products_that_a_contraction_adds_up():
    """1024 products at 2^-131 are flushed one by one, though their sum would be normal."""
    graph = graph_of(lambda x, y: x @ y, np.ones(1024, np.float32), np.ones(1024, np.float32))
    proved = lambda size: widest(graph, Exponents.none(graph), [Magnitude(size, size, True)] * 2)
    assert proved(-65.5) is None
    assert proved(-60.0) is None  # it may cancel
    assert proved(-30.0) is not None


def test_sums_of_mixed_signs_are_expected_to_grow_less_than_they_may():
    graph = graph_of(jnp.sum, np.ones(2**20, np.float32))
    assert proves(graph, Exponents.none(graph), [Window(0.0, 107.0, True)])
    assert not proves(graph, Exponents.none(graph), [Window(0.0, 110.0, True)])
    assert expected(graph, Exponents.none(graph), [Magnitude(76.0, 76.0, True)])[0].high == 116.0
    assert _interval_record.is_worst_case() is False


PROGRAMS = {
    "planck": lambda x, y: x**3 / (jnp.exp(x / y) + 1),
    "gravity": lambda x, y: x * y / (x**2 + y**2 + 1) ** 1.5,
    "energy": lambda x, y: jnp.sum(x * y**2) / 2,
    "norm": lambda x, y: y / jnp.sqrt(jnp.sum(x * x) + 1e-3),
    "log": lambda x, y: jnp.log(x * y) * x,
    "sigmoid": lambda x, y: jax.nn.sigmoid(x) * y,
    "matmul": lambda x, y: jnp.outer(x, y) @ jnp.tanh(x),
    "pow": lambda x, y: jnp.abs(x) ** 2.5 * jnp.cbrt(y),
    "inverse": lambda x, y: 1 / (x * x * y),
    "loop": lambda x, y: lax.fori_loop(0, 4, lambda i, c: c * y, x),
    "difference": lambda x, y: (x - y) * (x + y),
    "atan2": lambda x, y: jnp.arctan2(x, y) + jnp.log1p(x * x),
    "exp2": lambda x, y: jnp.exp2(x) + jnp.sinh(y),
    "branches": lambda x, y: lax.cond(x[0] > y[0], lambda: x * x, lambda: y / 3),
}


def drawn(rng, window, dtype):
    """Numbers of a window: at its ends and between, of either sign, zeros, and close together."""
    ends = [window.low, window.high]
    bits = rng.choice([*ends, *rng.uniform(window.low, window.high, 4)], 3)
    if rng.random() < 0.3:
        bits = bits[:1] + rng.uniform(0, 1e-3, 3)
    x = np.exp2(np.clip(bits, *ends)) * rng.choice([1.0, 1.0, -1.0, 0.0], 3)
    return x.astype(dtype)


def nothing_leaves_its_range(f, dtype, seed=0, draws=40, **how):
    graph = graph_of(f, *[numbers(dtype, 1.5, 2, 1.2)] * 2)
    found = widest(graph, Exponents.none(graph), near_one(graph), **how)
    if found is None:
        return False
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        run = evaluate(graph, [drawn(rng, w, dtype) for w in found], budget=1e12)
        for value, m in zip(graph.values, run.magnitudes, strict=True):
            if value.is_floating and m is not None and not m.is_zero:
                smallest, largest = range_of(value)
                assert smallest - 0.01 <= m.low <= m.high <= largest + 0.01, (value.node, m, found)
    return True


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_inside_the_windows_nothing_leaves_its_range(dtype):
    proved = [name for name, f in PROGRAMS.items() if nothing_leaves_its_range(f, dtype)]
    assert len(proved) >= {"float32": 13, "float16": 6}[dtype], proved


@pytest.mark.parametrize("name", ["mul", "integer_pow", "add"])
def test_a_wrong_bound_is_found(monkeypatch, name):
    """The test above fails if a primitive is said to grow by less than it does."""
    right = LAWS[name].bound

    def short(node, records):
        return [r and moved(r) for r in right(node, records)]

    def moved(r):
        plus = r.plus_low + 3, r.plus_high - 3
        return r._replace(
            plus_low=plus[0],
            plus_high=plus[1],
            minus_low=r.minus_low + 3,
            minus_high=r.minus_high - 3,
        )

    monkeypatch.setitem(LAWS, name, dataclasses.replace(LAWS[name], bound=short))
    f = {
        "mul": lambda x, y: x * x[::-1] * y,
        "integer_pow": lambda x, y: x**5 * 1.0,
        "add": lambda x, y: (x * x + y * y + x) * 1e30,
    }[name]
    with pytest.raises(AssertionError):
        nothing_leaves_its_range(f, "float32", distances=np.arange(120.0, 0.0, -0.25))


N = np.int32(3)


@pytest.mark.parametrize(
    ("f", "bits"),
    [
        (lambda n: 0.9 ** (n + 1).astype(jnp.float32), 4),
        (lambda n: (n + 1, jnp.broadcast_to(-n * 2, (3,)).astype(jnp.float32)), 4),
        (lambda n: lax.pow(X, jnp.where(n < 2**31 - 1, n + 1, 2**31 - 1)), 4),  # as in optax
        (lambda n: jax.jit(lambda n: (jnp.minimum(n, 7), n > 3))(n), 4),
        (lambda n: jnp.where(n < 10, 1.0, 2.0), 1),
        (lambda n: (n < 10).astype(jnp.float32), 1),
        (lambda n: jax.jit(lambda n: jnp.asarray(XS)[n])(n), 0),
        (lambda n: jnp.asarray(XS)[jax.jit(lambda n: n + 1)(n)], 0),
        (lambda n: jnp.asarray(XS)[n], 0),
        (lambda n: lax.fori_loop(0, n, lambda i, x: 2 * x, X), 0),
        (lambda n: lax.cond(n > 1, lambda: X, lambda: 2 * X), 0),
        (lambda n: (n % 2).astype(jnp.float32), 0),
        (lambda n: jax.random.normal(jax.random.key(n)), 0),
    ],
)
def test_integers_that_decide_little_are_known(f, bits):
    assert counting(graph_of(f, N)) == ({0: bits} if bits else {})


def test_flags_and_floating_arguments_are_no_counts():
    f = lambda x, flag, n: x * flag.astype(jnp.float32) + n.astype(jnp.float32)
    assert counting(graph_of(f, X, np.bool_(True), N)) == {2: 4}


def test_another_thread_does_not_prove_meanwhile():
    with ThreadPoolExecutor(1) as pool, _interval_record.worst_case():
        assert _interval_record.is_worst_case()
        assert not pool.submit(_interval_record.is_worst_case).result()
