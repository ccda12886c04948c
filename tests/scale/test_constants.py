"""Constants that JAX rounds to 0 or inf while it traces: right in any order of calls.

Every program is compared with itself in float64. Programs are made anew for every order, since what
is tested is what JAX remembers of their helpers.
"""

import functools
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj
from tanjax import _compat
from tanjax.scale import _literals

HBAR2 = 1.112e-68  # 0 in float32, as is every square of Planck's constant
HUGE = 8.99e67  # inf in float32
SIZES = (1e20, 3e17, 2e22, 1e20, 5e18)
RELATIVE = {jnp.float32: 1e-5, jnp.bfloat16: 3e-2}


@pytest.fixture(autouse=True, params=[False], ids=[""])
def as_users_have_it(request):
    with jax.enable_x64(request.param), jax.numpy_dtype_promotion("standard"):
        yield


def jitted_helper(dtype):
    helper = jax.jit(lambda k: HBAR2 * k**2)
    return lambda k: helper(k) * 1e30


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


def checkpointed(dtype):
    helper = jax.checkpoint(lambda k: HBAR2 * k**2)
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


def closed_over_in_a_loop(dtype):
    k = jnp.asarray(1e20, dtype)
    body = lambda i, c: c + HBAR2 * k * k * 1e40
    return lambda c: lax.fori_loop(0, 2, body, c * 1e-20)


def numpy_number(dtype):
    planck = np.sqrt(np.float64(HBAR2)) * np.float64(1e-20)
    helper = jax.jit(lambda k: planck * k * k)
    return lambda k: helper(k).astype(k.dtype) * 1e20


def numpy_array(dtype):
    squares = np.array([HBAR2, 2 * HBAR2])
    helper = jax.jit(lambda k: (squares * k * k).sum())
    return lambda k: helper(k).astype(k.dtype) * 1e30


def array_of_numbers(dtype):
    helper = jax.jit(lambda k: (jnp.array([HBAR2, 2 * HBAR2]) * k * k).sum())
    return lambda k: helper(k).astype(k.dtype) * 1e30


def array_of_a_dtype(dtype):
    helper = jax.jit(lambda k: (jnp.array([HBAR2, 2 * HBAR2], k.dtype) * k * k).sum())
    return lambda k: helper(k) * 1e30


def filled_like(dtype):
    helper = jax.jit(lambda k: jnp.full_like(k, HBAR2) * k * k)
    return lambda k: helper(k) * 1e30


def filled(dtype):
    helper = jax.jit(lambda k: jnp.full((2,), HBAR2, dtype) * k * k)
    return lambda k: helper(k).sum() * 1e30


def chosen(dtype):
    helper = jax.jit(lambda k: jnp.where(k > 0, HBAR2, k) * k * k)
    return lambda k: helper(k) * 1e30


def written_into(dtype):
    helper = jax.jit(lambda k: (jnp.zeros(2, dtype).at[1].set(HBAR2) * k * k).sum())
    return lambda k: helper(k) * 1e30


def over_a_huge_number(dtype):
    helper = jax.jit(lambda k: k * k / HUGE)
    return lambda k: helper(k) * 1e30


def subnormal(dtype):
    helper = jax.jit(lambda k: 1.1e-41 * k * k)
    return lambda k: helper(k) * 1e3


def static_number(dtype):
    helper = jax.jit(lambda c, k: c * k * k, static_argnums=0)
    return lambda k: helper(HBAR2, k) * 1e30


def number_as_argument(dtype):
    helper = jax.jit(lambda c, k: c * k * k)
    return lambda k: helper(HBAR2, k) * 1e30


def carried_number(dtype):
    body = lambda i, c: c * 1e20
    return lambda k: k * lax.fori_loop(0, 2, body, jnp.asarray(HBAR2, dtype)) * 1e10


def power_of_planck(dtype):
    h = 6.62607015e-34
    helper = jax.jit(lambda k: h**2 / (8 * k))
    return lambda k: helper(k) * k * 1e30 * k


def compiled_helper(dtype):
    helper = tj.jit(lambda k: HBAR2 * k**2)
    return lambda k: helper(k) * 1e30


def compiled_gradient(dtype):
    helper = tj.jit(jax.grad(lambda k: HBAR2 * k**3))
    return lambda k: helper(k) * 1e30


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


PROGRAMS = [
    jitted_helper, helper_of_a_helper, scanned, scanned_results, while_loop, counted_loop, branch,
    one_of_three, own_derivative, own_pullback, checkpointed, checkpointed_loop, mapped,
    mapped_one_by_one, closed_over_number, closed_over_in_a_helper, closed_over_in_a_loop,
    numpy_number, numpy_array, array_of_numbers, array_of_a_dtype, filled_like, filled, chosen,
    written_into, over_a_huge_number, subnormal, static_number, number_as_argument, carried_number,
    power_of_planck, compiled_helper, compiled_gradient, partly_bound, constant_of_a_rule,
]  # fmt: skip


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


def after_plain_jax(f, x, check):
    jax.jit(f)(x)
    jax.jit(jax.grad(f))(x)
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
    f(x)
    jax.vmap(f)(x[None])
    check(tj.jit(f)(x), x)


ORDERS = [fresh, later_calls, after_plain_jax, after_another, after_a_look, nested, after_eager]


@pytest.mark.parametrize("order", ORDERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_values(make, order):
    def check(got, x):
        np.testing.assert_allclose(float(got), exact(make, float(x)), rtol=1e-5)

    order(make(jnp.float32), jnp.float32(1e20), check)


NO_REVERSE_MODE = (while_loop,)
NUMBERS = [p for p in PROGRAMS if p not in NO_REVERSE_MODE]


@pytest.mark.parametrize("make", NUMBERS, ids=lambda f: f.__name__)
def test_gradients_after_values(make):
    f, x = make(jnp.float32), jnp.float32(1e20)
    jax.jit(f)(x)
    tj.jit(f)(x)
    want = exact(make, float(x), gradient=True)
    np.testing.assert_allclose(float(tj.jit(jax.grad(f))(x)), want, rtol=1e-5)
