"""Levels over any reference, units of one's own, and texts that say numbers."""

import math
import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.units import define, m, unit


@pytest.mark.parametrize(
    ("text", "linear", "value"),
    [
        ("-161 dBm/Hz", "W/Hz", 10**-19.1),
        ("3 dBW/(m2 Hz)", "W/m2/Hz", 10**0.3),
        ("3 dBW/m2/Hz", "W/m2/Hz", 10**0.3),
        ("10 dB(mW)", "mW", 10.0),
        ("-20 dB(mW/Hz)", "mW/Hz", 0.01),
        ("2 dex(cm/s2)", "cm/s2", 100.0),
        ("5 mag(count/s)", "count/s", 0.01),
        ("3 Np(W)", "W", math.exp(6.0)),
        ("20 dBV", "V", 10.0),
        ("60 dBµV", "mV", 1.0),
        ("60 dBuV", "mV", 1.0),
        ("-20 dBmV", "mV", 0.1),
    ],
)
def test_levels_over_a_reference(text, linear, value):
    """Ten decibels are a factor of 10 of a power, 20 one of an amplitude."""
    level = tj.quantity(text)
    np.testing.assert_allclose(level.to_value(linear), value, rtol=2e-5)
    back = tj.quantity(value, linear).to(level.unit)
    np.testing.assert_allclose(back.value, level.value, rtol=2e-5)
    assert unit(str(level.unit)) is level.unit
    assert pickle.loads(pickle.dumps(level.unit)) is level.unit


def test_levels_among_each_other():
    assert unit("dB(mW)") == unit("dBm")
    assert unit("dBm/Hz").delta is unit("dB")
    assert (tj.quantity("10 dBm/Hz") - tj.quantity("3 dBm/Hz")).unit is unit("dB")
    assert (tj.quantity("10 dBV") + tj.quantity("6 dB")).value == 16.0
    np.testing.assert_allclose(tj.quantity("10 dBV").to_value("dBmV"), 70.0)
    np.testing.assert_allclose(tj.quantity("-10 dBm/Hz").to_value("dBW/Hz"), -40.0)
    assert unit("dB (mW)") == unit("dB") * unit("mW")
    assert unit("dB(1)") is unit("dB")
    assert unit("kg(m)") is unit("kg m")


@pytest.mark.parametrize("text", ["dB(2 mW)", "dB(dBm)", "dB(degC)", "dB(", "Hz/dBm", "dBm Hz"])
def test_levels_over_nothing(text):
    with pytest.raises(tj.UnitError):
        unit(text)


def test_a_level_is_no_multiple():
    level = tj.quantity("10 dBm")
    for call in (
        lambda: level / unit("Hz"),
        lambda: unit("dBm") / unit("Hz"),
        lambda: level / (2.0 * unit("Hz")),
    ):
        with pytest.raises(tj.UnitError):
            call()
    with pytest.raises(tj.UnitError, match="dBV"):
        tj.quantity("10 dBV").to("dBm")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("mTorr", "101.325/760 Pa"),
        ("ppb", "1e-9"),
        ("dioptre", "1/m"),
        ("diopter", "1/m"),
        ("°", "deg"),
        ("dimensionless", "1"),
    ],
)
def test_names_that_the_catalogue_does_not_have(text, meaning):
    number = tj.quantity(meaning) if meaning[0].isdigit() else tj.quantity(f"1 {meaning}")
    np.testing.assert_allclose(tj.quantity(1.0, text).to_value(number.unit), number.value)


@pytest.mark.parametrize("text", ["kilokilometer", "kilokilometre", "megakilogram"])
def test_one_prefix(text):
    """The catalogue keeps `kilometer` as a unit of its own once somebody has asked for it."""
    assert unit("kilometer") is unit("km")
    for _ in range(2):
        with pytest.raises(tj.UnitError):
            unit(text)


def test_a_unit_of_ones_own():
    smoot = define("smoot", "1.7018 m")
    assert unit("smoot") is smoot is tj.units.smoot is define("smoot", "1.7018 m")
    assert tj.quantity("2 smoot/s").to_value("m/s") == pytest.approx(3.4036)
    assert str(smoot**2) == "smoot2"
    assert pickle.loads(pickle.dumps(smoot)) is smoot
    for name, text in (("smoot", "1 m"), ("metre", "2 m"), ("a b", "1 m"), ("warm", "degC")):
        with pytest.raises(tj.UnitError, match="define"):
            define(name, text)
    with pytest.raises(tj.UnitError, match="define"):
        unit("1.7018 m")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nan m", math.nan),
        ("inf m", math.inf),
        ("-inf m", -math.inf),
        ("- Infinity m", -math.inf),
        ("+.5 m", 0.5),
        ("+ 3 m", 3.0),
        ("-1.5 m", -1.5),
        ("[1, 2] m", [1, 2]),
        ("[[1.5, -2e3], [0, 1]] * m", [[1.5, -2e3], [0, 1]]),
        ("[1, 2]", None),
        ("inf", None),
    ],
)
def test_texts_of_numbers(text, value):
    got = tj.quantity(text)
    assert got.unit is (tj.unit("1") if value is None else m)
    if value is not None:
        np.testing.assert_allclose(np.asarray(got.value), value)


@pytest.mark.parametrize(
    "text", ["[1, x] m", "[1, 2 m", "nanometre m s nan", "++1 m", b"foo", b"3 m"]
)
def test_texts_that_are_none(text):
    with pytest.raises(tj.UnitError):
        tj.quantity(text, "m")


def test_one_over_a_unit_is_a_unit():
    """`1 / metre` is a quantity to Python; where a unit is wanted it is one."""
    assert tj.Quantity(3.0, 1 / m).unit is m**-1
    assert (3.0 / m).to(1 / m).value == 3.0
    with pytest.raises(tj.UnitError, match="define"):
        tj.Quantity(3.0, 2 / m)
    with pytest.raises(tj.UnitError):
        tj.Quantity(3.0, jnp.ones(2) * m)
    assert tj.Quantity(value=3.0, unit="m").unit is m
