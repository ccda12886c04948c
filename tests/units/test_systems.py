"""Systems of units: coherent units, natural units, own systems."""

import math

import pytest

from tanjax import UnitError
from tanjax.units import Dimension, systems, unit
from tanjax.units.systems import UnitSystem


@pytest.mark.parametrize(
    ("system", "what", "shown"),
    [
        (systems.SI, "erg", "J"),
        (systems.SI, "km/h", "m / s"),
        (systems.SI, "degC", "K"),
        (systems.SI, "%", "1"),
        (systems.cgs, "N", "dyn"),
        (systems.cgs, "J", "erg"),
        (systems.cgs, "m/s2", "cm / s2"),
        (systems.astronomical, "km/s", "au / d"),
        (systems.atomic, "eV", "E_h"),
        (systems.planck, "m", "planck_length"),
        (systems.natural, "m", "ħ c / eV"),
    ],
)
def test_unit_of(system, what, shown):
    assert str(system.unit_of(what)) == shown
    assert system.unit_of(unit(what).dimension) is system.unit_of(unit(what))
    assert system.unit_of(what).dimension is unit(what).dimension


@pytest.mark.parametrize(
    ("system", "value", "what", "expected", "shown"),
    [
        (systems.SI, 3.6, "km/h", 1.0, "m / s"),
        (systems.cgs, 1.0, "N", 1e5, "dyn"),
        (systems.natural, 1.0, "kg", 299792458.0**2 / 1.602176634e-19, "eV"),
        (systems.natural, 197.3269804, "fm", 1e-6, "1 / eV"),
        (systems.natural, 1.0, "s", 1 / 6.582119569e-16, "1 / eV"),
        (systems.natural, 1.0, "K", 8.617333262e-5, "eV"),
        (systems.natural, 299792458.0, "m/s", 1.0, "1"),
        (systems.natural, 1.602176634e-19, "C", math.sqrt(4 * math.pi * 7.2973525643e-3), "1"),
        (systems.planck, 299792458.0, "m/s", 1.0, "planck_length / planck_time"),
        (systems.atomic, 27.211386245981, "eV", 1.0, "E_h"),
    ],
)
def test_convert_and_restore(system, value, what, expected, shown):
    got, of = system.convert(value, what)
    assert got == pytest.approx(expected, rel=1e-9)
    assert str(of) == shown
    assert system.restore(got, of, what) == pytest.approx(value, rel=1e-14)


def test_constants_are_one():
    for name in ("c", "hbar", "k_B", "epsilon_0"):
        assert systems.natural.convert(1.0, name)[0] == 1.0
    for name in ("c", "hbar", "gravitational_constant", "k_B", "k_C"):
        assert systems.planck.convert(1.0, name)[0] == pytest.approx(1.0, rel=1e-15)
    for name in ("m_e", "e", "hbar", "k_C", "k_B"):
        assert systems.atomic.convert(1.0, name)[0] == pytest.approx(1.0, rel=1e-15)


def test_restore_in_another_unit():
    assert systems.natural.restore(1.0, "GeV", "proton_mass") == pytest.approx(1.0657889, rel=1e-6)
    with pytest.raises(UnitError, match="does not stand for"):
        systems.natural.restore(1.0, "eV", "m")


def test_own_systems():
    galactic = UnitSystem("galactic", ["kpc", "solMass", "Myr"])
    assert str(galactic.unit_of("km/s")) == "kpc / Myr"
    assert repr(galactic) == "UnitSystem('galactic', ['kpc', 'solMass', 'Myr'])"
    mixed = UnitSystem("mixed", ["N", "m/s", "h"])  # not powers of one dimension each
    assert mixed.unit_of("kg") == unit("N h s / m")
    assert float(mixed.unit_of("km").factor) == 3600.0


def test_wrong_system_of_units_is_refused():
    with pytest.raises(UnitError, match="no unit of temperature"):
        UnitSystem("galactic", ["kpc", "solMass", "Myr"]).unit_of("K")
    with pytest.raises(UnitError, match="not independent"):
        UnitSystem("double", ["m", "km", "s"]).unit_of("m")
    with pytest.raises(UnitError, match="not coherent"):
        UnitSystem("wrong", ["m", "kg", "s"], derived=["erg"]).unit_of("J")
    with pytest.raises(UnitError, match="zero points"):
        systems.SI.convert(20.0, "degC")
    with pytest.raises(UnitError, match="no unit of level"):
        systems.SI.unit_of(Dimension([("level", 1)]))
