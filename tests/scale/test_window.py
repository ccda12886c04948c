"""Windows: wide where a program allows it, and right: inside them no value leaves its range."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax import lax

from tanjax.scale import _measure, _movements
from tanjax.scale._evaluate import evaluate
from tanjax.scale._graph import ZERO, Magnitude, build
from tanjax.scale._measure import ANYWHERE, Window, inside, measure
from tanjax.scale._range import normal_range
from tanjax.scale._window import windows

DTYPES = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]


def measured(f, *args):
    graph = build(jax.make_jaxpr(f)(*args))
    evaluate(graph, args, budget=1e12)
    return graph


def of(f, *args):
    return windows(measured(f, *args))


def margins(f, *args):
    """How many bits the first input may move down and up."""
    graph = measured(f, *args)
    window, m = windows(graph)[0], graph.inputs[0].magnitude
    return m.low - window.low, window.high - m.high


def numbers(dtype, *values):
    return np.array(values).astype(dtype)


# -- measure ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES + COMPLEX)
@pytest.mark.parametrize("make", [lambda x: x, jnp.asarray], ids=["numpy", "jax"])
def test_measure_sees_the_least_and_the_largest(dtype, make):
    x = make(numbers(dtype, 0, -8, 0.25, np.inf, np.nan, 2))
    assert measure(x) == Magnitude(-2.0, 3.0, True)
    assert measure(x[:1]) == measure(x[3:5]) == measure(x[:0]) == ZERO
    assert measure(x.reshape(2, 3)[:, ::-1]) == Magnitude(-2.0, 3.0, True)


def test_measure_of_the_ends_of_the_range():
    for dtype in DTYPES:
        info = jnp.finfo(dtype)
        m = measure(numbers(dtype, float(info.max), float(info.smallest_subnormal)))
        assert m.high == pytest.approx(normal_range(dtype)[1], abs=1e-2)
        assert m.low == math.log2(float(info.smallest_subnormal))


def test_measure_takes_numbers_integers_and_things_that_are_neither():
    assert measure(3) == measure(3.0) == measure(np.array([3, 0])) == measure(np.int8(-3))
    assert measure(True) == Magnitude(0.0, 0.0, True)
    assert measure(0) == measure(math.inf) == measure(jax.random.key(0)) == ZERO
    assert measure(3 + 4j) == Magnitude(math.log2(5), math.log2(5), True)
    assert measure(np.array([4.0], jnp.float8_e4m3fn)) == Magnitude(2.0, 2.0, True)


# -- inside ----------------------------------------------------------------------------------------

sizes = st.sampled_from([0, 1, 2, 7, 100])
ends = st.floats(-30, 30)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inside_agrees_with_measure(dtype):
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.integers(0, 2**32), sizes, ends, ends, st.booleans())
    def run(seed, size, low, high, spoil):
        rng = np.random.default_rng(seed)
        x = rng.choice([-1.0, 1.0], size) * 2.0 ** rng.uniform(-12, 12, size)
        if spoil:
            x[::3] = rng.choice([0.0, np.nan, np.inf, -np.inf, -0.0], len(x[::3]))
        x = numbers(dtype, *x)
        m, window = measure(x), Window(low, high)
        assert inside(x, window) == (m.is_zero or low <= m.low <= m.high <= high)
        assert inside(x, Window(m.low, m.high))

    run()


@pytest.mark.parametrize("dtype", DTYPES + COMPLEX)
@pytest.mark.parametrize("size", [1, 3, 1 << 17])
def test_each_end_counts_alone(dtype, size):
    """An entry of either sign that is a little too large or too small is seen, wherever it is."""
    x = np.ones(size).astype(dtype)
    window = Window(-3.0, 3.0)
    assert inside(x, window)
    for where in (0, size - 1):
        for sign in (-1, 1):
            for value, fits in ((7.9, True), (8.1, False), (0.13, True), (0, True), (np.inf, True)):
                y = x.copy()
                y[where] = sign * value
                assert inside(y, window) is fits
            y[where] = sign * (0.08 if np.dtype(dtype).kind == "c" else 0.12)
            assert inside(y, window) is False
            assert inside(jnp.asarray(y), window) is False


def test_the_window_of_an_array_holds_it():
    for dtype in DTYPES + COMPLEX:
        x = numbers(dtype, 3 + 3j if dtype in COMPLEX else 3, 0.3)
        m = measure(x)
        assert inside(x, Window(m.low, m.high))
        assert inside(x, ANYWHERE)
        assert not inside(x, Window(20.0, 30.0))
        assert not inside(x, Window(-3000.0, -2000.0))
        assert not inside(x, Window(2000.0, 3000.0))


def test_scalars_and_python_numbers():
    for x in (2.0, np.float32(2), jnp.bfloat16(-2.0), np.array(2.0), 2j):
        assert inside(x, Window(0.5, 1.5))
        assert not inside(x, Window(1.5, 2.5))
    assert inside(0.0, Window(1.0, 2.0))
    assert inside(math.nan, Window(1.0, 2.0))


def test_arrays_on_several_devices_are_looked_at_where_they_are():
    mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    place = jax.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    x = jax.device_put(jnp.array([1.0, 0.0, -4.0, jnp.inf]), place)
    assert measure(x) == Magnitude(0.0, 2.0, True)
    assert inside(x, Window(0.0, 2.0))
    assert not inside(x, Window(0.0, 1.5))
    assert not inside(x, Window(0.5, 2.5))
    assert inside(x * 0, Window(0.5, 2.5))
    z = jax.device_put(jnp.array([1.0 + 1j, 0.0, 0.0, 0.0]), place)
    assert inside(z, Window(0.0, 0.6))


# -- windows ---------------------------------------------------------------------------------------


def test_ordinary_programs_have_wide_windows():
    x = np.float32(1)
    assert of(lambda x, y: x * y + 1, x, x) == [Window(-60.0, 60.0)] * 2
    xs = np.linspace(0.5, 2, 9, dtype=np.float32)
    for f in (jnp.sin, lambda x: x / 3, lambda x: x + x[::-1], lambda x: jnp.sqrt(x), jnp.sum):
        assert margins(f, xs) == (60.0, 60.0)
    assert margins(lambda x: x**3, xs) == (32.0, 32.0)
    assert min(margins(jax.nn.softmax, xs)) >= 2.0


def test_half_precision_has_some_bits():
    x = numbers("float16", 0.01, 1, 100)
    assert min(margins(lambda x: 3 * x + 2, x)) > 5.9
    down, up = margins(lambda x: x * x, x)
    assert down == 0.25
    assert 1.0 <= up <= 1.5


def test_a_program_that_needs_more_has_a_narrower_window():
    x = np.float32(1)
    power = lambda n: margins(lambda x: x**n, x)[1]
    assert [power(n) for n in (2, 8, 40)] == [60.0, 12.0, 3.0]
    assert 4.0 <= margins(jnp.exp, x)[1] <= 6.5  # exp(88) is the last in float32


def test_exponents_of_the_plan_move_the_window():
    graph = measured(lambda x: x * x, np.float32(2.0**60))
    assert windows(graph)[0].high == 63.0
    for value in graph.values:
        value.exponent = 60 if value.node is None else 120
    for use in graph.uses:
        use.exponent = use.value.exponent
    assert windows(graph)[0] == Window(0.0, 120.0)


def test_the_dtype_can_be_given():
    graph = measured(lambda x: x * x, np.float32(1))
    assert windows(graph, lambda value: np.dtype(np.float16))[0] == Window(-6.0, 6.0)


def test_what_underflows_already_without_harm_does_not_count():
    x = np.array([1e-30, 1.0], np.float32)
    down, up = margins(lambda x: 1 + x * x, x)
    assert down >= 24.0
    assert up == 60.0


def test_a_cancellation_may_become_as_large_as_its_terms():
    x = np.array([1.0, 2.0], np.float32)
    close = np.nextafter(x, np.float32(3))
    assert margins(lambda x, y: (x - y) ** 5, x, close)[1] <= 25.0


def test_zero_and_integer_inputs():
    x = np.float32(1)
    one, zero, integer = of(lambda x, y, n: x * y * n, x, np.float32(0), 3)
    assert zero == Window(-60.0, 60.0)
    assert integer is None
    assert inside(np.float32(0), zero)
    alone = of(lambda x: 2 * x, np.float16(0))[0]
    assert alone.low <= -3.0
    assert alone.high >= 3.0
    assert one.high >= 20.0


def test_arrays_that_are_moved_together_move_apart():
    x = np.float32(1)
    f = lambda x, y: tuple(jax.device_put((x**20, y)))
    assert margins(f, x, x)[1] == 6.0


def test_unknown_magnitudes_do_not_count():
    graph = build(jax.make_jaxpr(lambda x: x * x)(np.float32(1)))
    assert windows(graph) == [ANYWHERE]


def test_loops_multiply_what_each_iteration_moves():
    x = np.float32(1)
    power = lambda x, y: lax.fori_loop(0, 10, lambda i, c: c * y, x)
    assert 6.0 <= margins(power, x, x)[1] <= 12.0
    stable = lambda x: lax.fori_loop(0, 1000, lambda i, c: c + 1e-3 * jnp.sin(c), x)
    assert margins(stable, x) == (60.0, 60.0)
    linear = lambda x, a: lax.fori_loop(0, 1000, lambda i, c: c + 1e-3 * (a @ c), x)
    assert min(margins(linear, np.ones(3, np.float32), np.eye(3, dtype=np.float32))) >= 4.0
    search = lambda x: lax.while_loop(lambda c: c < 10, lambda c: c + 1, x)
    assert min(margins(search, x)) >= 8.0
    choose = lambda x: lax.cond(x > 0, lambda x: x**4, lambda x: -x, x)
    assert margins(choose, x)[1] == 24.0


def moved_values_stay_in_range(f, *args, spread=0.0):
    """Move the inputs to the ends of their windows: what was in range stays there."""
    graph = measured(f, *args)
    found = windows(graph)
    before = [v.magnitude for v in graph.values]
    for up in (True, False):
        moved = []
        for x, w in zip(args, found, strict=True):
            m = measure(x)
            bits = w.high - m.high if up else w.low - m.low
            moved.append((np.asarray(x) * 2.0**bits).astype(x.dtype))
        after = measured(f, *moved)
        for value, was, now in zip(graph.values, before, after.values, strict=True):
            now = now.magnitude
            if not value.is_floating or was is None or was.is_zero or now.is_zero:
                continue
            smallest, largest = normal_range(value.aval.dtype)
            if was.high <= largest:
                assert now.high <= largest + spread, (value.node, was, now)
            if was.low >= smallest:
                assert now.low >= smallest - spread, (value.node, was, now)


PROGRAMS = {
    "planck": lambda x, y: x**3 / (jnp.exp(x / y) - 1),
    "gravity": lambda x, y: x * y / (x**2 + y**2) ** 1.5,
    "energy": lambda x, y: jnp.sum(x * y**2) / 2,
    "norm": lambda x, y: y / jnp.sqrt(jnp.sum(x * x)),
    "log": lambda x, y: jnp.log(x * y) * x,
    "sigmoid": lambda x, y: jax.nn.sigmoid(x) * y,
    "matmul": lambda x, y: jnp.outer(x, y) @ jnp.tanh(x),
    "pow": lambda x, y: x**2.5 * jnp.cbrt(y),
    "inverse": lambda x, y: 1 / (x * x * y),
    "loop": lambda x, y: lax.fori_loop(0, 4, lambda i, c: c * y, x),
    "exp2": lambda x, y: jnp.exp2(x) + jnp.sinh(y),
}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_inside_the_window_nothing_leaves_its_range(dtype, name):
    x, y = numbers(dtype, 1.5, 2, 1.2), numbers(dtype, 0.7, 1, 1.1)
    moved_values_stay_in_range(PROGRAMS[name], x, y, spread=0.1)


@pytest.mark.parametrize("name", ["mul", "integer_pow", "exp"])
def test_a_wrong_movement_is_found(monkeypatch, name):
    """The test above fails if a primitive is said to move half of what it does."""
    right = _movements.MOVEMENTS[name]
    half = lambda move: move and (move[0] / 2, move[1] / 2)
    monkeypatch.setitem(
        _movements.MOVEMENTS, name, lambda node, ms: [half(m) for m in right(node, ms)]
    )
    f = {"mul": lambda x: x * x[::-1], "integer_pow": lambda x: x**5, "exp": jnp.exp}[name]
    with pytest.raises(AssertionError):
        moved_values_stay_in_range(f, numbers("float16", 1.5, 2, 1.2), spread=0.1)


def test_a_wrong_bit_is_found(monkeypatch):
    """The tests of `inside` fail if the sign bit stays."""
    monkeypatch.setattr(_measure, "_ends", lambda window, dtype: (0, 2**64, 2**65))
    with pytest.raises(AssertionError):
        test_each_end_counts_alone("float32", 3)
