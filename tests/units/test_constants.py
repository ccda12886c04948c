"""Constants: values, units and uncertainties of CODATA, nominal values of astronomy."""

import math

import pytest

import tanjax as tj
from tanjax.units import constants, unit


@pytest.mark.parametrize(
    ("name", "symbol", "value", "of"),
    [
        ("speed_of_light", "c", 299792458.0, "m/s"),
        ("planck_constant", "h", 6.62607015e-34, "J s"),
        ("reduced_planck_constant", "hbar", 6.62607015e-34 / (2 * math.pi), "J s"),
        ("gravitational_constant", "G", 6.6743e-11, "m3 / kg / s2"),
        ("elementary_charge", "e", 1.602176634e-19, "C"),
        ("electron_mass", "m_e", 9.1093837e-31, "kg"),
        ("proton_mass", "m_p", 1.67262192e-27, "kg"),
        ("boltzmann_constant", "k_B", 1.380649e-23, "J/K"),
        ("avogadro_constant", "N_A", 6.02214076e23, "1/mol"),
        ("vacuum_permittivity", "epsilon_0", 8.8541878e-12, "F/m"),
        ("vacuum_permeability", "mu_0", 1.25663706e-6, "N/A2"),
        ("stefan_boltzmann_constant", "sigma", 5.670374419e-8, "W / m2 / K4"),
        ("bohr_radius", "a_0", 5.29177210e-11, "m"),
        ("rydberg_constant", "R_inf", 10973731.568, "1/m"),
        ("standard_gravity", "g_0", 9.80665, "m/s2"),
        ("molar_gas_constant", "R", 8.31446261815324, "J / mol / K"),
        ("fine_structure_constant", "alpha", 7.29735256e-3, "1"),
        ("solar_mass", "solar_mass", 1.988409870698051e30, "kg"),
        ("nominal_solar_radius", "nominal_solar_radius", 6.957e8, "m"),
        ("parsec", "parsec", 3.0856775814913674e16, "m"),
    ],
)
def test_the_usual_ones(name, symbol, value, of):
    quantity = getattr(constants, name)
    assert type(quantity) is tj.Quantity
    assert type(quantity.value) is float
    assert quantity.value == pytest.approx(value, rel=2e-8)
    assert quantity.unit == unit(of)
    assert getattr(constants, symbol).value == quantity.value


def test_every_constant_of_codata_has_a_unit_and_its_value():
    from scipy.constants import physical_constants

    names = {constants._snake(name): name for name in physical_constants}
    assert len(names) == len(physical_constants)  # no two names fall together
    assert set(names) <= set(dir(constants)) | {n for n in names if not n.isidentifier()}
    for ours, theirs in names.items():
        quantity = getattr(constants, ours)
        value, text, error = physical_constants[theirs]
        assert (quantity.value, constants.uncertainty(ours)) == (value, error)
        assert quantity.unit.is_dimensionless == (text in ("",)) or text.startswith("E_h/")


def test_units_of_codata_fit_its_values():
    """The same constant in different units is the same quantity."""
    for a, b in [
        ("electron_mass_energy_equivalent", "electron_mass_energy_equivalent_in_mev"),
        ("hartree_energy", "hartree_energy_in_ev"),
        ("planck_constant", "planck_constant_in_ev_hz"),
        ("bohr_magneton", "bohr_magneton_in_ev_t"),
    ]:
        one, two = getattr(constants, a), getattr(constants, b)
        ratio = float(two.unit.factor / one.unit.factor)
        assert two.unit.dimension is one.unit.dimension
        assert two.value * ratio == pytest.approx(one.value, rel=1e-9)


def test_uncertainty_of_a_derived_constant_is_that_of_its_source():
    assert constants.uncertainty("c") == 0.0
    assert constants.uncertainty("G") == 1.5e-15
    assert constants.uncertainty("nominal_solar_radius") == 0.0
    relative = constants.uncertainty("solar_mass") / constants.solar_mass.value
    assert relative == pytest.approx(1.5e-15 / 6.6743e-11)


def test_unknown_constants():
    with pytest.raises(AttributeError, match="speed_of_light"):
        _ = constants.speed_of_lght
    with pytest.raises(AttributeError, match="no constant 'q'"):
        constants.uncertainty("q")
