"""Quantities keep themselves in the range of their dtype: against exact rational arithmetic.

What a quantity is worth is computed here from its stored number, its exponent and its unit, as a
fraction, so that nothing in the comparison can overflow.
"""

import copy
import math
import pickle
import warnings
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp

m, km, s, kg, one = (tj.unit(name) for name in ("m", "km", "s", "kg", ""))
DTYPES = ("float32", "bfloat16", "float16")
EPS = {d: float(jnp.finfo(d).eps) for d in (*DTYPES, "float64")}
# Larger than a dtype holds, by a power of two: numbers of `2 ** FAR[dtype]`.
FAR = {"float32": 150, "bfloat16": 150, "float16": 40, "float64": 1100}


def exact(q):
    """The numbers of a quantity in its unit, as a nested list of fractions."""
    q = q if type(q) is tj.Quantity else tj.Quantity(q, "")
    stored = np.asarray(q.stored).astype(np.float64)
    numbers = [Fraction(v) * Fraction(2) ** q.scale for v in stored.ravel().tolist()]
    return np.array(numbers, dtype=object).reshape(stored.shape)


def assert_close(q, want, ulps=4.0):
    """Numbers agree to a few units in the last place of the dtype, each of them."""
    got = exact(q)
    want = np.asarray(want, dtype=object)
    assert got.shape == want.shape
    tolerance = Fraction(ulps * EPS[str(q.dtype)])
    for g, w in zip(got.ravel(), want.ravel(), strict=True):
        assert abs(g - Fraction(w)) <= tolerance * abs(Fraction(w)), (q, float(g / w) if w else g)


def far(dtype, numbers, unit=m, sign=1):
    """A scaled quantity, and what it is worth as fractions."""
    exponent = sign * FAR[dtype]
    q = tj.Quantity(jnp.asarray(numbers, dtype), unit, exponent)
    return q, np.asarray([Fraction(x) for x in np.asarray(q.stored, "float64").tolist()]) * (
        Fraction(2) ** exponent
    )


both_ends = pytest.mark.parametrize("sign", [1, -1], ids=["large", "small"])
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
NUMBERS = [1.5, -2.25, 3.0, 0.625]


# -- fields ----------------------------------------------------------------------------------------


def test_stored_number_scale_and_unit():
    q = tj.Quantity(jnp.float32(3.0), "m", 149)
    assert (q.unit, q.scale, float(q.stored)) == (m, 149, 3.0)
    assert q.unit is m
    assert (1.0 * m).scale == 0
    assert q.label is m.scaled(149)
    assert q.label.plain is m
    assert (q.label.inverse.scale, (q.label**2).scale, (q.label * q.label).scale) == (
        -149,
        298,
        298,
    )
    assert (q.label / q.label).is_one


@pytest.mark.parametrize("scale", [3, -3, 127, -149])
def test_the_value_is_one_exact_multiplication(scale):
    """Also where 2^scale itself is no number of the dtype."""
    q = tj.Quantity(jnp.float32([0.0, 1.5e-3]) if scale > 0 else jnp.float32([0.0, 1e30]), m, scale)
    np.testing.assert_array_equal(q.value, np.ldexp(np.asarray(q.stored), scale))


@both_ends
@every_dtype
def test_a_value_that_does_not_fit_is_an_error(dtype, sign):
    q, _ = far(dtype, NUMBERS, sign=sign)
    for ask in (lambda: q.value, lambda: q.to_value("m"), lambda: np.asarray(q / m)):
        with pytest.raises(tj.errors.ScaleError, match=rf"(?s){dtype}.*Hint"):
            ask()


def test_part_of_the_numbers_may_vanish_as_in_any_rounding():
    q = tj.Quantity(jnp.float32([1.0, 1e-30]), m, -60)
    np.testing.assert_allclose(q.value, [2.0**-60, 0.0], rtol=1e-6)


def test_under_a_trace_the_value_is_multiplied():
    q = tj.Quantity(jnp.float32(3.0), m, 10)
    assert float(jax.jit(lambda q: q.value)(q)) == 3072.0


# -- conversion ------------------------------------------------------------------------------------


@both_ends
@every_dtype
def test_conversion_is_right_for_any_magnitude(dtype, sign):
    q, want = far(dtype, NUMBERS, sign=sign)
    assert_close(q.to("km"), want / 1000)
    assert_close(q.to("nm"), want * 10**9)
    big = tj.quantity(jnp.asarray(NUMBERS, dtype), "solMass")
    kilograms = big.to("kg")
    assert kilograms.unit is kg
    assert_close(kilograms, [Fraction(x) * Fraction(198841, 10**5) * 10**30 for x in NUMBERS], 6000)
    assert_close(kilograms.to("solMass"), [Fraction(x) for x in NUMBERS])
    assert kilograms.to("solMass").scale == 0


def test_a_value_in_a_fitting_unit():
    q = tj.Quantity(jnp.float32(1.0), m, 149)
    assert q.to("Ym").scale == 0
    np.testing.assert_allclose(q.to_value("Ym"), 2.0**149 / 1e24, rtol=1e-6)


# -- text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1, -3, 50, -150, 1329, -4000])
@pytest.mark.parametrize("number", [np.float32(1e30), np.float32(-1.5), np.float16(3), 0.1])
def test_text_is_the_number_in_the_unit(number, scale):
    """As few digits as tell it from its neighbours, also where no float holds it."""
    q = tj.Quantity(number, m, scale)
    text, _, unit = str(q).partition(" ")
    assert unit == "m"
    assert_close(q, [] if q.shape else Fraction(text), 0.5)
    assert len(text) <= (25 if isinstance(number, float) else 16)
    assert repr(q) == f'Quantity({text}, "m", scale={scale})'
    assert str(tj.Quantity(np.stack([number, -number]), m, scale)).count(text.lstrip("-")) == 2


def test_text_of_special_numbers():
    q = tj.Quantity(np.float32([0.0, np.inf, np.nan]), m, 1000)
    assert str(q) == "[0.0, inf, nan] m"


def test_formats_write_numbers_beyond_the_dtype():
    q = tj.Quantity(jnp.float32(1.0), m, 149)
    assert f"{q:.3e}" == "7.136e+44 m"
    assert f"{q:.2e P}" == "7.14e+44 m"
    assert repr(1.5 * m) == 'Quantity(1.5, "m")'
    assert "2^149" in repr(q.label)
    assert str(q.label) == "m"
    assert float(tj.Quantity(jnp.float32(1.0), "", 149)) == 2.0**149
    with pytest.raises(tj.errors.ScaleError):
        float(tj.Quantity(jnp.float32(1.0), "", 1500))


# -- operators -------------------------------------------------------------------------------------


@both_ends
@every_dtype
def test_operators_and_functions_are_exact_beyond_the_range(dtype, sign):
    q, want = far(dtype, NUMBERS, sign=sign)
    for f, ulps in (
        (lambda x, _: -x, 0),
        (lambda x, _: abs(x), 0),
        (lambda x, _: +x, 0),
        (lambda x, _: x + x, 4),
        (lambda x, _: x - x[0], 4),
        (lambda x, _: 3 * x, 4),
        (lambda x, _: x * 0.5, 4),
        (lambda x, _: x / 4, 4),
        (lambda x, _: x * x * x, 4),
        (lambda x, _: 1 / x, 4),
        (lambda x, _: x / x[1], 4),
        (lambda x, _: x**2, 4),
        (lambda x, _: x**-1, 4),
        (lambda x, _: x[0] * x[1:], 4),
        (lambda x, f: f.sum(x), 8),
        (lambda x, f: f.mean(x), 8),
        (lambda x, f: f.max(x), 0),
        (lambda x, f: f.min(x), 0),
        (lambda x, f: f.cumsum(x), 8),
        (lambda x, f: f.sort(x), 0),
        (lambda x, f: f.concatenate([x, x]), 0),
        (lambda x, f: f.where(np.array([True, False] * 2), x, -x), 0),
        (lambda x, f: f.prod(x), 8),
        (lambda x, f: f.dot(x, x), 8),
        (lambda x, f: f.outer(x, x), 2),
        (lambda x, f: f.clip(x, x[1], x[0]), 0),
        (lambda x, f: f.diff(x), 2),
        (lambda x, f: f.take(f.flip(x), np.array([2, 0])), 0),
        (lambda x, f: f.trace(f.reshape(x, (2, 2))), 8),
        (lambda x, f: f.square(x), 2),
        (lambda x, f: f.matmul(f.reshape(x, (2, 2)), f.reshape(x, (2, 2))), 8),
        (lambda x, f: f.maximum(x, -f.absolute(x)), 0),
    ):
        assert_close(f(q, tnp), f(want, np), ulps)


@every_dtype
def test_values_at_the_ends_of_the_range_stay_right(dtype):
    """Plain numbers whose products and quotients leave the range."""
    info = jnp.finfo(dtype)
    large, small = float(info.max) / 3, float(info.smallest_normal) * 5
    for a, b in ((large, large), (small, small), (large, small)):
        x, y = jnp.asarray([a, a / 2], dtype) * m, jnp.asarray([b, b / 3], dtype) * m
        want_x, want_y = exact(x), exact(y)
        assert (x.scale, y.scale) == (0, 0)
        assert_close(x * y, want_x * want_y)
        assert_close(x / y, want_x / want_y)
        assert_close(x * y / y, want_x)
        assert_close(x * np.asarray(y.value, dtype), want_x * want_y)
        assert_close(np.asarray(x.value, dtype) * y, want_x * want_y)
        assert_close(tnp.multiply(x, y), want_x * want_y)
        assert_close(np.divide(x, y), want_x / want_y)
        assert_close(x + y, want_x + want_y)
        assert_close(x - y, want_x - want_y)
        assert_close(x.sum(), want_x.sum())
    top = jnp.asarray([large, large], dtype) * m
    assert_close(top + top + top + top, 4 * exact(top))


@every_dtype
def test_differences_do_not_vanish(dtype):
    """Neighbours at the bottom of the range differ by less than its least number."""
    info = jnp.finfo(dtype)
    a = float(info.smallest_normal) * 4
    x = jnp.asarray([a], dtype) * m
    y = jnp.asarray([a * (1 + float(info.eps))], dtype) * m
    assert_close(y - x, exact(y) - exact(x))


def test_a_sum_is_aligned_at_the_larger_one():
    big, small = jnp.float32(1e30) * m * 1e15, jnp.float32(1.0) * m
    for q in (big + small, small + big, big - small, tnp.add(small, big)):
        assert_close(q, exact(big))
    assert_close(small - big, -exact(big))
    assert_close(big - big + small, exact(small))


@both_ends
@every_dtype
def test_comparisons_beyond_the_dtype_are_those_of_numpy(dtype, sign):
    q, want = far(dtype, NUMBERS, sign=sign)
    one_metre = jnp.ones(4, dtype) * m
    for f in (jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal, jnp.equal, jnp.not_equal):
        name = f.__name__
        compare = getattr(tnp, name)
        expected = [bool(getattr(np, name)(w, 1)) for w in want]
        assert compare(q, one_metre).tolist() == expected
        assert compare(q, one_metre.to("km")).tolist() == expected
    assert (q == q).all()
    assert (q > 0).tolist() == [w > 0 for w in want]
    assert (q == tj.Quantity(q.stored / 2, m, q.scale + 1)).all()
    with pytest.raises(tj.UnitError):
        _ = q < 1.0 * s


def test_a_far_number_is_greater_in_float32():
    assert bool(tj.quantity("1e45 m") > jnp.float32(1.0) * m)
    assert bool(jnp.float32(1e30) * m * 1e15 > jnp.float32(1.0) * m)


@both_ends
@every_dtype
def test_indexing_iteration_and_updates(dtype, sign):
    q, want = far(dtype, NUMBERS, sign=sign)
    for i, part in enumerate(q):
        assert_close(part, want[i])
        assert_close(q[i], want[i])
    assert_close(q.at[0].set(q[1]), [want[1], *want[1:]])
    assert_close(q.at[0].add(q[1]), [want[0] + want[1], *want[1:]])
    assert_close(q.at[1].multiply(2.0), [want[0], 2 * want[1], *want[2:]])
    assert_close(q.at[0].set(0), [0, *want[1:]])
    assert_close(q.at[0].get(), want[0])
    assert_close(q.at[2].max(q[0]), [*want[:2], max(want[2], want[0]), want[3]])
    near = sign * FAR[dtype] - 8
    other = tj.Quantity(jnp.ones(2, dtype), km, near)
    assert_close(other.at[0].set(q[0]), [want[0] / 1000, Fraction(2) ** near])


# -- functions -------------------------------------------------------------------------------------


def _root(w):
    return Fraction(math.isqrt(int(abs(w) * 2**2400))) / 2**1200


@both_ends
@every_dtype
def test_functions_that_numpy_has_not_for_fractions(dtype, sign):
    q, want = far(dtype, NUMBERS, sign=sign)
    mean = sum(want) / 4
    assert_close(tnp.var(q), sum((w - mean) ** 2 for w in want) / 4, 16)
    assert_close(tnp.std(q), _root(sum((w - mean) ** 2 for w in want) / 4), 16)
    assert_close(tnp.linspace(q[0], q[2], 3), [want[0], (want[0] + want[2]) / 2, want[2]], 8)
    if dtype != "float16":  # LAPACK has no small floats; the norm is a sum of squares
        assert_close(tnp.linalg.norm(q), _root(sum(w * w for w in want)), 8)
    assert_close(tnp.sqrt(abs(q)), [_root(w) for w in want], 2)
    odd = tj.Quantity(q.stored, q.unit, q.scale + 1)
    assert_close(tnp.sqrt(abs(odd)), [_root(2 * w) for w in want], 2)
    assert_close(abs(odd) ** 0.5, [_root(2 * w) for w in want], 2)
    assert_close(tnp.cbrt(odd**3), 2 * want, 8)


@every_dtype
def test_logarithms_of_pure_numbers(dtype):
    q, _ = far(dtype, [1.5, 2.25], one)
    got = tnp.log(q)
    logs = [FAR[dtype] * math.log(2) + math.log(x) for x in (1.5, 2.25)]
    np.testing.assert_allclose(np.asarray(got.value, "float64"), logs, rtol=4 * EPS[dtype])
    assert tnp.tanh(q).value.tolist() == [1.0, 1.0]


def test_rounding_looks_at_the_number_in_its_unit():
    q = tj.Quantity(jnp.float32([2.75, -1.25]), m, 1)
    assert_close(tnp.floor(q), [5, -3])
    assert_close(tnp.round(q), [6, -2])
    far_away, want = far("float32", NUMBERS)
    assert_close(tnp.floor(far_away), want)
    assert_close(tnp.ones_like(far_away), [1] * 4)


def test_other_dtypes():
    q, want = far("float32", NUMBERS)
    wide = q.astype("float64")
    assert wide.scale == 0
    assert_close(wide, want)
    assert_close(q.astype("float16"), want)
    assert_close((jnp.float32([1e30]) * m).astype("float16"), [10**30])
    assert (jnp.float32([1.0]) * m).astype("float16").scale == 0


def test_norm_at_1e25():
    x = jnp.float32([1e25, 2e25]) * m
    n = tnp.linalg.norm(x)
    assert n.scale == 0
    np.testing.assert_allclose(float(n / m), 5**0.5 * 1e25, rtol=1e-6)


@every_dtype
def test_a_chain_that_grows_and_shrinks(dtype):
    x = jnp.asarray([1.5, 0.75], dtype) * m
    want, c = exact(x), jnp.asarray(300.0, dtype)
    for _ in range(40):
        x = x * c
    assert_close(x, want * 300**40, 40)
    for _ in range(40):
        x = x / c
    assert_close(x, want, 80)
    assert x.scale == 0


# -- nothing unless it is needed -------------------------------------------------------------------


@every_dtype
def test_ordinary_values_keep_exponent_0(dtype):
    x = jnp.asarray([0.5, 1.25, -3.0], dtype) * m
    for q in (x + x, x * x, x / x, 1 / x, x**2, tnp.sum(x), tnp.var(x), tnp.sqrt(abs(x)), x @ x,
              tnp.where(x > x[0], x, 0), x[0], x.to("km"), x - x, x * 0, -x):  # fmt: skip
        assert q.scale == 0


def test_number_that_fits_in_the_dtype_keeps_exponent_0():
    x = jnp.float32([1e-20, 1.0, 1e20, 0.0]) * m
    np.testing.assert_array_equal((x + x).value, 2 * x.value)
    for q in (x * 1e10, x / 1e10, x + x, -x, tnp.sum(x), tnp.sort(x), 2.0 / x[:3], x.at[0].set(0)):
        assert q.scale == 0
    assert (jnp.float32(1e30) * kg * 1e5).scale == 0


def test_there_is_no_flapping_at_the_border():
    """A number that crosses the border of the dtype to and fro keeps the label that it got."""
    x = jnp.float32(2.0**126) * m
    labels = []
    for _ in range(10):
        x = x * 8.0
        labels.append(x.label)
        x = x / 8.0
        labels.append(x.label)
    assert len(set(labels)) == 1
    assert_close(x, Fraction(2) ** 126)
    x = x / 2.0**100
    assert x.scale == 0


def test_bits_are_those_of_plain_jax_where_it_is_right():
    x, y = jnp.float32([1e30, 3e-25, 7.7]), jnp.float32([3e-7, 1e12, 1.1])
    for f in (jnp.multiply, jnp.divide, jnp.add, jnp.subtract):
        q = getattr(tnp, f.__name__)(x * m, y * m)
        assert q.scale == 0
        np.testing.assert_array_equal(q.value, f(x, y))


# -- inputs that are no ordinary numbers -----------------------------------------------------------


def test_numbers_that_no_exponent_holds_together():
    x = jnp.float32([1e-30, 1.0, 1e30]) * m
    with pytest.warns(tj.errors.ScaleWarning, match=r"(?s)multiply.*float32.*Hint"):
        square = x * x
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(square.value, np.asarray(x.value) ** 2)


def test_zeros_have_any_exponent():
    zero = jnp.zeros(2, "float32") * m
    q, want = far("float32", [1.5, 2.5])
    assert_close(q + zero, want)
    assert_close(zero + q, want)
    assert_close(q * zero.value, [0, 0])
    assert (q * 0.0).scale == 0
    assert (zero * zero).scale == 0
    assert (q - q).scale == 0
    assert (q > zero).all()
    assert tj.Quantity(jnp.zeros(2), m, 500).value.tolist() == [0, 0]


def test_nan_and_infinity_pass_through():
    q = tj.Quantity(jnp.float32([np.nan, np.inf, -np.inf, 1.5, 0.0]), m, 150)
    for r in (q * 2.0, q + q, q * q, tnp.sort(q), q[:], q.at[4].set(q[3]), q.to("km")):
        stored = np.asarray(r.stored)
        assert np.isnan(stored).sum() == 1
        assert np.isinf(stored).sum() == 2
    nothing = jnp.float32([np.nan, np.inf]) * m
    assert (nothing * nothing).scale == 0
    assert (nothing + nothing).scale == 0
    assert (jnp.float32([1.0]) * m / 0.0).value.tolist() == [np.inf]
    assert (jnp.float32([1e30]) * m / (jnp.zeros(1, "float32") * s)).value.tolist() == [np.inf]


def test_integers_are_left_alone():
    n = jnp.arange(3) * m
    assert (n * n).value.dtype == n.dtype
    assert (n + n).scale == 0
    assert (n * (2**62)).scale == 0


def test_complex_numbers():
    q = jnp.asarray([1e30 + 2e30j, 3e-5j], "complex64") * m
    square = q * q[0]
    assert_close(square.real, [-3 * 10**60, -6 * 10**25], 64)
    assert_close(square.imag, [4 * 10**60, 3 * 10**25], 64)
    assert_close(abs(square[0]), 5 * 10**60, 64)


def test_python_numbers_meet_arrays():
    assert_close(jnp.float32([2.0]) * m * (1e45 * m), [2 * 10**45])
    assert_close(jnp.float32([2.0]) * m + 1e45 * m, [10**45])
    assert_close((1e-60 * m) * (jnp.float32([2.0]) * s), [Fraction(2, 10**60)])
    assert (1e45 * m).value == 1e45


# -- structure and copies --------------------------------------------------------------------------


def test_structured_arrays():
    q, want = far("float32", [1.5, 2.5])
    d = tj.Diagonal(q)
    assert (type(d.stored), d.unit, d.scale) == (tj.Diagonal, m, 150)
    assert_close(tnp.diagonal(d), want)
    assert_close(d @ (jnp.ones(2, "float32") * s), want)
    assert_close(d.to_dense()[0], [want[0], 0])


def test_exported_programs_and_copies_multiply():
    pytest.importorskip("flatbuffers")
    q, want = far("float32", NUMBERS)
    program = jax.export.export(jax.jit(lambda q: q * q))(q)
    again = jax.export.deserialize(program.serialize())
    assert_close(again.call(q), want * want)
    assert_close(pickle.loads(pickle.dumps(q)) * copy.deepcopy(q), want * want)


# -- transformations -------------------------------------------------------------------------------


@pytest.mark.parametrize("jit", [jax.jit, tj.jit])
def test_compiled_functions(jit):
    q, want = far("float32", NUMBERS)
    assert_close(jit(lambda q: q * q / q[0])(q), want * want / want[0])
    assert_close(jit(lambda q: q + q[0])(q), want + want[0])
    assert_close(jit(lambda q: tnp.sqrt(abs(q)))(q), [_root(w) for w in want])


def test_gradients_beyond_the_dtype_have_value_and_unit():
    q, want = far("float32", NUMBERS)
    value, slope = tj.value_and_grad(lambda q: tnp.sum(q * q))(q)
    assert_close(value, sum(want * want), 8)
    assert_close(slope, 2 * want)
    assert slope.unit == m
    assert_close(tj.grad(lambda q: tnp.sum(1 / q))(q), -1 / (want * want))
    _, push = tj.jvp(lambda q: q * q, (q,), (q,))
    assert_close(push, 2 * want * want)


def test_maps_and_loops():
    q, want = far("float32", NUMBERS)
    assert_close(jax.vmap(lambda x: x * x)(q), want * want)
    carry, ys = tj.scan(lambda c, x: (c + x, c * 2.0), q[0], q)
    assert_close(carry, want[0] + sum(want), 8)
    assert ys.shape == (4,)


def test_a_trace_measures_nothing():
    """Exponents under a trace follow the laws of units, whatever the numbers are."""
    for f, x in (
        (lambda x: (x * m * x).stored, jnp.float32(1e30)),
        (lambda q: (q * q).stored, jnp.float32([1e30, 2.0]) * m),
    ):
        assert [e.primitive.name for e in jax.make_jaxpr(f)(x).eqns] == ["mul"]


def test_ordinary_programs_warn_of_nothing():
    x = jnp.float32([1.0, 2.0]) * m
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tnp.linalg.norm(x * x / x + x).scale == 0


@pytest.mark.parametrize("scale", [3, 100])
@pytest.mark.parametrize(
    "f",
    [
        lambda q: q - 1,
        lambda q: 1 - q,
        lambda q: q + np.float32(1.0),
        lambda q: tnp.maximum(q, 20.0),
        lambda q: tnp.where(np.array([True, False]), q, 5.0),
        lambda q: tnp.clip(q, 1.0, 13.0),
        lambda q: tnp.concatenate([q, np.float32([3.0])]),
        lambda q: tnp.full_like(q, 5.0),
        lambda q: q % 5,
        lambda q: tnp.hypot(q, 3.0),
        lambda q: q < 20,
        lambda q: tnp.select([np.array([True, False])], [q], 3.0),
    ],
)
def test_a_pure_number_meets_a_scaled_quantity(f, scale):
    """It has no exponent of its own, and is brought to that of the quantities."""
    q = tj.Quantity(jnp.float32([1.5, 2.0]), "1", scale=scale)
    with jax.numpy_dtype_promotion("standard"):
        expected = np.asarray(f(jnp.float64([1.5, 2.0]) * 2.0**scale))
    for got in (f(q), jax.jit(f)(q)):
        if isinstance(got, tj.Quantity):
            got = np.asarray(got.stored, np.float64) * 2.0**got.scale
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_bounds_are_looked_at_before_anything_is_moved():
    """What arithmetic carries along are bounds; after many sums they say nothing."""
    x = tj.quantity(jnp.float32(1.0), "m")
    for _ in range(8):
        x = x - 0.5 * x
    ratio = x / tj.quantity(jnp.float32(2.0**-8), "m")
    assert ratio.scale == 0
    assert float(ratio - 1) == 0.0


@pytest.mark.parametrize("number", [1e-68, [1e-68, 3e-70], 1e68 + 2e68j])
def test_a_narrower_dtype_gets_a_power_of_two(number):
    with jax.enable_x64(True):
        q = tj.quantity(jnp.asarray(number), "m")
    with jax.enable_x64(False):
        for given in (q, tj.quantity(number, "m")):
            for dtype in (
                (jnp.complex64,) if type(number) is complex else (jnp.float32, jnp.float16)
            ):
                narrow = given.astype(dtype)
                assert narrow.dtype == dtype
                wide = np.asarray(narrow.stored).astype(complex) * 2.0**narrow.scale
                np.testing.assert_allclose(wide, number, 1e-3)


def test_the_value_of_a_quantity_cannot_be_changed():
    """A quantity remembers where its numbers lie; through `q.value` they could be moved away."""
    a = np.array([1.0, 2.0], np.float16)
    for q in (a * kg, tj.Quantity(a, "kg"), tj.quantity(a, "kg")):
        for value in (q.value, q.stored, q.to_value("kg")):
            with pytest.raises(ValueError, match="read-only"):
                value[0] = 6e4
        np.testing.assert_array_equal(q.value, [1.0, 2.0])
    a[0] = 3.0  # the array itself is whose it was


def test_a_number_that_does_not_fit_names_no_unit_of_another_dimension():
    with pytest.raises(tj.errors.ScaleError) as error:
        _ = (tj.quantity(jnp.float32(1e30), "kg") ** 2).value
    assert "Gm" not in str(error.value)


def test_a_sum_of_many_small_numbers_leaves_the_range():
    many = jnp.full(2**14, 8.0, "float16") * m
    assert_close(tnp.sum(many), 2**17)
