"""Several arrays that are looked at in one row: the same answers as one by one."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tanjax.scale.numbers import ANYWHERE, Window, _in_row, inside
from tanjax.scale.numbers._in_row import InRow

DTYPES = [jnp.float32, jnp.float16, jnp.bfloat16, jnp.float64]
SHAPES = [(), (1,), (5,), (3, 4), (0,), (2, 3, 2)]
ZEROS = Window(math.inf, -math.inf)  # and nothing else


def drawn(rng):
    """An array of any dtype around any magnitude, some of it zero, infinite or no number."""
    shape = SHAPES[rng.integers(len(SHAPES))]
    x = np.asarray(rng.normal(size=shape) * 2.0 ** rng.integers(-30, 30))
    x = np.where(rng.random(shape) < 0.3 * rng.integers(2), 0.0, x)
    if rng.random() < 0.1:
        x = np.where(rng.random(shape) < 0.3, rng.choice([np.inf, -np.inf, np.nan]), x)
    with np.errstate(over="ignore"):
        return jnp.asarray(x.astype(DTYPES[rng.integers(len(DTYPES))]))


def window(rng):
    middle = rng.integers(-35, 35)
    low, high = middle - rng.integers(0, 80), middle + rng.integers(0, 80)
    peak = -math.inf if rng.random() < 0.7 else float(rng.integers(low - 5, middle + 5))
    flags = bool(rng.integers(2)), rng.random() < 0.3, peak
    return ZEROS if rng.random() < 0.1 else Window(float(low), float(high), *flags)


def test_arrays_in_a_row_are_where_they_are_one_by_one():
    rng, counts = np.random.default_rng(0), [0, 0]
    for _ in range(300):
        arrays = [drawn(rng) for _ in range(rng.integers(2, 5))]
        windows = [window(rng) for _ in arrays]
        assert InRow.can(arrays)
        found = InRow(windows, arrays).inside(arrays)
        assert found == all(inside(x, w) for x, w in zip(arrays, windows, strict=True)), (
            arrays,
            windows,
        )
        counts[found] += 1
    assert min(counts) > 25


def test_a_number_at_any_place_is_found(monkeypatch):
    monkeypatch.setattr(_in_row, "inside", None)  # nothing is looked at alone
    arrays = [jnp.full(n, 2.0, jnp.float32) for n in (3, 7, 1, 20)]
    row = InRow([Window(0.0, 3.0)] * 4, arrays)
    assert row.inside(arrays)
    for i, x in enumerate(arrays):
        for place in range(x.size):
            for value in (8.1, -8.1, 0.9, -0.9):
                others = [*arrays[:i], x.at[place].set(value), *arrays[i + 1 :]]
                assert not row.inside(others)
        zero = [*arrays[:i], x.at[0].set(-0.0), *arrays[i + 1 :]]
        assert row.inside(zero)
        for refusing in range(4):
            windows = [Window(0.0, 3.0, False, k == refusing) for k in range(4)]
            assert InRow(windows, arrays).inside(zero) is (refusing != i)
        large = [*arrays[:i], x.at[-1].set(-4.0), *arrays[i + 1 :]]
        for asking in range(4):
            peaks = [2.0 if k == asking else -math.inf for k in range(4)]
            windows = [Window(0.0, 3.0, peak=p) for p in peaks]
            assert InRow(windows, arrays).inside(large) is (asking == i)


def test_arrays_that_make_no_row_are_looked_at_otherwise():
    x = jnp.ones(3, jnp.float32)
    assert InRow.can([x, x])
    assert not InRow.can([x])
    assert not InRow.can([x, np.ones(3)])
    assert not InRow.can([x, x.astype(jnp.complex64)])
    assert not InRow.can([x, jnp.ones(InRow.MOST, jnp.float32)])
    assert not InRow.can([x, jnp.ones(3, jnp.float8_e4m3fn)])


def test_arrays_on_several_devices_are_looked_at_one_by_one():
    """Of arrays of one shape some may be where Python's buffers do not reach."""
    x = jnp.full((2, 3), 4.0, jnp.float32)
    row = InRow([Window(0.0, 3.0), ANYWHERE], [x, x])
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("a",))
    for spec in (jax.P("a"), jax.P()):
        there = jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))
        assert row.inside([there, x])
        assert not row.inside([there * 4.0, x])


def test_an_array_that_is_gone_is_said():
    x, y = jnp.ones(3, jnp.float32), jnp.ones(3, jnp.float32)
    row = InRow([ANYWHERE] * 2, [x, y])
    y.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        row.inside([x, y])
