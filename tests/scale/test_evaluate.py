"""The graph run on numbers: every rule against JAX in float64, wide ranges, loops, losses."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scale_cases import CASES, X, results_of

from tanjax.scale._evaluate import RULES, evaluate, losses, measure
from tanjax.scale._graph import build
from tanjax.scale._wide import as_float, wide


# Compiled one by one and without optimisation: together, a family takes XLA 40 s.
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def run_with_jax(closed):
    """Constants are handed over as arguments: XLA would compute with them while it compiles."""
    run = jax.jit(
        lambda consts, x: jax.core.eval_jaxpr(closed.jaxpr, consts, x), compiler_options=FAST
    )
    return run(closed.consts, X)


def assert_equal(got, want, where, tolerance=1e-12):
    """Same shape and kind; floats relative to the largest entry of the array."""
    want = np.asarray(want)
    if want.dtype.kind not in "biufc":
        want = want.astype(float)
    got = np.asarray(as_float(got))
    assert got.shape == want.shape, where
    assert got.dtype.kind == want.dtype.kind, where
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want, str(where))
        return
    finite = np.abs(want[np.isfinite(want)])
    size = max(float(finite.max()), 1e-3) if finite.size else 1.0
    np.testing.assert_allclose(got, want, tolerance, tolerance * size, True, str(where))


@pytest.mark.parametrize("family", CASES)
def test_every_rule_agrees_with_jax(family):
    for i, case in enumerate(CASES[family]):
        closed = jax.make_jaxpr(lambda _, case=case: results_of(case))(X)
        want = run_with_jax(closed)
        graph = build(closed)
        found = evaluate(graph, [X])
        assert [(s.node.primitive, s.reason) for s in found.skipped] == []
        assert len(want) == len(found.outputs)
        for j, (a, b) in enumerate(zip(found.outputs, want, strict=True)):
            node = graph.outputs[j].value.node
            assert_equal(a, b, f"{family} {i} {j} {node and node.primitive}")


def run(f, *args, **options):
    """The graph of a function and what its evaluation found."""
    graph = build(jax.make_jaxpr(f)(*args))
    return graph, evaluate(graph, jax.tree.leaves(args), **options)


def log2_of(found, index=0):
    """The one number of an output as its binary logarithm."""
    x = found.outputs[index]
    return float(np.log2(np.abs(x.array))) + x.exponent


def lost_in_plain(f, *args):
    graph, reference = run(f, *args)
    assert reference.complete
    simulated = evaluate(graph, jax.tree.leaves(args), simulate=True)
    return losses(graph, reference, simulated), simulated


# -- coverage ----------------------------------------------------------------------------------


UNKNOWN = {
    "callbacks, effects, input and output": "debug_callback debug_print io_callback pure_callback",
}


def test_every_rule_is_reached_by_a_case():
    seen = set()
    for cases in CASES.values():
        for case in cases:
            graph = build(jax.make_jaxpr(lambda _, case=case: results_of(case))(X))
            seen |= {node.primitive for node in graph.walk()}
    print(sorted(set(RULES) - seen))


# -- wide range ----------------------------------------------------------------------------------


def test_numbers_far_out_of_the_range_of_float64():
    """Against Python's integers and fractions."""
    three = jnp.float32(3.0)
    _, found = run(lambda x: lax.fori_loop(0, 1000, lambda _, c: c * 3, x) / x, three)
    assert log2_of(found) == pytest.approx(1000 * math.log2(3), rel=1e-12)
    _, found = run(lambda x: lax.integer_pow(x, 1000), three)
    x = found.outputs[0]
    exact = Fraction(3) ** 1000 / Fraction(2) ** x.exponent
    assert Fraction(float(x.array)) / exact == pytest.approx(1, abs=1e-12)
    tiny = jnp.float32(1e-30)
    _, found = run(lambda x: jnp.sqrt(lax.integer_pow(x, 100)) / lax.integer_pow(x, 49), tiny)
    assert as_float(found.outputs[0]) == pytest.approx(float(tiny), rel=1e-12)
    _, found = run(lambda x: jnp.prod(jnp.broadcast_to(x, (2000,))), tiny)
    assert log2_of(found) == pytest.approx(2000 * math.log2(float(tiny)), rel=1e-12)
    for up in (1, -1):
        x = jnp.array([1e-200, 1e-200, 1e-10]) ** up
        _, found = run(lambda x: jnp.cumprod(x)[2], x)
        assert log2_of(found) == pytest.approx(-up * 410 * math.log2(10), rel=1e-12)


def test_functions_far_out_of_the_range_of_float64():
    x = jnp.float32(1000.0)
    identities = [
        lambda x: jnp.log(jnp.exp(x)),
        lambda x: jnp.log1p(jnp.expm1(x)),
        lambda x: jnp.log2(jnp.exp2(x)),
        lambda x: jnp.asinh(jnp.sinh(x)),
        lambda x: jnp.acosh(jnp.cosh(x)),
        lambda x: -jnp.log(jax.nn.sigmoid(-x)),
        lambda x: jnp.log(jnp.exp(x) ** 0.5) * 2,
        lambda x: jnp.log(lax.cbrt(jnp.exp(x))) * 3,
        lambda x: -2 * jnp.log(lax.rsqrt(jnp.exp(x))),
        lambda x: jnp.log(jnp.tanh(jnp.sin(jnp.exp(-x)))) * -1,
        lambda x: -jnp.log(jnp.log1p(jnp.expm1(lax.erf_inv(lax.erf(jnp.exp(-x)))))),
        lambda x: -jnp.log(jnp.atan2(jnp.exp(-x), x)) - jnp.log(x),
        lambda x: jnp.where(jnp.exp(x) > jnp.exp(x - 1), x, 0),
        lambda x: jnp.log(jnp.where(x > 0, jnp.exp(x), jnp.exp(3 * x))),
        lambda x: jnp.floor(jnp.exp(x)) / jnp.exp(x) * x,
        lambda x: -jnp.ceil(-jnp.exp(-x) - 1) * x,
        lambda x: jnp.log(jnp.linalg.norm(jnp.exp(x) * jnp.array([0.6, 0.8], "f4"))),
        lambda x: jnp.log(jnp.linalg.cholesky(jnp.exp(x)[None, None])[0, 0]) * 2,
    ]
    _, found = run(lambda x: [f(x) for f in identities], x)
    assert found.complete
    for i, got in enumerate(found.outputs):
        assert as_float(got) == pytest.approx(1000.0, rel=1e-9), i
    _, found = run(lambda x: lax.erfc(x), x)
    assert log2_of(found) == pytest.approx((-1e6 - math.log(1e3 * math.sqrt(math.pi))) / math.log(2))


def test_magnitudes_are_measured():
    graph, _ = run(lambda x: x * jnp.float32(4), jnp.array([0.0, -2.0, 8.0, jnp.inf, jnp.nan], "f4"))
    assert graph.inputs[0].magnitude == (1.0, 3.0, True)
    assert graph.outputs[0].value.magnitude == (3.0, 5.0, True)
    assert measure(jnp.array([1, -4], jnp.int8)) == (0.0, 2.0, True)
    assert measure(np.zeros(3)).is_zero
    assert measure(jnp.array([3j + 4, 0], jnp.complex64)).low == pytest.approx(math.log2(5))
    assert measure(jnp.array([1.5], jnp.bfloat16)).high == pytest.approx(math.log2(1.5))


# -- nested graphs, loops, effects ----------------------------------------------------------------


def test_branches_and_calls():
    def f(x):
        y = lax.cond(x > 1, lambda x: x * 2, lambda x: x * 1e30, x)
        y = lax.switch(jnp.int32(9), [jnp.sin, jnp.cos, lambda x: x + 1], y)
        y = jax.checkpoint(jnp.square)(y) + jax.nn.relu(-y) + jax.jit(lambda z: z * 2)(y)
        return jax.grad(lambda z: jnp.logaddexp(z, 0.0))(y), y

    graph, found = run(f, jnp.float64(3.0))
    assert as_float(found.outputs[1]) == 63.0
    cond = next(n for n in graph.walk() if n.primitive == "cond")
    assert [b.nodes[0].outputs[0].magnitude is None for b in cond.graphs] == [True, False]


def test_loops_agree_with_jax():
    def f(x):
        total = lax.fori_loop(0, 5, lambda i, c: c * x[i % 3] + 1, 1.0)
        sums = lax.scan(lambda c, y: (c + y, (c, c * y)), 0.5, x, reverse=True)
        until = lax.while_loop(lambda c: c[0] < 100, lambda c: (c[0] * x[2], c[1] + 1), (1.0, 0))
        nested = lax.fori_loop(0, 3, lambda i, c: lax.fori_loop(0, i, lambda j, d: d + x[0], c), 0.0)
        empty = lax.scan(lambda c, y: (c, y), x, jnp.zeros((0, 2)))
        return total, sums, until, nested, empty, lax.map(jnp.sin, x)

    x = jnp.array([0.5, 2.0, 3.0])
    _, found = run(f, x)
    assert found.complete
    assert not found.estimated
    for got, want in zip(found.outputs, jax.tree.leaves(f(x)), strict=True):
        assert_equal(got, want, "loops")


@pytest.mark.parametrize(
    ("step", "growth"),
    [
        (lambda c: c * 1.25, 100_000 * math.log2(1.25)),
        (lambda c: c * 0.75, 100_000 * math.log2(0.75)),
        (lambda c: c + 1, math.log2(100_000)),
        (lambda c: c + 1e-3, math.log2(101)),
        (lambda c: c * 1.0001, 100_000 * math.log2(1.0001)),
        (lambda c: (c + 3) / 4, 0.0),
        (lambda c: -c, 0.0),
    ],
)
def test_a_long_loop_is_sampled(step, growth):
    graph, found = run(lambda x: lax.fori_loop(0, 100_000, lambda _, c: step(c), x), jnp.float64(1))
    assert found.estimated
    assert found.complete
    assert log2_of(found) == pytest.approx(growth, rel=0.05, abs=0.6)
    body = next(n for n in graph.walk() if n.primitive == "scan").graphs[0]
    magnitude = body.outputs[1].value.magnitude
    assert magnitude.high - magnitude.low >= abs(growth) * 0.95 - 0.6


def test_a_sampled_loop_that_explodes_is_unknown_or_infinite():
    f = lambda x: lax.fori_loop(0, 100_000, lambda _, c: c * c, x)
    _, found = run(f, jnp.float64(1.5), budget=40.0)
    assert found.outputs == [None]
    _, found = run(f, jnp.float64(1.5))  # 1.5^(2^50) is infinite even here
    assert np.isposinf(found.outputs[0].array)
    _, found = run(lambda x: lax.while_loop(lambda c: c > 0, lambda c: c * 2, x), jnp.float64(1.5))
    assert found.estimated  # its end is not known
    assert log2_of(found) > 1000


def test_effects_are_never_run():
    called = []

    def f(x):
        jax.debug.print("{}", x)
        jax.debug.callback(called.append, x)
        y = jax.pure_callback(lambda v: called.append(v) or v, jax.typeof(x), x)
        return y + 1, x * 2

    _, found = run(f, jnp.float64(2.0))
    assert called == []
    assert found.outputs[0] is None
    assert as_float(found.outputs[1]) == 4.0
    assert not found.complete


def test_what_is_too_large_is_unknown_but_measured():
    x = jnp.full((1000, 1000), 2.0)
    graph, found = run(lambda x, y: (x @ x, y + 1, jnp.sum(x)), x, jnp.float64(2.0), budget=3e6)
    assert [o is None for o in found.outputs] == [True, False, False]
    assert {s.reason for s in found.skipped} == {"over budget"}
    graph, found = run(lambda x: x + 1, x, budget=10.0)
    assert graph.inputs[0].magnitude == (1.0, 1.0, True)
    assert graph.outputs[0].value.magnitude is None


# -- what the range costs -------------------------------------------------------------------------

FORMULAS = {
    "Newton": lambda g, m, n, r: g * m * n / (r * r),
    "Planck": lambda h, nu, c, kt: 2 * h * nu**3 / c**2 / jnp.expm1(h * nu / kt),
    "Coulomb": lambda q, e, r: q * q / (4 * math.pi * e * (r * r)),
    "FDTD": lambda dt, e, dx: dt / (e * dx),
    "norm": lambda x: jnp.sqrt(jnp.sum(x * x)),
    "chain": lambda x: _chain(x),
    "3^100": lambda x: lax.integer_pow(x, 100) / lax.integer_pow(x, 99),
    "hbar": lambda hbar, m: hbar * hbar / (2 * m),
    "Boltzmann": lambda e, k, t: jnp.exp(-e / (k * t)),
}
NUMBERS = {
    "Newton": (6.674e-11, 2e30, 6e24, 1.5e11),
    "Planck": (6.626e-34, 5e14, 3e8, 1.380649e-23 * 5800),
    "Coulomb": (1.6e-19, 8.854e-12, 1e-15),
    "FDTD": (1e-17, 8.854e-12, 1e-8),
    "norm": (np.array([3e25, 4e25, 1e25]),),
    "chain": (np.array([1.0, 0.7]),),
    "3^100": (3.0,),
    "hbar": (1.0546e-34, 9.109e-31),
    "Boltzmann": (1e-21, 1.380649e-23, 300.0),
}
# Those that plain float32 and bfloat16 survive: their numbers all fit.
SURVIVE = {"FDTD", "Boltzmann"}


def _chain(x):
    for _ in range(120):
        x = x * jnp.asarray(3.24, x.dtype)
    for _ in range(120):
        x = x / jnp.asarray(3.24, x.dtype)
    return x


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", FORMULAS)
def test_plain_arithmetic_loses_the_hard_formulas(name, dtype):
    """Numbers that the type itself cannot hold come as a quantity: a `Wide`."""
    dtype = jnp.dtype(dtype)
    shapes = [jax.ShapeDtypeStruct(np.shape(x), dtype) for x in NUMBERS[name]]
    graph = build(jax.make_jaxpr(FORMULAS[name])(*shapes))
    numbers = [wide(np.asarray(x)) for x in NUMBERS[name]]
    reference = evaluate(graph, numbers)
    assert reference.complete
    want = FORMULAS[name](*(float(x) if np.ndim(x) == 0 else x for x in NUMBERS[name]))
    np.testing.assert_allclose(as_float(reference.outputs[0]), want, 2e-2)
    simulated = evaluate(graph, numbers, simulate=True)
    found = losses(graph, reference, simulated, free=[True])
    assert bool(found) == (dtype == jnp.float16 or name not in SURVIVE)
    assert bool(simulated.events) >= bool(found)
    if found:
        assert found[0].error > 0.1


LOGITS = np.array([[0.0, -3.0, -200.0], [1.0, -1e4, 5.0]])
SMALL = np.array([0.5, -0.25, 0.75, 1.25])
HARMLESS = {
    "softmax": (jax.nn.softmax, LOGITS),
    "log softmax": (jax.nn.log_softmax, LOGITS),
    "softmax gradient": (jax.grad(lambda x: jnp.sum(jax.nn.softmax(x)[:, 0])), LOGITS),
    "gaussian": (lambda x: jnp.exp(-x * x), np.array([0.0, 1.0, 5.0, 20.0, 200.0])),
    "gaussian gradient": (jax.grad(lambda x: jnp.sum(jnp.exp(-x * x))), np.array([0.0, 1, 5, 20])),
    "logsumexp": (lambda x: jax.scipy.special.logsumexp(x, 1), LOGITS),
    "mask -inf": (lambda x: jax.nn.softmax(jnp.where(x > -1, x, -jnp.inf)), LOGITS),
    "mask large": (lambda x: jax.nn.softmax(jnp.where(x > -1, x, -3e4)), LOGITS),
    "mask least": (lambda x: jax.nn.softmax(x + _mask(x)), LOGITS),
    "all masked": (lambda x: jax.nn.softmax(x + jnp.finfo(x.dtype).min), LOGITS[:, :2] / 1e4),
    "relu": (jax.nn.relu, np.array([-1.0, 0.0, 2.0])),
    "layer norm": (lambda x: (x - jnp.mean(x)) / jnp.sqrt(jnp.var(x) + 1e-3), SMALL),
    "nearly constant": (lambda x: jnp.sum((x - jnp.mean(x)) ** 2), 1 + 1e-3 * SMALL),
    "x - x": (lambda x: (x + 1e-5) - x, SMALL),
    "variance": (jnp.var, SMALL),
    "sigmoid": (jax.nn.sigmoid, np.array([-300.0, -5.0, 0.0, 300.0])),
    "gelu": (jax.nn.gelu, np.array([-30.0, -5.0, 0.0, 30.0])),
    "zeros": (lambda x: x / (1 + x * x), np.array([0.0, 1.0])),
    "infinite": (lambda x: 1 / x, np.array([0.0, 1.0, np.inf])),
    "overflow of a result": (jnp.exp, np.array([1.0, 200.0])),
}


def _mask(x):
    return jnp.where(x > -1, 0, jnp.finfo(x.dtype).min).astype(x.dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_harmless_programs_lose_nothing(dtype):
    for name, (f, numbers) in HARMLESS.items():
        found, _ = lost_in_plain(f, jnp.asarray(numbers, dtype))
        assert found == [], name


def test_events_and_losses_are_counted():
    x = jnp.array([1e30, 1.0, 1e-30, 1e-35], "f4")
    found, simulated = lost_in_plain(lambda x: jnp.sqrt(x * x), x)
    assert [(e.kind, e.entries, e.node.primitive) for e in simulated.events] == [
        ("overflow", 1, "mul"),
        ("underflow", 2, "mul"),
    ]
    assert [(loss.output, loss.entries, loss.error) for loss in found] == [(0, 3, math.inf)]
    found, _ = lost_in_plain(lambda x: (x, jnp.sum(x * x) < 1), jnp.float32(1e-30))
    assert found == []
    found, _ = lost_in_plain(lambda x: (x, x * x > 0), jnp.float32(1e-30))
    assert [loss.output for loss in found] == [1]
    found, _ = lost_in_plain(lambda x: jnp.sqrt(jnp.sum(x * x)), jnp.complex64(3e30 + 4e30j)[None])
    assert len(found) == 1


def test_exponents_are_simulated():
    """At the right exponents nothing is lost, and a conversion that overflows is an event."""
    graph = build(jax.make_jaxpr(lambda x: jnp.sqrt(x * x))(jnp.float32(1e30)))
    x = jnp.float32(1e30)
    reference = evaluate(graph, [x])
    product, root = (node.outputs[0] for node in graph.nodes)
    product.exponent, graph.nodes[1].uses[0].exponent = 100, 100
    assert losses(graph, reference, evaluate(graph, [x], simulate=True, plain=True))
    planned = evaluate(graph, [x], simulate=True, plain=False)
    assert planned.events == []
    assert losses(graph, reference, planned) == []
    graph.nodes[1].uses[0].exponent = 0
    planned = evaluate(graph, [x], simulate=True, plain=False)
    assert [(e.kind, e.place) for e in planned.events] == [("overflow", graph.nodes[1].uses[0])]
    assert losses(graph, reference, planned)
    graph.nodes[1].uses[0].exponent = 100
    root.exponent = graph.outputs[0].exponent = -40
    assert losses(graph, reference, evaluate(graph, [x], simulate=True, plain=False)) == []


def test_rounding_is_not_a_loss():
    """1 + 2^-13 - 1 in float16: the flushed term is below the rounding of the sum."""
    f = lambda x, y: (x + y * y) - x
    small = jnp.float16(2.0**-7.5)
    found, simulated = lost_in_plain(f, jnp.float16(1.0), small)
    assert simulated.events
    assert found == []
    assert lost_in_plain(lambda y: jnp.sqrt(y * y), small)[0]
