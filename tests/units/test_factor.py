"""Exact factors: a unique form, exact arithmetic, correctly rounded floats."""

import copy
import math
import pickle
from fractions import Fraction

import pytest

from tanjax.units import Factor

PI = Factor(1, 1, (("π", Fraction(1)),))


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("r", [1, 2, 3, 10, 12345678901234567890, 2**200 + 1])
def test_roots_of_neighbours_of_a_power_are_no_integers(r, k):
    root = lambda n: Factor(n) ** Fraction(1, k)
    assert root(r**k) == Factor(r)
    for near in (r**k - 1, r**k + 1) if k > 1 and r > 1 else ():
        with pytest.raises(ValueError, match="not rational"):
            _ = root(near).fraction


def test_roots_are_exact_and_in_lowest_form():
    root = Factor(1000) ** Fraction(1, 2)
    assert root * root == Factor(1000)
    assert Factor(4) ** Fraction(1, 2) == Factor(2)
    assert Factor(Fraction(8, 27)) ** Fraction(2, 3) == Factor(Fraction(4, 9))
    assert Factor(4) ** Fraction(1, 4) == Factor(2) ** Fraction(1, 2)
    assert Factor(2) ** Fraction(1, 2) * Factor(3) ** Fraction(1, 3) == Factor(72, 6)
    assert Factor(64) ** Fraction(1, 6) == Factor(2)
    assert hash(Factor(4) ** Fraction(1, 4)) == hash(Factor(2, 2))


def test_constants_are_symbols():
    assert PI / Factor(180) * Factor(180) / PI == Factor(1)
    assert (PI ** Fraction(1, 2)) ** 2 == PI
    assert Factor(Fraction(math.pi)) != PI


@pytest.mark.parametrize(
    ("factor", "value"),
    [
        (Factor(Fraction(1, 10)), 0.1),
        (Factor(10**23), 1e23),  # 10.0 ** 23 is another float
        (PI, math.pi),
        (PI / Factor(180), 0.017453292519943295),
        (Factor(2, 2), 1.4142135623730951),
        (Factor(1000, 2), 31.622776601683793),
        (Factor(1, 1, (("ln10", Fraction(1)),)), 2.302585092994046),
        (Factor(1, 1, (("ln2", Fraction(-1)),)), 1.4426950408889634),
        (Factor(-3), -3.0),
        (Factor(-8, 3), -2.0),
        (Factor(10**400), math.inf),
        (Factor(Fraction(1, 10**400)), 0.0),
    ],
)
def test_floats_are_the_nearest(factor, value):
    assert float(factor) == value


def test_powers_of_negative_factors_keep_their_sign():
    assert Factor(-3) ** 2 == Factor(9)
    assert Factor(-3) ** -1 == Factor(Fraction(-1, 3))
    assert Factor(-3) * Factor(-2) == Factor(6)
    assert Factor(-27) ** Fraction(2, 3) == Factor(9)


def test_factor_without_a_real_value_is_refused():
    with pytest.raises(ValueError, match="zero"):
        Factor(0)
    with pytest.raises(ValueError, match="no real power 1/2"):
        Factor(-2) ** Fraction(1, 2)
    with pytest.raises(ValueError, match="not rational"):
        _ = PI.fraction


def test_pickle_copy_and_print():
    for factor in (PI, Factor(-3), Factor(2, 2) / PI):
        assert pickle.loads(pickle.dumps(factor)) == factor == copy.deepcopy(factor)
    assert repr(Factor(2, 2) / PI) == "(2)^(1/2) π^(-1)"
    assert repr(Factor(Fraction(-5, 18))) == "-5/18"
