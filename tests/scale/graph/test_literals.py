"""Constants that JAX rounds to 0 or inf while it traces: right in any order of calls.

Every program is compared with itself in float64. Programs are made anew for every order, since what
is tested is what JAX remembers of their helpers.
"""

import contextlib
import cProfile
import functools
import sys
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj

pytestmark = pytest.mark.core

HBAR2 = 1.112e-68  # 0 in float32, as is every square of Planck's constant
HUGE = 8.99e67  # inf in float32
SIZES = (1e20, 3e17, 2e22, 1e20, 5e18)
RELATIVE = {jnp.float32: 1e-5, jnp.bfloat16: 3e-2}


@pytest.fixture(autouse=True)
def as_users_have_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def helped(body, wrap=jax.jit, factor=1e30):
    """What makes a program anew whose helper has a constant."""

    def make(dtype):
        helper = wrap(lambda k: body(k))
        return lambda k: helper(k).astype(k.dtype) * factor

    return make


def helper_of_a_helper(dtype):
    inner = jax.jit(lambda k: HBAR2 * k)
    outer = jax.jit(lambda k: inner(k) * k)
    return lambda k: outer(k) * 1e30


def scanned(dtype):
    def body(c, k):
        return c + HBAR2 * k**2 * 1e30, None

    return lambda k: lax.scan(body, jnp.zeros((), k.dtype), jnp.stack([k, k]))[0]


def scanned_results(dtype):
    def body(c, k):
        return c, HBAR2 * k * c

    return lambda k: lax.scan(body, k, jnp.stack([k, k]))[1].sum() * 1e30


def while_loop(dtype):
    more = lambda state: state[0] < 3
    body = lambda state: (state[0] + 1, state[1] + HBAR2 * 1e60)
    return lambda k: lax.while_loop(more, body, (0, k * 1e-28))[1]


def counted_loop(dtype):
    body = lambda i, c: c + HBAR2 * (c * 1e20) * 1e48
    return lambda k: lax.fori_loop(0, 2, body, k)


def branch(dtype):
    yes = lambda k: HBAR2 * k * k
    return lambda k: lax.cond(k > 0, yes, lambda k: k, k) * 1e30


def one_of_three(dtype):
    branches = [lambda k: k, lambda k: HBAR2 * k * k, lambda k: k / HUGE]
    return lambda k: lax.switch(1, branches, k) * 1e30


def own_derivative(dtype):
    @jax.custom_jvp
    def square(k):
        return HBAR2 * k * k

    @square.defjvp
    def _(primals, tangents):
        return square(*primals), 2 * HBAR2 * primals[0] * tangents[0]

    helper = jax.jit(square)
    return lambda k: helper(k) * 1e30


def own_pullback(dtype):
    @jax.custom_vjp
    def square(k):
        return HBAR2 * k * k

    square.defvjp(lambda k: (square(k), k), lambda k, bar: (2 * HBAR2 * k * bar,))
    helper = jax.jit(square)
    return lambda k: helper(k) * 1e30


def checkpointed_loop(dtype):
    @jax.checkpoint
    def body(c, k):
        return c + HBAR2 * k * k * 1e30, None

    return lambda k: lax.scan(body, jnp.zeros((), k.dtype), jnp.stack([k, k]))[0]


def mapped(dtype):
    helper = jax.jit(lambda k: HBAR2 * k**2)
    return lambda k: jax.vmap(helper)(jnp.stack([k, k])).sum() * 1e30


def mapped_one_by_one(dtype):
    body = lambda k: HBAR2 * k**2
    return lambda k: lax.map(body, jnp.stack([k, k])).sum() * 1e30


def closed_over_number(dtype):
    k = jnp.asarray(1e20, dtype)
    return lambda c: c * 1e-20 * (HBAR2 * k**2) * 1e30


def closed_over_in_a_helper(dtype):
    k = jnp.asarray([1e20, 2e20], dtype)
    helper = jax.jit(lambda c: c * (HBAR2 * k**2).sum())
    return lambda c: helper(c) * 1e10


def two_numbers_beside_a_closed_over_array(dtype):
    """Both are 0 in float32, so only who keeps each of them knows which is which."""
    k = jnp.asarray(1e20, dtype)
    helper = jax.jit(lambda c: c * (HBAR2 * k**2) + c * (3 * HBAR2 * k**2))
    return lambda c: helper(c) * 1e10


def closed_over_in_a_loop(dtype):
    k = jnp.asarray(1e20, dtype)
    body = lambda i, c: c + HBAR2 * k * k * 1e40
    return lambda c: lax.fori_loop(0, 2, body, c * 1e-20)


def static_number(dtype):
    helper = jax.jit(lambda c, k: c * k * k, static_argnums=0)
    return lambda k: helper(HBAR2, k) * 1e30


def number_as_argument(dtype):
    helper = jax.jit(lambda c, k: c * k * k)
    return lambda k: helper(HBAR2, k) * 1e30


def carried_number(dtype):
    body = lambda i, c: c * 1e20
    return lambda k: k * lax.fori_loop(0, 2, body, jnp.asarray(HBAR2, k.dtype)) * 1e10


def power_of_planck(dtype):
    h = 6.62607015e-34
    helper = jax.jit(lambda k: h**2 / (8 * k))
    return lambda k: helper(k) * k * 1e30 * k


def partly_bound(dtype):
    helper = jax.jit(functools.partial(lambda c, k: c * k * k, HBAR2))
    return lambda k: helper(k) * 1e30


def constant_of_a_rule(dtype):
    @tj.operation
    def squared(k):
        return HBAR2 * k * k

    @squared.natural_rule
    def squared_rule(k):
        def squared_pullback(bar):
            return 2 * HBAR2 * k * bar

        return squared(k), squared_pullback

    return lambda k: squared(k) * 1e30


def numpy_number(dtype):
    planck = np.sqrt(np.float64(HBAR2)) * np.float64(1e-20)
    return helped(lambda k: planck * k * k, factor=1e20)(dtype)


def numpy_array(dtype):
    squares = np.array([HBAR2, 2 * HBAR2])
    return helped(lambda k: (squares * k * k).sum())(dtype)


PROGRAMS = {
    "jitted_helper": helped(lambda k: HBAR2 * k**2),
    "checkpointed": helped(lambda k: HBAR2 * k**2, jax.checkpoint),
    "compiled_helper": helped(lambda k: HBAR2 * k**2, tj.jit),
    "compiled_gradient": helped(jax.grad(lambda k: HBAR2 * k**3), tj.jit),
    "array_of_numbers": helped(lambda k: (jnp.array([HBAR2, 2 * HBAR2]) * k * k).sum()),
    "array_of_a_dtype": helped(lambda k: (jnp.array([HBAR2, 2 * HBAR2], k.dtype) * k * k).sum()),
    "filled_like": helped(lambda k: jnp.full_like(k, HBAR2) * k * k),
    "filled": helped(lambda k: (jnp.full((2,), HBAR2, k.dtype) * k * k).sum()),
    "chosen": helped(lambda k: jnp.where(k > 0, HBAR2, k) * k * k),
    "written_into": helped(lambda k: (jnp.zeros(2, k.dtype).at[1].set(HBAR2) * k * k).sum()),
    "over_a_huge_number": helped(lambda k: k * k / HUGE),
    "subnormal": helped(lambda k: 1.1e-41 * k * k, factor=1e3),
}
OTHERS = [
    helper_of_a_helper, scanned, scanned_results, while_loop, counted_loop, branch, one_of_three,
    own_derivative, own_pullback, checkpointed_loop, mapped, mapped_one_by_one, closed_over_number,
    closed_over_in_a_helper, two_numbers_beside_a_closed_over_array, closed_over_in_a_loop,
    static_number, number_as_argument, carried_number, power_of_planck, partly_bound,
    constant_of_a_rule,
    numpy_number, numpy_array,
]  # fmt: skip
PROGRAMS |= {f.__name__: f for f in OTHERS}


def exact(make, size, gradient=False):
    with jax.enable_x64(True):
        f = make(jnp.float64)
        return float((jax.grad(f) if gradient else f)(jnp.asarray(size, jnp.float64)))


# -- orders of calls: each calls what it is given to check -----------------------------------------


def fresh(f, x, check):
    check(tj.jit(f)(x), x)


def later_calls(f, x, check):
    compiled = tj.jit(f)
    for size in SIZES:
        x = jnp.asarray(size, x.dtype)
        check(compiled(x), x)


@contextlib.contextmanager
def as_in_plain_jax():
    """Warnings of plain JAX: NumPy's, of a cast to inf, and that nothing was planned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.filterwarnings("ignore", ".*called under a trace of JAX", tj.errors.ScaleWarning)
        yield


def after_plain_jax(f, x, check):
    with as_in_plain_jax():
        jax.jit(f)(x)
    check(tj.jit(f)(x), x)


def after_another(f, x, check):
    tj.jit(lambda x: f(x) + 1)(x)
    check(tj.jit(f)(x), x)


def after_a_look(f, x, check):
    compiled = tj.jit(f)
    tj.scale_graph(f)(x)
    tj.scale_graph(compiled)(x)
    check(compiled(x), x)


def nested(f, x, check):
    inner = tj.jit(f)
    inner(x)
    check(tj.jit(lambda x: inner(x) * 1)(x), x)


def after_eager(f, x, check):
    """Eager JAX fills the caches of helpers and of loops."""
    with as_in_plain_jax():
        f(x)
        jax.vmap(f)(x[None])
    check(tj.jit(f)(x), x)


ORDERS = [fresh, later_calls, after_plain_jax, after_another, after_a_look, nested, after_eager]


@pytest.mark.parametrize("order", ORDERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_exact_in_any_order_of_calls(name, order):
    make = PROGRAMS[name]

    def check(got, x):
        np.testing.assert_allclose(float(got), exact(make, float(x)), rtol=1e-5)

    order(make(jnp.float32), jnp.float32(1e20), check)


NUMBERS = [p for p in PROGRAMS if p not in ("while_loop", "one_of_three", "numpy_array")]


@pytest.mark.parametrize("name", NUMBERS)
def test_gradients_after_values(name):
    make, x = PROGRAMS[name], jnp.float32(1e20)
    f = make(jnp.float32)
    with as_in_plain_jax():
        jax.jit(f)(x)
    tj.jit(f)(x)
    with as_in_plain_jax():
        want = exact(make, float(x), gradient=True)
    np.testing.assert_allclose(float(tj.jit(jax.grad(f))(x)), want, rtol=1e-5)


def test_numpys_arrays_in_float64_mode():
    """Python numbers are float64 there, and what is crushed is the cast to float32."""
    helper = jax.jit(lambda k: HBAR2 * k**2)
    with jax.enable_x64(True):
        x = jnp.float32(1e20)
        helper(x)
        got = tj.jit(lambda k: helper(k) * 1e30)(x)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(float(got), 111.2, rtol=1e-5)


OF_HALVES = ["jitted_helper", "scanned", "branch", "closed_over_number", "filled_like"]


@pytest.mark.parametrize("name", OF_HALVES)
def test_values_in_bfloat16_are_exact_after_a_plain_call(name):
    make, x = PROGRAMS[name], jnp.bfloat16(1e20)
    f = make(jnp.bfloat16)
    f(x)
    np.testing.assert_allclose(float(tj.jit(f)(x)), exact(make, float(x)), rtol=3e-2)


def test_float16_calls_of_one_function():
    """Newton's constant is 0 in float16; every call has other magnitudes."""
    newton = tj.jit(lambda a, b, r: 6.67e-11 * a * b / r**2 * 1e8)
    for a, b, r in ((70, 60, 1), (6e4, 5e4, 30), (3, 2, 0.01), (1e-3, 5e4, 0.1), (70, 60, 2)):
        args = [jnp.float16(x) for x in (a, b, r)]
        want = 6.67e-11 * float(args[0]) * float(args[1]) / float(args[2]) ** 2 * 1e8
        np.testing.assert_allclose(float(newton(*args)), want, rtol=1e-2)


def test_integers_in_float16():
    for f in (lambda x: x * 1000000 / 1e5, lambda x: jnp.full_like(x, 10**6) * x / 1e5):
        np.testing.assert_allclose(float(tj.jit(f)(jnp.float16(70))), 700, rtol=2e-3)


def test_threads_have_lost_constants_of_their_own():
    """Each thread watches its own traces; a helper is shared by all."""
    helper = jax.jit(lambda k: HBAR2 * k**2)
    found = {}

    def work(i):
        with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
            found[i] = float(tj.jit(lambda k: helper(k) * 10.0 ** (28 + i))(jnp.float32(1e20)))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        np.testing.assert_allclose(found[i], 1.112 * 10.0**i, rtol=1e-5)


def test_how_often_a_program_is_traced():
    """Once; twice if JAX remembers a helper with a zero, and that zero is known from then on."""
    count = []

    def traced(f):
        def counted(x):
            count.append(1)
            return f(x)

        count.clear()
        tj.jit(counted)(jnp.float32(1e20))
        return len(count)

    assert traced(lambda x: jnp.maximum(x, 0.0) + jnp.zeros(3)) == 1
    assert traced(lambda x: HBAR2 * x * x) == 1
    helper = jax.jit(lambda x: jnp.where(x > 0, x, 0.0))
    helper(jnp.float32(1e20))
    assert traced(lambda x: helper(x) + 1) == 2
    assert traced(lambda x: helper(x) + 2) == 1


def test_zeros_of_all_kinds_cost_no_second_trace():
    """Each is seen to be the number that was written."""
    count = []

    def f(x):
        count.append(1)
        rest = jnp.where(x > 0, x, 0.0) + jnp.full(2, -0.0) + jnp.asarray([0, 1], x.dtype)
        return rest.at[0].set(0) * jnp.array(0.0) + jnp.zeros(2).at[1].add(HBAR2 * x * x)

    np.testing.assert_allclose(tj.jit(f)(jnp.float32(1e20))[1], 1.112e-28, rtol=1e-5)
    assert len(count) == 1


def is_monitored():
    return hasattr(sys, "monitoring") and sys.monitoring.get_tool(3) == "tanjax"


def test_only_what_may_hold_zeros_is_watched():
    """A watch makes a trace longer; NumPy's arrays need it, whose casts JAX keeps."""
    watched = []

    def seen(x):
        watched.append(sys.getprofile() is not None or is_monitored())
        return x * 2.0

    inner, array = jax.jit(lambda x: x + 0.0), np.ones(2)
    needed = lambda x: seen(x) * HBAR2, lambda x: seen(inner(x)), lambda x: seen(x) * array
    for f in (seen, jax.vmap(seen), *needed):
        tj.jit(f)(jnp.ones(2, "float32"))
    assert watched == [False, False, True, True, True]


@pytest.mark.parametrize(("a", "b"), [(HBAR2, 0.0), (0.0, HBAR2), (HBAR2, 3 * HBAR2)])
def test_numbers_beside_zeros(a, b):
    """Which 0 was 0: a number that is lost is not taken for another that was written so."""
    k = jnp.float32(1e20)
    filled = lambda x: jnp.stack([jnp.full((), a, "float32"), jnp.full((), b, "float32")]) * x * x
    np.testing.assert_allclose(tj.jit(filled)(k), np.array([a, b]) * 1e40, rtol=1e-5)
    summed = lambda x: a * x * x + b * x * x
    np.testing.assert_allclose(tj.jit(summed)(k), (a + b) * 1e40, rtol=1e-5)


UNDER_A_PROFILER = ["jitted_helper", "branch", "scanned", "filled_like", "filled", "numpy_number"]


@pytest.mark.parametrize("name", UNDER_A_PROFILER)
def test_another_profiler_goes_on(name):
    make, events, x = PROGRAMS[name], [], jnp.float32(1e20)
    profiler = lambda frame, event, arg: events.append(frame.f_code.co_name)
    f = make(jnp.float32)
    sys.setprofile(profiler)
    try:
        got = tj.jit(f)(x)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    np.testing.assert_allclose(float(got), exact(make, 1e20), rtol=1e-5)
    assert f.__code__.co_name in events


@pytest.mark.parametrize("name", UNDER_A_PROFILER)
def test_under_a_profiler_in_c(name):
    """From Python 3.12 on it does not mind ours; before, what it hides is said."""
    make = PROGRAMS[name]
    f = tj.jit(make(jnp.float32))
    with warnings.catch_warnings(record=True) as said, cProfile.Profile():
        warnings.simplefilter("always")
        is_blind = sys.getprofile() is not None
        got = float(f(jnp.float32(1e20)))
    if is_blind:
        assert any("a profiler is running" in str(w.message) for w in said)
    else:
        assert not said
        np.testing.assert_allclose(got, exact(make, 1e20), rtol=1e-5)


def test_numpy_arrays_that_are_both_zero():
    one, other = np.array([1e-50, 1e-60]), np.array([1e-55, 1e-52])
    f = lambda x: (x * one) * 1e30 + (x * other) * 1e35
    want = one * 1e50 + other * 1e55
    np.testing.assert_allclose(tj.jit(f)(jnp.float32(1e20)), want, rtol=1e-5)


def test_a_lost_constant_names_its_line():
    """JAX keeps its cast of a NumPy array with the array: two of them are the same zeros."""
    one, other = np.array([1e-50, 1e-60]), np.array([1e-55, 1e-52])
    f = lambda x: lax.concatenate([one, other], 0) * x
    jax.jit(f)(jnp.float32(1.0))
    with pytest.warns(tj.errors.ScaleWarning, match=r"constant \(.*test_literals.py:\d+"):
        tj.jit(f)(jnp.float32(1.0))


def test_numbers_that_numpy_loses_itself_are_no_constants():
    """What the user's own NumPy rounds is as it was written; no warning, no other program."""
    f = lambda x: x * np.float32(np.exp(-1000.0)) + np.float32(1e-20) * np.float32(1e-30)
    assert tj.jit(f)(jnp.float32(1.0)) == 0
    assert not tj.scale_graph(f)(jnp.float32(1.0)).plan.notes
