"""Windows around numbers for which a program was seen to be right."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.scale import Magnitude, build, identity_plan, proof
from tanjax.scale._plan import plan
from tanjax.scale.numbers import Spread, Window, measure
from tanjax.transforms import _entries
from tanjax.transforms._nearby import asking_peaks, is_tame, near, peaks_of, refusing_zeros

pytestmark = pytest.mark.core


def windows(fun, *seen, looks=1):
    """Windows of float32 arguments: numbers for single ones, pairs for smallest and largest."""
    ends = [x if isinstance(x, tuple) else (x, x) for x in seen]
    given = [jnp.full(2, 2.0**high, jnp.float32).at[0].set(2.0**low) for low, high in ends]
    given = [x[1] if low == high else x for x, (low, high) in zip(given, ends, strict=True)]
    found = plan(jax.make_jaxpr(fun)(*given), given, [False])
    assert found.identity
    return near(found, [Magnitude(*map(float, e)) for e in ends], looks)


def reach(fun, *seen, looks=1):
    """Bits downwards and upwards of the first argument."""
    low, high = seen[0] if isinstance(seen[0], tuple) else (seen[0],) * 2
    window = windows(fun, *seen, looks=looks)[0]
    return low - window.low, window.high - high


def test_numbers_may_grow_a_thousand_times_where_nothing_leaves_its_range():
    assert reach(lambda x: x + 1.0, 0) == (16.0, 12.0)
    assert reach(lambda x: x + 1.0, (-3, 0)) == (16.0, 12.0)


def test_they_may_grow_as_far_as_their_powers_fit():
    """Of 2^3 the eighth power has room for 13 bits, of 2^7 for 9, of 2^12 for 3, of 2^15 for 0."""
    power = lambda x: x * x * x * x * x * x * x * x + 1.0
    found = [reach(power, (-3, high))[1] for high in (3, 7, 12, 14, 15)]
    assert found == [12.0, 6.0, 3.0, 1.5, 1.0]


def test_single_numbers_may_shrink_as_far_as_nothing_becomes_too_small():
    """Entries of arrays may: larger ones are beside them."""
    tiny = lambda x: jnp.sum(x * 2.0**-100 + 2.0**-100)
    assert reach(tiny, 0) == (16.0, 12.0)
    assert reach(tiny, -20) == (3.0, 3.0)
    assert reach(tiny, (-20, -18)) == (16.0, 12.0)


def test_nothing_may_shrink_until_its_reciprocal_is_too_large():
    inverse = lambda x: jnp.sum(1.0 / x)
    assert reach(inverse, (-60, 0), looks=4)[0] == 64.0
    assert reach(inverse, (-100, 0), looks=4)[0] == 16.0
    assert reach(inverse, (-120, 0))[0] == 4.0
    assert reach(inverse, (-125, 0))[0] == 0.0


def test_nothing_may_shrink_until_what_divides_is_too_small():
    """Of two small numbers the quotient is an ordinary one, and 0 / 0 none."""

    def quotient(x):
        small = x * 2.0**-110
        return jnp.sum(small / (small + 1e-33))

    def root(x):
        return jnp.sum(x * 2.0**-110 * jax.lax.rsqrt(x * 2.0**-110))

    assert reach(quotient, (-3, 0))[0] == 16.0
    assert reach(root, (-3, 0))[0] == 8.0
    assert reach(lambda x: jnp.sum((x * 2.0**-110) ** -1), (-3, 0))[0] == 8.0


def test_windows_grow_with_every_look():
    assert [reach(lambda x: x + 1.0, (-3, 0), looks=n)[0] for n in (1, 2, 3, 4, 9)] == [
        16.0, 32.0, 48.0, 64.0, 64.0,
    ]  # fmt: skip


def test_where_bounds_do_not_see_a_number_windows_are_narrow_at_first():
    """Of `1 - 0.9**t` nobody knows that it is not zero, and bounds have no end for what follows."""

    def corrected(x, t):
        return jnp.sum(x / (1.0 - 0.9 ** t.astype(jnp.float32)))

    given = jnp.array([0.125, 1.0], jnp.float32), jnp.int32(3)
    found = plan(jax.make_jaxpr(corrected)(*given), given, [False])
    ends = [near(found, [Magnitude(-3.0, 0.0), None], looks)[0] for looks in (1, 2, 3, 4)]
    assert [w.high for w in ends] == [3.0, 6.0, 6.0, 12.0]


def test_where_bounds_see_an_overflow_that_was_not_there_windows_stay_narrow():
    """Of a product of three they know the largest number only."""
    given = jnp.array([1e-20, 1e20, 1e-15], jnp.float32)
    found = plan(jax.make_jaxpr(jnp.cumprod)(given), [given], [False])
    assert found.identity
    for looks in (1, 3):
        (window,) = near(found, [Magnitude(-66.5, 66.5)], looks)
        assert window.high == 67.5


def test_around_zeros_are_zeros():
    found = plan(jax.make_jaxpr(lambda x: x + 1.0)(jnp.zeros(3)), [jnp.zeros(3)], [False])
    (window,) = near(found, [Magnitude(math.inf, -math.inf)], 1)
    assert (window.low, window.high) == (math.inf, -math.inf)


def test_a_program_that_was_often_harmless_is_looked_at_no_more(monkeypatch):
    """It is cheap to look at, but for a step; and new numbers are looked at all the same."""
    looks = []
    is_right = _entries.Entry.is_right
    monkeypatch.setattr(_entries.Entry, "is_right", lambda *a: looks.append(1) or is_right(*a))
    monkeypatch.setattr(proof, "widest", lambda *_: None)
    f = tj.jit(lambda x: x * x / (1.5 * x - x))
    x = jnp.array([1.0, 2.0], jnp.float32)
    for i in range(100):
        np.testing.assert_allclose(f(x + 0.001 * i), 2 * (x + 0.001 * i), rtol=1e-6)
    assert 14 <= len(looks) <= 20
    np.testing.assert_allclose(f(1e30 * x), 2e30 * x, rtol=1e-6)
    np.testing.assert_allclose(f(1e-30 * x), 2e-30 * x, rtol=1e-6)


def test_a_program_is_not_tame_whose_divisor_may_vanish():
    """Windows say nothing of the largest entry: with others inside of them it is far smaller."""
    share = lambda x: x / jnp.max(x) ** 2
    graph = build(jax.make_jaxpr(share)(jnp.ones(3, jnp.float32)))
    found = identity_plan(graph, [False], False, ())
    assert not is_tame(found, [Magnitude(-70.0, 50.0)])
    assert is_tame(found, [Magnitude(-40.0, 10.0)])


def test_what_is_not_tame_is_always_looked_at(monkeypatch):
    monkeypatch.setattr(_entries, "is_tame", lambda *_: False)
    monkeypatch.setattr(proof, "widest", lambda *_: None)
    f = tj.jit(lambda x: x * x / (1.5 * x - x))
    for i in range(40):
        f(jnp.array([1.0, 2.0], jnp.float32) + 0.001 * i)
    assert f.plans[-1].looks == 40


def refused(fun, *given, zeros=frozenset()):
    """The arguments in which zeros are refused, by windows as far as their numbers."""
    closed = jax.make_jaxpr(fun)(*given)
    found = plan(closed, given, [False] * len(closed.out_avals))
    assert found.identity
    windows = [Window(*measure(x)[:2]) for x in given]
    return [w.nonzero for w in refusing_zeros(found, windows, given, zeros)]


MANY = jnp.linspace(1.0, 2.0, 20, dtype=jnp.float32)


def test_zeros_are_refused_where_they_may_do_harm():
    """There is no slope of a root, and no quotient; and behind a zero tiny numbers come out."""
    slope = jax.grad(lambda x, y: jnp.sum(jnp.hypot(jnp.cbrt(x), y)), (0, 1))
    assert refused(slope, MANY, 1e-30 * MANY) == [True, True]
    assert refused(lambda x: jnp.sum(1 / x), MANY) == [True]
    assert refused(lambda x: x / jnp.sum(x), MANY) == [True]


def test_zeros_are_let_pass_where_they_do_no_harm():
    assert refused(lambda x, y: jnp.sum(jnp.tanh(x * y) + 1), MANY, MANY) == [False, False]
    assert refused(lambda x: jnp.sum(jnp.exp(-1 / (1 + x * x))), MANY) == [False]


def test_zeros_are_let_pass_where_some_were_seen():
    inverse = lambda x, y: jnp.sum(1 / x + y)
    assert refused(inverse, MANY, MANY) == [True, True]
    both = lambda x, y: jnp.sum(1 / x + 1 / y)
    zero = MANY.at[3].set(0.0)
    assert refused(inverse, zero, MANY, zeros=frozenset([0])) == [False, False]
    assert refused(both, zero, MANY, zeros=frozenset([0])) == [False, True]


def test_of_few_numbers_zeros_are_asked_for_otherwise():
    assert refused(lambda x: jnp.sum(1 / x), MANY[:16]) == [False]


def test_of_few_numbers_on_several_hosts_windows_ask():
    closed = jax.make_jaxpr(lambda x: jnp.sum(1 / x))(MANY[:3])
    found = plan(closed, [MANY[:3]], [False])
    given, window = [Spread(MANY[:3], Magnitude(0.0, 1.0), True, True)], Window(0.0, 1.0)
    assert refusing_zeros(found, [window], given, frozenset())[0].nonzero


def asked(fun, *given, looks=1):
    """How many bits the largest number of each argument may shrink; None where nobody asks."""
    closed = jax.make_jaxpr(fun)(*given)
    found = identity_plan(build(closed), [False] * len(closed.out_avals), False, ())
    seen = [measure(x) for x in given]
    windows = [Window(m.low, m.high) for m in seen]
    windows = asking_peaks(found, windows, peaks_of(seen), looks)
    pairs = zip(windows, seen, strict=True)
    return [None if w.peak == -math.inf else m.high - w.peak for w, m in pairs]


FAR = jnp.asarray(2.0 ** np.linspace(-40, 30, 20), jnp.float32)  # whose fourth powers are too small


def test_a_large_number_is_asked_for_where_small_ones_alone_may_do_harm():
    """Of the largest number the fourth power is no zero as long as it is at least 2^-31."""
    share = lambda x, y: x * y / jnp.max(x) ** 4
    one = jnp.float32(1.0)
    assert asked(share, FAR, one) == [16.0, None]
    assert asked(share, FAR, one, looks=2) == [32.0, None]
    assert asked(share, FAR, one, looks=9) == [32.0, None]
    assert asked(share, FAR * 2.0**-40, one, looks=9) == [16.0, None]
    assert asked(share, FAR * 2.0**-58, one, looks=9) == [2.0, None]
    assert asked(share, FAR * 2.0**-61, one, looks=9) == [0.0, None]


def test_a_large_number_is_not_asked_for_where_nothing_vanishes_or_each_one_does():
    assert asked(lambda x: x / jnp.linalg.norm(x), FAR) == [None]
    assert asked(lambda x: jnp.sum(x**4), FAR) == [None]
    assert asked(lambda x: x / jnp.max(x) ** 4, FAR * 2.0**-70) == [None]


def test_the_least_of_the_largest_numbers_is_known():
    zeros, ones = Magnitude(math.inf, -math.inf), Magnitude(0.0, 0.0)
    seen = [Magnitude(-3.0, 5.0), Magnitude(1.0, 2.0), None, zeros, ones]
    assert peaks_of(seen) == [5.0, 2.0, None, None, None]
    assert peaks_of(seen, [4.0, 3.0, None, None, None]) == [4.0, 2.0, None, None, None]
    assert peaks_of(seen, [None, 1.0, None, None, 3.0]) == [5.0, 1.0, None, None, None]


@pytest.mark.parametrize("calls", [3, 40])
def test_small_numbers_without_a_large_one_are_looked_at(monkeypatch, calls):
    """The fourth power of each is 0 in float32, so that plain JAX divides 0 by 0."""
    monkeypatch.setattr(_entries, "DEAR", 0.0)
    share = lambda x: x**4 / jnp.max(x) ** 4
    f = tj.jit(share)
    for i in range(calls):
        f(FAR * (1 + i / 100))
    assert f.plans[-1].grade == "guessed"
    small = FAR[:3][jnp.arange(20) % 3]
    assert np.isnan(jax.jit(share)(small)).all()
    np.testing.assert_allclose(f(small), (small / jnp.max(small)) ** 4, rtol=1e-5)


def test_a_large_number_that_shrinks_is_asked_for_less(monkeypatch):
    """Every look counts: what was seen to be harmless is let pass, and more beyond."""
    monkeypatch.setattr(_entries, "DEAR", 0.0)
    looks = []
    is_right = _entries.Entry.is_right
    monkeypatch.setattr(_entries.Entry, "is_right", lambda *a: looks.append(1) or is_right(*a))
    f = tj.jit(lambda x: x**4 / jnp.max(x) ** 4)
    for i in range(40):
        x = FAR.at[-1].set(2.0 ** (30 - i))
        x = jnp.minimum(x, x[-1]) if i else x
        np.testing.assert_allclose(f(x), (x / jnp.max(x)) ** 4, rtol=1e-5, atol=1e-30)
    assert len(looks) < 20


def test_an_exact_zero_among_many_numbers_is_looked_at(monkeypatch):
    """Beside it the square of a tiny number comes out, which plain JAX takes for 0."""
    monkeypatch.setattr(_entries, "DEAR", 0.0)
    inverse = lambda x, y: 1 / jnp.sqrt(x * x + y * y)
    f, y = tj.jit(inverse), 1e-20 * MANY
    for i in range(1, 6):  # what was trusted is looked at on calls 1, 2, 4, 8, ...
        f(i * MANY, y)
    assert f.plans[-1].grade == "guessed"
    zero = MANY.at[5].set(0.0)
    np.testing.assert_allclose(f(zero, y)[5], 1 / y[5], rtol=1e-6)
    assert np.isinf(jax.jit(inverse)(zero, y)[5])


def test_what_had_zeros_is_not_looked_at_for_others(monkeypatch):
    """Nor when it was looked at without zeros in between, because it was larger."""
    monkeypatch.setattr(_entries, "DEAR", 0.0)
    monkeypatch.setattr(proof, "widest", lambda *_: None)
    looks = []
    is_right = _entries.Entry.is_right
    monkeypatch.setattr(_entries.Entry, "is_right", lambda *a: looks.append(1) or is_right(*a))
    f = tj.jit(lambda x, t: x / jnp.sum(x) + 0.9 ** t.astype(jnp.float32))
    for call, (i, size, expected) in enumerate(
        [(None, 1, 0), (3, 1, 1), (4, 1, 1), (None, 1, 1), (None, 15, 2), (5, 1, 2), (6, 15, 2)]
    ):
        f(size * (MANY if i is None else MANY.at[i].set(0.0)), jnp.int32(3))
        assert len(looks) == expected, call


def adam(state, batch):
    """A step of a fit whose moments begin with zeros; no bound says that nothing is too large."""
    p, m, v, t = state
    g = jax.grad(lambda p: jnp.mean((jnp.tanh(batch * p[0]) @ p[1] - p[2]) ** 2))(p)
    t = t + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    first, second = 1 - 0.9 ** t.astype(jnp.float32), 1 - 0.999 ** t.astype(jnp.float32)
    moved = lambda p, m, v: p - 1e-3 * (m / first) / (jnp.sqrt(v / second) + 1e-8)
    return jax.tree.map(moved, p, m, v), m, v, t


def test_training_is_hardly_ever_looked_at(monkeypatch):
    """The second moments grow a thousand times in a thousand steps, and gradients fall."""
    monkeypatch.setattr(_entries, "DEAR", 0.0)
    looks = []
    is_right = _entries.Entry.is_right
    monkeypatch.setattr(_entries.Entry, "is_right", lambda *a: looks.append(1) or is_right(*a))
    rng = np.random.default_rng(0)
    p = [jnp.asarray(rng.normal(size=n), jnp.float32) for n in (32, 32, ())]
    zeros = jax.tree.map(jnp.zeros_like, p)
    f, g = tj.jit(adam), jax.jit(adam)
    state = other = (p, zeros, zeros, jnp.int32(0))
    for _ in range(1000):
        batch = jnp.asarray(rng.normal(size=(8, 32)), jnp.float32)
        state, other = f(state, batch), g(other, batch)
    same = map(np.array_equal, *map(jax.tree.leaves, (state, other)))
    assert all(same)
    assert len(f.plans) == 1
    assert len(looks) <= 8


@pytest.mark.parametrize("growth", [1.01, 1.03])
def test_a_state_that_moves_slowly_is_not_looked_at_from_the_beginning(growth, monkeypatch):
    monkeypatch.setattr(_entries, "DEAR", 0.0)
    f = tj.jit(lambda x, y: (x * y, jnp.sum(x / (1.5 - y * y))))
    seen = []
    covers = _entries.Entry.covers
    monkeypatch.setattr(_entries.Entry, "covers", lambda *a: seen.append(1) or covers(*a))
    x, y, want = jnp.ones(4, jnp.float32), jnp.float32(growth), 1.0
    for _ in range(600):
        x, _ = f(x, y)
        want *= float(np.float32(growth))
    np.testing.assert_allclose(x, want, rtol=1e-3)
    assert len(seen) <= 100
