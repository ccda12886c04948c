"""What the range of a type costs: losses of the hard formulas, and no false alarms."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj
from scale_facts import exponents_at
from tanjax.scale._judged import Judged, _count_worse
from tanjax.scale.graph._build import build
from tanjax.scale.graph._graph import Exponents
from tanjax.scale.magnitudes._evaluate import evaluate, simulate
from tanjax.scale.magnitudes._losses import losses, lost_errors
from tanjax.scale.numbers._stored import clamp_to
from tanjax.scale.numbers._wide import Wide, as_float, wide

pytestmark = pytest.mark.core


def lost_entries(*args, **how):
    """Per output, which of its entries are lost."""
    return [None if error is None else error > 0 for error in lost_errors(*args, **how)]


def lost_in_plain(f, *args):
    """The losses in plain JAX, and the simulated run."""
    graph = build(jax.make_jaxpr(f)(*args))
    reference = evaluate(graph, jax.tree.leaves(args))
    assert reference.complete
    simulated = simulate(graph, reference)
    return losses(graph, reference, simulated), simulated


FORMULAS = {
    "Newton": (lambda g, m, n, r: g * m * n / (r * r), 6.674e-11, 2e30, 6e24, 1.5e11),
    "Planck": (
        lambda h, nu, c, kt: 2 * h * nu**3 / c**2 / jnp.expm1(h * nu / kt),
        *(6.626e-34, 5e14, 3e8, 1.380649e-23 * 5800),
    ),
    "Coulomb": (lambda q, e, r: q * q / (4 * math.pi * e * (r * r)), 1.6e-19, 8.854e-12, 1e-15),
    "FDTD": (lambda dt, e, dx: dt / (e * dx), 1e-17, 8.854e-12, 1e-8),
    "norm": (lambda x: jnp.sqrt(jnp.sum(x * x)), np.array([3e25, 4e25, 1e25])),
    "chain": (lambda x: _chain(x), np.array([1.0, 0.7])),
    "3^100": (lambda x: lax.integer_pow(x, 100) / lax.integer_pow(x, 99), 3.0),
    "hbar": (lambda hbar, m: hbar * hbar / (2 * m), 1.0546e-34, 9.109e-31),
    "Boltzmann": (lambda e, k, t: jnp.exp(-e / (k * t)), 1e-21, 1.380649e-23, 300.0),
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
    dtype, (f, *numbers) = jnp.dtype(dtype), FORMULAS[name]
    shapes = [jax.ShapeDtypeStruct(np.shape(x), dtype) for x in numbers]
    graph = build(jax.make_jaxpr(f)(*shapes))
    reference = evaluate(graph, [wide(np.asarray(x)) for x in numbers])
    assert reference.complete
    want = f(*numbers)
    np.testing.assert_allclose(as_float(reference.outputs[0]), want, 2e-2)
    simulated = simulate(graph, reference)
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
    read = graph.nodes[1].uses[0]
    at = lambda *pairs: simulate(graph, reference, exponents_at(graph, pairs))
    assert losses(graph, reference, simulate(graph, reference))
    planned = at((product, 100), (read, 100))
    assert planned.events == []
    assert losses(graph, reference, planned) == []
    planned = at((product, 100))
    assert [(e.kind, e.place) for e in planned.events] == [("overflow", read)]
    assert losses(graph, reference, planned)
    planned = at((product, 100), (read, 100), (root, -40), (graph.outputs[0], -40))
    assert losses(graph, reference, planned) == []


def test_rounding_is_not_a_loss():
    """1 + 4 · 2^-15 - 1 in float16: each flushed term is below the rounding of the sum."""
    f = lambda x, y: (x + y * y + y * y + y * y + y * y) - x
    small = jnp.float16(2.0**-7.6)
    found, simulated = lost_in_plain(f, jnp.float16(1.0), small)
    assert simulated.events
    assert found == []
    assert lost_in_plain(lambda y: jnp.sqrt(y * y), small / 32)[0]


@pytest.mark.parametrize("size", [2.0**-7.5, 2.0**-11.3, 2.0**-13.5])
def test_float16_keeps_the_bits_of_subnormal_numbers_that_jax_keeps(size):
    """Taken for zeros, the gradients of a network looked lost, which is planned on every step."""
    y = jnp.array([size, 1.3 * size, 2.9 * size, -1.7 * size], jnp.float16)
    exact = np.asarray(y, float) ** 2
    simulated = clamp_to(Wide(exact * 2.0**-30, 30), jnp.dtype("float16"), 0).value
    np.testing.assert_allclose(as_float(simulated), np.asarray(jax.jit(lambda y: y * y)(y), float),
                               rtol=2e-3, atol=2.0**-25)  # fmt: skip
    assert not lost_in_plain(lambda y: y * y, y)[0]
    flushed = clamp_to(Wide(exact * 2.0**-125), jnp.dtype("bfloat16"), 0).value
    assert not as_float(flushed).any()


def test_parts_of_a_sum_that_overflow_are_lost():
    x = jnp.array([3e38, 3e38, -3e38, -3e38], "f4")
    y = jnp.array([3e19, 3e19], "f4")
    assert lost_in_plain(jnp.sum, x)[0]
    assert lost_in_plain(lambda y: jnp.dot(y, y * jnp.array([1, -1], "f4")), y)[0]
    assert lost_in_plain(jnp.sum, x * jnp.float32(0.2))[0] == []
    assert lost_in_plain(lambda y: jnp.dot(y, y), y * jnp.float32(0.1))[0] == []


SAME = jnp.zeros(4, int)


@pytest.mark.parametrize(
    ("f", "dtype", "sign"),
    [
        (lambda x: jnp.zeros(2, x.dtype).at[SAME].add(x), "float32", 1),
        (lambda x: jnp.zeros(2, x.dtype).at[SAME].add(-x), "float16", -1),
        (lambda x: jnp.zeros(2, x.dtype).at[SAME].subtract(x), "float32", -1),
        (lambda x: x.at[SAME[1:]].add(x[1:]), "bfloat16", 1),
        (lambda x: jax.ops.segment_sum(x, SAME, 2), "float32", 1),
        (lambda x: jax.vjp(lambda y: y[SAME], x[:1])[1](x)[0], "float32", 1),
        (lambda x: jnp.zeros(2, "complex64").at[SAME].add(lax.complex(0 * x, x)), "float32", 1j),
    ],
    ids=["add", "add of half", "subtract", "into", "segments", "gradient", "complex"],
)
def test_numbers_that_meet_in_one_entry_of_a_scatter_overflow_in_between(f, dtype, sign):
    """Three large numbers, and one that takes two of them back."""
    large = float(jnp.finfo(dtype).max) * 0.46875
    x = jnp.array([large, large, large, -2 * large], dtype)
    assert not np.isfinite(np.asarray(jax.jit(f)(x))[0].astype("complex64"))
    for call in (f, jax.jit(f)):
        found = np.asarray(tj.jit(call)(x)).astype("complex64")
        np.testing.assert_allclose(found[0], np.complex64(sign * large), rtol=1e-2)
    small = tj.jit(f)
    small(x * 0.1)
    assert [plan.identity for plan in small.plans] == [True]


def test_sampled_loops_lose_only_zeros_and_infinities():
    """However much of the loop either run has seen."""

    def f(x):
        grown = lax.fori_loop(0, 100_000, lambda _, c: c + 1e-3, x)
        small = x * jnp.float32(1e-30)
        return grown, jnp.sqrt(small * small), grown * jnp.float32(1e-44)

    x = jnp.float32(1.0)
    graph = build(jax.make_jaxpr(f)(x))
    reference = evaluate(graph, [x])
    assert reference.estimated
    for budget in (2e6, 4e5):
        simulated = simulate(graph, reference._replace(budget=budget))
        assert [loss.output for loss in losses(graph, reference, simulated)] == [1]


def test_complex_and_boolean_results_of_several_axes():
    x = jnp.array([[1e-30 + 1j, 1 + 1j]], jnp.complex64)

    def f(x, steps):
        n = lax.fori_loop(0, steps, lambda i, c: c + 1.0, 1.0)
        small = x * jnp.complex64(1e-30)
        return jnp.real(x) ** 2 > 0, small * small, jnp.sqrt(small * small), n

    # One of the four parts of the root, 1e-60, does not fit a float32 in any case.
    for steps, lost in ((3, [(0, 1), (2, 3)]), (100_000, [(2, 3)])):
        graph = build(jax.make_jaxpr(f, static_argnums=1)(x, steps))
        reference = evaluate(graph, [x])
        simulated = simulate(graph, reference)
        found = losses(graph, reference, simulated)
        assert [(loss.output, loss.entries) for loss in found] == lost


def test_a_plan_that_loses_what_plain_arithmetic_has_right():
    """Fermi's function: exp(1000) needs an exponent at which ordinary numbers are zero."""
    x = jnp.array([-1.0, 0.0, 1.0, 1000.0], "f4")
    graph = build(jax.make_jaxpr(lambda x: 1 / (1 + jnp.exp(x)))(x))
    reference = evaluate(graph, [x])
    plain = simulate(graph, reference)
    assert plain.events
    assert losses(graph, reference, plain) == []
    assert [m.tolist() for m in lost_entries(graph, reference, plain)] == [[False] * 4]
    power = next(n for n in graph.nodes if n.primitive == "exp").outputs[0]
    total = power.uses[0].node.outputs[0]
    scaled = [x for value in (power, total) for x in (value, *value.uses)]
    planned = simulate(graph, reference, exponents_at(graph, [(x, 1400) for x in scaled]))
    assert [m.tolist() for m in lost_entries(graph, reference, planned)] == [[True] * 3 + [False]]
    assert [(loss.output, loss.entries) for loss in losses(graph, reference, planned)] == [(0, 3)]


@pytest.mark.parametrize(("exponent", "count"), [(30, 0), (44, 1)])
def test_quantities_could_leave_with_their_largest_entry_as_large_as_can_be(exponent, count):
    """Of 2^44 and 2^12, which no exponent of float16 holds, both survive at the exponent 30."""
    graph = build(jax.make_jaxpr(lambda x: -x)(jnp.ones(2, "f2")))
    reference = evaluate(graph, [wide(np.array([2.0**44, 2.0**12]))])
    things = [x for value in graph.values for x in (value, *value.uses)]
    run = simulate(graph, reference, exponents_at(graph, [(x, exponent) for x in things]))
    assert [loss.entries for loss in losses(graph, reference, run, free=[True])] == [1] * count


def test_quantities_are_not_excused_by_an_exponent_that_is_too_large():
    """400 and 1.5e-5 are float16 as they are, the latter with few digits."""
    graph = build(jax.make_jaxpr(lambda x: -x)(jnp.ones(2, "f2")))
    reference = evaluate(graph, [wide(np.array([400.0, 1.5e-5]))])
    things = [x for value in graph.values for x in (value, *value.uses)]
    run = simulate(graph, reference, exponents_at(graph, [(x, 11) for x in things]))
    assert [loss.entries for loss in losses(graph, reference, run, free=[True])] == [1]


@pytest.mark.parametrize(("x", "held"), [(1e-30, 0.0), (1e30, np.inf)])
def test_a_plan_must_not_make_nan_of_what_plain_arithmetic_rounds(x, held):
    """That 1e-60 is 0, and 1e60 infinite, is right: a float32 has nothing nearer."""
    x = jnp.array([x, 1.0], "f4")
    graph = build(jax.make_jaxpr(lambda x: x * x)(x))
    reference, free = evaluate(graph, [x]), [False]
    plain = Judged.of(graph, reference, free)
    assert plain.is_right
    same = Judged.of(graph, reference, free, Exponents.none(graph), plain)
    assert same.worse == 0
    nan = Wide(np.array([np.nan, 1.0]), 0)
    run = simulate(graph, reference)
    broken = run._replace(outputs=[nan])
    errors = [
        lost_errors(graph, reference, broken, **h) for h in ({"strict": True}, {"free": free})
    ]
    assert _count_worse((plain.errors[0], plain.excused[0]), [e[0] for e in errors]) == 1


def test_lost_entries_have_the_shapes_of_outputs():
    x = jnp.array([[1e-30, 1.0, 1e30], [0.0, 2.0, 1e-25]], "f4")

    def f(x):
        y = jax.pure_callback(lambda v: v, jax.typeof(x), x)
        z = lax.complex(x, jnp.ones_like(x))
        return jnp.sqrt(x * x), jnp.sum(x), x * x > 0, y, jnp.sqrt(z * jnp.conj(z)), x[0, 0] ** 2

    graph = build(jax.make_jaxpr(f)(x))
    reference = evaluate(graph, [x])
    masks = lost_entries(graph, reference, simulate(graph, reference))
    lost = [[True, False, True], [False, False, True]]
    assert masks[0].tolist() == lost
    assert not masks[1]
    assert masks[2].tolist() == [[True, False, False], [False, False, True]]
    assert masks[3] is None
    assert masks[4].tolist() == [[False, False, True], [False] * 3]
    assert not masks[5]  # 1e-60 is no float32 in any case
    plain = simulate(graph, reference)
    assert lost_entries(graph, reference, plain, strict=True)[5]
    assert lost_entries(graph, reference, plain, free=[True] * 6)[5]
    counted = {loss.output: loss.entries for loss in losses(graph, reference, plain)}
    assert {i: counted.get(i, 0) for i in (0, 1, 2, 5)} == {0: 3, 1: 0, 2: 2, 5: 0}


@pytest.mark.parametrize("power", [0, 3000, -3000])
def test_numbers_are_compared_one_by_one(power):
    """Beside 2^±3000, a relative error of 1e-3 in an ordinary entry is seen."""
    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    graph = build(jax.make_jaxpr(lambda x: jnp.sqrt(x * x))(shape))
    x = Wide(np.array([0.75, 0.5, 0.625]), np.array([power, -70, 3]))
    reference = evaluate(graph, [x])
    simulated = simulate(graph, reference)
    (got,) = lost_entries(graph, reference, simulated)
    assert got.tolist() == [False, True, False]  # what is out of its own type's range is excused
    for wrong in (1e-3, 2.0**-60):
        shaken = Wide(x.array * np.array([1, 1, 1 + wrong]), x.exponent)
        changed = simulated._replace(outputs=[shaken])
        (got,) = lost_entries(graph, reference, changed, strict=True)
        assert got.tolist() == [False, False, wrong == 1e-3]
