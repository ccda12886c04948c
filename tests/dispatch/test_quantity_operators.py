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
SAME = ["add", "sub", "mod", "floordiv"]
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
    assert_plain_or_one(q // r, a // far)
    whole, rest = divmod(q, r)
    assert_plain_or_one(whole, a // far)
    assert_quantity(rest, "m", a % far)
    for name in COMPARE:
        compare = getattr(operator, name)
        got = compare(q, r)
        assert type(got) is not tj.Unitful
        np.testing.assert_array_equal(got, compare(a, far))
        assert np.asarray(got).dtype == bool


def assert_plain_or_one(got, value):
    """A ratio: a quantity of unit 1."""
    assert_quantity(got, "1", value)


def test_the_same_unit_is_never_converted():
    """`0.1 km + 0.2 km` is the float sum, not a sum that went through metres."""
    assert ((0.1 * km) + (0.2 * km)).value == 0.1 + 0.2
    assert ((0.1 * km) + (0.2 * km)).unit is km
    text = str(jax.make_jaxpr(lambda a, b: a + b)(x, x))
    assert "mul" not in text
    assert "div" not in text


def test_equal_units_of_different_names_are_not_converted():
    force, made = jnp.asarray(V) * tj.unit("N"), jnp.asarray(W) * tj.unit("kg m / s2")
    assert_quantity(force + made, "N", V + W, 0.0)
    assert str(jax.make_jaxpr(lambda a, b: a + b)(force, made)).count("=") == 1


# -- a quantity and something plain ----------------------------------------------------------------

PLAIN = {
    "jax": jnp.asarray(W),
    "NumPy": W,
    "NumPy scalar": np.float64(2.5),
    "jax scalar": jnp.asarray(2.5),
    "Python": 2.5,
    "Python int": 3,
}
every_plain = pytest.mark.parametrize("kind", PLAIN)


@every_plain
@pytest.mark.parametrize("hold", ["jax", "NumPy", "Python"])
def test_products_with_plain_numbers(kind, hold):
    p, n, v = PLAIN[kind], np.asarray(PLAIN[kind]), np.asarray(HOLD[hold](V))
    q = HOLD[hold](V) * km
    assert_quantity(q * p, "km", v * n)
    assert_quantity(p * q, "km", v * n)
    assert_quantity(q / p, "km", v / n)
    assert_quantity(p / q, "1/km", n / v)


@every_plain
@pytest.mark.parametrize("name", ["add", "sub", "mod", "floordiv", *COMPARE])
def test_sums_and_comparisons_with_plain_numbers_are_refused(kind, name):
    """On both sides, and the message shows what was given."""
    f, p = getattr(operator, name), PLAIN[kind]
    for a, b in ((x, p), (p, x)):
        with pytest.raises(tj.UnitError, match=r"(?s)m \(length\).*plain number|plain.*length"):
            f(a, b)


@every_plain
def test_pure_numbers_and_plain_numbers_mix(kind):
    p = PLAIN[kind]
    n = np.asarray(p)
    ratio = x / (2.0 * km)  # in m / km
    assert_quantity(ratio + p, "1", V / 2000 + n)
    assert_quantity(p + ratio, "1", V / 2000 + n)
    assert_quantity(p - ratio, "1", n - V / 2000)
    np.testing.assert_array_equal(ratio < p, n > V / 2000)
    np.testing.assert_array_equal(p > ratio, n > V / 2000)
    assert_quantity((jnp.asarray(V) * deg) + p, "1", np.deg2rad(V) + n)


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
        _ = tj.Unitful(20.0, "degC") > zero  # on an affine scale zero is a place


@pytest.mark.parametrize("other", ["km", None, {"a": 1}, (1.0,), ["a"], object()])
@pytest.mark.parametrize("name", ["add", "mul", "truediv", "pow", "lt", "matmul"])
def test_what_is_no_number_is_left_to_python(name, other):
    f = getattr(operator, name)
    with pytest.raises(TypeError):
        f(x, other)
    with pytest.raises(TypeError):
        f(other, x)


def test_equality_with_what_is_no_number_is_false():
    assert (x == "m") is False
    assert (x != None) is True  # noqa: E711
    assert (x == m) is False


@pytest.mark.parametrize("name", [*SAME, *COMPARE])
def test_two_dimensions_are_refused(name):
    """Equality too: a silent False hides the bug that it was written to find."""
    f = getattr(operator, name)
    for a, b in ((x, 2.0 * s), (2.0 * s, x), (2.0 * m, 3.0 * s)):
        with pytest.raises(tj.UnitError, match=r"(?s)units do not fit together.*(time|length)"):
            f(a, b)


def test_operators_under_jit_are_the_same():
    f = lambda a, b: (a + b, b - a, a * b, a / b, a < b, -a, abs(a), a**2, a @ b, 2.0 / a, a % b)
    for got, want in zip(jax.jit(f)(x, y), f(x, y), strict=True):
        if type(want) is tj.Unitful:
            assert got.unit is want.unit
            np.testing.assert_allclose(got.value, want.value, rtol=1e-15)
        else:
            np.testing.assert_array_equal(got, want)


def test_signs():
    assert_quantity(-y, "km", -W)
    assert_quantity(+y, "km", W)
    assert_quantity(abs(y), "km", abs(W))
    assert_quantity(-(3.0 * km), "km", -3.0)
    assert_quantity(round(1.26 * km, 1), "km", 1.3)
    assert_quantity(round(x), "m", np.round(V))


@pytest.mark.parametrize(
    ("power", "unit"),
    [(2, "km^2"), (3.0, "km^3"), (-1, "1/km"), (0.5, "km^(1/2)"), (0, "1"), (1, "km"),
     (np.float64(2), "km^2"), (np.int64(2), "km^2"), (jnp.asarray(2.0), "km^2"),
     (1 / 3, "km^(1/3)"), (4.0 * cm / (2.0 * cm), "km^2")],
)  # fmt: skip
def test_powers(power, unit):
    number = float(power.value) if type(power) is tj.Unitful else float(power)
    assert_quantity(abs(y) ** power, unit, abs(W) ** number)


def test_powers_of_and_by_pure_numbers():
    ratio = x / (2.0 * km)
    assert_quantity(abs(ratio) ** W, "1", (abs(V) / 2000) ** W)
    assert_quantity(2.0 ** (x / m), "1", 2.0**V)
    for bad in (lambda: y**V, lambda: y**x, lambda: 2.0**x, lambda: y**0.123456789,
                lambda: jax.jit(lambda p: y**p)(2.0)):  # fmt: skip
        with pytest.raises(tj.UnitError):
            bad()


def test_matrix_products():
    a = wave(jnp.zeros((3, 3)))
    assert_quantity(x @ y, "m km", V @ W)
    assert_quantity((a * kg) @ y, "kg km", a @ W)
    assert_quantity(V @ (a * kg), "kg", V @ a)
    assert_quantity(jnp.asarray(V) @ (a * kg), "kg", V @ a)
    assert_quantity((a * kg) @ np.asarray(a), "kg", a @ a)


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


METHODS_AT = {
    "set": (lambda a: a.set(5.0 * km), lambda v: v.at[1].set(5000.0)),
    "add": (lambda a: a.add(5.0 * km), lambda v: v.at[1].add(5000.0)),
    "subtract": (lambda a: a.subtract(5.0 * km), lambda v: v.at[1].subtract(5000.0)),
    "min": (lambda a: a.min(-1.0 * km), lambda v: v.at[1].min(-1000.0)),
    "max": (lambda a: a.max(1.0 * km), lambda v: v.at[1].max(1000.0)),
    "multiply": (lambda a: a.multiply(3.0), lambda v: v.at[1].multiply(3.0)),
    "mul": (lambda a: a.mul(3.0), lambda v: v.at[1].mul(3.0)),
    "multiply by a ratio": (
        lambda a: a.multiply((2.0 * km) / (1.0 * m)),
        lambda v: v.at[1].multiply(2000.0),
    ),
    "divide": (lambda a: a.divide(4.0), lambda v: v.at[1].divide(4.0)),
    "apply": (lambda a: a.apply(lambda q: q + 1.0 * km), lambda v: v.at[1].add(1000.0)),
    "get": (lambda a: a.get(), lambda v: v[1]),
    "zero": (lambda a: a.set(0), lambda v: v.at[1].set(0.0)),
    "options": (
        lambda a: a.add(1.0 * km, mode="drop", unique_indices=True),
        lambda v: v.at[1].add(1000.0),
    ),
}


@pytest.mark.parametrize("name", METHODS_AT)
def test_indexed_updates(name):
    """`.at[]` converts values to the unit of the array, eager and compiled."""
    update, plain = METHODS_AT[name]
    want = plain(jnp.asarray(V))
    assert_quantity(update(x.at[1]), "m", want)
    assert_quantity(jax.jit(lambda q: update(q.at[1]))(x), "m", want)
    assert_quantity(update((V * m).at[1]), "m", want)  # NumPy content becomes a JAX array


@pytest.mark.parametrize("name", ["set", "add", "subtract", "min", "max"])
def test_indexed_updates_refuse_other_dimensions(name):
    for wrong in (1.0 * s, 1.0, jnp.ones(()), 1):
        with pytest.raises(tj.UnitError, match=rf"(?s)at\[.*\]\.{name}.*length"):
            getattr(x.at[0], name)(wrong)
    for method in ("multiply", "divide"):
        with pytest.raises(tj.UnitError, match=method):
            getattr(x.at[0], method)(2.0 * m)
    with pytest.raises(tj.UnitError, match="apply"):
        x.at[0].apply(lambda q: q * q)
    with pytest.raises(tj.UnitError, match="apply"):
        x.at[0].apply(lambda q: q.value)
    with pytest.raises(IndexError, match="Got 1"):
        x.at[1.0 * m].set(1.0 * m)


UNIT_METHODS = {
    "sum": ((), "m"),
    "mean": ((), "m"),
    "max": ((), "m"),
    "min": ((), "m"),
    "std": ((), "m"),
    "var": ((), "m^2"),
    "prod": ((), "m^6"),
    "cumsum": ((0,), "m"),
    "ravel": ((), "m"),
    "flatten": ((), "m"),
    "sort": ((), "m"),
    "squeeze": ((), "m"),
    "copy": ((), "m"),
    "conj": ((), "m"),
    "conjugate": ((), "m"),
    "round": ((1,), "m"),
    "swapaxes": ((0, 1), "m"),
    "transpose": ((), "m"),
    "transpose axes": ((1, 0), "m"),
    "reshape": ((3, 2), "m"),
    "reshape tuple": (((-1,),), "m"),
    "repeat": ((2,), "m"),
    "take": ((np.asarray([1, 0]),), "m"),
    "diagonal": ((), "m"),
    "trace": ((), "m"),
    "argmax": ((), None),
    "argmin": ((), None),
    "argsort": ((), None),
    "any": ((), None),
    "all": ((), None),
    "nonzero": ((), (None, None)),
}


@pytest.mark.parametrize("name", UNIT_METHODS)
def test_methods(name):
    args, unit = UNIT_METHODS[name]
    a = jnp.asarray([[1.26, -2.5, 3.75], [0.5, 2.0, -1.0]])
    method = name.split()[0]
    got, want = getattr(a * m, method)(*args), getattr(a, method)(*args)
    assert_like_si(got, want, list(unit) if isinstance(unit, tuple) else [unit])
    if not isinstance(unit, tuple):
        compiled = jax.jit(lambda q: getattr(q, method)(*args))(a * m)
        assert_like_si(compiled, want, [unit])


def test_methods_with_keywords_and_other_arguments():
    a = jnp.asarray([[1.26, -2.5, 3.75], [0.5, 2.0, -1.0]])
    q = a * km
    assert_quantity(q.sum(axis=0), "km", a.sum(axis=0))
    assert_quantity(q.mean(axis=1, keepdims=True), "km", a.mean(axis=1, keepdims=True))
    assert_quantity(q.max(axis=-1), "km", a.max(axis=-1))
    assert_quantity(q.clip(-1000.0 * m, 2.0 * km), "km", a.clip(-1, 2))
    assert_quantity(q.dot(a.T * s), "km s", a.dot(a.T))
    assert_plain(q[0].sort().searchsorted(1000.0 * m), a[0].sort().searchsorted(1.0))
    assert_quantity(q.astype("float32"), "km", a, 1e-6)
    assert q.astype("float32").dtype == jnp.float32
    assert_quantity(q.prod(axis=0), "km^2", a.prod(axis=0))
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

NUMPY = {
    "sin": (lambda x, y, m, s, deg: np.sin(x / m), "1"),
    "sqrt": (lambda x, y, m, s, deg: np.sqrt(abs(x)), "m^(1/2)"),
    "add": (lambda x, y, m, s, deg: np.add(x, y), "m"),
    "add, NumPy first": (lambda x, y, m, s, deg: np.multiply(W, x), "m"),
    "concatenate": (lambda x, y, m, s, deg: np.concatenate([x, y]), "m"),
    "stack": (lambda x, y, m, s, deg: np.stack([x, y]), "m"),
    "where": (lambda x, y, m, s, deg: np.where(V > 0, x, y), "m"),
    "sum": (lambda x, y, m, s, deg: np.sum(x), "m"),
    "mean": (lambda x, y, m, s, deg: np.mean(y, axis=0), "km"),
    "dot": (lambda x, y, m, s, deg: np.dot(x, y), "m km"),
    "linalg.norm": (lambda x, y, m, s, deg: np.linalg.norm(y), "km"),
    "fft.fft": (lambda x, y, m, s, deg: np.fft.fft(y), "km"),
    "interp": (lambda x, y, m, s, deg: np.interp(1.0 * m, np.arange(3.0) * m, y), "km"),
    "trapezoid": (lambda x, y, m, s, deg: np.trapezoid(x, np.arange(3.0) * s), "m s"),
    "argsort": (lambda x, y, m, s, deg: np.argsort(x), None),
    "less": (lambda x, y, m, s, deg: np.less(x, y), None),
    "isfinite": (lambda x, y, m, s, deg: np.isfinite(x), None),
    "outer": (lambda x, y, m, s, deg: np.outer(x, y), "m km"),
    "cross": (lambda x, y, m, s, deg: np.cross(x, y), "m km"),
    "add.reduce": (lambda x, y, m, s, deg: np.add.reduce(x), "m"),
    "add.reduce of rows": (lambda x, y, m, s, deg: np.add.reduce(np.multiply.outer(V, W) * m), "m"),
    "maximum.reduce": (lambda x, y, m, s, deg: np.maximum.reduce(x), "m"),
    "multiply.reduce": (lambda x, y, m, s, deg: np.multiply.reduce(x), "m^3"),
    "add.accumulate": (lambda x, y, m, s, deg: np.add.accumulate(x), "m"),
    "power": (lambda x, y, m, s, deg: np.power(x, 2), "m^2"),
    "square": (lambda x, y, m, s, deg: np.square(x), "m^2"),
    "absolute": (lambda x, y, m, s, deg: np.absolute(x), "m"),
    "negative": (lambda x, y, m, s, deg: np.negative(x), "m"),
    "reciprocal": (lambda x, y, m, s, deg: np.reciprocal(x), "1/m"),
    "arctan2": (lambda x, y, m, s, deg: np.arctan2(x, y), "rad"),
    "deg2rad": (lambda x, y, m, s, deg: np.deg2rad(jnp.asarray(V) * deg), "rad"),
    "zeros_like": (lambda x, y, m, s, deg: np.zeros_like(x), "m"),
    "clip": (lambda x, y, m, s, deg: np.clip(x, -1.0 * m, 1.0 * m), "m"),
    "sort": (lambda x, y, m, s, deg: np.sort(x), "m"),
    "reshape": (lambda x, y, m, s, deg: np.reshape(x, (3, 1)), "m"),
    "shape": (lambda x, y, m, s, deg: np.shape(x)[0], None),
    "ndim": (lambda x, y, m, s, deg: np.ndim(x), None),
    "size": (lambda x, y, m, s, deg: np.size(x), None),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_functions(name):
    """NumPy's own functions dispatch to ours, and their results carry units."""
    f, unit = NUMPY[name]
    want = f(V, W * 1000, 1.0, 1.0, np.pi / 180)
    if name == "deg2rad":
        want = np.deg2rad(V)
    assert_like_si(f(x, y, m, s, deg), want, [unit])


def test_numpy_functions_inside_jit():
    """Tracers in a quantity: NumPy still finds our functions, and nothing is computed by NumPy."""
    first = lambda a, b: (np.sqrt(abs(a) * abs(b)), np.concatenate([a, b]), np.sum(b))
    second = lambda a, b: (np.fft.fft(a), np.linalg.norm(b), np.where(a > b, a, b))
    f = jax.jit(lambda a, b: first(a, b) + second(a, b))
    got = f(x, y)
    far = W * 1000
    want = (np.sqrt(abs(V * far)), np.concatenate([V, far]), far.sum(), np.fft.fft(V),
            np.linalg.norm(far), np.where(far < V, V, far))  # fmt: skip
    assert_like_si(got, want, ["m", "m", "m", "m", "m", "m"])


def test_numpy_arrays_on_the_left():
    """`ndarray op quantity` must not become an object array."""
    for f, unit in ((operator.mul, "m"), (operator.truediv, "1/m")):
        got = f(W, x)
        assert_quantity(got, unit, f(W, V))
    got = np.float64(2.0) * x
    assert_quantity(got, "m", 2 * V)
    assert_quantity(np.eye(3) @ x, "m", V)
    with pytest.raises(tj.UnitError):
        W + x
    with pytest.raises(tj.UnitError):
        x > W  # noqa: B015


@pytest.mark.parametrize(
    "bad",
    [
        lambda: np.sin(x),
        lambda: np.add(x, 1.0 * s),
        lambda: np.concatenate([x, np.ones(2) * s]),
        lambda: np.concatenate([x, np.ones(2)]),
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


@pytest.mark.parametrize("f", [jnp.sin, jnp.sum, jnp.asarray, lambda q: jnp.add(q, q)])
def test_jax_functions_refuse_quantities(f):
    """`jnp.sin(q)` has no protocol to find us by: it must raise, never strip."""
    with pytest.raises(TypeError):
        f(x)


def test_plain_arguments_are_plain_jax():
    assert type(tnp.sin(jnp.ones(2))) is type(jnp.ones(2))
    assert_plain(tnp.concatenate([jnp.ones(2), jnp.zeros(1)]), [1, 1, 0])
    assert tnp.sin(1.0).dtype == jnp.sin(1.0).dtype


# -- structured quantities -------------------------------------------------------------------------

N = 4


def regular(phase=0.3, n=N):
    return wave(jnp.zeros((n, n)), phase) * 0.3 + 3 * jnp.eye(n)


def definite(n=N):
    a = regular(0.3, n)
    return (a + a.T) / 2


TYPES = {
    "dense": regular,
    "Diagonal": lambda: tj.Diagonal(2 + jnp.arange(float(N))),
    "Symmetric": lambda: tj.Symmetric(definite()),
    "Hermitian": lambda: tj.Hermitian(definite()),
    "Triangular": lambda: tj.Triangular(regular()),
    "Scaled": lambda: tj.Scaled(tj.Symmetric(definite()), jnp.asarray(0.7)),
    "LowRankUpdate": lambda: tj.LowRankUpdate(
        tj.Diagonal(2 + jnp.arange(float(N))), regular()[:, :1]
    ),
    "Kronecker": lambda: tj.Kronecker(tj.Symmetric(definite(2)), regular(0.4, 2)),
    "BlockDiagonal": lambda: tj.BlockDiagonal(
        regular(0.3, 2), tj.Diagonal(jnp.asarray([1.5, 2.5]))
    ),
    "Sum": lambda: tj.Sum(regular(), tj.Diagonal(jnp.arange(float(N)))),
}
b = wave(jnp.zeros((N, 2)), 1.1)


@pytest.mark.parametrize("kind", TYPES)
def test_linear_algebra_of_structured_quantities(kind):
    """Units by dimensional analysis, values those of the plain structured array."""
    a = TYPES[kind]()
    q = tj.Unitful(a, "kg")
    with tj.densify("allow"):
        dense = tj.destructure(a)
        assert_quantity(q @ (b * km), "kg km", dense @ b, 1e-10)
        assert_quantity(tj.matmul(b.T * km, q), "kg km", b.T @ dense, 1e-10)
        assert_quantity(q @ b, "kg", dense @ b, 1e-10)
        assert_quantity(tj.solve(q, b * km), "km/kg", jnp.linalg.solve(dense, b), 1e-10)
        assert_quantity(tj.solve(q, b[:, 0]), "1/kg", jnp.linalg.solve(dense, b[:, 0]), 1e-10)
        assert_quantity(tj.inv(q), "1/kg", jnp.linalg.inv(dense), 1e-10)
        assert_quantity(tj.det(q), "kg^4", jnp.linalg.det(dense), 1e-9)
        assert_quantity(tj.logdet(q / kg), "1", jnp.linalg.slogdet(dense)[1], 1e-10)
        assert_quantity(tj.trace(q), "kg", jnp.trace(dense), 1e-10)
        assert_quantity(tj.sum(q), "kg", jnp.sum(dense), 1e-10)
        assert_quantity(tj.norm(q), "kg", jnp.linalg.norm(dense), 1e-10)
        assert_quantity(tj.diagonal(q), "kg", jnp.diagonal(dense), 1e-10)
        assert_quantity(q.mT, "kg", dense.T, 1e-10)
        assert_quantity(-q, "kg", -dense)
        assert_quantity(2.0 * q, "kg", 2 * dense, 1e-12)
        assert_quantity(q * (2.0 * km), "kg km", 2 * dense, 1e-12)
        assert_quantity(q / (2.0 * km), "kg/km", dense / 2, 1e-12)
        assert_quantity(q + q, "kg", 2 * dense, 1e-12)
        assert_quantity(
            tj.quadratic_form(q, b[:, 0] * s), "kg s^2", b[:, 0] @ dense @ b[:, 0], 1e-10
        )
        with pytest.raises(tj.UnitError, match=r"logdet.*(?s:.)*kg"):
            tj.logdet(q)


@pytest.mark.parametrize("kind", ["dense", "Diagonal", "Symmetric", "Kronecker"])
def test_structure_is_kept(kind):
    """A quantity of a structured array does what the array does, and stays structured."""
    a = TYPES[kind]()
    q = tj.Unitful(a, "kg")
    for f in (tj.inv, tj.transpose, tj.negative, lambda a: tj.multiply(a, 2.0)):
        assert type(f(q).value) is type(f(a))
    assert type((q + q).value) is type(tj.add(a, a))


def test_cholesky_and_spectra():
    a = definite()
    for kind in (lambda: a, lambda: tj.Symmetric(a), lambda: tj.Diagonal(jnp.diagonal(a))):
        q = tj.Unitful(kind(), "kg^2")
        dense = tj.destructure(kind())
        assert_quantity(tj.cholesky(q), "kg", jnp.linalg.cholesky(dense))
        assert_quantity(tj.cholesky(q) @ tj.cholesky(q).mT, "kg^2", dense, 1e-12)
    q = a * kg
    values, vectors = tnp.linalg.eigh(q)
    want = jnp.linalg.eigh(a)
    assert type(tnp.linalg.eigh(q)) is type(want)
    assert_quantity(values, "kg", want[0])
    assert_plain_or_one(vectors, want[1])
    assert_quantity(tnp.linalg.eigvalsh(q), "kg", want[0])
    assert_quantity(tnp.linalg.svd(q)[1], "kg", jnp.linalg.svd(a)[1])
    assert_quantity(tj.cholesky(a * kg), "kg^(1/2)", jnp.linalg.cholesky(a))


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
