"""The catalogue: every unit and prefix of pint's, compared with pint; printing reads back."""

import logging
import math

import pytest

from tanjax import UnitError
from tanjax.units import _table, unit
from tanjax.units._names import _DIMENSIONS, _from_table, _with_prefix

pint = pytest.importorskip("pint")
NAMES = {ours: theirs for theirs, ours in _DIMENSIONS.items()}
PREFIXES = ["milli", "m", "kilo", "k", "µ", "u", "micro", "da", "G", "Ki", "P", "h", "semi"]


@pytest.fixture(scope="module")
def registry():
    logging.getLogger("pint").setLevel(logging.CRITICAL)  # it reports ambiguous names
    return pint.UnitRegistry()


@pytest.fixture(scope="module")
def catalogue(registry):
    # pint's own reader cannot read the infinity sign of `R_∞`, another name of `R_inf`.
    return [name for name in sorted(registry._units) if "∞" not in name]


def theirs(registry, name):
    """pint's factor and dimension; its root unit of mass is the gram."""
    factor, root = registry.get_root_units(name)
    dimension = dict(root.dimensionality)
    factor *= 10.0 ** (-3 * float(dimension.get("[mass]", 0)))
    return float(factor), {name: float(power) for name, power in dimension.items() if power}


def agree(registry, name, ours):
    factor, dimension = theirs(registry, name)
    mine = {NAMES[base]: float(power) for base, power in ours.dimension.exponents}
    # Some 16 roundings in pint's floats; ours are exact.
    return mine == dimension and math.isclose(float(ours.factor), factor, rel_tol=16 * 2.0**-52)


def is_level(u):
    return hasattr(u.point, "level") or any(name == "level" for name, _ in u.dimension.exponents)


def test_every_unit_is_pints(registry, catalogue):
    units = {name: unit(name) for name in catalogue}
    levels = {name for name, u in units.items() if is_level(u)}
    wrong = [n for n, u in units.items() if n not in levels and not agree(registry, n, u)]
    assert wrong == []
    assert len(units) > 1000
    # The tables of test_conversion check these.
    assert {"dB", "dBm", "dBW", "dBu", "Np", "octave", "decade"} <= levels
    assert len(levels) <= 16


def test_every_unit_prints_what_is_read_back(catalogue):
    assert [n for n in catalogue if unit(str(unit(n))) is not unit(n)] == []
    powers = [unit(n) ** 3 for n in catalogue if unit(n).is_linear]
    assert [str(u) for u in powers if unit(str(u)) is not u] == []


@pytest.mark.slow
def test_prefixed_units_are_pints(registry, catalogue):
    canonical = [name for name in catalogue if name.isidentifier() and unit(name).is_linear]
    wrong, count = [], 0
    for name in canonical:
        if any(p and p + base == name for p, base, _ in registry.parse_unit_name(name)):
            with pytest.raises(UnitError, match="one prefix"):  # "kilogram" is none of its own
                unit("milli" + name)
            continue
        for prefix in PREFIXES:
            if not registry.parse_unit_name(prefix + name):
                with pytest.raises(UnitError, match="no unit is called"):
                    unit(prefix + name)
                continue
            ours = unit(prefix + name)
            count += 1
            if unit(str(ours)) is not ours:
                wrong.append(("printed", prefix + name))
            if is_level(ours) or prefix + name in _table.DIFFERENT:
                continue
            if not agree(registry, prefix + name, ours):
                wrong.append((prefix, name))
    assert wrong == []
    assert count > 10000


def test_the_table_says_what_the_catalogue_says(registry):
    """Every name that is read without the catalogue, with every prefix."""
    wrong, count = [], 0
    for definition in _table.SHARED:
        for name in (definition.symbol, *definition.names):
            for prefix in ("", *_table.PREFIXES, *_table.BY_NAME):
                text = prefix + name
                ours = _with_prefix(text) if prefix else _from_table(text)
                if text in _table.DEFINITIONS:
                    ours = _from_table(text)
                if ours is None or text in _table.DIFFERENT:
                    continue
                count += 1
                if not agree(registry, text, ours):
                    wrong.append(text)
    assert wrong == []
    assert count > 1500


def test_the_one_name_that_is_read_otherwise():
    assert unit("mcd").dimension is unit("cd").dimension  # pint: a microday
    assert unit("hbar").dimension is unit("J s").dimension  # not a hectobar
    assert unit("hectobar") == unit("bar") * unit("1 / %")


def test_digits_never_hide_a_name_of_the_catalogue(catalogue):
    """`s2` is read without the catalogue; a name in it that ends in digits must still win."""
    ending = [name for name in catalogue if name[-1].isdigit()]
    assert len(ending) > 20
    assert [name for name in ending if len(unit(name).symbols) != 1] == []
    assert [name for name in ending if unit(name).symbols[0][1] != 1] == []


def test_our_own_names_hide_none_of_the_catalogue(registry):
    own = [name for d in _table.OWN for name in (d.symbol, *d.names)]
    assert [name for name in own if registry.parse_unit_name(name)] == []
    assert math.isclose(float(unit("solMass").factor), 1.988409870698051e30, rel_tol=1e-15)
    assert unit("mJy").factor.fraction * 10**29 == 1
    assert unit("solRad").factor.fraction == 695700000
