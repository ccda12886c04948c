"""Magnitudes of numbers, and whether they are in a window."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tanjax._dtype_range import normal_range
from tanjax.scale.graph._graph import ZERO, Magnitude
from tanjax.scale.numbers import ANYWHERE, Spread, Window, _extremes, begin, inside, measure

DTYPES = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]


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


ASKING = {
    "finite": (Window(-3.0, 3.0, True), (0, 7.9, np.inf, -np.inf, np.nan), np.isfinite),
    "nonzero": (Window(-2000.0, 3.0, nonzero=True), (0.0, -0.0, -7.0), bool),
    "peak": (Window(-2.0, 9.0, peak=3.0), (0, 0.25, 4.0, 8.0, -8.0, -64.0), lambda x: abs(x) >= 8),
}


@pytest.mark.parametrize("dtype", [*DTYPES, *COMPLEX, "float8_e4m3fn"])
@pytest.mark.parametrize("size", [1, 5, 1 << 17])
@pytest.mark.parametrize("what", ASKING)
def test_a_window_may_ask_for_more(dtype, size, what):
    """Finite numbers, no zero of either sign, or one large number, wherever it is."""
    asking, values, fits = ASKING[what]
    x = np.full(size, 0.25 if what == "peak" else 1).astype(dtype)
    for where in (0, size - 1):
        for value in (*values, *[jnp.finfo(dtype).smallest_subnormal] * (what == "nonzero")):
            y = x.copy()
            y[where] = value
            assert inside(y, asking._replace(finite=False, nonzero=False, peak=-math.inf))
            assert inside(y, asking) is bool(fits(value))
            assert inside(jnp.asarray(y), asking) is bool(fits(value))
    assert inside(x[:0], asking)


def test_more_is_asked_for_on_several_devices_and_of_single_numbers():
    mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    place = jax.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    placed = lambda *numbers: jax.device_put(jnp.array(numbers), place)
    large, refusing = ANYWHERE._replace(peak=3.0), ANYWHERE._replace(nonzero=True)
    spread = lambda high: Spread(jnp.ones(3), _extremes.Seen(Magnitude(0.0, high), True, False))
    assert inside(spread(3.0), large)
    assert not inside(spread(2.9), large)
    assert inside(placed(1.0, 0.0, -9.0, 1.0), large)
    assert not inside(placed(1.0, 0.0, -7.0, 1.0), large)
    assert inside(placed(1.0, 1e-9, -4.0, jnp.inf), refusing)
    assert not inside(placed(1.0, 1.0, -4.0, 0.0), refusing)
    few = [(0.0, large), (7.0, large), (np.float32(7), large), (7j, large)]
    for number, asking in (*few, *((zero, refusing) for zero in (0.0, 0j, np.float32(0)))):
        assert inside(number, ANYWHERE)
        assert not inside(number, asking)
        assert inside(number + 9, asking)
    for value in (math.inf, math.nan):
        assert not inside(value, Window(-3.0, 3.0, True))
        assert inside(value, Window(-3.0, 3.0))


def test_a_wrong_bit_is_found(monkeypatch):
    """The tests of `inside` fail if the sign bit stays."""
    monkeypatch.setattr(_extremes, "ends_of", lambda window, dtype: (0, 2**64, 2**65, 2**65))
    with pytest.raises(AssertionError):
        test_each_end_counts_alone("float32", 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("signs", [(1, 1), (-1, -1), (1, -1), (-1, 1)])
def test_the_ends_of_large_arrays_of_any_signs_are_seen(dtype, signs):
    x = np.full(100_000, 2.0)
    x[3], x[70_000] = signs[0] * 0.25, signs[1] * 8.0
    for y in (x, -x):
        assert inside(numbers(dtype, *y), Window(-2.0, 3.0))
        assert not inside(numbers(dtype, *y), Window(-1.0, 3.0))
        assert not inside(numbers(dtype, *y), Window(-2.0, 2.0))


@pytest.mark.parametrize("places", [(4, 4, 4), (1, 4, 2)], ids=["one program", "several"])
def test_a_look_at_many_arrays_agrees_with_a_look_at_each(places):
    """Either end, zeros, infinities and a least largest number: each refuses alone."""
    arrays = [jnp.full(3, -1.0), jnp.asarray([0.25, 0.0, 4.0]), jnp.asarray([1.0, jnp.inf, 2.0])]
    ends = [Window(low, high) for low in (-3.0, -1.0, 1.0) for high in (-0.5, 1.0, 3.0)]
    asking = [ANYWHERE._replace(peak=x) for x in (-1.0, 0.5, 1.5, 2.5)]
    asking += [ANYWHERE._replace(finite=True), ANYWHERE._replace(nonzero=True)]
    there = [copied(x, count) for x, count in zip(arrays, places, strict=True)]
    for place, x in enumerate(arrays):
        for window in ends + asking:
            windows = [window if i == place else ANYWHERE for i in range(3)]
            assert begin(there, windows)() == inside(x, window), (place, window)


def copied(x, count):
    """An array of which so many devices have a copy."""
    mesh = jax.make_mesh((count,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.device_put(x, jax.NamedSharding(mesh, jax.sharding.PartitionSpec()))
