"""Later calls of a plan: what is looked at, when it is started, what it leaves behind."""

import itertools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.scale import proof
from tanjax.scale.numbers import Window, inside
from tanjax.scale.numbers._in_row import InRow
from tanjax.scale.numbers._together import Together
from tanjax.transforms import _entries
from tanjax.transforms._entries import others
from tanjax.transforms._making import doubts_of_plain

pytestmark = pytest.mark.core


def chain(x):
    """Out of range for numbers from 1e5 on, in range for those near 1."""
    return x * 1e20 * 1e15 * 1e-20


def arrays(rng):
    """Arrays of every dtype, from scalars to large ones, with zeros and non-finite entries."""
    dtypes = (np.float16, jnp.bfloat16, np.float32, np.float64, np.complex64, np.complex128)
    for dtype, shape in itertools.product(dtypes, [(), (3,), (2, 3), (0,), (5000,)]):
        a = np.exp2(rng.uniform(-8, 8, shape)) * rng.choice([-1.0, 1.0], shape)
        a = np.where(rng.random(shape) < 0.1, rng.choice([0.0, np.inf, np.nan], shape), a)
        with np.errstate(invalid="ignore"):
            yield jnp.asarray(a * (1j if np.issubdtype(dtype, np.complexfloating) else 1), dtype)


@pytest.fixture
def apart(monkeypatch):
    """Small arrays are looked at like large ones: by a program, not in one row on the host."""
    monkeypatch.setattr(InRow, "MOST", 0)


def checked_together(given, windows):
    together = Together(windows)
    together._calls = Together.EAGER
    found = together.inside(given)
    assert together._calls > Together.EAGER  # it was the compiled program that said so
    return found


def test_many_arrays_are_looked_at_together_as_one_by_one():
    rng = np.random.default_rng(0)
    given = list(arrays(rng))
    around = [Window(*sorted(rng.uniform(-10, 10, 2))) for _ in given]
    for x, window in zip(given, around, strict=True):
        assert checked_together([x], [window]) == inside(x, window), (x, window)
    assert checked_together(given, [Window(-9.0, 9.0)] * len(given))
    for i, x in enumerate(given):
        one_narrow = [Window(-9.0, 9.0)] * len(given)
        one_narrow[i] = Window(20.0, 30.0)
        nothing = not np.any(np.isfinite(np.asarray(x, complex)) & (np.asarray(x) != 0))
        assert checked_together(given, one_narrow) == nothing
        if i == 4:  # a compilation each
            break


@pytest.mark.usefixtures("apart")
def test_a_program_of_many_arguments_is_planned_again_when_one_leaves_its_window(monkeypatch):
    monkeypatch.setattr(Together, "EAGER", 2)
    f = tj.jit(lambda *xs: sum(map(chain, xs)))
    ones = [jnp.full(3, 1.0 + i, jnp.float32) for i in range(20)]
    for _ in range(5):
        f(*[x * 1.0 for x in ones])
    assert [p.identity for p in f.plans] == [True]
    far = [*ones[:-1], jnp.full(3, 1e6, jnp.float32)]
    np.testing.assert_allclose(f(*far), np.float32((190 + 1e6) * 1e15), rtol=1e-6)
    assert [p.identity for p in f.plans] == [True, False]


def test_a_result_that_was_started_before_its_argument_was_looked_at_does_not_count():
    f = tj.jit(chain)
    for size in (1.0, 2.0, 1e6, 3.0, 1e7, 4.0):
        np.testing.assert_allclose(f(jnp.float32(size)), np.float32(size * 1e15), rtol=1e-6)


@pytest.fixture
def dear(monkeypatch):
    """Programs that no proof covers, and too dear to be looked at on every call."""
    monkeypatch.setattr(_entries, "DEAR", 0.0)
    monkeypatch.setattr(proof, "widest", lambda *_: None)


@pytest.mark.usefixtures("dear")
def test_numbers_of_two_calls_are_no_numbers_of_a_third():
    """Each was harmless beside the other; together they leave the range."""
    f = tj.jit(lambda x, y: x * y / y)
    known = [(1e20, 1e-20), (1e-20, 1e20)]
    for x, y in [*known * 4, (1e20, 1e20)]:
        np.testing.assert_allclose(f(jnp.float32(x), jnp.float32(y)), np.float32(x), rtol=1e-6)


@pytest.mark.usefixtures("dear")
def test_numbers_far_from_those_that_were_seen_are_looked_at():
    f = tj.jit(lambda x: x**10 / x**9)
    for x in (*[1.0, 1.5] * 4, 1e4, 1.0, 1e-4):
        np.testing.assert_allclose(f(jnp.float32(x)), np.float32(x), rtol=1e-6)


@pytest.mark.usefixtures("dear")
def test_numbers_a_little_larger_are_looked_at_where_bounds_promise_nothing():
    """Three bits of `x` are twelve of its fourth power; `hypot` has a gradient without bounds."""
    f = tj.jit(jax.value_and_grad(lambda x, y: jnp.sum(jnp.hypot(y, x**4))))
    y = jnp.array([0.4, 0.54], jnp.float32)
    for x in (6.24e8, 6.3e8, 4.61e9):
        _, slope = f(jnp.array([8.9e-9, x], jnp.float32), y)
        np.testing.assert_allclose(slope, [0, 4 * x**3], rtol=1e-5, atol=1e-30)


@pytest.mark.usefixtures("dear")
@pytest.mark.parametrize("entries", [(), [0], [0, 1]])
def test_zeros_are_not_like_the_numbers_that_were_seen(entries):
    """They lie in every window, and a constant beside them is lost."""
    f = tj.jit(lambda x: jnp.sqrt(x * x + 1e-50) * 1e20)
    for size in (1.0, 1.1, 1.05, 0.0, 1.0, 0.0):
        x = np.ones(2 if entries else (), np.float32)
        x[entries] = size
        np.testing.assert_allclose(f(jnp.asarray(x)), np.maximum(x * 1e20, 1e-5), rtol=1e-6)


@pytest.mark.usefixtures("dear")
@pytest.mark.parametrize("shape", [(), (3,), (100,)])
@pytest.mark.parametrize("worst", [np.inf, np.nan])
def test_zeros_are_not_like_infinities_that_were_seen(worst, shape):
    """Of both no window has an end."""
    f = tj.jit(lambda x: x * 2.0 / jnp.sqrt(x * x + 1e-50))
    for size in (worst, -worst, 0.0):
        f(jnp.full(shape, size, jnp.float32))
    got = f(jnp.full(shape, 0.0, jnp.float32).at[...].set(-0.0))
    np.testing.assert_array_equal(got, np.zeros(shape))


@pytest.mark.usefixtures("dear")
def test_another_count_is_looked_at():
    f = tj.jit(lambda x, n: jnp.log(jax.lax.fori_loop(0, n, lambda i, c: 256.0 * c, x)))
    for n in (*[2, 3] * 4, 20, 3, 30):
        want = np.log(256.0) * n
        np.testing.assert_allclose(f(jnp.float32(1.0), jnp.int32(n)), want, rtol=1e-5)


@pytest.mark.usefixtures("dear")
def test_numbers_close_to_those_that_were_seen_are_not_looked_at_again():
    f = tj.jit(lambda x: x * x / x)
    for x in (1.0, 1.1, 1.2, 1.3, 1.2, 1.9, 0.8):
        f(jnp.float32(x))
    assert [(p.identity, p.grade, p.looks) for p in f.plans] == [(True, "guessed", 2)]


def test_effects_happen_once():
    seen = []

    def f(x):
        jax.debug.callback(lambda x: seen.append(float(x)), x)
        return chain(x)

    g = tj.jit(f)
    sizes = [1.0, 2.0, 1e6, 3.0]
    for size in sizes:
        g(jnp.float32(size))
    jax.effects_barrier()
    assert seen == sizes


def test_debug_nans_does_not_complain_of_results_that_do_not_count():
    def f(x):
        y = x * x
        y = y * y
        return (y * y * 0.5 - y * y) / y

    g = tj.jit(f)
    for size in (1.0, 2.0):
        g(jnp.float32(size))
    x = jnp.float32(1e6)
    assert np.isnan(jax.jit(f)(x))
    with jax.debug_nans(True):
        np.testing.assert_allclose(g(x), -0.5e24, rtol=1e-6)


@pytest.mark.parametrize("size", [1e5, 3e6])
def test_an_estimate_is_kept_for_the_same_arguments(size):
    f = tj.jit(lambda x: x * 2.0 + 1.0)
    x = jnp.linspace(1.0, 2.0, int(size), dtype=jnp.float32)
    for _ in range(3):
        assert f(x)[0] == 3.0
    assert f._compiled.last.program is not None


def test_each_argument_out_of_its_window_is_found_by_the_compiled_look():
    """Large ones, that are compared in slices, and small ones; too large, too small, inf, nan."""
    sizes, window = (3, 3, 1000, (1 << 14) + 5, 1 << 15), Window(-3.0, 3.0, True)
    dtypes = (jnp.float32, jnp.float16, jnp.float32, jnp.bfloat16, jnp.complex64)
    ones = [jnp.ones(size, dtype) for size, dtype in zip(sizes, dtypes, strict=True)]
    together = Together([window] * len(ones))
    together._calls = Together.EAGER
    assert together.inside(ones)
    for i, x in enumerate(ones):
        for where in {0, x.size // 2, x.size - 1}:
            for value, fits in ((-0.0, True), (7.9, True), (-9.0, False), (0.05, False),
                                (np.inf, False), (np.nan, False)):  # fmt: skip
                given = [*ones]
                given[i] = x.at[where].set(value)
                assert together.begin(given) is not None
                assert together.inside(given) is fits, (i, where, value)
    assert together._calls > Together.EAGER


def test_zeros_and_large_numbers_are_found_by_the_compiled_look_where_a_window_asks():
    ones = [jnp.ones(size, jnp.float32) for size in (3, 1 << 15, 3)]
    large = [ones[0], ones[1].at[77].set(-8.0), ones[2]]
    tiny = jnp.asarray(np.array([1e-45, 1.0, 1.0], np.float32))
    zeros = [ones[0].at[1].set(-0.0), ones[1].at[77].set(0.0), tiny]
    for i in range(3):
        nonzero = [Window(-200.0, 3.0, True, k == i) for k in range(3)]
        assert checked_together(ones, nonzero)
        assert checked_together(zeros, nonzero) is (i == 2)
        peaks = [3.0 if k == i else -math.inf for k in range(3)]
        wide = [Window(-1.0, 3.0, True, peak=p) for p in peaks]
        assert not checked_together(ones, wide)
        assert checked_together(large, wide) is (i == 1)
    below_all = [Window(-200.0, 3.0, True)]
    assert checked_together([jnp.array([0.0, -0.0, 1e-45, 8.0], jnp.float32)], below_all)
    assert not checked_together([jnp.array([0.0, 8.1], jnp.float32)], below_all)


def test_a_large_argument_is_looked_at_by_a_program_that_is_started_before_its_own(monkeypatch):
    order = []
    begin = Together.begin
    monkeypatch.setattr(Together, "begin", lambda *a: order.append("look") or begin(*a))
    f = tj.jit(chain)
    x = jnp.ones(1 << 19, jnp.float32)
    for _ in range(30):
        f(x * 1.0)
    entry = f._compiled._recent.entries[0]
    order.clear()
    program = entry.program
    entry.program = lambda *args: order.append("program") or program(*args)
    f(x * 1.0)
    assert order == ["look", "program"]
    np.testing.assert_allclose(f(x * 1e6)[0], 1e21, rtol=1e-6)


def test_the_very_arrays_of_the_last_call_are_recognised_in_dicts_and_lists(monkeypatch):
    f = tj.jit(lambda p: [chain(x) for x in p["a"]])
    p = {"a": [jnp.full(3, 1.0 + i, jnp.float32) for i in range(3)]}
    f(p), f(p), f(p)
    entry = f._compiled._recent.entries[0]
    looks = []
    covers = type(entry).covers
    monkeypatch.setattr(type(entry), "covers", lambda *a: looks.append(1) or covers(*a))
    f(p)
    assert not looks
    p["a"][2] = jnp.full(3, 1e6, jnp.float32)  # the same dict, another array in it
    np.testing.assert_allclose(f(p)[2], np.float32(1e21), rtol=1e-6)
    assert looks


def test_numbers_of_eight_bits_that_are_not_finite_are_seen():
    x = np.array([1.0, np.nan], jnp.float8_e4m3fn)
    assert inside(x, Window(-3.0, 3.0))
    assert not inside(x, Window(-3.0, 3.0, True))


def test_structured_arrays_in_quantities_are_planned_however_many_there_are():
    given = [tj.Unitful(tj.arrays.Diagonal(jnp.full(3, 2e30, jnp.float32)), "kg")] * 5
    f = tj.jit(lambda *qs: [q.stored.diag * q.stored.diag * 1e-30 for q in qs])
    np.testing.assert_allclose(f(*given)[4], 4e30, rtol=1e-6)


def groups(size):
    return {
        "b": {"x": tj.Unitful(jnp.full(3, size, jnp.float32), "m"), "n": jnp.float32(2.0)},
        "a": {"y": tj.Unitful(jnp.full(3, 2.0, jnp.float32), "s")},
        "c": tj.Unitful(jnp.float32(3.0), "m"),
    }


def test_nested_dicts_of_quantities_are_taken_apart():
    f = tj.jit(lambda d: {"v": d["b"]["x"] * d["b"]["n"] / d["a"]["y"], "c": d["c"]})
    for size in (1.0, 2.0, 3.0):
        out = f(groups(size))
        assert str(out["v"].unit) == str(tj.unit("m/s"))
        np.testing.assert_allclose(out["v"].value, size)
    assert "nested" in f._flat
    moved = groups(1.0)
    moved["b"]["x"] = tj.Unitful(jnp.full(3, 1.0, jnp.float32), "km")
    np.testing.assert_allclose(f(moved)["v"].to_value("m/s"), 1000.0, rtol=1e-6)
    # Another tree of the same leaves is another program.
    g = tj.jit(lambda d: sum(1 for x in d.values() if isinstance(x, dict)) * d["z"])
    q = [tj.Unitful(jnp.float32(i + 1.0), "m") for i in range(4)]
    assert g({"a": {"b": q[0], "c": q[1], "d": q[2]}, "z": q[3]}).value == 4.0
    assert g({"a": {"b": q[0], "c": q[1]}, "d": {"e": q[2]}, "z": q[3]}).value == 8.0


def test_other_windows_are_no_other_program():
    """They are its arguments: on an accelerator each would take as long as the first."""
    from tanjax.scale.numbers import _together

    given = [jnp.full(1234, 2.0, jnp.float32), jnp.full(77, 2.0, jnp.float16)]
    for i, low in enumerate((-3.0, 0.5, 1.5)):
        assert checked_together(given, [Window(low, 3.0)] * 2) == (low <= 1.0)
        if i == 0:
            count = _together._flags._cache_size()
    assert _together._flags._cache_size() == count


@pytest.mark.usefixtures("apart")
def test_a_look_that_is_done_often_rides_inside_the_program(monkeypatch):
    """One program is started instead of two; the bits of its results stay."""
    monkeypatch.setattr(Together, "EAGER", 2)
    monkeypatch.setattr(Together, "APART", 2)
    begun = []
    begin = Together.begin
    monkeypatch.setattr(Together, "begin", lambda *a: begun.append(1) or begin(*a))

    def step(weights, x):
        loss = lambda ws: sum(jnp.sum(jnp.tanh(x @ w) / (1.0 + w.sum())) for w in ws)
        return jax.grad(loss)(weights)

    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    f, plain = tj.jit(step), jax.jit(step)
    for _ in range(10):
        given = [draw(17, 17) for _ in range(20)], draw(33, 17)
        for a, b in zip(f(*given), plain(*given), strict=True):
            np.testing.assert_array_equal(a, b)
    assert 4 <= len(begun) < 10
    assert len(f.plans) == 1


@pytest.mark.usefixtures("apart")
def test_a_number_out_of_its_window_is_found_by_a_look_that_rides(monkeypatch):
    monkeypatch.setattr(Together, "EAGER", 1)
    monkeypatch.setattr(Together, "APART", 1)
    f = tj.jit(lambda given, k: {n: chain(x) * k for n, x in given.items()})
    draw = lambda i: {
        str(n): jnp.full(3, 1.0 + n + i, jnp.float32) * tj.unit("m") for n in range(20)
    }
    for i in range(12):
        f(draw(i), k=jnp.float32(1.0))
    program = f._compiled._recent.entries[0]
    strangers = program.strangers(jax.tree.leaves((draw(0), jnp.float32(3.0))))
    assert program.riding(strangers) is not None
    far = draw(0) | {"7": jnp.full(3, 1e6, jnp.float32) * tj.unit("m")}
    out = f(far, k=jnp.float32(2.0))
    np.testing.assert_allclose(out["7"].to_value("m"), np.float32(2e21), rtol=1e-6)
    np.testing.assert_allclose(out["6"].to_value("m"), np.float32(14e15), rtol=1e-6)
    same = draw(0)
    np.testing.assert_allclose(f(same, k=jnp.float32(1.0))["0"].to_value("m"), 1e15, rtol=1e-6)


@pytest.mark.parametrize("size", [3, 5000])
def test_many_numbers_in_a_row_ride_when_that_is_done_often(monkeypatch, size):
    """At first they are looked at in one row on the host; few numbers always are."""
    monkeypatch.setattr(Together, "EAGER", 1)
    monkeypatch.setattr(Together, "APART", 1)
    f = tj.jit(lambda given: [chain(x) for x in given])
    draw = lambda i: [jnp.full(size, 1.0 + n + i, jnp.float32) for n in range(20)]
    for i in range(12):
        f(draw(i))
    program = f._compiled._recent.entries[0]
    rides = program.riding(program.strangers(draw(0))) is not None
    assert rides == (size * 20 > InRow.SHORT)
    far = draw(0)
    far[7] = jnp.full(size, 1e6, jnp.float32)
    np.testing.assert_allclose(f(far)[7], np.full(size, 1e21), rtol=1e-6)


def test_arguments_that_are_always_others_are_remembered_now_and_then():
    f = tj.jit(lambda x: x * 2.0)
    for i in range(40):
        f(jnp.float32(i))
    same = jnp.float32(3.0)
    for _ in range(9):
        f(same)
    assert f._compiled.last.args is not None
    assert f._compiled.last.args[0] is same


def test_counts_of_other_orders_of_magnitude_are_other_counts():
    """Sixteen is no eight, though their first bits are the same."""
    counts = [0, 1, 7, 8, 15, 16, 32, 64, 1000, 1024, -8, -16]
    found = [others([jnp.int32(n)], [0]) for n in counts]
    assert len(set(found)) == len(counts)
    assert others([jnp.int32(1000)], [0]) == others([jnp.int32(1010)], [0])


@pytest.mark.parametrize(
    ("planned", "exponent", "differs"),
    [
        ([1.0, 2.0], 0, False),
        ([1.01, 2.0], 0, False),  # rounding may grow in a long loop
        ([1.0, 3.0], 0, True),
        ([1.0, np.nan], 0, False),  # the plan is no better
        ([0.25, 0.5], 2, False),
    ],
)
def test_plain_jax_is_doubted_where_a_plan_has_other_results(planned, exponent, differs):
    entry = SimpleNamespace(plan=SimpleNamespace(output_exponents=[exponent]))
    said = doubts_of_plain(entry, [jnp.array([1.0, 2.0])], [jnp.array(planned)])
    assert len(said) == differs
