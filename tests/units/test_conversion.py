"""Conversions: factors and exact divisions, temperatures, levels; which sums have a meaning."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tanjax import UnitError
from tanjax.units import add_units, conversion, convert, subtract_units, unit


@pytest.mark.parametrize(
    ("a", "b", "pair"),
    [
        ("m", "m", (1.0, 1.0)),
        ("N", "kg m / s2", (1.0, 1.0)),
        ("km", "m", (1000.0, 1.0)),
        ("m", "km", (1.0, 1000.0)),
        ("h", "s", (3600.0, 1.0)),
        ("m/s", "km/h", (3.6, 1.0)),
        ("km/h", "m/s", (5 / 18, 1.0)),
        ("deg", "rad", (math.pi / 180, 1.0)),
        ("eV", "J", (1.602176634e-19, 1.0)),
        ("m / km", "1", (1.0, 1000.0)),
        ("%", "1", (1.0, 100.0)),
        ("km^(1/2)", "m^(1/2)", (31.622776601683793, 1.0)),
        ("delta_degF", "K", (5 / 9, 1.0)),
        ("K", "delta_degF", (1.8, 1.0)),
        ("Np", "dB", (8.685889638065037, 1.0)),
        ("decade", "dB", (10.0, 1.0)),
        ("dB", "decade", (1.0, 10.0)),
        ("degC", "degC", (1.0, 1.0)),
    ],
)
def test_linear_conversions(a, b, pair):
    assert conversion(unit(a), unit(b)) == pair
    assert conversion(unit(a), unit(b)) is conversion(unit(a), unit(b))


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ("m", "s", r"m \(length\)\n.*s \(time\)"),
        ("degC", "K", r"°C \(temperature\)\n.*K \(temperature\)"),
        ("W", "dBm", "dBm"),
        ("dB", "1", r"dB \(level\)\n.*1 \(dimensionless\)"),
    ],
)
def test_conversion_without_a_factor_is_refused(a, b, says):
    with pytest.raises(UnitError, match=says):
        conversion(unit(a), unit(b))


# Each row is one state in several units; every pair of columns is a conversion both ways.
STATES = [
    {"degC": 0.0, "K": 273.15, "degF": 32.0, "degR": 491.67},
    {"degC": 100.0, "K": 373.15, "degF": 212.0, "degRe": 80.0},
    {"K": 5.0, "delta_degC": 5.0, "delta_degF": 9.0},
    {"degC": -40.0, "K": 233.15, "degF": -40.0},
    {"degC": 20.0, "K": 293.15, "mK": 293150.0, "degF": 68.0},
    {"dBm": 0.0, "mW": 1.0, "W": 1e-3, "dBW": -30.0, "dBu": 30.0},
    {"dBm": 30.0, "mW": 1000.0, "W": 1.0, "dBW": 0.0, "kg m2 / s3": 1.0},
    {"dB": 10.0, "1": 10.0, "%": 1000.0, "mag": -2.5, "decade": 1.0, "Np": math.log(10) / 2},
    {"dB": 20.0, "1": 100.0, "mag": -5.0, "decade": 2.0},
    {"mag": 5.0, "1": 0.01, "dB": -20.0},
    {"oct": 3.0, "1": 8.0},
    {"Np": 1.0, "1": math.e**2, "dB": 8.685889638065037},
    {"pH_scale": 7.0, "mol/L": 1e-7, "mol/m3": 1e-4, "nM": 100.0},
    {"pH_scale": 0.0, "mol/L": 1.0},
]
PAIRS = [(row, a, b) for row in STATES for a in row for b in row]


@pytest.mark.parametrize(("row", "a", "b"), PAIRS, ids=[f"{r}: {a} to {b}" for r, a, b in PAIRS])
def test_all_conversions(row, a, b):
    got = convert(np.float64(row[a]), unit(a), unit(b), np)
    assert got == pytest.approx(row[b], rel=1e-14, abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        *(("m", "s"), ("degC", "m"), ("dBm", "degC"), ("dBm", "dB"), ("dB", "dBm"), ("dB", "m")),
        *(("degC", "delta_degC"), ("degC", "delta_degF")),
    ],
)
def test_conversions_without_meaning(a, b):
    for from_unit, to_unit in ((a, b), (b, a)):
        with pytest.raises(UnitError, match="do not fit together"):
            convert(1.0, unit(from_unit), unit(to_unit), np)


def test_conversion_under_jit_and_derivative():
    to_watt = jax.jit(lambda x: convert(x, unit("dBm"), unit("W"), jnp))
    x = jnp.asarray(20.0)
    np.testing.assert_allclose(to_watt(x), 0.1, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(to_watt)(x), 0.1 * math.log(10) / 10, rtol=1e-6)
    slope = jax.grad(lambda x: convert(x, unit("degC"), unit("degF"), jnp))(x)
    np.testing.assert_allclose(slope, 1.8, rtol=1e-6)


@pytest.mark.parametrize(
    ("a", "b", "total", "difference"),
    [
        ("km", "m", "km", "km"),
        ("degC", "delta_degC", "degC", "degC"),
        ("degC", "K", None, "delta_degC"),
        ("K", "degC", None, "K"),
        ("degC", "delta_degF", "degC", "degC"),
        ("delta_degC", "degC", "degC", None),
        ("degC", "degC", None, "delta_degC"),
        ("degC", "degF", None, "delta_degC"),
        ("dBm", "dB", "dBm", "dBm"),
        ("dB", "dBm", "dBm", None),
        ("dBm", "dBm", None, "dB"),
        ("dBm", "dBW", None, "dB"),
        ("dB", "Np", "dB", "dB"),
        ("m", "s", None, None),
        ("degC", "m", None, None),
        ("dBm", "W", None, None),
        ("dBm", "degC", None, None),
        ("dBm", "pH_scale", None, None),
        ("dB", "1", None, None),
    ],
)
def test_sums_and_differences(a, b, total, difference):
    for combine, expected, word in (
        (add_units, total, "addition"),
        (subtract_units, difference, "subtraction"),
    ):
        if expected is None:
            with pytest.raises(UnitError, match=word):
                combine(unit(a), unit(b))
        else:
            assert combine(unit(a), unit(b)) is unit(expected)


def test_a_level_and_a_point_of_one_dimension_have_no_difference():
    level = unit("dB(K)")
    assert subtract_units(level, level) is unit("dB")
    with pytest.raises(UnitError, match="subtraction"):
        subtract_units(level, unit("degC"))
