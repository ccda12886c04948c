"""Points of a scale: degrees Celsius beside kelvin, differences, zeros without a unit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from quantities import assert_quantity

C, F, K, dBm = (tj.unit(name) for name in ("degC", "degF", "K", "dBm"))
STEP = C.delta
T = jnp.array([10.0, 20.0, 30.0]) * C


@pytest.mark.parametrize("scale", [C, F])
@pytest.mark.parametrize(
    "zeroed",
    [
        tj.lift(jax.nn.relu),
        tj.lift(lambda T: jnp.pad(T, 1)),
        tj.lift(lambda T: jnp.zeros(3).at[0].set(T[0])),
        tj.lift(lambda T: jax.lax.cond(True, lambda: T[0], lambda: 0.0)),
        tj.lift(lambda T: jax.lax.fori_loop(0, 2, lambda i, _: T[i], 0.0)),
        lambda T: tj.cond(False, lambda T: T, lambda T: 0.0, T[0]),
        lambda T: tj.scan(lambda c, _: (0.0, None), T[0], None, length=2)[0],
        lambda T: tnp.where(jnp.array([True, False, True]), T, 0),
        lambda T: tnp.clip(T, 0.0, T[2]),
        lambda T: T.at[0].set(0),
        lambda T: T.at[0].get(fill_value=0.0),
        lambda T: np.pad(T, 1),
        lambda T: np.pad(T, 1, constant_values=0),
    ],
)
def test_zero_without_a_unit_is_no_point(scale, zeroed):
    """It would be 0 °C or 0 °F, whichever the quantity happens to be in."""
    with pytest.raises(tj.UnitError):
        zeroed(T.to(scale))


@pytest.mark.parametrize(
    "f",
    [
        jnp.nanmax,
        jnp.sort,
        lambda T: jnp.max(T, initial=-jnp.inf),
        lambda T: jnp.where(T[0] < T, T, jnp.inf),
        lambda T: jax.lax.cond(False, lambda: -jnp.inf, lambda: T[2]),
    ],
)
def test_infinities_are_no_places_on_a_scale(f):
    got, expected = tj.lift(f)(T), f(T.stored)
    assert_quantity(got, "degC", expected)


ROOM, SAME, HOT = 20.0 * C, 293.15 * K, jnp.float32(1e30) * K * 1e20


@pytest.mark.parametrize(
    ("call", "unit", "value"),
    [
        (lambda: T.at[0].set(300.0 * K)[0], C, 26.85),
        (lambda: T.at[0].max(300.0 * K)[0], C, 26.85),
        (lambda: tnp.where(False, ROOM, 300.0 * K), C, 26.85),
        (lambda: tnp.where(False, 300.0 * K, ROOM), K, 293.15),
        (lambda: tnp.maximum(ROOM, 300.0 * K), C, 26.85),
        (lambda: np.minimum(300.0 * K, ROOM), K, 293.15),
        (lambda: tnp.clip(T, 285.0 * K, 290.0 * K)[0], C, 11.85),
        (lambda: tnp.concatenate([T, 300.0 * K * jnp.ones(1)])[3], C, 26.85),
        (lambda: tj.cond(False, lambda: ROOM, lambda: 300.0 * K), C, 26.85),
        (lambda: tj.lift(jnp.maximum)(ROOM, 300.0 * K).to(C), C, 26.85),
        (lambda: ROOM - SAME, STEP, 0.0),
        (lambda: ROOM - 292.15 * K, STEP, 1.0),
        (lambda: 294.15 * K - ROOM, K, 1.0),
        (lambda: SAME.to("mK") - ROOM, "mK", 0.0),
        (lambda: tnp.subtract(68.0 * F, SAME), F.delta, 0.0),
        (lambda: tnp.where(False, 3.0 * dBm, tj.quantity(10.0, "mW")), dBm, 10.0),
        (lambda: ROOM + 5.0 * STEP, C, 25.0),
        (lambda: 5.0 * STEP + ROOM, C, 25.0),
        (lambda: ROOM - 9.0 * F.delta, C, 15.0),
        (lambda: ROOM + (5.0 * K).to("delta_degC"), C, 25.0),
        (lambda: T.at[0].add(9.0 * F.delta)[0], C, 15.0),
        (lambda: tnp.diff(T), STEP, 10.0),
        (lambda: tnp.ptp(T), STEP, 20.0),
        (lambda: tnp.std(T), STEP, np.std([10.0, 20.0, 30.0])),
        (lambda: tnp.var(T), "K^2", np.var([10.0, 20.0, 30.0])),
        (lambda: tnp.gradient(T, tj.Quantity(500.0, "ms")).to("K/s"), "K/s", 20.0),
        (lambda: tnp.mean(T), C, 20.0),
        (lambda: tnp.max(T), C, 30.0),
        (lambda: tnp.sort(T[::-1])[0], C, 10.0),
        (lambda: tnp.where(T[0] < T, T, T[1])[0], C, 20.0),
        (lambda: tnp.concatenate([T, T])[3], C, 10.0),
        (lambda: tnp.select([jnp.array([True, False, False])], [T], T[2]), C, [10.0, 30.0, 30.0]),
        # Far apart, and beside a point: these take another way through a function.
        (lambda: tnp.where(np.array([True, False]), ROOM, 1e30 * K).to("K"), K, [293.15, 1e30]),
        (lambda: tnp.maximum(HOT, jnp.float32(20.0) * C) / HOT, "1", 1.0),
    ],
)
def test_kelvin_beside_a_point_is_a_temperature_and_a_difference_is_none(call, unit, value):
    got = call()
    assert got.unit == tj.unit(unit) if isinstance(unit, str) else got.unit is unit
    np.testing.assert_allclose(got.value, value, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize(
    "mixed",
    [
        lambda: (T[1] - T[0]).to("degC"),
        lambda: tnp.std(T).to("degC"),
        lambda: tnp.std(T).to("degF"),
        lambda: ROOM.to("delta_degC"),
        lambda: ROOM == 5.0 * STEP,
        lambda: 5.0 * F.delta > ROOM,
        lambda: tnp.where(True, ROOM, 5.0 * STEP),
        lambda: T.at[0].set(5.0 * STEP),
        lambda: tj.cond(True, lambda: ROOM, lambda: 5.0 * STEP),
        lambda: 5.0 * STEP - ROOM,
    ],
)
def test_a_difference_is_no_point(mixed):
    """A standard deviation of 5 K is not -268.15 °C."""
    with pytest.raises(tj.UnitError):
        mixed()


@pytest.mark.parametrize(
    "nonsense",
    [
        tnp.abs,
        tnp.sign,
        tnp.cumsum,
        tnp.prod,
        lambda q: tnp.select([jnp.array([True, True, False])], [q]),
        lambda q: tnp.compress(jnp.array([True, True, False]), q, size=3),
    ],
)
def test_sums_and_multiples_of_points_are_refused(nonsense):
    with pytest.raises(tj.UnitError):
        nonsense(T)


def test_comparison_and_sum_with_kelvin():
    """As a temperature it is equal to a point, and has no sum with one."""
    assert ROOM == SAME
    assert SAME == ROOM
    assert ROOM < 294.0 * K
    assert not SAME > 21.0 * C
    assert tnp.searchsorted(T, 293.2 * K) == 2
    assert jax.jit(lambda a, b: a == b)(ROOM, SAME)
    step = 5.0 * K
    for total in (
        lambda: ROOM + step,
        lambda: step + ROOM,
        lambda: T.at[0].add(step),
        lambda: T.at[0].subtract(step),
    ):
        with pytest.raises(tj.UnitError, match=r"difference.*Δ°C"):
            total()
    with pytest.raises(AttributeError, match="one `unit`"):
        _ = T.units


def test_numpy_on_points():
    """What needs only differences has a meaning on points."""
    points, step = np.linspace(10.0 * C, 30.0 * C, 3, retstep=True)
    assert_quantity(points, "degC", [10.0, 20.0, 30.0])
    assert_quantity(step, "delta_degC", 10.0)
    near = np.isclose(T, 293.2 * K, atol=0.1 * STEP, rtol=0)
    np.testing.assert_array_equal(near, [False, True, False])
    with pytest.raises(tj.UnitError, match="a part of a point"):
        np.isclose(T, ROOM)
    with pytest.raises(tj.UnitError, match="a part of a point"):
        np.isclose(T, ROOM, rtol=1e-3, atol=0.1 * STEP)
    assert_quantity(np.pad(T, 1, constant_values=0.0 * C)[0], "degC", 0.0)
    counts, edges = np.histogram(T, 2, density=True)
    assert_quantity(counts, STEP.inverse, [1 / 30, 2 / 30])
    assert_quantity(edges, "degC", [10.0, 20.0, 30.0])
    counts, edges = tnp.histogramdd(tnp.stack([T, T], 1), 2, density=True)
    assert counts.unit == STEP.inverse**2
    assert edges[1].unit is C
