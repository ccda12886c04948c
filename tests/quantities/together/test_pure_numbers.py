"""Dimensionless quantities far from one, where they meet pure numbers: the larger one counts.

`1 - v**2 / c**2` of a car is 1 in float16, though `v**2 / c**2` is 2^-47. What no array holds
beside another entry is said.
"""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from tanjax.quantities import is_quantity

FIRST = np.array([True, False])
FUNCTIONS = {
    "n - q": lambda q, n: n - q,
    "q + n": lambda q, n: q + n,
    "q - n": lambda q, n: q - n,
    "q * n": lambda q, n: q * n,
    "n / q": lambda q, n: n / q,
    "q % n": lambda q, n: q % n,
    "q < n": lambda q, n: q < n,
    "n >= q": lambda q, n: n >= q,
    "q == n": lambda q, n: q == n,
    "maximum": lambda q, n: tnp.maximum(q, n),
    "minimum": lambda q, n: tnp.minimum(n, q),
    "fmax": lambda q, n: tnp.fmax(q, n),
    "where": lambda q, n: tnp.where(FIRST, q, n),
    "select": lambda q, n: tnp.select([FIRST], [q], n),
    "hypot": lambda q, n: tnp.hypot(q, n),
    "clip": lambda q, n: tnp.clip(q, 0, n),
    "isclose": lambda q, n: tnp.isclose(q, n),
    "linspace": lambda q, n: tnp.linspace(q[0], n, 3),
    "stack": lambda q, n: tnp.stack([q[0], n]),
    "array": lambda q, n: tnp.array([q[0], n]),
    "append": lambda q, n: tnp.append(q, n),
    "block": lambda q, n: tnp.block([q, n]),
    "pad": lambda q, n: tnp.pad(q, 1, constant_values=n),
    "at.set": lambda q, n: q.at[0].set(n),
    "at.add": lambda q, n: q.at[0].add(n),
    "at.max": lambda q, n: q.at[0].max(n),
    "sum": lambda q, n: tnp.sum(q, initial=n),
    "max": lambda q, n: tnp.max(q, initial=n),
    "searchsorted": lambda q, n: tnp.searchsorted(tnp.stack([0 * q[0], q[0]]), n),
    "polyval": lambda q, n: tnp.polyval([1.0, n], q),
    "sqrt": lambda q, n: tnp.sqrt(n + q**2),
}


def numbers(tree):
    """Those of quantities in float64, at whatever exponents they are."""
    leaves = jax.tree.leaves(tree, is_leaf=is_quantity)
    stored = [np.asarray(x.stored if is_quantity(x) else x, np.float64) for x in leaves]
    scales = [x.scale if is_quantity(x) else 0 for x in leaves]
    return list(map(np.ldexp, stored, scales))


KINDS = (int, float, jnp.float16, jnp.float32, jnp.int32)
# JAX warns of updates in another dtype.
CALLS = [(n, k) for n in FUNCTIONS for k in (KINDS[:3] if n.startswith("at.") else KINDS)]


@pytest.mark.parametrize(("name", "kind"), CALLS)
def test_the_larger_of_both_is_kept_and_a_loss_is_said(name, kind):
    for scale in (-60, 60):
        with jax.enable_x64(True):
            exact = tj.Quantity(jnp.asarray([1.0, 1.5]) * 2.0**scale, "1")
            expected = numbers(FUNCTIONS[name](exact, 3.0))
        q = tj.Quantity(jnp.float16([1.0, 1.5]), "1", scale)
        with warnings.catch_warnings(record=True) as said, jax.numpy_dtype_promotion("standard"):
            warnings.simplefilter("always", tj.errors.ScaleWarning)
            found = numbers(FUNCTIONS[name](q, kind(3)))
        for got, want in zip(found, expected, strict=True):
            is_right = np.isclose(got, want, rtol=0.01, atol=0)
            assert said or np.all(is_right), f"{got}, exactly {want}"
            assert np.all(is_right | (got == 0) | np.isnan(got)), f"{got}, exactly {want}"


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_numbers_of_python_are_looked_at_whatever_their_type(dtype):
    """`2 * q` was infinite where `2.0 * q` was not."""
    q = tj.Quantity(jnp.asarray(jnp.finfo(dtype).max / 1.5, dtype), "m")
    for two in (2, 2.0, np.int32(2), jnp.int32(2)):
        with jax.numpy_dtype_promotion("standard"):
            for twice in (two * q, q * two, q / np.float32(1 / two).astype(dtype)):
                assert twice.dtype == dtype
                np.testing.assert_array_equal(numbers(twice), 2 * np.asarray(numbers(q)))


# Other functions do not look at plain numbers: `scale.md`.
LOOKED_AT = [
    *("n - q", "q + n", "q - n", "q * n", "n / q", "q % n", "q < n", "n >= q", "q == n", "maximum"),
    *("minimum", "fmax", "where", "hypot", "clip", "isclose", "stack", "append", "max", "sqrt"),
]


@pytest.mark.parametrize("near", [[1.0, 1.5], [300.0, 1.0], [0.0, 0.0]])
def test_a_number_that_the_dtype_does_not_hold_meets_ordinary_quantities(near):
    """`tnp.multiply(q, 70000)` was infinite in float16, where `q * 70000` was not."""
    q = tj.Quantity(jnp.float16(near), "1")
    functions = {name: FUNCTIONS[name] for name in LOOKED_AT}
    functions |= {"multiply": tnp.multiply, "divide": lambda q, n: tnp.divide(n, q)}
    for (name, f), kind in itertools.product(functions.items(), (int, float, np.int32, jnp.int32)):
        with jax.enable_x64(True):
            expected = numbers(f(tj.Quantity(jnp.asarray(near), "1"), 7e4))
        with jax.numpy_dtype_promotion("standard"):
            found = [numbers(f(q, kind(70000))) for _ in range(2)]  # the second call is kept
        for got in found:
            np.testing.assert_allclose(got, expected, rtol=2e-3, err_msg=name)


FAR = {
    **FUNCTIONS,
    "q / n": lambda q, c: tnp.divide(q, c),
    "clip": lambda q, c: tnp.clip(q, 2 * c, c),
    "where": lambda q, c: tnp.where(q > c, q, c),
    "dot": lambda q, c: tnp.dot(q, c),
    "full_like": lambda q, c: tnp.full_like(q, c),
}
OF_NUMBERS = "n / q", "q % n", "isclose", "select", "polyval", "sqrt", "searchsorted", "block"


@pytest.mark.parametrize("name", [name for name in FAR if name not in OF_NUMBERS])
def test_constants_of_python_numbers_take_a_dtype_that_does_not_hold_them(name):
    """`tnp.maximum(q, 1e5 * m)` was infinite in float16: a number of Python has no dtype."""
    far = ((1e5, "m"), (90.0, "km"), (1e-7, "m"), (1e-10, "km"), (1e12, "km"))
    half = tj.Quantity(jnp.float16(90.0), "km")  # has a dtype, and is not held in metres
    weak = tj.Quantity(jnp.asarray(1e5), "m")  # an array of JAX's that came of a Python number
    for constant in (*(tj.quantity(*c) for c in far), half, weak):
        with jax.enable_x64(True):
            exact = tj.Quantity(jnp.asarray([1.0, 1.5]), "m")
            expected = numbers(FAR[name](exact, tj.quantity(float(constant.stored), constant.unit)))
        q = tj.Quantity(jnp.float16([1.0, 1.5]), "m")
        for _ in range(2):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", tj.errors.ScaleWarning)
                found = FAR[name](q, constant)
            for got, want in zip(numbers(found), expected, strict=True):
                is_right = np.isclose(got, want, rtol=3e-3, atol=0)
                assert said or np.all(is_right), f"{got}, exactly {want}"
                assert np.all(is_right | (got == 0)), f"{got}, exactly {want}"


WHOLE = np.int32([70000, 1, -(2**31), 65519, 65520])


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
@pytest.mark.parametrize("near", [1e-3, 1.5])
def test_integers_that_the_dtype_does_not_hold(kind, near):
    """A number of 2^60 less 70000 was minus infinity, as 70000 is infinite in float16."""
    far, q = (tj.Quantity(jnp.float16(near), "1", e) for e in (60, 0))
    of_far, exact = np.float64(jnp.float16(near)) * 2.0**60, np.float64(jnp.float16(near))
    for n in WHOLE:
        n, m = kind(n), np.float64(n)
        with jax.numpy_dtype_promotion("standard"):
            cases = [
                *((q * n, exact * m), (n * q, exact * m), (q / n, exact / m)),
                *((far - n, of_far - m), (n + far, m + of_far), (far * n, of_far * m)),
                *((tnp.maximum(far, n), max(of_far, m)), (tnp.hypot(n, far), np.hypot(m, of_far))),
            ]
        for found, expected in cases:
            assert found.dtype == jnp.float16
            np.testing.assert_allclose(numbers(found), [expected], rtol=2e-3)


@pytest.mark.parametrize("near", [1e5, jnp.asarray(1e5), jnp.float16(1e4)])
def test_a_constant_that_is_lost_beside_a_larger_number_is_said(near):
    """Whatever it came of: one over it was infinite."""
    q = tj.Quantity(jnp.float16([0.0, 930.0]), "m", 60)
    for constant in (tj.Quantity(near, "m"), near * tj.unit("m")):
        with (
            jax.numpy_dtype_promotion("standard"),
            pytest.warns(tj.errors.ScaleWarning, match="maximum"),
        ):
            tnp.maximum(q, constant)
        with jax.numpy_dtype_promotion("standard"):
            whole = tnp.maximum(q + q[1], constant)  # nothing of it is missed
        assert np.all(numbers(whole)[0] > 1e20)


def test_a_call_on_arrays_says_nothing_of_one_on_a_number():
    """Both have the same units, and only one of them is looked at anew."""
    q = tj.Quantity(jnp.float16([1.0, 1.5]), "m")
    for constant in (1e5 * tj.unit("m"), tj.Quantity(jnp.asarray(1e5), "m")):
        tnp.maximum._calls.clear()
        tnp.maximum(q, tj.Quantity(jnp.float16(2.0), "m"))
        np.testing.assert_allclose(numbers(tnp.maximum(q, constant)), [[1e5, 1e5]], rtol=1e-3)


def test_integers_beside_traced_and_ordinary_quantities():
    q = tj.Quantity(jnp.float16([1.0, 1.5]), "m")
    for n in (np.int32(3), jnp.int32(3), jnp.arange(2), np.arange(40).reshape(20, 2), np.uint8(3)):
        with jax.numpy_dtype_promotion("standard"):
            for f in (lambda q, n: q * n, lambda q, n: n * q, lambda q, n: q / (n + n)):
                eager, traced = f(q, n), jax.jit(f)(q, n)
                assert eager.dtype == traced.dtype == jnp.float16
                np.testing.assert_array_equal(eager.stored, traced.stored)


def test_choosing_among_operands_needs_no_graph(monkeypatch):
    """It was compiled on each call; a number may be given beside what is reduced."""

    def compiled(name, *args):
        raise AssertionError(f"{name} was compiled")

    monkeypatch.setattr("tanjax.scale.scaled_call", compiled)
    q = tj.Quantity(jnp.float32([1.0, 1.5]), "1", -200)
    for _ in range(2):
        np.testing.assert_array_equal(tnp.maximum(q, 1.0).stored, [1.0, 1.0])
        np.testing.assert_array_equal(numbers(tnp.where(FIRST, q, 0.0)), [[2.0**-200, 0.0]])
        np.testing.assert_array_equal(numbers(tnp.max(q, initial=0.25)), [0.25])
        np.testing.assert_array_equal(numbers(tnp.max(q, initial=0)), [1.5 * 2.0**-200])
    near = tj.Quantity(jnp.float32([1.0, 1.5]), "1")
    assert tnp.max(near, initial=3.0).stored == 3.0
    kept = len(tnp.max._calls)
    for number in (3.0, 0.5, 2.0):  # under one pattern
        assert tnp.max(near, initial=number).stored == max(number, 1.5)
    assert len(tnp.max._calls) == kept


@pytest.mark.parametrize("scale", [89, 200, 30, -40])
@pytest.mark.parametrize("name", ["exp", "tanh", "log1p", "log", "expm1", "arctan"])
def test_factor_of_a_unit_is_not_lost_before_its_power_of_two(name, scale):
    """An energy in eV over one in J: in float16 10^-19 alone is nothing, times 2^89 it is 10^8."""
    q = tj.Quantity(jnp.float16([1.9, 1.5]), "eV / J", scale)
    with np.errstate(over="ignore"):
        expected = getattr(np, name)(np.float64([1.9, 1.5]) * 2.0**scale * 1.602176634e-19)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", tj.errors.ScaleWarning)
        (found,) = numbers(getattr(tnp, name)(q))
    held = np.abs(expected) < np.ldexp(1.0, -24)  # what float16 has none of is zero
    right = np.isclose(found, expected, rtol=0.03) | (held & (found == 0))
    assert np.all(right) or said
    assert np.all(right | np.isinf(found))


def test_constants_are_larger_than_the_dtype_of_what_they_meet():
    """Their numbers are Python's, or arrays that take the dtype of their partner."""
    unit = tj.unit
    mass = tj.Quantity(jnp.float16([1.0, 1.25]), "kg", 70)
    for gravity in (6.6743e-11 * unit("m3 / kg / s2"), 2 * 3.33715e-11 * unit("m3 / kg / s2")):
        for found in (gravity * mass, mass * gravity, mass / (1 / gravity)):
            exact = 6.6743e-11 * 2.0**70 * np.array([1.0, 1.25])
            np.testing.assert_allclose(numbers(found), [exact], rtol=2e-3)
    charge = tj.Quantity(jnp.float16([1.5]), "C", -10)
    coulomb = 1 / (4 * np.pi * 8.8541878128e-12 * unit("F / m"))
    np.testing.assert_allclose(numbers(coulomb * charge), [[13.165e6]], rtol=2e-3)


@pytest.mark.parametrize("constant", [6.626e-34, 1.38e-23, 6.022e23])
def test_constants_meet_zero_infinity_and_nan(constant):
    """In float16 the constant itself is 0, or infinite, and 0 · inf would be nan."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    for x in (special, special[:2], special[2:], special[2:4]):
        q = tj.Quantity(jnp.asarray(x, jnp.float16), "J")
        for c in (constant, constant * tj.unit("s"), jnp.float32(constant) * tj.unit("s")):
            with jax.numpy_dtype_promotion("standard"), np.errstate(all="ignore"):
                np.testing.assert_array_equal(numbers(q * c), [x * 1e-9])
                np.testing.assert_array_equal(numbers(c * q), [x * 1e-9])
                np.testing.assert_array_equal(numbers(q / c), [x / 1e-9])
                np.testing.assert_array_equal(numbers(c / q), [1e-9 / x])


def test_zeros_over_subnormal_numbers_are_zeros():
    """Denominators that are moved towards one lose the smaller ones, and 0 / 0 is nan."""
    zeros = tj.Quantity(jnp.float16([0.0, 0.0]), "m")
    areas = tj.Quantity(jnp.float16([1e-5, 1.7e4]), "m2", 18)
    np.testing.assert_array_equal(numbers(zeros / areas), [[0.0, 0.0]])


def test_lorentz_factor_of_a_car():
    speed = tj.Quantity(jnp.float16([7.6, 30.0]), "m / s")
    ratio = speed / (299792458.0 * tj.unit("m / s"))
    for factor in (1 / tnp.sqrt(1 - ratio**2), 1 / tnp.sqrt(1.0 - ratio**2)):
        np.testing.assert_array_equal(numbers(factor), [[1.0, 1.0]])
