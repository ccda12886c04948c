"""Later calls of a plan: what is looked at, when it is started, what it leaves behind."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.scale._measure import Together, Window, inside


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
    assert f._compiled.last is not None or f._compiled._last_weak is not None
