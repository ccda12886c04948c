"""Properties of units: the laws of their algebra, printing and reading, conversions."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from tanjax import UnitError
from tanjax.units import Factor, add_units, coherent, conversion, convert, one, unit

NAMES = [
    *("m", "s", "kg", "A", "K", "mol", "cd", "km", "mm", "N", "J", "eV", "deg", "rad", "%", "h"),
    *("mile", "inch", "franklin", "delta_degF", "au", "solMass", "Jy", "hbar", "dB", "Np", "bit"),
    *("a_0", "cm_1", "mH2O", "milliinch", "Δ°C", "Å", "µm", "pixel", "fine_structure_constant"),
]
POINTS = ["degC", "degF", "degR", "dBm", "dBW", "pH_scale", "K", "W", "mW", "mol/L"]
names = st.sampled_from(NAMES).map(unit)
powers = st.builds(Fraction, st.integers(-4, 4), st.integers(1, 4))


@st.composite
def products(draw):
    """A product of up to four powers of units of the catalogue."""
    total = one
    for _ in range(draw(st.integers(0, 4))):
        total = total * draw(names) ** draw(powers)
    return total


@given(products())
def test_printed_and_pickled_units_are_read_back(u):
    assert unit(str(u)) is u
    assert unit(f"{u:P}") is u
    assert unit(f"({u})^1") is u
    assert pickle.loads(pickle.dumps(u)) is u


@given(products(), products(), products())
def test_products_of_units_obey_the_laws_of_a_group(a, b, c):
    assert a * b == b * a
    assert hash(a * b) == hash(b * a)
    assert (a * b) * c == a * (b * c)
    assert a * one is a
    assert (a * b) / b == a
    assert a / b == a * b.inverse == (b / a).inverse
    assert a / a is one
    assert (a * b).factor == a.factor * b.factor
    assert (a * b).dimension is b.dimension * a.dimension


@given(products(), products(), powers, powers)
def test_powers_of_units_obey_the_laws_of_exponents(a, b, p, q):
    assert (a**p) ** q is a ** (p * q)
    assert a**p * a**q == a ** (p + q)
    assert (a * b) ** p == a**p * b**p
    assert (a**p).factor == a.factor**p
    assert (a**p).dimension is a.dimension**p


@given(products(), products())
def test_equality_is_dimension_and_factor(a, b):
    same = a.dimension is b.dimension and a.factor == b.factor
    assert (a == b) == same
    assert (a != b) != same
    if same:
        assert hash(a) == hash(b)
        assert conversion(a, b) == (1.0, 1.0)
    assert coherent(a).factor == Factor(1)
    assert coherent(a).dimension is a.dimension


@given(st.fractions(0, 10**12), st.integers(1, 6), st.integers(1, 6))
def test_roots_of_factors(number, k, j):
    assume(number > 0)
    root = Factor(number) ** Fraction(1, k)
    assert root**k == Factor(number)
    assert root ** Fraction(1, j) == Factor(number) ** Fraction(1, k * j)
    assert float(Factor(number)) == float(number)
    below, above = math.nextafter(float(root), 0.0), math.nextafter(float(root), math.inf)
    assert Fraction(below) ** k < number < Fraction(above) ** k


LARGER = {"m": 1, "km": 10**3, "Mm": 10**6, "light_year": 9460730472580800}


@given(products(), st.integers(-(10**6), 10**6), st.sampled_from(sorted(LARGER)))
def test_conversion_to_a_multiple_is_correctly_rounded(u, n, name):
    multiplier, divisor = conversion(unit("m") * u, unit(name) * u)
    assert n * multiplier / divisor == float(Fraction(n, LARGER[name]))


@given(st.sampled_from(POINTS).map(unit), st.sampled_from(POINTS).map(unit), st.floats(1e-3, 200.0))
def test_points_there_and_back(a, b, x):
    if a.dimension is not b.dimension:
        with pytest.raises(UnitError):
            convert(x, a, b, np)
        with pytest.raises(UnitError):
            add_units(a, b)
        return
    assume(convert(x, a, b, np) > 0)
    back = convert(convert(x, a, b, np), b, a, np)
    assert back == pytest.approx(x, rel=1e-9, abs=1e-9)


@given(st.text(alphabet="kmsgN2 /*^()·²-.1eh%°", max_size=12))
def test_any_text_is_a_unit_or_an_error_of_units(text):
    try:
        found = unit(text)
    except UnitError:
        return  # any other exception fails the test
    assert unit(str(found)) is found
