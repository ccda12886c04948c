"""Random programs on random magnitudes, against plain JAX where that is right, else float64.

Where every number of a program fits in float32, values and gradients must have the bits of
`jax.jit`. Where some do not, but the results do, they must be as exact as float32 allows: the error
is compared with that of runs in float64 in which every result is shaken by a rounding error. Only
where some number cannot be held may there be a warning.
"""

import warnings

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings, strategies as st

import random_programs as rp
import tanjax as tj
from random_programs import Step

ULPS = 8  # of the results
NOISE = 8  # times the largest error of the shaken runs, which are few
SPREAD = 0.6  # of what an exponent holds, for the numbers of one array: there are others beside it


def fits(x, dtype):
    """Whether every number is zero or normal in a dtype."""
    info, size = jnp.finfo(dtype), np.abs(x)
    return bool(np.all((size == 0) | ((size >= info.smallest_normal) & (size <= 0.99 * info.max))))


def can_be_held(x, dtype, spread):
    """Whether some exponent holds all numbers, with room to spare."""
    size, info = np.abs(x), jnp.finfo(dtype)
    size = size[size != 0]
    most = 2.0 ** (spread * (info.maxexp - info.minexp))
    return not size.size or bool(1e-290 < size.min() <= size.max() < min(1e290, size.min() * most))


def left_the_range(plain, exact):
    """Whether XLA has joined denominators (`x / y / z`) to a number that the program has not."""
    return bool(np.any((np.isfinite(plain) != np.isfinite(exact)) | ((plain == 0) & (exact != 0))))


def wide(f, args, **options):
    args = [x.astype(np.float64) for x in args]
    return rp.wide(jax.make_jaxpr(f)(*args), args, **options)


def with_gradient(program, args):
    """The last results of a program that fit in the dtype, and a gradient that does."""
    dtype, run = args[0].dtype, rp.results(program)
    outputs = wide(run, args).outputs
    places = [i for i, x in enumerate(outputs) if fits(x, dtype) and np.any(x)][-2:]
    if not places:
        return None
    loss = lambda *a: jnp.sum(run(*a)[places[-1]])
    with np.errstate(all="ignore"):
        slopes = wide(jax.grad(loss, (0, 1, 2)), args).outputs
        sizes = [np.max(np.abs(g)) for g in slopes]
    sizes = [g for g in sizes if np.isfinite(g) and g]
    if not sizes:
        return lambda *a: [run(*a)[i] for i in places]
    top = np.log10(float(jnp.finfo(dtype).max)) * 0.8
    factor = float(np.asarray(10.0 ** np.clip(-np.log10(sizes[0]).round(), -top, top), dtype))
    gradient = jax.grad(lambda *a: loss(*a) * factor, (0, 1, 2))
    return lambda *a: ([run(*a)[i] for i in places], gradient(*a))


def assert_right(program, powers, seed, dtype=np.float32, spread=SPREAD):
    """Compare one program on one set of inputs. **Returns:** which of the two laws applied."""
    args = rp.inputs(powers, seed, dtype)
    f = with_gradient(program, args)
    if f is None:
        return "no result fits"
    exact = wide(f, args)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        results = jax.tree.leaves(tj.jit(f)(*args))
    if all(fits(x, dtype) for x in exact.seen):
        plain = jax.tree.leaves(jax.jit(f)(*args))
        if not any(map(left_the_range, plain, exact.outputs)):
            for got, want in zip(results, plain, strict=True):
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)
            assert not said
            return "in range"
    if not all(can_be_held(x, dtype, spread) for x in exact.seen):
        return "cannot be held"
    assert not said, said[0].message
    digits = jnp.finfo(dtype).nmant
    shaken = [
        wide(f, args, shaken=np.random.default_rng(k), digits=digits).outputs for k in range(4)
    ]
    for i, got in enumerate(results):
        want = exact.outputs[i]
        noise = np.max([np.abs(s[i] - want) for s in shaken], axis=0)
        tolerance = NOISE * noise + ULPS * 2.0**-digits * np.abs(want)
        # What rounding alone leaves fewer than two digits of is no result. Just above the smallest
        # normal number a sum has lost terms that no exponent of a value could save.
        size, info = np.abs(want), jnp.finfo(dtype)
        normal = (size >= 2.0**6 * float(info.smallest_normal)) & (size <= 0.99 * float(info.max))
        counts = (noise <= 1e-2 * size) & (normal | (size == 0))
        error = np.abs(np.asarray(got, np.float64) - want)
        assert np.all((error <= tolerance) | ~counts), f"result {i}: {got}, exactly {want}"
    return "out of range"


# Compilation is slow, and smaller examples are found by compiling many: without `phases` they are.
@settings(max_examples=15, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(rp.programs, st.tuples(rp.powers, rp.powers, rp.powers), st.integers(0, 9))
def test_random_programs(program, powers, seed):
    hypothesis.event(assert_right(program, powers, seed))


# Programs that went wrong once: (operation, operands, constant), powers of ten, seed.
FOUND = {
    "overflow to nan": ([("dot", (4, 1), 1.0), ("rsqrt", (1,), 1.0)], (28, 21, 25), 2),
    "underflow in a loop": (
        [("backward_scan", (4, 4), 2.5e-14), ("of", (3,), 3.3e26), ("sub", (3, 5), 1.0),
         ("sqrt", (6,), 1.0), ("outer", (1, 6), 1.0)],
        (-13, -19, 21), 3,
    ),
    "little room": (
        [("jit", (3, 1), 33000.0), ("rsqrt", (3,), 1.0), ("loop", (1, 2), 7.7e-27),
         ("sin", (6,), 3.3e29), ("max", (2,), 1.0), ("backward_scan", (1, 5), 1e-24)],
        (11, -22, -11), 1,
    ),
    "quotient and product by constants": (
        [("over", (5,), 7.7e-29), ("where", (1, 4), 7.7e14), ("jit", (1, 2), 3.3e-30)],
        (-24, 16, -9), 0,
    ),
    "joined denominators": (
        [("minimum", (2, 1), 2.5e-9), ("maximum", (1, 6), 3.3e-30), ("product_over", (5, 4), 1e10)],
        (1, -19, 3), 6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_programs_that_went_wrong(name):
    steps, powers, seed = FOUND[name]
    program = tuple(Step(op, places, float(np.float32(c))) for op, places, c in steps)
    assert_right(program, powers, seed, spread=0.95)


def test_the_comparison_notices_a_wrong_plan(monkeypatch):
    """Without exponents the programs above overflow; with any at all the bits are other ones."""
    program = (Step("square", (1,), 1.0), Step("div", (1, 2), 1.0))
    assert assert_right(program, (2, 2, 25), 0) == "out of range"
    with monkeypatch.context() as m:
        m.setattr(tj, "jit", jax.jit)
        with pytest.raises(AssertionError, match="result"):
            assert_right(program, (2, 2, 25), 0)
    assert assert_right(program, (2, 2, 2), 0) == "in range"
    with monkeypatch.context() as m:
        m.setattr(
            tj, "jit", lambda f: jax.jit(lambda *a: jax.tree.map(lambda x: x * 1.0000001, f(*a)))
        )
        with pytest.raises(AssertionError):
            assert_right(program, (2, 2, 2), 0)
