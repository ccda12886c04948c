"""Operators, indexing, updates, methods and NumPy's protocols on quantities."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from comparisons import wave
from quantities import assert_like_si, assert_plain, assert_quantity, si

m, km, cm, s, kg, deg = (tj.unit(name) for name in ("m", "km", "cm", "s", "kg", "deg"))
V = np.asarray([1.5, -2.25, 4.0])
W = np.asarray([0.5, 3.0, -1.25])
x, y = jnp.asarray(V) * m, jnp.asarray(W) * km

# -- two quantities --------------------------------------------------------------------------------

# Kinds of values that a quantity can hold.
HOLD = {
    "jax": jnp.asarray,
    "NumPy": np.asarray,
    "NumPy scalar": lambda v: np.float64(np.ravel(v)[0]),
    "Python": lambda v: float(np.ravel(v)[0]),
}
COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]
every_pair = pytest.mark.parametrize(
    ("left", "right"), [(a, b) for a in HOLD for b in HOLD], ids=lambda k: k
)


@every_pair
def test_operators_on_two_quantities_of_mixed_prefix(left, right):
    """In SI the numbers are those of plain arithmetic; the unit is that of the left operand."""
    a, b = HOLD[left](V), HOLD[right](W)
    q, r = a * m, b * km
    far = np.asarray(b) * 1000
    assert_quantity(q + r, "m", a + far)
    assert_quantity(r + q, "km", b + np.asarray(a) / 1000)
    assert_quantity(q - r, "m", a - far)
    assert_quantity(q * r, "m km", np.asarray(a) * b)
    assert_quantity(q / r, "m/km", np.asarray(a) / b)
    assert_quantity(q % r, "m", a % far)
    assert_quantity(q // r, "1", a // far)
    whole, rest = divmod(q, r)
    assert_quantity(whole, "1", a // far)
    assert_quantity(rest, "m", a % far)
    for name in COMPARE:
        compare = getattr(operator, name)
        got = compare(q, r)
        assert type(got) is not tj.Quantity
        np.testing.assert_array_equal(got, compare(a, far))
        assert np.asarray(got).dtype == bool


def test_equal_units_are_never_converted():
    """`0.1 km + 0.2 km` is the float sum, not a sum that went through metres."""
    assert ((0.1 * km) + (0.2 * km)).value == 0.1 + 0.2
    assert ((0.1 * km) + (0.2 * km)).unit is km
    force, made = jnp.asarray(V) * tj.unit("N"), jnp.asarray(W) * tj.unit("kg m / s2")
    assert_quantity(force + made, "N", V + W, 0.0)
    for a, b in ((x, x), (force, made)):
        assert str(jax.make_jaxpr(lambda a, b: a + b)(a, b)).count("=") == 1


# -- a quantity and something plain ----------------------------------------------------------------

PLAIN = [jnp.asarray(W), W, np.float64(2.5), jnp.asarray(2.5), 2.5, 3]


@pytest.mark.parametrize("p", PLAIN, ids=lambda p: f"{type(p).__name__}{np.shape(p)}")
def test_plain_numbers_multiply_quantities_and_add_to_pure_numbers(p):
    n = np.asarray(p)
    for hold in HOLD.values():
        v, q = np.asarray(hold(V)), hold(V) * km
        assert_quantity(q * p, "km", v * n)
        assert_quantity(p * q, "km", v * n)
        assert_quantity(q / p, "km", v / n)
        assert_quantity(p / q, "1/km", n / v)
    ratio = x / (2.0 * km)  # in m / km
    assert_quantity(ratio + p, "1", V / 2000 + n)
    assert_quantity(p + ratio, "1", V / 2000 + n)
    assert_quantity(p - ratio, "1", n - V / 2000)
    np.testing.assert_array_equal(ratio < p, n > V / 2000)
    np.testing.assert_array_equal(p > ratio, n > V / 2000)
    assert_quantity((jnp.asarray(V) * deg) + p, "1", np.deg2rad(V) + n)
    for name in ("add", "sub", "mod", "floordiv", *COMPARE):
        for a, b in ((x, p), (p, x), (x, 2.0 * s), (2.0 * s, x)):
            with pytest.raises(
                tj.UnitError, match=r"(?s)length.*(time|number)|(time|number).*length"
            ):
                getattr(operator, name)(a, b)


@pytest.mark.parametrize("zero", [0, 0.0])
def test_the_literal_zero_has_every_unit(zero):
    assert_quantity(x + zero, "m", V)
    assert_quantity(zero + x, "m", V)
    assert_quantity(x - zero, "m", V)
    assert_quantity(zero - x, "m", -V)
    np.testing.assert_array_equal(x > zero, V > 0)
    np.testing.assert_array_equal(zero < x, V > 0)
    np.testing.assert_array_equal(x == zero, V == 0)
    assert_quantity(sum([x, x, y]), "m", 2 * V + 1000 * W)
    with pytest.raises(tj.UnitError):
        x + jnp.zeros(3)  # an array of zeros is no literal
    with pytest.raises(tj.UnitError):
        _ = tj.Quantity(20.0, "degC") > zero  # on an affine scale zero is a place


@pytest.mark.parametrize("other", ["km", None, {"a": 1}, (1.0,), ["a"], object()])
def test_objects_that_are_no_numbers_are_left_to_python(other):
    for name in ("add", "mul", "truediv", "pow", "lt", "matmul"):
        for a, b in ((x, other), (other, x)):
            with pytest.raises(TypeError):
                getattr(operator, name)(a, b)
    assert (x == "m") is False
    assert (x != None) is True  # noqa: E711
    assert (x == m) is False


def test_signs_rounding_and_matrix_products_have_the_right_units():
    assert_quantity(-y, "km", -W)
    assert_quantity(+y, "km", W)
    assert_quantity(abs(y), "km", abs(W))
    assert_quantity(-(3.0 * km), "km", -3.0)
    assert_quantity(round(1.26 * km, 1), "km", 1.3)
    assert_quantity(round(x), "m", np.round(V))
    a = wave(jnp.zeros((3, 3)))
    assert_quantity(x @ y, "m km", V @ W)
    assert_quantity((a * kg) @ y, "kg km", a @ W)
    assert_quantity(V @ (a * kg), "kg", V @ a)
    assert_quantity(jnp.asarray(V) @ (a * kg), "kg", V @ a)
    assert_quantity((a * kg) @ np.asarray(a), "kg", a @ a)


@pytest.mark.parametrize(
    ("power", "unit"),
    [(2, "km^2"), (3.0, "km^3"), (-1, "1/km"), (0.5, "km^(1/2)"), (0, "1"), (1, "km"),
     (np.float64(2), "km^2"), (np.int64(2), "km^2"), (jnp.asarray(2.0), "km^2"),
     (1 / 3, "km^(1/3)"), (4.0 * cm / (2.0 * cm), "km^2")],
)  # fmt: skip
def test_powers_of_quantities_need_a_static_pure_exponent(power, unit):
    number = float(power.value) if type(power) is tj.Quantity else float(power)
    assert_quantity(abs(y) ** power, unit, abs(W) ** number)
    ratio = x / (2.0 * km)
    assert_quantity(abs(ratio) ** W, "1", (abs(V) / 2000) ** W)
    assert_quantity(2.0 ** (x / m), "1", 2.0**V)
    for bad in (lambda: y**V, lambda: y**x, lambda: 2.0**x, lambda: y**0.123456789,
                lambda: jax.jit(lambda p: y**p)(2.0)):  # fmt: skip
        with pytest.raises(tj.UnitError):
            bad()


# -- as an array -----------------------------------------------------------------------------------


@pytest.mark.parametrize("hold", ["jax", "NumPy"])
def test_indexing_and_iteration(hold):
    a = np.arange(12.0).reshape(3, 4)
    q = HOLD[hold](a) * km
    for index in (0, (1, 2), slice(1, None), (slice(None), -1), None, ..., np.asarray([2, 0]),
                  a[:, 0] > 3, (np.asarray([0, 1]), np.asarray([1, 2]))):  # fmt: skip
        assert_quantity(q[index], "km", a[index])
    assert_quantity(q[jnp.asarray([2, 0])], "km", a[[2, 0]])
    rows = list(q)
    assert len(rows) == len(q) == 3
    for row, want in zip(rows, a, strict=True):
        assert_quantity(row, "km", want)
    first, *_ = q
    assert_quantity(first, "km", a[0])
    assert [float(v / km) for v in q[0]] == [0.0, 1.0, 2.0, 3.0]
    assert_quantity(jax.jit(lambda q, i: q[i])(q, 2), "km", a[2])
    with pytest.raises((tj.UnitError, TypeError, IndexError)):
        q[1.0 * m]
    with pytest.raises(TypeError):
        list(1.0 * m)


def test_methods_with_keywords_and_other_arguments():
    a = jnp.asarray([[1.26, -2.5, 3.75], [0.5, 2.0, -1.0]])
    q = a * km
    assert_quantity(q.flatten(), "km", a.ravel())
    assert_quantity(q.transpose(1, 0), "km", a.T)
    assert_quantity(q.reshape((-1,)), "km", a.ravel())
    assert_quantity(q.sum(axis=0), "km", a.sum(axis=0))
    assert_quantity(q.mean(axis=1, keepdims=True), "km", a.mean(axis=1, keepdims=True))
    assert_quantity(q.clip(-1000.0 * m, 2.0 * km), "km", a.clip(-1, 2))
    assert_quantity(q.astype("float32"), "km", a, 1e-6)
    assert q.astype("float32").dtype == jnp.float32
    assert_quantity((q / km).cumprod(axis=0), "1", a.cumprod(axis=0))
    assert_quantity(q.block_until_ready(), "km", a)
    assert_quantity(q[0, 0].item(), "km", 1.26)
    assert_quantity(q.T, "km", a.T)
    assert_quantity(q.mT, "km", a.T)
    z = jax.lax.complex(a, a) * km
    assert_quantity(z.real, "km", a)
    assert_quantity(z.imag, "km", a)
    for bad in (lambda: q.clip(0.0 * s, 1.0 * s), lambda: q.cumprod(), lambda: q.dot("m")):
        with pytest.raises(TypeError):
            bad()


# -- NumPy's protocols -----------------------------------------------------------------------------


def test_numpy_functions_inside_jit():
    """NumPy finds our functions for tracers, and methods of ufuncs that no table has."""

    def f(x, y, m):
        return (
            np.concatenate([x, y]),
            np.where(x > y, x, y),
            np.linalg.norm(y),
            np.fft.fft(x),
            np.add.reduce(x),
            np.add.reduce(np.multiply.outer(V, W) * m),
            np.maximum.reduce(x),
            np.add.accumulate(x),
            np.multiply(W, x),
            np.interp(1.0 * m, np.arange(3.0) * m, y),
            np.multiply.reduce(x),
        )

    got, want = f(x, y, m), f(V, W * 1000, 1.0)
    units = ["m"] * 10 + ["m^3"]
    assert_like_si(got, want, units)
    assert_like_si(jax.jit(lambda x, y: f(x, y, m))(x, y), want, units)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: np.asarray(x),
        lambda: np.array([1.0 * m, 2.0 * m]),
        lambda: np.add(x, x, out=np.zeros(3)),
        lambda: np.add.at(np.zeros(3), [0], 1.0 * m),
        lambda: np.bitwise_and(x, x),
        lambda: np.save("never-written", x),
        lambda: np.zeros(3).__setitem__(0, 1.0 * m),
    ],
)
def test_numpy_refuses_nonsense_and_never_strips(bad):
    with pytest.raises((TypeError, ValueError)):  # the second where NumPy stores an element
        bad()
    for f in (jnp.sin, jnp.sum, jnp.asarray, lambda q: jnp.add(q, q)):  # have no protocol
        with pytest.raises(TypeError):
            f(x)


def test_numpy_arrays_on_the_left_and_plain_arguments():
    """`ndarray op quantity` must not become an object array."""
    for f, unit in ((operator.mul, "m"), (operator.truediv, "1/m")):
        assert_quantity(f(W, x), unit, f(W, V))
    assert_quantity(np.float64(2.0) * x, "m", 2 * V)
    assert_quantity(np.eye(3) @ x, "m", V)
    for bad in (lambda: W + x, lambda: x > W):
        with pytest.raises(tj.UnitError):
            bad()
    assert_plain(tnp.concatenate([jnp.ones(2), jnp.zeros(1)]), [1, 1, 0])
    assert type(tnp.sin(jnp.ones(2))) is type(jnp.ones(2))
    assert tnp.sin(1.0).dtype == jnp.sin(1.0).dtype


# -- structured quantities -------------------------------------------------------------------------

N = 4


def regular(phase=0.3, n=N):
    return wave(jnp.zeros((n, n)), phase) * 0.3 + 3 * jnp.eye(n)


def definite(n=N):
    return (regular(0.3, n) + regular(0.3, n).T) / 2


TYPES = {
    "dense": regular(),
    "Diagonal": tj.Diagonal(2 + jnp.arange(float(N))),
    "Symmetric": tj.Symmetric(definite()),
    "LowRankUpdate": tj.LowRankUpdate(tj.Diagonal(2 + jnp.arange(float(N))), regular()[:, :1]),
    "Kronecker": tj.Kronecker(tj.Symmetric(definite(2)), regular(0.4, 2)),
    "Sum": tj.tangents.Sum(regular(), tj.Diagonal(jnp.arange(float(N)))),
}
b = wave(jnp.zeros((N, 2)), 1.1)


@pytest.mark.parametrize("kind", TYPES)
def test_linear_algebra_of_structured_quantities(kind):
    """Units by dimensional analysis, values and types those of the plain structured array."""
    a = TYPES[kind]
    q = tj.Quantity(a, "kg")
    with tj.densify("allow"):
        dense = tj.destructure(a)
        for got, unit, want in (
            (q @ (b * km), "kg km", dense @ b),
            (tj.matmul(b.T * km, q), "kg km", b.T @ dense),
            (q @ b, "kg", dense @ b),
            (tj.solve(q, b * km), "km/kg", jnp.linalg.solve(dense, b)),
            (tj.solve(q, b[:, 0]), "1/kg", jnp.linalg.solve(dense, b[:, 0])),
            (tj.inv(q), "1/kg", jnp.linalg.inv(dense)),
            (tj.det(q), "kg^4", jnp.linalg.det(dense)),
            (tj.logdet(q / kg), "1", jnp.linalg.slogdet(dense)[1]),
            (tj.trace(q), "kg", jnp.trace(dense)),
            (tj.linalg.sum(q), "kg", jnp.sum(dense)),
            (tj.norm(q), "kg", jnp.linalg.norm(dense)),
            (tj.linalg.diagonal(q), "kg", jnp.diagonal(dense)),
            (q.mT, "kg", dense.T),
            (-q, "kg", -dense),
            (2.0 * q, "kg", 2 * dense),
            (q * (2.0 * km), "kg km", 2 * dense),
            (q / (2.0 * km), "kg/km", dense / 2),
            (q + q, "kg", 2 * dense),
            (tj.linalg.quadratic_form(q, b[:, 0] * s), "kg s^2", b[:, 0] @ dense @ b[:, 0]),
        ):
            assert_quantity(got, unit, want, 1e-9)
        for f in (
            tj.inv,
            tj.linalg.transpose,
            tj.linalg.negative,
            lambda a: tj.linalg.multiply(a, 2.0),
        ):
            assert type(f(q).value) is type(f(a))
        assert type((q + q).value) is type(tj.linalg.add(a, a))
        with pytest.raises(tj.UnitError, match=r"logdet.*(?s:.)*kg"):
            tj.logdet(q)


@pytest.mark.parametrize("a", [TYPES["Symmetric"], TYPES["Diagonal"], definite()])
def test_cholesky_of_structured_quantities(a):
    factor = tj.linalg.cholesky(tj.Quantity(a, "kg^2"))
    assert_quantity(factor, "kg", jnp.linalg.cholesky(tj.destructure(a)))
    assert_quantity(factor @ factor.mT, "kg^2", tj.destructure(a), 1e-12)
    assert tj.linalg.cholesky(tj.Quantity(a, "kg")).unit == kg**0.5


def test_mixed_types_and_prefixes():
    d = tj.Diagonal(jnp.arange(1.0, 1 + N) * km)
    full = regular() * m
    assert_quantity(full + d, "m", regular() + 1000 * d.value.to_dense())
    assert_quantity(d + full, "km", d.value.to_dense() + regular() / 1000)
    assert_quantity(d @ (tj.Symmetric(definite()) * (1.0 * s)), "km s",
                    d.value.to_dense() @ definite(), 1e-12)  # fmt: skip
    assert_quantity(regular() @ d, "km", regular() @ d.value.to_dense())
    for bad in (lambda: d + regular(), lambda: regular() + d, lambda: d + full * s,
                lambda: d - tj.Identity(N), lambda: d < full * s):  # fmt: skip
        with pytest.raises(tj.UnitError):
            bad()
    with tj.densify("allow"):
        np.testing.assert_array_equal(d < full, 1000 * d.value.to_dense() < regular())


def test_si_of_the_tests_is_right():
    """The oracle of these tests, by hand."""
    assert si(2.0 * tj.unit("km") / tj.unit("ms")) == pytest.approx(2e6)
