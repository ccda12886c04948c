"""Windows: what is drawn around numbers, which checks a program needs, and that nothing gets by."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tanjax.scale import build, plan
from tanjax.scale.graph._graph import Exponents
from tanjax.scale.numbers import Window, inside, measure
from tanjax.scale.windows import extremes, find, flagged, limits_of, magnitudes_in

pytestmark = pytest.mark.core


class Drawn:
    """A program with the windows around the numbers of its first call."""

    def __init__(self, program, *args):
        closed = jax.make_jaxpr(program)(*args)
        self.plan = plan(closed, args, [False] * len(closed.out_avals))
        graph, e = self.plan.graph, self.plan.exponents
        seen = [
            measure(x) if v.is_floating else None for v, x in zip(graph.inputs, args, strict=True)
        ]
        self.windows = find(graph, e, seen, self.plan.magnitudes)
        if self.windows is not None:
            self.run = jax.jit(flagged(graph, e, self.windows))

    def takes(self, *args):
        pairs = zip(args, self.windows.arguments, strict=True)
        return all(w is None or inside(x, w) for x, w in pairs)

    def __call__(self, *args):
        """The flag and the results."""
        flag, results = self.run(limits_of(self.windows, self.plan.exponents), args)
        return bool(flag), results

    @property
    def checks(self):
        return len(self.windows.inner) + len(self.windows.told)


def f32(*numbers):
    return jnp.asarray(np.clip(numbers, -3e38, 3e38), jnp.float32)


PROVED = {
    "a polynomial": (lambda x: 1 + x * (2 + x * 3), [f32(0.5, -2.0)]),
    "a tail beside one": (lambda x: 1 + jnp.exp(-x * x), [f32(3.0, 50.0)]),
    "a softmax": (
        lambda x: jnp.exp(x - x.max()) / jnp.exp(x - x.max()).sum(),
        [f32(-2.0, 0.0, 2.0)],
    ),
    "a layer": (lambda x, w: jnp.tanh(x @ w), [f32(1.0, 2.0)[None], jnp.eye(2, dtype=jnp.float32)]),
    "a denominator that may be infinite": (lambda x: 1 / (1 + jnp.exp(x)), [f32(-3.0, 50.0)]),
}
FLAGGED = {
    "a difference that divides": (lambda x, y: 1 / (x - y), [f32(3.0), f32(1.0)]),
    "a tail that is multiplied": (lambda x: jnp.exp(-x) * 1e30, [f32(60.0)]),
    "the carry of a scan": (
        lambda x: lax.scan(lambda c, _: (c * 1.5, c), x, length=60)[0],
        [f32(1.0)],
    ),
    "the carry of a while loop": (
        lambda x: lax.while_loop(lambda c: c[0] < 100, lambda c: c * 1.5, x),
        [f32(1.0)],
    ),
    "a branch": (lambda x: lax.cond(x[0] > 0, lambda x: 1 / (x - 1), lambda x: x, x), [f32(3.0)]),
    "a system": (jnp.linalg.solve, [f32(4.0, 1.0, 1.0, 3.0).reshape(2, 2), f32(1.0, 2.0)]),
    "steps that are computed again": (
        jax.grad(jax.checkpoint(lambda x: jnp.sum(1 / (x - 2 * x[0]) ** 3))),
        [f32(1.0, 5.0)],
    ),
    "exponents": (lambda m, r: m * m * 1e-30 / r**2, [f32(2e30), f32(1e11)]),
}


@pytest.mark.parametrize("name", PROVED)
def test_program_that_bounds_keep_in_range_is_proved_by_its_arguments_alone(name):
    program, args = PROVED[name]
    drawn = Drawn(program, *args)
    assert drawn.windows.are_proved
    assert drawn.takes(*args)
    assert not drawn(*args)[0]


@pytest.mark.parametrize("name", FLAGGED)
def test_values_that_no_bound_reaches_are_checked_by_the_program(name):
    program, args = FLAGGED[name]
    drawn = Drawn(program, *args)
    assert drawn.checks
    assert drawn.takes(*args)
    assert not drawn(*args)[0]


def test_flag_is_raised_where_a_number_vanishes_that_is_multiplied():
    program, args = FLAGGED["a tail that is multiplied"]
    drawn = Drawn(program, *args)
    assert drawn.takes(f32(95.0))
    assert drawn(f32(95.0))[0]


def test_flag_of_a_loop_is_raised_by_a_step_in_the_middle():
    """The last step is in its window again."""

    def there_and_back(x):
        step = lambda c, i: (jnp.where(i < 5, c * c, jnp.sqrt(jnp.sqrt(c))), None)
        return lax.scan(step, x, jnp.arange(10))[0]

    drawn = Drawn(there_and_back, f32(1.01))
    assert not drawn(f32(1.01))[0]
    assert drawn(f32(30.0))[0] or not drawn.takes(f32(30.0))


def test_flag_tells_of_a_number_that_decides_how_long_a_loop_runs():
    """The counter comes first in the carry, and has no error."""
    more = lambda c: (c[0] < 3) & (c[1] * 1e38 > 1e-5)
    count = lambda x: lax.while_loop(more, lambda c: (c[0] + 1, c[1]), (0, jnp.exp(-x)))[0]
    drawn = Drawn(count, jnp.float32(60.0))
    assert not drawn(jnp.float32(60.0))[0]
    gone = jnp.float32(95.0)  # 5.5e-42, which is zero to XLA
    assert not drawn.takes(gone) or drawn(gone)[0]


def test_no_window_is_drawn_where_nothing_is_known_of_a_primitive():
    draw = lambda x: jax.random.gamma(jax.random.key(0), x)
    assert Drawn(draw, f32(1.0, 2.0)).windows is None


def test_numbers_of_a_call_that_overflow_have_no_window():
    assert Drawn(lambda x: jnp.sqrt(x * x), f32(1e-3)).windows is not None
    drawn = Drawn(lambda x: jnp.stack([x * x, 1 / x]), f32(1e30, 1e-30))
    assert drawn.windows is None or drawn.plan.alarms


@pytest.mark.parametrize(
    "name", sorted(FLAGGED.keys() - {"a system"})
)  # whose factors are one array
def test_extremes_of_a_run_are_the_magnitudes_of_a_look(name):
    program, args = FLAGGED[name]
    drawn = Drawn(program, *args)
    graph, e = drawn.plan.graph, drawn.plan.exponents
    asked = {v.index for v in graph.values if v.is_floating}
    found, _ = jax.jit(extremes(graph, e, asked))(args)
    trios = zip(magnitudes_in(graph, e, found), drawn.plan.magnitudes, graph.values, strict=True)
    for m, seen, value in trios:
        is_asked = value.is_floating and value.kind != "constant" and seen is not None
        if is_asked and not seen.is_zero:
            np.testing.assert_allclose([m.low, m.high], [seen.low, seen.high], atol=1e-3)


def test_extremes_of_what_overflows_are_infinite():
    closed = jax.make_jaxpr(lambda x: x * x / x)(jnp.float32(1e30))
    graph = build(closed)
    none = Exponents.none(graph)
    index = graph.nodes[0].outputs[0].index
    found, _ = jax.jit(extremes(graph, none, {index}))([jnp.float32(1e30)])
    assert magnitudes_in(graph, none, found)[index].high == np.inf


def test_windows_are_asked_on_devices_as_on_the_host():
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float16", "bfloat16", "complex64"):
        for _ in range(60):
            low = rng.uniform(-20, 5)
            window = Window(
                low,
                low + rng.uniform(0, 12),
                True,
                bool(rng.integers(2)),
                rng.choice([-np.inf, low + 1]),
            )
            x = rng.normal(size=5) * 2.0 ** rng.uniform(low - 2, low + 8)
            x = jnp.asarray(np.where(rng.random(5) < 0.2, 0, x), dtype)
            at_an_end = 0.6 if dtype == "complex64" else 0.01
            sizes = np.log2(np.abs(np.asarray(x, np.complex128)[np.asarray(x) != 0]) + 1e-300)
            ends = [e for e in (window.low, window.high, window.peak) if np.isfinite(e)]
            if not any(abs(s - e) < at_an_end for s in sizes for e in ends):
                assert inside(x, window) == inside(shared(x), window), (dtype, window, x)
    for number in (1e-39, np.nan, np.inf):  # XLA takes the first for zero
        assert not inside(shared(f32(number)), Window(-126.0, 3.0, True))


def shared(x):
    """An array of which several devices have a copy."""
    mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.device_put(x, jax.NamedSharding(mesh, jax.sharding.PartitionSpec()))


SOUND = PROVED | FLAGGED | {
    "a quotient of sums": (lambda x, y: x.sum() / (y * y).sum(), [f32(1.0, 2.0), f32(3.0, 4.0)]),
    "a norm": (lambda x: x / jnp.sqrt((x * x).sum()), [f32(1.0, 2.0)]),
    "a gradient": (jax.grad(lambda x: jnp.sum(jnp.tanh(x) ** 3 / (1 + x * x))), [f32(1.0, 2.0)]),
    "powers that vanish": (lambda x, y: x**8 * y, [f32(0.5), f32(1e10)]),
    "a picked entry": (lambda x: (x * x)[0] * 1e20, [f32(1.0, 3.0)]),
    "a largest entry": (lambda x: jnp.exp(x - x.max()).sum() - 1, [f32(1.0, 3.0)]),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in SOUND if name != "a system"])
def test_arguments_in_their_windows_without_a_flag_have_right_results(name):
    program, args = SOUND[name]
    drawn, rng, judged = Drawn(program, *args), np.random.default_rng(len(name)), 0
    loops = "scan" in name or "while" in name
    for i in range(150):
        new = [
            f32(x * 2.0 ** (rng.uniform(-1, 1) if i % 3 == 0 else rng.uniform(-60, 30, x.shape)))[0]
            for x in map(np.asarray, args)
        ]
        if not drawn.takes(*new):
            continue
        flag, (got,) = drawn(*new)
        if flag:
            continue
        judged += 1
        with jax.enable_x64(True):
            true = np.asarray(program(*(jnp.asarray(np.asarray(x), jnp.float64) for x in new)))
        size = np.abs(true) + (np.abs(true).max() if true.ndim else 0) * ("norm" in name)
        room = 2e-4 if loops else 2e-5
        floor = 2.0**-126 if true.ndim else 0.0  # what a result cannot hold may vanish
        conditioned = any(word in name for word in ("largest", "difference", "system", "gradient"))
        assert np.all(
            np.abs(np.asarray(got) - true) <= room * size + floor + conditioned * 1e-4 * (1 + size)
        ), new
    assert judged >= 3
