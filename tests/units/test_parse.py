"""Texts as units and as quantities: the grammar and its errors."""

from fractions import Fraction

import pytest

from tanjax import UnitError
from tanjax.units import nearest_names, one, parse_quantity, unit


@pytest.mark.parametrize(
    ("shown", "texts"),
    [
        ("kg m / s2", ["kg m / s2", "kg*m/s**2", "kg m s^-2", "kg m s-2", "kg·m·s⁻²", "kg⋅m/s²"]),
        ("kg m / s2", ["(kg m)/s2", "kg m / (s s)"]),
        ("m / s2", ["m/s/s"]),
        ("m / s", ["m per s", "  m  /  s  "]),
        ("1 / s", ["1/s"]),
        ("km", ["1 km", "kilometres"]),
        ("m^(1/2)", ["m^(1/2)", "m**0.5"]),
        ("1 / m^(3/2)", ["m^(-3/2)"]),
        ("m2 / s2", ["(m/s)^2"]),
        ("m4", ["m^2^2"]),
        ("m", ["(m2)^(1/2)"]),
        ("s2", ["s^+2"]),
        ("µm", ["µm", "μm", "um"]),
        ("Ω", ["Ω", "\u2126"]),
        ("Å", ["\u212b"]),
        ("°C", ["°C"]),
        ("%", ["%"]),
        ("1", ["1", "", "m/m"]),
        ("m / km", ["m / km"]),
        ("kg m", ["kilogram metre"]),
        ("J mol / K", ["J / K mol"]),  # a slash divides by the next factor alone
    ],
)
def test_texts_are_read_as_the_unit_that_is_shown(shown, texts):
    assert [str(unit(text)) for text in texts] == [shown] * len(texts)


@pytest.mark.parametrize("text", ["m / s kg", "kg * m / s / A * K", "kg/m s**2", "m**2 / s**3"])
def test_the_order_of_products_is_pints(text):
    import pint

    registry = pint.UnitRegistry()
    theirs = dict(registry.parse_units(text).dimensionality)
    assert {f"[{n}]": float(p) for n, p in unit(text).dimension.exponents} == theirs


def test_a_unit_is_itself():
    assert unit(unit("m")) is unit("m")
    assert unit("") is unit("1") is one


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("metr", "no unit is called 'metr'.*\n.*did you mean .*metre"),
        ("kg fortnigt / s", "'fortnigt' in 'kg fortnigt / s'.*\n.*fortnight"),
        ("KM/H", "no unit is called 'KM'"),
        ("3 km", r"is a quantity, not a unit.*\n.*tj.quantity\('3 km'\)"),
        ("-m", "is a quantity"),
        ("m + s", "is not a unit: '\\+' is out of place"),
        ("m ? s", r"the character '\?'"),
        ("m /", "it ends early"),
        ("/ s", "a unit is missing before '/'"),
        ("m * / s", "a unit is missing before '/'"),
        ("(m", "not closed"),
        ("m)", r"'\)' is out of place"),
        ("m^", "a power must be a number"),
        ("m^s", "a power must be a number"),
        ("m^(1/2", "not closed"),
        ("m^(1/0)", "divided by zero"),
        ("0 m", "a unit is not zero"),
        ("kdegC", "a prefix means nothing"),
        ("degC / s", "is not a unit"),
        ("g_e^(1/2)", "no real power"),
        ("__class__", "no unit is called"),
        (3, "int is not a unit"),
        (None, "NoneType is not a unit"),
        (["m"], "list is not a unit"),
    ],
)
def test_wrong_text_of_a_unit_is_refused(text, says):
    with pytest.raises(UnitError, match=says):
        unit(text)


@pytest.mark.parametrize(
    ("text", "number", "shown"),
    [
        ("3 km", 3.0, "km"),
        ("-3.5e3 m/s", -3500.0, "m / s"),
        ("3eV", 3.0, "eV"),
        ("1e-3eV", 1e-3, "eV"),
        ("20 °C", 20.0, "°C"),
        ("5", 5.0, "1"),
        ("km", 1.0, "km"),
        ("1/3 m", 1 / 3, "m"),
        (".5 m", 0.5, "m"),
        ("0.1 m", 0.1, "m"),
        ("6.02214076e23 / mol", 6.02214076e23, "1 / mol"),
        ("2 m 3 s", 6.0, "m s"),
        ("50 %", 50.0, "%"),
    ],
)
def test_text_of_a_quantity_is_number_and_unit(text, number, shown):
    got, of = parse_quantity(text)
    assert (got, str(of)) == (number, shown)
    assert type(got) is float


def test_nearest_names():
    assert "metre" in nearest_names("metr")
    assert nearest_names("KELVIN")[0] == "kelvin"
    assert nearest_names("zzzzqqq") == []
    assert len(nearest_names("gallon")) <= 4


def test_digits_at_the_end_are_a_power_unless_they_belong_to_a_name():
    assert unit("s2") is unit("s") ** 2
    assert unit("g0") is unit("standard_gravity")
    assert unit("mH2O").dimension is unit("Pa").dimension
    assert unit("mile2") is unit("mile") ** 2
    assert unit("m10").dimension.exponents == (("length", Fraction(10)),)
