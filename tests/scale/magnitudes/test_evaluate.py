"""The graph run on numbers: every rule against JAX in float64, wide ranges, loops, budgets."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from scale_cases import CASES, X, results_of
from scale_facts import exponents_at
from tanjax.scale._plan import plan
from tanjax.scale.graph._graph import build
from tanjax.scale.laws._law import LAWS
from tanjax.scale.magnitudes import _evaluate
from tanjax.scale.magnitudes._evaluate import evaluate, measure, rounded, simulate, unsupported
from tanjax.scale.numbers._wide import as_float
from tanjax.scale.replay._replay import replay

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


# -- coverage ----------------------------------------------------------------------------------


# What cannot be run on numbers, and why; what depends on it is unknown.
UNSUPPORTED = {
    "of several devices": (
        "all_gather all_to_all axis_index pmax pmin ppermute psum ragged_all_to_all"
    ),
    "effects and mutable arrays": "after_all create_token dce_sink get stage swap",
    "its order of drawing is the backend's": "random_gamma rng_bit_generator rng_uniform",
    "its result is the backend's choice": "approx_top_k hessenberg schur tridiagonal",
    "selects by a function of its own": "select_and_scatter",
    "no counterpart in SciPy": "igamma_grad_a",
    "gone before a program is complete": "custom_lin",
    "programs to the graph": "polynomial symmetric_product call_hi_primitive",
}
# Rules that no public function of this JAX leads to on one device, or not in a graph: `lu` is given
# further results there, and what stands for a program is a call of it.
OUT_OF_REACH = """
    broadcast_to empty empty2 geqrf iota_2x32_shape layout_constraint log2 lu
    one_minus_square pbroadcast pcast pvary reduced_vary_cast
    reduced_vary_cast_p reshard sharding_constraint threefry2x32 tile
    vary_unreduced_cast vary_unreduced_cast_p with_memory_space_constraint zeros_like
"""


def test_no_primitive_is_silently_missing():
    import jax.extend.core.primitives as extended

    known = {p.name for p in vars(extended).values() if hasattr(p, "bind")}
    known |= {p.name for key, p in vars(lax).items() if key.endswith("_p")}
    listed = set(" ".join(UNSUPPORTED.values()).split())
    assert set(unsupported(known)) == listed & known
    assert set(unsupported()) <= listed


def test_every_rule_is_reached_by_a_case():
    seen = set()
    for cases in CASES.values():
        for case in cases:
            graph = build(jax.make_jaxpr(lambda _, case=case: results_of(case))(X))
            # Some equations have a node of another name: a program, or one with more results.
            seen |= {
                name for n in graph.walk() for name in (n.primitive, n.equation.primitive.name)
            }
    run = {name for name, law in LAWS.items() if law.evaluate}
    assert run - seen <= set(OUT_OF_REACH.split())


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
    assert log2_of(found) == pytest.approx(
        (-1e6 - math.log(1e3 * math.sqrt(math.pi))) / math.log(2)
    )


def test_magnitudes_are_measured():
    graph, found = run(
        lambda x: x * jnp.float32(4), jnp.array([0.0, -2.0, 8.0, jnp.inf, jnp.nan], "f4")
    )
    assert found.magnitudes[graph.inputs[0].index] == (1.0, 3.0, True)
    assert found.magnitudes[graph.outputs[0].value.index] == (3.0, 5.0, True)
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
    taken = [found.magnitudes[b.nodes[0].outputs[0].index] for b in cond.graphs]
    assert [m is None for m in taken] == [True, False]


def test_loops_agree_with_jax():
    def f(x):
        total = lax.fori_loop(0, 5, lambda i, c: c * x[i % 3] + 1, 1.0)
        sums = lax.scan(lambda c, y: (c + y, (c, c * y)), 0.5, x, reverse=True)
        until = lax.while_loop(lambda c: c[0] < 100, lambda c: (c[0] * x[2], c[1] + 1), (1.0, 0))
        nested = lax.fori_loop(
            0, 3, lambda i, c: lax.fori_loop(0, i, lambda j, d: d + x[0], c), 0.0
        )
        empty = lax.scan(lambda c, y: (c, y), x, jnp.zeros((0, 2)))
        each = jax.vmap(lambda a: lax.while_loop(lambda c: c < 9, lambda c: c * 2 + 1, a))(x)
        return total, sums, until, nested, empty, lax.map(jnp.sin, x), each

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
    magnitude = found.magnitudes[body.outputs[1].value.index]
    assert magnitude.high - magnitude.low >= abs(growth) * 0.95 - 0.6


def test_a_sampled_loop_that_explodes_is_unknown_or_infinite():
    f = lambda x: lax.fori_loop(0, 100_000, lambda _, c: c * c, x)
    _, found = run(f, jnp.float64(1.5), budget=40.0)
    assert found.outputs == [None]
    assert not found.complete
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
    _, found = run(lambda x: (jax.debug.print("{}", x), x + 1)[1], jnp.float64(2.0))
    assert found.complete


def test_what_is_too_large_is_unknown_but_measured():
    x = jnp.full((1000, 1000), 2.0)
    graph, found = run(lambda x, y: (x @ x, y + 1, jnp.sum(x)), x, jnp.float64(2.0), budget=3e6)
    assert [o is None for o in found.outputs] == [True, False, False]
    assert {s.reason for s in found.skipped} == {"over budget"}
    graph, found = run(lambda x: x + 1, x, budget=10.0)
    assert not found.complete
    assert found.magnitudes[graph.inputs[0].index] == (1.0, 1.0, True)
    assert found.magnitudes[graph.outputs[0].value.index] is None


def _looped(x):
    step = lambda c, y: (c * y * 1e25 / (1.0 + c), c + y)
    carry, rows = lax.scan(step, x[0], x)
    return jnp.sum(rows * 1e30) + carry


def _branched(x):
    big = x * 1e30 + 1e24
    grown = lambda y: jax.jit(jnp.exp)(y * 1e-30) * 1e20
    return lax.cond(big[0] > 1, grown, lambda y: y, big) * big * 1e-30


def _joined(x):
    root = jnp.sqrt(jnp.sum(x * 1e30 * (x * 1e30)) * x)
    return jnp.sum(root - x[::-1] / 1e20) * jnp.where(x > 1, x, 1e-30) * 1e-20


@pytest.mark.parametrize("f", [_looped, _branched, _joined], ids=lambda f: f.__name__)
@pytest.mark.parametrize("precision", [False, True])
def test_what_an_earlier_run_has_is_what_a_run_finds(f, precision, monkeypatch):
    """The same numbers, magnitudes and events, from fewer equations."""
    x = jnp.linspace(0.5, 2.0, 5, dtype=jnp.float32)
    closed = jax.make_jaxpr(f)(x)
    found = plan(closed, [x], [False] * len(closed.out_avals))
    run, count = _evaluate.applied, []
    monkeypatch.setattr(_evaluate, "applied", lambda *args: count.append(1) or run(*args))

    def simulated(exponents, **forgotten):
        reference = evaluate(found.graph, [x])._replace(**forgotten)
        coarse = rounded(found.graph, reference)
        reference.again["precision"] = coarse._replace(**forgotten)
        count.clear()
        out = simulate(found.graph, reference, exponents, precision=precision)
        lists = [[y.array.tolist(), np.asarray(y.exponent).tolist()] for y in out.outputs]
        return str([lists, out.magnitudes, out.events, coarse.magnitudes]), len(count)

    assert not found.identity
    for exponents in (None, found.exponents):
        (kept, few), (new, many) = simulated(exponents), simulated(exponents, env=None)
        assert kept == new
        assert few < many or exponents is None


@pytest.mark.parametrize("own", [0, 219, -219])
def test_constants_are_converted_for_each_reader_from_their_numbers(own):
    """At an exponent of its own an array from 2^-126 to 2^101 would be zero, or infinite."""
    wide_apart = jnp.array([2.0**-126, 1.0, 2.0**101], jnp.bfloat16)
    graph = build(jax.make_jaxpr(lambda x: (x * wide_apart, x + wide_apart))(wide_apart))
    x = jnp.array([4.0, 8.0, 0.5], jnp.bfloat16)
    constant = graph.constants[0]
    product = next(use for use in constant.uses if use.node.primitive == "mul")
    (result,) = product.node.outputs
    pairs = [(constant, own), (product, -12), (result, -12)]
    at = exponents_at(graph, pairs)
    simulated = simulate(graph, evaluate(graph, [x]), at)
    for got, want in zip(simulated.outputs, replay(graph, at)([x]), strict=True):
        np.testing.assert_array_equal(as_float(got), np.asarray(want, float))
    np.testing.assert_array_equal(as_float(simulated.outputs[0]), [2.0**-124, 8.0, 2.0**100])
