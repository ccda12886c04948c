"""What is right only because a plan knows more than the numbers that a program mentions.

XLA joins denominators and constants to numbers that nobody wrote; contractions and sums have parts
that no value shows; bounds and sampled loops raise alarms about nothing. Each is planned for.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from tanjax.scale import _plan
from tanjax.scale._judged import left_of
from tanjax.scale.graph._build import build
from tanjax.scale.graph._graph import Exponents, Magnitude
from tanjax.scale.laws._rewrites import all_guarded
from tanjax.scale.numbers._wide import Wide
from tanjax.scale.replay._replay import replay
from tanjax.scale.windows import _find

pytestmark = pytest.mark.core

HUGE, TINY, SMALL = 1e30, np.float32(1e-30), 1e-19


def full(number, shape=(3,)):
    return jnp.full(shape, number, jnp.float32)


def last(f):
    return f.plans[-1]


QUOTIENT = jax.jit(lambda x, y: x / y)
MULTIPLE = jax.jit(lambda x, c: x * np.float32(c), static_argnums=1)
INVERSE = jax.jit(lambda x: jnp.exp(-x))
JOINED = {
    "x / y / z": (lambda x, y, z: x / y / z, (HUGE, 1e25, 1e25), 1e-20),
    "x / (y / z)": (lambda x, y, z: x / (y / z), (HUGE, 1e25, 1e25), 1e30),
    "x c c d": (lambda x: x * TINY * TINY * np.float32(HUGE), (1e25,), 1e-5),
    "x / c d": (lambda x: x / np.float32(7.7e-29) * np.float32(7.7e14), (1e-20,), 1e23),
    "(x / c)**2": (lambda x: (x / np.float32(1e-23)) ** 2, (1e-31,), 1e-16),
    "(x c) (y d)": (lambda x, y: (x * TINY) * (y / np.float32(HUGE)), (1e25, 1e26), 1e-9),
    "1 / (x c)**n": (lambda x: (x * np.float32(1e-10)) ** -3, (1e19,), 1e-27),
    "1 / (x / c)**n": (lambda x: (x / np.float32(1.3e13)) ** -2, (6.5e25,), 4e-26),
    "square of x / c": (lambda x: jnp.square(x / np.float32(5e12)), (5e20,), 1e16),
    "x**-n / (y / z)": (lambda x, y, z: x**-3 / (y / z), (1e10, 1e10, 1e20), 1e-20),
    "x y of (x c) (y d)": (lambda x, y: x * 1e10 * (y * 1e9), (1e-20, 1e-19), 1e-20),
    "x / y / z by calls": (lambda x, y, z: QUOTIENT(QUOTIENT(x, y), z), (HUGE, 1e25, 1e25), 1e-20),
    "x / (y / z) by calls": (
        lambda x, y, z: QUOTIENT(x, QUOTIENT(y, z)),
        (HUGE, 1e25, 1e25),
        1e30,
    ),
    "x c c d by calls": (
        lambda x: MULTIPLE(MULTIPLE(MULTIPLE(x, TINY), TINY), HUGE),
        (1e25,),
        1e-5,
    ),
    "constants of constants": (
        lambda x: jax.vjp(lambda x: (x**1.5) ** 2 / 1.38e-23, x)[1](jnp.ones_like(x))[0],
        (1e-22,),
        2.173913e-21,
    ),
    "x / exp(y) by calls": (lambda x, y: QUOTIENT(x, INVERSE(y)), (1e30, -88.0), 6.054602e-9),
}


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("name", JOINED)
def test_constants_that_xla_would_join_are_hidden_from_it(name, shape):
    """No number that is written leaves the range, so no exponent is needed either."""
    program, numbers, want = JOINED[name]
    f = tj.jit(program)
    np.testing.assert_allclose(f(*(full(n, shape) for n in numbers)), want, rtol=1e-6)
    assert last(f).method == "guarded"
    assert not any(last(f).exponents.values)


@pytest.mark.parametrize("unit", [None, "m"])
def test_a_power_of_a_constant_multiple_later(unit):
    """Ordinary numbers are proved for windows in which XLA joins nothing out of range."""
    given = lambda x: jnp.float32(x) if unit is None else tj.Quantity(jnp.float32(x), unit)
    f = tj.jit(lambda x: (6.6743e-11 * x) ** -3)
    for x in (1e9, 1e19, 1e15, 1e19):
        out = f(given(x))
        got = float(out) if unit is None else float(out.value)
        assert got == pytest.approx((6.6743e-11 * x) ** -3, rel=1e-5)
    assert [p.method for p in f.plans] == ["identity", "guarded"]


PARTS = {
    "small first": [1e-30, 1e-30, 1e30, 1e30],
    "large first": [1e30, 1e30, 1e-30, 1e-30],
    "both": [1e30, 1e30, 1e-30, 1e-30, 1e-30, 1e-30, 1e30, 1e30],
    "zero": [1e30, 1e30, 0.0, 1.0],
    "infinity": [1e-30, 1e-30, np.inf, 1e-30],
    "minus": [-1e-30, 1e-30, -1e30, -1e30],
}


@pytest.mark.parametrize("name", PARTS)
def test_products_of_many_whose_parts_leave_the_range(name):
    """`1 / (1 + prod(x))` shows neither a zero nor an infinity where the product has become one."""
    x = np.array(PARTS[name])
    shown = tj.jit(lambda x: (jnp.prod(x), 1 / (1.5 + jnp.prod(x)), jnp.prod(x[:, None], 0)))
    running = tj.jit(lambda x: 1 / (1.5 + jnp.cumprod(x)))
    back = tj.jit(lambda x: 1 / (1.5 + jax.lax.cumprod(x[None], 1, reverse=True)))
    one, total = jnp.float32(x), np.prod(x)
    got = (*shown(one), running(one), back(one)[0])
    runs = [1 / (1.5 + np.cumprod(y)) for y in (x, x[::-1])]
    want = (total, 1 / (1.5 + total), [total], runs[0], runs[1][::-1])
    for y, true in zip(got, want, strict=True):
        np.testing.assert_allclose(y, true, rtol=1e-5, atol=1e-37)


def test_products_of_many_are_looked_at_on_later_calls():
    """A product is proved only where no factors leave the range together; others are run."""
    f = tj.jit(lambda x: 1 / (1 + jnp.prod(x)))
    numbers = jnp.float32([[2, 3, 0.5, 1], PARTS["small first"], [2, 3, 0.5, 1]])
    for x, want in zip(numbers, (0.25, 0.5, 0.25), strict=True):
        assert float(f(x)) == pytest.approx(want, rel=1e-5)
    assert [p.identity for p in f.plans] == [True, False]
    ordinary = tj.jit(lambda x: (jnp.prod(x), jnp.cumprod(x)))  # 2^200 and 2^-200 in all
    ordinary(jnp.float32([2.0, 0.5] * 200))
    assert last(ordinary).identity


def test_a_nan_is_not_believed_where_infinity_is_right(monkeypatch):
    """What a primitive makes of zero and infinity on its way shows in the first results."""
    monkeypatch.setattr(_plan._range, "parts_may_leave", lambda *_: False)
    f = tj.jit(lambda x: jnp.cumprod(x))
    x = jnp.float32(PARTS["infinity"])
    np.testing.assert_array_equal(f(x)[2:], np.inf)
    assert np.isnan(jax.jit(jnp.cumprod)(x)[2:]).all()


def test_a_first_result_that_should_be_finite_is_not_believed(monkeypatch):
    """What XLA rewrites without our knowing shows in the first results: then all is hidden."""
    program, numbers, want = JOINED["x / (y / z)"]
    arguments = [full(n) for n in numbers]
    for module in (_plan, _find):
        monkeypatch.setattr(module, "guarded", lambda *_: frozenset())
    assert np.isinf(jax.jit(program)(*arguments)).all()
    f = tj.jit(program)
    np.testing.assert_allclose(f(*arguments), want, rtol=1e-6)
    assert [p.identity for p in f.plans] == [True, False]
    for factor in (1, 2, 1):  # nor is it ever proved
        np.testing.assert_allclose(f(*(a * factor for a in arguments)), factor * want, rtol=1e-6)


@pytest.mark.parametrize("bad", [False, True])
def test_later_results_that_should_be_finite_are_not_believed(monkeypatch, bad):
    """Also of a program that is JAX's own, and of entries beside one that is nan in any case."""
    program, numbers, want = JOINED["x / (y / z)"]
    for module in (_plan, _find):
        monkeypatch.setattr(module, "guarded", lambda *_: frozenset())
    f = tj.jit(lambda x, y, z: program(x, y, z) + 0.0 / (1.5 * x - x))
    f(*(full(1.0 + i) for i in range(3)))
    for _ in range(3):
        arguments = [full(n).at[0].set(np.nan if bad else n) for n in numbers]
        np.testing.assert_allclose(f(*arguments)[1:], want, rtol=1e-6)
    assert [p.method for p in f.plans].count("guarded") == 1


def test_plain_jax_is_kept_where_rounding_leaves_the_exponents():
    """The gradient is 0; what a cancellation leaves of it makes nan at the exponents of a plan."""

    def f(x, y):
        power = (1 / (y * x / (y + x))) ** 4
        return jnp.sum(power / jnp.max(jnp.abs(power)))

    numbers = jnp.array([2.8203125], jnp.float16), jnp.array([0.33129883], jnp.float16)
    slope = tj.jit(jax.grad(f))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tj.errors.ScaleWarning)
        assert np.isfinite(slope(*numbers)).all()
        assert slope(jnp.float16([1.5]), jnp.float16([0.75])) == 0
    assert "guarded" not in [p.method for p in slope.plans]  # it was not XLA


def test_plain_jax_is_kept_beside_a_nan_that_is_right():
    """It is no number that plain JAX would miss."""

    gravity = 6.6743e-11 * tj.unit("m3 / kg / s2")

    def f(mass):
        share = tnp.exp(-tnp.abs(mass / mass))
        return tnp.sum(gravity * share / share**2)

    mass = tj.Quantity(jnp.array([9760.0, 10072.0, 0.0], jnp.float16), "kg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tj.errors.ScaleWarning)
        slope = tj.jit(tj.grad(f))(mass)
    np.testing.assert_array_equal(slope.value, [0.0, 0.0, np.nan])
    exact, coarse = (Wide(np.array([2.0, first, np.nan, np.inf])) for first in (3.0, 1.0))
    is_left, is_number = left_of(exact, coarse)
    assert (is_left.sum(), is_number.sum()) == (1, 3)


def test_plain_jax_is_kept_where_a_plan_makes_rounding_infinite():
    """Neither has a right result; but what is finite in plain JAX is finite."""

    def share(x, y, is_squared):
        z = jnp.where(is_squared, y * y, x)
        return jnp.log(jnp.abs(1 / (1 + jnp.exp(z / z))))

    x = jnp.array([0.433349609375, 0.2626953125, 7.683e-05, 7.683e-05], jnp.float16)
    given = x, jnp.array([289.5, 562.5, 1188.0, 33.15625], jnp.float16), jnp.array(False)
    slope = jax.vmap(jax.grad(share, (0, 1)), (0, 0, None))
    with pytest.warns(tj.errors.ScaleWarning, match="cancellation"):
        got = tj.jit(slope)(*given)
    for found, plain in zip(got, jax.jit(slope)(*given), strict=True):
        assert not np.any(np.isfinite(plain) & ~np.isfinite(found))


def test_a_power_is_hidden_like_a_product():
    graph = build(jax.make_jaxpr(lambda x: x**7)(full(1.5)))
    hidden = Exponents.none(graph)._replace(guarded=all_guarded(graph))
    hidden = jax.make_jaxpr(lambda x: replay(graph, hidden)([x]))(full(1.5))
    assert hidden.eqns[-1].primitive.name == "optimization_barrier"


def test_a_contraction_of_numbers_whose_products_vanish():
    """The result, 8e-38, is a normal number; its parts are not, and XLA flushes them."""
    x = jnp.linspace(0.5, 1.5, 8, dtype=jnp.float32) * np.float32(SMALL)
    want = np.sum(np.asarray(x, np.float64) ** 2)
    f = tj.jit(lambda x: x @ x)
    np.testing.assert_allclose(f(x), want, rtol=3e-7)
    assert not last(f).identity
    harmless = tj.jit(lambda x: 1.0 + x @ x)
    assert harmless(x) == 1.0
    assert last(harmless).identity


def test_a_sum_whose_parts_are_too_large():
    x = jnp.float32([3e38, 3e38, -3e38, -3e38, 1e30])
    f = tj.jit(jnp.sum)
    np.testing.assert_allclose(f(x), 1e30, rtol=1e-6)
    mean = tj.jit(jnp.mean)
    np.testing.assert_allclose(mean(full(3e36, (1000,))), 3e36, rtol=1e-6)


# -- alarms of estimates --------------------------------------------------------------------------


@pytest.fixture
def alarming(monkeypatch):
    """Nothing is run on numbers, and bounds say that every result is far too large or small."""

    def bound(magnitude):
        def claim(graph, arguments, measured):
            known = lambda v: Magnitude(-2.0, 2.0) if v.kind != "result" else magnitude
            return [m or known(v) for m, v in zip(measured, graph.values, strict=True)]

        monkeypatch.setattr(_plan, "BUDGET", 0.0)
        monkeypatch.setattr(_plan, "ALARM_BUDGET", 0.0)
        monkeypatch.setattr(_plan, "bound", claim)

    return bound


@pytest.mark.parametrize("magnitude", [Magnitude(-2.0, 300.0), Magnitude(-300.0, -200.0)])
def test_a_false_alarm_changes_nothing(alarming, magnitude):
    alarming(magnitude)
    f, x = tj.jit(lambda x: x * 0.3 + 1.0), full(1.5)
    plain = jax.jit(lambda x: x * 0.3 + 1.0)
    for y in (x, x * 1.1, x * 3):
        assert np.array_equal(f(y), plain(y))
    assert last(f).identity
    assert any("false alarm" in note for note in last(f).notes)


def test_a_true_alarm_is_confirmed_by_what_plain_jax_misses(alarming):
    """All zeros where the estimate has numbers: the exponents are used."""
    alarming(Magnitude(-201.0, -198.0))
    f = tj.jit(lambda x: (x * x) * 1e-20 / x)
    x = full(1e-30)
    assert (jax.jit(lambda x: (x * x) * 1e-20 / x)(x) == 0).all()
    f(x)
    assert not last(f).identity


def test_steps_of_optax_are_seldom_looked_at(monkeypatch):
    """Of a network too large to be run: the number of a step decides nothing, saturated or not."""
    optax = pytest.importorskip("optax")
    monkeypatch.setattr(_plan, "BUDGET", 0.0)
    optimiser = optax.adam(1e-3)

    def step(p, state, x):
        slope = jax.grad(lambda p: jnp.mean(jnp.tanh(x @ p) ** 2))(p)
        moved, state = optimiser.update(slope, state, p)
        return optax.apply_updates(p, moved), state

    f, p = tj.jit(step), jnp.linspace(0.1, 0.3, 256, dtype=jnp.float32).reshape(16, 16)
    state, x = optimiser.init(p), jnp.ones((4, 16), jnp.float32)
    with jax.numpy_dtype_promotion("standard"):  # as optax is written
        for i in range(40):
            p, state = f(p, state, x + np.float32(0.01 * i))
    assert len(f.plans) == 1
    assert last(f).looks <= 8
