"""Nonsense in units is refused: operation, argument and both units are named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp

m, s = tj.unit("m"), tj.unit("s")
x, t = jnp.arange(1.0, 4.0) * m, jnp.arange(1.0, 4.0) * s


def lines(*words):
    """A pattern for words that follow each other, on whatever lines."""
    return r"(?s)" + r".*".join(words)


LENGTH, TIME, NUMBER = r"m \(length\)", r"s \(time\)", "plain number"

MIXED = {
    "add": lambda: x + t,
    "subtract": lambda: x - t,
    "less": lambda: x < t,
    "greater_equal": lambda: x >= t,
    "equal": lambda: x == t,
    "not_equal": lambda: x != t,
    "remainder": lambda: x % t,
    "floor_divide": lambda: x // t,
    "maximum": lambda: tnp.maximum(x, t),
    "hypot": lambda: tnp.hypot(x, t),
    "arctan2": lambda: tnp.arctan2(x, t),
    "concatenate": lambda: tnp.concatenate([x, t]),
    "stack": lambda: np.stack([x, t]),
    "where": lambda: tnp.where(x > 0, x, t),
    "clip": lambda: tnp.clip(x, t[0], t[1]),
    "isclose": lambda: tnp.isclose(x, t),
    "interp": lambda: tnp.interp(t[0], x, x),
    "searchsorted": lambda: tnp.searchsorted(x, t),
    "append": lambda: tnp.append(x, t),
    "linspace": lambda: tnp.linspace(x[0], t[0], 3),
}


NUMBERS = {
    "add": lambda: x + 1.0,
    "subtract": lambda: jnp.ones(3) - x,
    "less": lambda: x < 2,
    "equal": lambda: x == np.ones(3),
    "maximum": lambda: tnp.maximum(x, 0.5),
    "concatenate": lambda: np.concatenate([x, np.ones(2)]),
    "where": lambda: tnp.where(x > 0, x, 1.0),
    "clip": lambda: x.clip(0.5, 1.5),
    "isclose": lambda: tnp.isclose(x, jnp.ones(3)),
}


@pytest.mark.parametrize(
    ("name", "call", "other", "hint"),
    [(name, call, TIME, "Hint") for name, call in MIXED.items()]
    + [(name, call, NUMBER, "Hint.*tj.unit") for name, call in NUMBERS.items()],
)
def test_a_length_beside_another_dimension(name, call, other, hint):
    """The name of the function and both units, eager and compiled."""
    either = lines(LENGTH, other) + "|" + lines(other, LENGTH).removeprefix("(?s)")
    for run in (call, jax.jit(call)):
        with pytest.raises(tj.UnitError, match=name) as caught:
            run()
        assert caught.match(either)
        assert caught.match(hint)


PURE = {
    "exp": lambda: tnp.exp(x),
    "log": lambda: np.log(x),
    "sin": lambda: np.sin(x),
    "tanh": lambda: tnp.tanh(x),
    "arcsin": lambda: tnp.arcsin(x),
    "power": lambda: 2.0**x,
    "cumprod": lambda: tnp.cumprod(x),
    "logaddexp": lambda: tnp.logaddexp(x, x),
    "logdet": lambda: tj.logdet(tj.Diagonal(x)),
    "slogdet": lambda: tnp.linalg.slogdet(jnp.eye(2) * m),
    "slogdet: `a` must": lambda: tj.linalg.slogdet(tj.Diagonal(x)),
}


@pytest.mark.parametrize("name", PURE)
def test_only_pure_numbers(name):
    with pytest.raises(tj.UnitError, match=lines(name, "m")) as caught:
        PURE[name]()
    assert caught.match("dimensionless|pure number")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: x.to("s"), (LENGTH, TIME)),
        (lambda: x.to("metr"), ("metr", "did you mean .*metre")),
        (lambda: tj.Quantity(1.0, "metr"), ("metr", "did you mean .*metre")),
        (lambda: x.to_value("kg m / s2"), (LENGTH, "kg")),
        (lambda: x.at[0].set(1.0 * s), (r"at\[...\].set", LENGTH, TIME)),
        (lambda: x.at[0].add(1.0), (r"at\[...\].add", LENGTH, NUMBER)),
        (lambda: x.at[0].multiply(x[0]), (r"at\[...\].multiply", "m")),
        (lambda: bool(x[0]), ("bool", "m", "Hint")),
        (lambda: float(x[0]), ("float", "m", "Hint")),
        (lambda: np.asarray(x), ("np.asarray", "m", "to_value")),
        (lambda: tnp.sum(x, axis=x[0]), ("sum", "axis", "m", "strip")),
        (lambda: tnp.reshape(x, x), ("reshape", "shape", "m", "strip")),
        (lambda: tnp.take(x, x), ("take", "indices", "m", "strip")),
        (lambda: tj.solve(tj.Diagonal(x), t) + x, ("add", "time / length|s / m", LENGTH)),
        (lambda: tj.Diagonal(x) + tj.Diagonal(t), ("add", LENGTH, TIME)),
        (lambda: tj.Diagonal(x) - tj.Identity(3), ("subtract", LENGTH, NUMBER)),
        (lambda: tj.tangents.Sum(tj.Diagonal(x), tj.Diagonal(t)), ("Sum", LENGTH, TIME)),
        (lambda: x ** jnp.arange(3.0), ("power", "exponent", "known number")),
        (lambda: x**0.1234567, ("power", "exponent", "simple fraction")),
        (lambda: x ** (1.0 * s), ("power", "exponent", TIME)),
    ],
)
def test_unit_error_names_the_function_and_the_units(call, words):
    with pytest.raises(tj.UnitError, match=lines(*words)):
        call()


def test_a_unit_on_integers():
    """The dtype stays; what needs fractions makes floats; bits and counts have no unit."""
    n = jnp.arange(3) * m
    assert n.dtype == jnp.arange(3).dtype
    assert (n + n).dtype == n.dtype
    assert (n + n).unit is m
    assert n.to("km").dtype == jnp.result_type(float)
    for f in (jnp.bitwise_and, jnp.left_shift):
        with pytest.raises(tj.UnitError, match=f.__name__):
            getattr(tnp, f.__name__)(n, n)
    with pytest.raises(TypeError, match="nothing to differentiate"):
        tj.grad(lambda n: n.sum())(n)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_a_factor_that_does_not_fit_in_the_dtype(dtype):
    """Neither infinity nor zero, wherever a conversion hides; in a trace nobody can choose."""
    small = jnp.ones(3, dtype) * tj.unit("kg^2")
    large = jnp.ones(3, dtype) * tj.unit("solMass^2")
    big = 3.9537e60  # solar masses squared, in kg2
    for q in (large.to("kg^2"), small + large, tnp.where(jnp.zeros(3, bool), small, large)):
        assert q.unit == small.unit
        np.testing.assert_allclose(
            np.log2(np.asarray(q.stored, float)) + q.scale, np.log2(big), atol=0.01
        )
    assert (small < large).all()
    for call in (
        lambda: tj.scan(lambda c, _: (large[0], None), small[0], length=2),
        lambda: jax.jit(lambda a, b: a + b)(small, large),
    ):
        with pytest.raises(tj.UnitError, match=lines("factor", dtype, "Hint")):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c + c,
        lambda c: 2.0 * c,
        lambda c: c * c,
        lambda c: c / m,
        lambda c: c**2,
        lambda c: tnp.sum(c),
        lambda c: tnp.sqrt(c),
        lambda c: -c,
        lambda c: c + 1.0,
        lambda c: c + 1.0 * m,
        lambda c: c < 300.0,
        lambda c: tj.det(tj.Diagonal(c)),
    ],
)
@pytest.mark.parametrize("unit", ["degC", "dBm"])
def test_points_of_a_scale(call, unit):
    """20 degC + 20 degC is not 40 degC, nor is 10 dBm + 10 dBm 20 dBm."""
    with pytest.raises(tj.UnitError):
        call(tj.Quantity(jnp.asarray([10.0, 20.0]), unit))


def test_unit_errors_are_type_errors():
    assert issubclass(tj.UnitError, TypeError)
