"""What no exponents can hold is said, and what some can hold is found: rounding is part of both.

Each program here gave a wrong number without a word.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax import scale
from tanjax.scale import _plan
from tanjax.scale._judged import Doubt
from tanjax.scale.windows import _find
from tanjax.units import m

pytestmark = pytest.mark.core


def test_entries_too_far_apart_for_any_exponent_are_looked_at():
    """`x**-2` of them fits as well as it can at exponent 0, and the last one is lost there."""
    x = jnp.array([-220.0, 4.8e-6, 3e-8, 1.6, 1.433e34], jnp.float32)
    f = tj.jit(jax.grad(lambda x: jnp.sum(jnp.exp(-jnp.abs(x / x)))))
    with pytest.warns(tj.errors.ScaleWarning, match="entries of the results are wrong"):
        f(x)


def test_quantity_holds_small_entries_where_an_exponent_does():
    mass = tj.Quantity(jnp.array([1e-3, 1e-5], jnp.float32), "kg")
    out = tj.jit(lambda m: 6.626e-34 * m)(mass)
    true = np.asarray(out.stored, np.float64) * 2.0**out.scale
    np.testing.assert_allclose(true, [6.626e-37, 6.626e-39], rtol=1e-6)


def test_quantity_that_no_exponent_holds_is_said():
    x = tj.Quantity(jnp.array([1.012e34, 1.6087], jnp.float32), "m")
    with pytest.warns(tj.errors.ScaleWarning, match="entries of the results are wrong"):
        tj.jit(lambda x: x * tj.numpy.abs(x) ** 1.5)(x)


def test_a_quantity_of_which_some_would_fit_at_another_exponent_is_said():
    """Nothing holds 1e18 and 1e33 of 1 / q³; of q · 1 / q³ 1e12 and 1e22 are held by float16."""
    q = tj.Quantity(jnp.array([34368.0, 0.34375], jnp.float16), "kg", scale=-35)
    with pytest.warns(tj.errors.ScaleWarning, match="1 entries of the results are wrong"):
        tj.jit(lambda q: q * q**-3)(q)


@pytest.mark.parametrize("x", [50912.0, 300.0])
def test_subnormal_float16_is_a_number(x):
    """XLA keeps them, so a result of 1e-5 that becomes 0 on the way is lost."""
    got = tj.jit(lambda x: 0.5 * x / x**2)(jnp.float16(x))
    assert float(got) == pytest.approx(0.5 / x, rel=0.01)


COARSE = {
    "a part of the largest": lambda v: v / jnp.max(jnp.abs(v)),
    "a part of the sum": lambda v: v / jnp.sum(v),
    "a part of itself": lambda v: v / (1.5 * v) * 1.5,
    "a multiple": lambda v: 3.0 * v / jnp.max(v) / 3.0,
}


@pytest.mark.parametrize("name", COARSE)
def test_subnormal_float16_is_the_same_number_to_all_who_read_it(name):
    """XLA makes `a / x / y` `a / (x * y)`, so that one reader has 3.57 of 2^-24, another one 4."""
    a = jnp.array([0.00076771], jnp.float16)
    f = tj.jit(lambda x: COARSE[name](a / x))
    for x in (33.8, 249.75, 3602.0):  # normal; 52 and 3.57 of 2^-24
        assert float(f(jnp.float16(x))[0]) == pytest.approx(1, rel=2e-3)


NUMBERS = np.array([1e-30, 1e-5, 1.0, 1e30])
ENDS = {
    "a denominator": (lambda x: 1 / jnp.sqrt(jnp.sum(1 / x**2)), 1e-30),
    "its derivative": (jax.grad(lambda x: 1 / jnp.sqrt(jnp.sum(1 / x**2))), [1, 0, 0, 0]),
    "the least": (lambda x: jnp.min(x * x) / jnp.min(x), 1e-30),
    "the largest": (lambda x: jnp.sqrt(jnp.sum(x * x)), 1e30),
    "a real power": (lambda x: 1 / jnp.sum(x**-2.5) ** 0.4, 1e-30),
    "of a function": (lambda x: jax.jit(lambda y: jnp.sum(1 / y))(x * x) ** -0.5, 1e-30),
}


@pytest.mark.parametrize("name", ENDS)
def test_those_of_numbers_far_apart_are_held_that_count(name):
    """No exponent holds all `x**2`, and none need hold the others: `1 / inf` is 0."""
    f, want = ENDS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = tj.jit(f)(jnp.asarray(NUMBERS, jnp.float32))
    np.testing.assert_allclose(np.asarray(got, float), want, rtol=1e-5, atol=1e-37)


FACTORISED = {
    "cholesky": jnp.linalg.cholesky,
    "qr": lambda a: jnp.abs(jnp.linalg.qr(a)[1]),
    "solution": lambda a: jnp.linalg.solve(a, a @ jnp.ones(3, a.dtype)),
    "determinant": lambda a: jnp.linalg.slogdet(a)[1],
}


@pytest.mark.parametrize("name", FACTORISED)
def test_products_inside_a_factorisation_do_not_vanish(name):
    """All entries of the matrix and of its factors are normal, what is subtracted of them is not.

    Also on a later call.
    """
    f, a = FACTORISED[name], np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.5]])
    compiled = tj.jit(f)
    for size in (1.0, 1e-36):
        x = jnp.asarray(size * a, jnp.float32)
        with jax.enable_x64(True):
            want = np.asarray(jax.jit(f)(jnp.asarray(x, jnp.float64)))
        atol = 1e-6 * np.abs(want).max()
        np.testing.assert_allclose(np.asarray(compiled(x), float), want, rtol=1e-5, atol=atol)


def test_rounding_that_makes_equals_is_judged_too():
    """With rounding all three are largest, and so is the one whose derivative must not be lost."""
    a = jnp.array([39728447488.0, 2.547348539231437e16, 1286144.0], jnp.bfloat16)

    def f(x, y):
        b = a / y
        largest = jnp.max((x - b) / (x + b))
        return jnp.sqrt(largest * largest + largest * largest)

    x = jnp.array([1.41995e-29, 2.36658e-29, 3.31322e-29], jnp.bfloat16)
    y = jnp.array([611328465043456.0, 6.97353e-28, 5.00495e26], jnp.bfloat16)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        _, got = tj.jit(jax.grad(f, (0, 1)))(x, y)
    assert said or np.abs(np.asarray(got, float)).max() < 1e-30


def test_entry_that_plain_jax_has_nearly_right_is_not_given_away():
    a = jnp.array([2.705, 0.7417, 68.44], jnp.float16)
    x = jnp.array([2252.0, 1.068, 0.01952], jnp.float16)
    f = lambda x, y: jnp.sqrt((a / x) ** 2 + y * y)
    y = jnp.array([9.05e-5, 4082.0, 489.75], jnp.float16)
    with pytest.warns(tj.errors.ScaleWarning):
        got = tj.jit(f)(x, y)
    assert float(got[0]) == pytest.approx(1.2e-3, rel=0.05)


def test_products_of_constants_in_a_gradient_are_not_crushed():
    def f(x):
        return x / 1.602e-19 * 7.37e-4 * 7.37e-4 * 7.37e-4 * 7.37e-4 * 7.37e-4 * 7.37e-4

    got = tj.jit(jax.grad(f))(jnp.float16(0.1))
    assert float(got) == pytest.approx(7.37e-4**6 / 1.602e-19, rel=0.01)


def test_rounding_after_a_cancellation_has_room():
    """Exactly 3e-15 is left, but rounding leaves more, at numbers of 2e10."""

    def f(x):
        a = 1.38e-23 * jax.jvp(lambda t: jnp.log1p(t * t), (x,), (x,))[1] / x / 5.67e-8
        b = 6274**2 * a
        return (b - a) / (b + a)

    assert np.isfinite(float(tj.jit(jax.grad(f))(jnp.float16(0.00556183))))


def test_numbers_beyond_every_range_are_said():
    f = lambda x: jnp.sum(jnp.sqrt(2 * jnp.expm1(x) ** 2))
    with pytest.warns(tj.errors.ScaleWarning, match="beyond"):
        tj.jit(jax.grad(f))(jnp.array([9.36e36, 1e-3, 1e-2], jnp.float32))


def test_numbers_that_xla_would_join_are_hidden_on_later_calls_too():
    """`x * c * c` is right as it is written, and 0 as XLA may write it."""
    f = tj.jit(lambda x: x * 2.02e-22 * 2.02e-22)
    for x in (4.9e21, 3.7e30, 1.5e34):
        assert float(f(jnp.float32(x))) == pytest.approx(x * 2.02e-22**2, rel=1e-6)
    assert not any(plan.identity for plan in f.plans)


def test_exponents_too_large_for_a_plan_do_not_stop_it():
    f = lambda x, y: jnp.sum((1 / (1 + jnp.exp(jnp.abs(jnp.sum(y**3)) ** (1 / 3) / x))) ** -2.5)
    x = jnp.array([7.2, 9.6, 7.9], jnp.float32)
    y = jnp.array([0.0, 2.7e15, 2.5e15], jnp.float32)
    with pytest.warns(tj.errors.ScaleWarning) as said:
        tj.jit(jax.value_and_grad(f, (0, 1)))(x, y)
    assert not any("could not be planned" in str(s.message) for s in said)


def test_branch_that_a_loop_takes_late_is_said():
    """A loop too long to be run is sampled, and nobody knows the numbers of the last steps."""

    def step(c, i):
        return jax.lax.cond(i > 90_000, lambda c: jnp.sqrt(c * c), lambda c: c, c), None

    f = tj.jit(lambda x: jax.lax.scan(step, x, jnp.arange(100_000))[0])
    assert f(jnp.float32(3.0)) == 3  # in its windows nothing can leave the range
    with pytest.warns(tj.errors.ScaleWarning, match="branch at .* was not taken"):
        f(jnp.float32(1e-30))


INVERTED = {
    "a number that is broadcast": lambda x, y: x / y,
    "rows": lambda x, y: (x[:, None] / jnp.stack([y, y]))[:, 0],
    "a power": lambda x, y: x / (y**0.75) ** (4 / 3),
    "an exponential": lambda x, y: x / jnp.exp(jnp.log(y)),
    "a constant": lambda x, y: x / 2.7e38 + 0 * y,
}


@pytest.mark.parametrize("name", INVERTED)
def test_denominators_are_not_inverted_out_of_range(name):
    """XLA multiplies by `1 / y`, which is subnormal and 0; for the first numbers nothing is."""
    f = tj.jit(INVERTED[name])
    for big in (1e3, 2.7e38):
        x, y = jnp.array([6.6e32, 1e10], jnp.float32), jnp.float32(big)
        want = np.array([6.6e32, 1e10]) / (2.7e38 if name == "a constant" else big)
        np.testing.assert_allclose(np.asarray(f(x, y), float), want, rtol=1e-4)


def test_number_that_is_trusted_unseen_is_not_expected_to_overflow():
    """A gradient that is zero hides `x^-2`: inf for numbers a few bits below those of the look."""

    def f(x, square):
        slope = jax.grad(lambda t: jnp.sum(jnp.abs(t) ** 1.5))(x / x)
        slope = jnp.where(square, slope * slope, slope)
        return jnp.sum(slope / jnp.max(jnp.abs(slope)))

    planned = tj.jit(jax.grad(f))
    rest = [0.10546875, 0.1361083984375, 0.0804443359375]
    for x in ([18256.0, *rest], [8464.0, *rest], [9352.0, 0.0013933, 0.0009365, 0.0211]):
        np.testing.assert_array_equal(planned(jnp.asarray(x, jnp.float16), jnp.array(True)), 0)


def test_numbers_are_looked_at_where_an_overflow_did_no_harm():
    """The second call overflows rightly, and the third, with smaller numbers, must not."""
    body = lambda c, d: (c[0] * c[0] / 1e20, c[1] + 1)
    f = tj.jit(lambda x, n: jax.lax.while_loop(lambda c: c[1] < n, lambda c: body(c, n), (x, 0))[0])
    for x, n, want in ((1.1e20, 3, 2.14e20), (1.1e20, 10, np.inf), (3e19, 2, 8.1e17)):
        got = f(jnp.array([x], jnp.float32), jnp.array(n))
        np.testing.assert_allclose(np.asarray(got, float), [want], rtol=1e-2)


WIDE = {
    "norm": (lambda x: jnp.linalg.norm(x), lambda x: np.sqrt(np.sum(x * x))),
    "mean": (lambda x: jnp.mean(x * x) / jnp.mean(x), lambda x: np.mean(x * x) / np.mean(x)),
    "max": (lambda x: jnp.max(x**3) / jnp.max(x) ** 2, np.max),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", WIDE)
def test_small_entries_do_not_keep_the_large_ones_out(name, dtype):
    """All of them would fit, read as they are; the square of the largest does not."""
    f, exact = WIDE[name]
    x = jnp.asarray(np.logspace(-37, 37, 40), dtype)
    want = 1e-10 * exact(np.asarray(x, np.longdouble)).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = tj.jit(lambda x: f(1e-10 * x))(x)
    np.testing.assert_allclose(float(got), want, 0.02 if dtype == "bfloat16" else 1e-5)


def far_apart(a, b):
    """A plan loses 1e30 of the result (1e30, 1e-50), which plain JAX has right."""
    return jnp.linalg.solve(a @ a, b)


FAR_APART = jnp.diag(jnp.array([1e-15, 1e25], jnp.float32)), jnp.ones(2, jnp.float32)


def test_results_that_plain_jax_has_right_are_kept_with_all_warnings(monkeypatch):
    """Also not that a constant was lost, which is found while the same call is traced."""
    trace = scale.trace
    said = lambda *args: trace(*args)._replace(notes=("a constant was lost",))
    monkeypatch.setattr(scale, "trace", said)
    plain = jax.jit(far_apart)(*FAR_APART)
    np.testing.assert_allclose(plain[0], 1e30, rtol=1e-5)
    f = tj.jit(far_apart)
    with pytest.warns(tj.errors.ScaleWarning, match="a constant was lost"):
        got = f(*FAR_APART)
    np.testing.assert_array_equal(got, plain)
    assert f.plans[-1].identity


def test_alarms_of_a_plan_are_said_of_plain_jax_too():
    plan = tj.scale_graph(far_apart)(*FAR_APART).plan
    plan = plan._replace(alarms=(*plan.alarms[:1], "a branch was not taken"))
    assert plan.doubts
    none = lambda: [np.float32([np.nan, 0])]
    assert plan.kept_plain([np.float32([1e30, 0])], none).alarms == ("a branch was not taken",)
    assert "1 entries" in plan.kept_plain([np.float32([1e30, 7])], none).alarms[0]
    assert plan.kept_plain([np.float32([np.inf, 0])], none) is None
    more = lambda: [np.float32([np.nan, np.nan])]  # as XLA has rewritten it
    assert plan.kept_plain([np.float32([np.inf, 0])], more).identity
    itself = lambda: [np.float32([1e30, 0])]  # what a plan has right all the same is not lost
    assert plan.kept_plain([np.float32([1e30, 0])], itself) is None


def test_infinity_is_no_better_than_what_rounding_leaves_of_a_zero():
    """XLA makes it of an entry that exponents are not to lose, and that plain JAX has nearly."""
    zero = np.zeros(2)
    plan = tj.scale_graph(far_apart)(*FAR_APART).plan
    plan = plan._replace(doubts=(Doubt(zero, np.array([0.0, np.inf]), zero, True),))
    plain = [np.float32([1e-11, np.nan])]
    for broken in (np.inf, np.nan):
        kept = plan.kept_plain(plain, lambda broken=broken: [np.float32([broken, np.inf])])
        assert kept.identity
        assert "2 entries" in kept.alarms[0]
    assert plan.kept_plain(plain, lambda: [np.float32([1e-9, np.inf])]) is None


def test_infinities_that_plain_jax_has_right_are_kept():
    """`fma` adds a product of 1e42 to `-inf`, where the product by itself is infinite, too."""
    slope = jax.grad(lambda x: jnp.sum(6.022e23 * x / x**2))
    x = jnp.array([7.27e-10, 3.9e-25, 4.1e33], jnp.float32)  # -1e42, -4e72, 0
    plan = tj.scale_graph(slope)(x).plan
    plain = [np.float32([-np.inf, np.nan, np.nan])]
    assert plan.kept_plain(plain, lambda: [np.float32([0, -np.inf, 0])]).identity
    assert plan.kept_plain(plain, lambda: [np.float32([-np.inf, -np.inf, 0])]) is None


def test_a_zero_is_said_unless_rounding_leaves_it_in_any_range(monkeypatch):
    cancelled = lambda x, y: (x + y) - y
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tj.jit(cancelled)(jnp.float32(1e20), jnp.float32(1e30)) == 0
    monkeypatch.setattr(_plan, "guarded", lambda *_: frozenset())
    monkeypatch.setattr(_find, "guarded", lambda *_: frozenset())
    monkeypatch.setattr(_plan, "all_guarded", lambda *_: frozenset())
    quotient = lambda x, y, z: x / y / z
    numbers = [jnp.full(3, n, jnp.float32) for n in (1e30, 1e25, 1e25)]
    assert not np.any(jax.jit(quotient)(*numbers))  # XLA's doing
    with pytest.warns(tj.errors.ScaleWarning, match="or zero"):
        tj.jit(quotient)(*numbers)


def test_a_zero_in_place_of_mere_rounding_is_no_loss():
    """Normalised numbers do not change with their size: a hundredth of an ulp in exact arithmetic.

    Rounding makes some entries zeros in XLA, and others in NumPy.
    """
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 16)), jnp.bfloat16)

    def normalised(x):
        d = x - x.mean(-1, keepdims=True)
        return (d / jnp.sqrt((d**2).mean(-1, keepdims=True) + 1e-5)) ** 3

    slope = lambda x: jax.jvp(normalised, (x,), (x,))
    np.testing.assert_array_equal(tj.jit(slope)(x)[1], jax.jit(slope)(x)[1])


def test_infinities_that_float16_may_not_have_excuse_nothing():
    """`1 / a**2` of entries far apart: right if `a` becomes infinite, but XLA has it in float32."""
    q0 = tj.Quantity(jnp.array([0.589, 0.0005317, 11784.0], jnp.float16), "kg")
    q1 = tj.Quantity(jnp.array(34624.0, jnp.float16), "s", scale=17)

    def one(q0, q1):
        ratio = q0 / q1
        return tj.numpy.sum(ratio / ratio)

    with pytest.warns(tj.errors.ScaleWarning, match="entries of the results are wrong"):
        tj.jit(tj.grad(one, (0, 1)))(q0, q1)


def test_constants_that_xla_may_join_in_several_ways_are_hidden():
    """`(a x) (b y) c c` is `x y (a b c c)`, of numbers that fit, or `(a x) (b y) (c c)`."""
    f = tj.jit(lambda x: (9.364e-25 * x * (6.67e-11 * x)) * 2.99e26 * 2.99e26)
    assert float(f(jnp.float32(1e-23))) == pytest.approx(5.5838e-28, rel=1e-4)
    assert float(f(jnp.float32(0))) == 0
    plan = tj.scale_graph(lambda x: (1e-25 * x * (6e-11 * x)) * 3e26 * 3e26)(jnp.float32(0)).plan
    assert plan.method == "guarded"


def test_subnormal_results_that_plain_jax_has_right_are_kept():
    """XLA may compute float16 in float32: -1.2e-6 comes of 1e-10. No plan holds both entries."""
    slope = jax.grad(lambda a, b: jnp.sum(b / a * 0.00108 * 0.00108), (0, 1))
    given = jnp.array([100.0, 0.0010004], jnp.float16), jnp.float16(10000.0)
    plan = tj.scale_graph(slope)(*given).plan
    of_plan = lambda: [np.float16([-0.0, -11640]), np.float16(0.0011644)]
    plain = lambda x: [np.float16([x, -np.inf]), np.float16(0.0011911)]
    for x in (-1.192e-6, -1.1325e-6):  # the nearest number, and the one beside it
        assert plan.kept_plain(plain(x), of_plan).identity
    assert plan.kept_plain(plain(0), of_plan) is None


def test_a_wide_result_is_held_as_far_as_the_dtype_goes_or_said_to_be_lost():
    """The largest entry is a normal number as it is: another exponent would hold the other too."""
    q = tj.Quantity(jnp.array([43392.0, 23.875], jnp.float16), "m / s", scale=6)
    with pytest.warns(tj.errors.ScaleWarning, match="1 entries of the results are wrong"):
        tj.jit(lambda q: q**-3)(q)


def test_a_plan_is_not_kept_for_numbers_that_leave_their_range():
    """They are multiplied by what should be 0 and is rounding: the loss is not to be seen."""

    helper = jax.jit(lambda a, b: 6.626e-34 * a / b)

    def ratio(x):
        v = helper(x, (1.362e10**2) * x)
        v = jnp.abs(jnp.where(v > v, v, v)) ** 0.7
        return v / jnp.max(jnp.abs(v))

    f = tj.jit(jax.grad(lambda x: jnp.sum(ratio(x))))
    for x in (0.004006214439868927, 3.0672078132629395):
        slope = f(jnp.array([x], jnp.float32))
        np.testing.assert_allclose(slope, 0.0, atol=1e-9 / x)


def test_a_plan_that_holds_no_numbers_is_not_kept_for_those_that_are_held():
    """An exact zero, which rounding spoils, is divided by what vanished in the first call, too."""

    def one(q):
        v = tj.numpy.exp(-tj.numpy.abs(q**2 / q**2))
        return tj.numpy.sum(v / v)

    f = tj.jit(tj.grad(one))
    joules = lambda x: tj.Quantity(jnp.array(x, jnp.float32), "J")
    with pytest.warns(tj.errors.ScaleWarning, match="the rest after a cancellation"):
        f(joules([-3.314e31, -7.53e-11, 1.304e-28]))
    slope = f(joules([1.0, 2.0**-16, 0.125]))
    np.testing.assert_allclose(slope.to("1 / J").value, 0.0, atol=1e-9)


def orbit(r, mu, steps):
    """A circle in SI by the method of Runge and Kutta, forty steps a turn."""
    speed = jnp.sqrt(mu / r)
    dt = 2 * jnp.pi * r / speed / 40

    def slope(y):
        d = jnp.hypot(y[0], y[1])
        return jnp.stack([y[2], y[3], -mu * y[0] / d**3, -mu * y[1] / d**3])

    def step(y, _):
        a = slope(y)
        b = slope(y + dt / 2 * a)
        c = slope(y + dt / 2 * b)
        return y + dt / 6 * (a + 2 * b + 2 * c + slope(y + dt * c)), None

    start = jnp.stack([r, 0 * r, 0 * speed, speed])
    return jnp.sum(jax.lax.scan(step, start, None, length=steps)[0])


def test_a_short_loop_is_run_to_its_end_before_plain_jax_is_believed():
    """Plain JAX has -2.9 for 1.0: the sixth power of a distance vanishes in a denominator."""
    got = tj.jit(jax.grad(orbit), static_argnums=2)(jnp.float32(1e7), jnp.float32(3e14), 10)
    np.testing.assert_allclose(got, 1.0002587, rtol=1e-4)


@pytest.mark.slow
def test_what_a_long_loop_computes_late_is_right_or_warned_of():
    """Of a thousand steps a hundred are looked at, which tell too little; plain JAX has 224."""
    f = tj.jit(jax.grad(orbit), static_argnums=2)
    for r in (1e7, 1.1e7):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", tj.errors.ScaleWarning)
            got = f(jnp.float32(r), jnp.float32(3e14), 1000)
        assert said or abs(got - 1.0495761) < 1e-3


def test_number_far_below_is_no_zero_where_infinities_are_cut_off():
    """Entries fit no exponent together: the run at exponents said 0, the program made a nan."""

    def vanishing(x, y):
        return jnp.exp(-jnp.square(x / jnp.expm1(x / y) / x**-1))

    f = jax.grad(lambda *a: jnp.sum(vanishing(*a)), (0, 1))
    x = jnp.array([8192.0, 0.03125, 65536.0, 0.0078125], jnp.bfloat16)
    y = jnp.array([8.0, 2.0**-17, 0.25, 32768.0], jnp.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", tj.errors.ScaleWarning
        )  # with JAX 0.12, which keeps plain JAX
        slopes = tj.jit(f)(x, y)
    for slope, plain in zip(slopes, jax.jit(f)(x, y), strict=True):
        assert not np.any(np.isfinite(plain) & ~np.isfinite(slope))
        np.testing.assert_array_equal(slope[np.isfinite(slope)], 0.0)


def test_a_constant_that_fills_its_dtype_does_not_vanish_in_a_plan_alone():
    """Each reader has it at an exponent of its own; the run at exponents took it for zero."""
    a = jnp.array([1.634e-13, 1.479e-38, -2.832e30], jnp.bfloat16)
    x = jnp.array([9.974e25, 9.981e27, 1.0e30], jnp.bfloat16)

    def one(x):
        return jnp.sum(x * a / (x * a) * 1.36e19 * 1.36e19 * 1.36e19)

    with pytest.warns(tj.errors.ScaleWarning, match="too wide for the dtype"):
        tj.jit(jax.grad(one))(x)


def test_a_gradient_that_is_exactly_zero_keeps_the_bits_of_plain_jax():
    """The sum of a softmax is one: what is left of its slope is rounding, and 0 here and there."""
    slope = jax.vmap(jax.grad(lambda x: jnp.sum(jax.nn.softmax(10.0 / x * jnp.sqrt(jnp.abs(x))))))
    x = jnp.array([[2.03, 2.88, 4.84], [3.46, 1.84, 4.46], [5.47, 3.01, 2.56]], jnp.float32)
    plain = jax.jit(slope)(x)
    assert np.any(plain == 0.0)  # where the run in a wide range has rounding
    planned = tj.jit(slope)
    np.testing.assert_array_equal(planned(x), plain)
    assert [p.method for p in planned.plans] == ["identity"]
    assert np.isnan(jax.jit(slope)(1e-22 * x)).all()
    np.testing.assert_allclose(planned(1e-22 * x) * x, 0.0, atol=1e-6)


def test_rounding_elsewhere_is_no_number_for_one_that_xla_has_lost():
    """Three quotients become 0 in XLA, beside three cancellations that leave something."""

    def both(x, y, z, a):
        return jnp.concatenate([x / y / z, (a + 1e8) - 1e8 - a])

    x, y, z = (jnp.full(3, n, jnp.float32) for n in (1e30, 1e25, 1e25))
    a = jnp.array([1.0, 2.0, 3.0], jnp.float32)
    given = x, y, z, a
    plan = tj.scale_graph(both)(*given).plan
    unhidden = plan._replace(exponents=plan.exponents._replace(guarded=frozenset()))
    noise, there, lost = (jnp.full(3, n, jnp.float32) for n in (-2.0, 1e-20, 0.0))
    missing = lambda x, y, run: unhidden.misses([jnp.concatenate([x, y])], run)
    assert missing(lost, noise, plan.run(given)) is True
    assert missing(there, 0 * noise, plan.run(given)) is False
    assert missing(there, noise, plan.run([None] * 4)) is None


def test_plain_jax_misses_nothing_that_it_could_not_hold():
    """The square fits at the exponent of a plan; without one, as in plain JAX, it is infinite."""
    side = tj.Quantity(jnp.array([1e25], jnp.float32), "m")
    plan = tj.scale_graph(lambda a: a * a)(side).plan
    exact, infinite = plan.run([side.stored]), [jnp.array([jnp.inf], jnp.float32)]
    assert plan.output_exponents != [0]
    assert plan.misses(infinite, exact) is True
    assert plan.misses(infinite, exact, plain=True) is False


def doublings(x):
    return jax.lax.while_loop(lambda c: c[0] < 1e12, lambda c: (c[0] * 2.0, c[1] + 1), (x, 0))[1]


LOOPS_BEYOND = {
    "float32": (lambda c: until(c, 1e60) / 1e30, jnp.float32(1e-30), np.inf),
    "a count in float16": (doublings, jnp.float16(1.0), 16),
    "a quantity in float16": (
        lambda q: tj.while_loop(lambda c: c < 1e30 * m, lambda c: c * 10.0, q),
        (1.0 * m).astype(jnp.float16),
        np.inf,
    ),
    "beside results that exponents hold": (
        lambda x: (doublings(x), *(x * (1e6 * k) / 1e5 for k in (1, 2, 3))),
        jnp.float16(1.0),
        16,
    ),
}


def until(x, end):
    return jax.lax.while_loop(lambda c: c < end, lambda c: c * 10.0, x)


@pytest.mark.parametrize("name", LOOPS_BEYOND)
def test_a_loop_whose_state_no_exponent_holds_ends_as_in_plain_jax_and_warns(name):
    f, x, want = LOOPS_BEYOND[name]
    with pytest.warns(tj.errors.ScaleWarning, match="are wrong"):
        got = tj.jit(f)(x)
    assert np.asarray(jax.tree.leaves(got)[0]) == want


def test_a_loop_held_by_exponents_ends_for_later_numbers_that_vanish_at_them():
    f = tj.jit(lambda x: until(x, 1e45) / 1e30)
    for start in (1e20, 2e20, 1e-20, 1e-30, 1e20, 1e-30):
        got = float(f(jnp.float32(start)))
        assert 0.99e15 < got < 1.01e16


def test_plain_jax_is_not_asked_where_its_loop_never_ends():
    """Some entries are lost at any exponents, for which plain JAX is asked elsewhere."""

    def f(x, y):
        grown = jax.lax.while_loop(lambda c: c < 1e-37, lambda c: c * 0.5 + c, x * 1e-3)
        return grown * 1e30, y * y / y

    with pytest.warns(tj.errors.ScaleWarning, match="are wrong"):
        grown, _ = tj.jit(f)(jnp.float32(1e-37), jnp.array([1e-36, 1e36], jnp.float32))
    assert 1e-7 <= float(grown) < 2e-7
