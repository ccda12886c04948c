"""Units: interned values, algebra, names, the hook for quantities, errors."""

import copy
import os
import pickle
import subprocess
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest

from tanjax import UnitError, units
from tanjax.units import Dimension, Unit, coherent, one, unit

M, S, KM, N = (unit(text) for text in ("m", "s", "km", "N"))
POINTS = ["degC", "degF", "dBm", "pH_scale"]


def test_the_same_unit_is_the_same_object():
    assert unit("m") is M
    assert M * S is unit("m s")
    assert M / S * S is M
    assert M / M is one
    assert KM.inverse.inverse is KM
    assert M.inverse is M**-1 is one / M
    assert unit("m/s").dimension is (KM * S**-1).dimension


def test_equality_is_that_of_the_value():
    assert unit("kg m / s2") == N
    assert hash(unit("kg m / s2")) == hash(N)
    assert unit("kg m / s2") is not N
    assert unit("rad") == one
    assert unit("rad").is_one
    assert unit("deg") != one
    assert KM != M
    assert unit("degC") != unit("K")
    assert unit("degC").delta == unit("K")
    assert unit("degC") != unit("degF")
    assert unit("dBm") != unit("mW")
    assert N != "N"
    assert len({N, unit("kg m / s2"), KM, unit("kilometre")}) == 2


@pytest.mark.parametrize(
    ("got", "shown"),
    [
        (N * M, "N m"),
        (M * M, "m2"),
        (M / KM, "m / km"),
        (M / S / S, "m / s2"),
        (unit("J") / unit("K") / unit("mol"), "J / K / mol"),
        (one / S, "1 / s"),
        (M**0.5, "m^(1/2)"),
        (M ** Fraction(-3, 2), "1 / m^(3/2)"),
        (KM * one, "km"),
        (M**0, "1"),
        (M**12, "m^12"),
        (unit("%") ** 2, "%^2"),
    ],
)
def test_names_are_kept(got, shown):
    assert str(got) == shown
    assert repr(got) == f'Unit("{shown}")'
    assert unit(shown) is got


def test_facts_of_a_unit():
    assert KM.factor.fraction == 1000
    assert (KM**0.5 * KM**0.5).factor.fraction == 1000
    assert unit("deg").factor * unit("turn").factor ** -1 * units.Factor(360) == units.Factor(1)
    assert KM.symbols == (("km", Fraction(1)),)
    assert str(unit("m/s").dimension) == "length / time"
    assert str(one.dimension) == "dimensionless"
    assert M.delta is M
    assert (M / KM).is_dimensionless
    assert not (M / KM).is_one
    assert one.is_one
    assert M.is_linear
    assert not M.is_dimensionless
    assert coherent(unit("km/h")) is unit("m/s")
    assert str(coherent(N)) == "kg m / s2"
    assert coherent(N).factor.fraction == 1


@pytest.mark.parametrize("name", POINTS)
def test_points_of_a_scale_enter_no_product(name):
    point = unit(name)
    assert not point.is_linear
    assert not point.is_one
    assert point.delta.is_linear
    assert point.inverse is point.delta.inverse
    assert point * one is point
    assert one * point is point
    assert point / one is point
    assert point**1 is point
    assert unit(str(point)) is point
    assert unit(str(point.delta)) is point.delta
    for wrong in (
        lambda: point * point,
        lambda: point / S,
        lambda: S * point,
        lambda: S / point,
        lambda: one / point,
        lambda: point**2,
        lambda: point**-1,
        lambda: 1 / point,
    ):
        with pytest.raises(UnitError, match="Hint: use"):
            wrong()


def test_a_unit_of_differences():
    assert str(unit("delta_degC")) == "Δ°C"
    assert unit("delta_degC") is unit("Δ°C") is unit("degC").delta
    assert unit("delta_degF").factor.fraction == Fraction(5, 9)
    assert unit("Δ°C3") is unit("delta_degC") ** 3
    assert unit("dBm").delta is unit("dB")
    assert unit("dB/m") * M == unit("dB")
    assert str(unit("dB").dimension) == "level"


@pytest.mark.parametrize(
    "power", [0.1234567, "2", 1j, None, float("nan"), float("inf"), np.ones(2)]
)
def test_powers_must_be_simple_fractions(power):
    with pytest.raises(UnitError, match="cannot be raised"):
        M**power


def test_powers_may_be_any_exact_number():
    assert M ** np.float32(0.5) is M**0.5 is M ** Fraction(1, 2)
    assert M ** np.int64(3) is M**3 is M**3.0
    assert M ** (1 / 3) is M ** Fraction(1, 3) is M ** np.float32(1 / 3)
    assert M ** Fraction(1, 100) is not M ** Fraction(1, 101)


def test_an_even_root_of_a_negative_factor_is_refused():
    assert float(unit("mag").factor) < 0
    with pytest.raises(UnitError, match="no real power"):
        unit("mag") ** 0.5


@pytest.mark.parametrize("text", ["3", b"3", ""])
def test_texts_are_no_operands(text):
    for wrong in (lambda: text * M, lambda: M * text, lambda: text / M, lambda: M / text):
        with pytest.raises(UnitError, match="cannot multiply the text"):
            wrong()


@pytest.mark.parametrize(
    "name", ["m", "km/h", "degC", "delta_degC", "dBm", "dB/m", "franklin", "m^(1/3)", "deg", "mag"]
)
def test_copies_are_the_same_object(name):
    original = unit(name)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(original, protocol)) is original
        assert pickle.loads(pickle.dumps(original.dimension, protocol)) is original.dimension
    assert copy.copy(original) is original
    assert copy.deepcopy(original) is original
    assert copy.deepcopy(original.dimension) is original.dimension


def fresh_process(code):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


@pytest.mark.processes
def test_a_pickle_is_read_in_another_process():
    data = pickle.dumps([unit("mile/fortnight"), unit("degF"), KM])
    code = (
        f"import pickle; from tanjax.units import unit; got = pickle.loads({data!r})\n"
        "print(got, got[0].name)\n"
        "print(got[0] is unit('mile/fortnight'), got[1] is unit('degF'), got[2] is unit('km'))"
    )
    first, second, *_ = fresh_process(code)
    assert first == '[Unit("mi / fortnight"), Unit("°F"), Unit("km")] mile / fortnight'
    assert second == "True True True"


@pytest.mark.processes
def test_catalogue_and_scipy_are_loaded_only_when_needed():
    code = (
        "import sys, tanjax.units as u;\n"
        "loaded = lambda: [m for m in ('pint', 'scipy.constants') if m in sys.modules]\n"
        "print(loaded()); u.unit('kg m / s2'); u.unit('µm/h'); u.km; u.unit('solMass')\n"
        "u.systems.SI; u.constants; print(loaded()); u.unit('furlong'); print(loaded())\n"
        "u.constants.uncertainty('c'); print(loaded())"
    )
    before, table, catalogue, constants, *_ = fresh_process(code)
    assert before == table == "[]"
    assert catalogue == "['pint']"
    assert constants == "['pint', 'scipy.constants']"


def test_units_are_immutable_and_made_only_by_algebra():
    with pytest.raises(AttributeError, match="immutable"):
        M.factor = 3
    with pytest.raises(AttributeError, match="immutable"):
        del M.factor
    with pytest.raises(AttributeError, match="immutable"):
        M.dimension.exponents = ()
    with pytest.raises(TypeError, match=r"tj\.unit"):
        Unit()
    with pytest.raises(ValueError, match="no base dimension 'taste'"):
        Dimension([("taste", 1)])


def test_threads_make_one_object():
    found, barrier = [], threading.Barrier(8)

    def work():
        barrier.wait()
        found.append([unit(f"m^{n} s^-{n} kg^(1/{n})") for n in range(13, 40)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for other in found[1:]:
        assert all(a is b for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize(
    ("text", "pretty", "latex", "name"),
    [
        (
            "kg m / s2",
            "kg·m/s²",
            r"\mathrm{kg}\,\mathrm{m}/\mathrm{s}^{2}",
            "kilogram metre / second²",
        ),
        ("µm", "µm", r"\mathrm{\mu m}", "micrometre"),
        ("1/s", "1/s", r"1/\mathrm{s}", "1 / second"),
        ("m^(1/2)", "m^(1/2)", r"\mathrm{m}^{1/2}", "metre^(1/2)"),
        ("degC", "°C", r"\mathrm{{}^{\circ}C}", "degree_Celsius"),
        ("%", "%", r"\mathrm{\%}", "percent"),
        ("1", "1", "1", "1"),
        ("mile", "mi", r"\mathrm{mi}", "mile"),
        ("km", "km", r"\mathrm{km}", "kilometre"),
    ],
)
def test_unit_is_written_in_each_format(text, pretty, latex, name):
    u = unit(text)
    assert f"{u:P}" == f"{u:~P}" == pretty
    assert f"{u:L}" == latex
    assert u.name == name
    assert f"{u}" == f"{u:~}" == str(u)
    assert unit(f"{u:P}") is u


def test_an_unknown_format_is_refused():
    with pytest.raises(UnitError, match="no format 'x'"):
        format(M, "x")


@pytest.mark.parametrize(
    "text", ["kg m / s2", "µm", "degC", "delta_degC", "%", "Ω", "Å", "R_inf", "m_e^(1/2)"]
)
def test_matplotlib_reads_the_latex(text):
    mathtext = pytest.importorskip("matplotlib.mathtext")
    parsed = mathtext.MathTextParser("path").parse(f"${unit(text):L}$")
    assert parsed.width > 0


def test_the_catalogue_is_attributes_of_the_module():
    assert units.metre is units.meter is units.m is M
    assert units.km is KM
    assert units.au == units.astronomical_unit
    assert units.solar_mass is unit("solMass")
    assert {"metre", "furlong", "solar_mass", "unit", "constants"} <= set(dir(units))
    with pytest.raises(AttributeError, match=r"did you mean .*metre"):
        _ = units.metrre
