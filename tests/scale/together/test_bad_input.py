"""Bad input to the planner: it gives what plain JAX gives, says what it could not, never fails.

The planner looks at numbers, so that it must stand every number; and whatever goes wrong in it, a
call that `jax.jit` can do is done.
"""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax._errors import ScaleWarning
from tanjax.scale import _plan
from tanjax.scale.graph import _literals
from tanjax.scale.laws._law import LAWS
from tanjax.transforms import _cases

pytestmark = pytest.mark.core

LARGE = 1e25


def square_over(x):
    return x * x / x


def full(size, dtype=jnp.float32, shape=(4,)):
    return jnp.full(shape, size, dtype)


def assert_same_bits(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def plan_of(f, *args):
    return tj.scale_graph(f)(*args).plan


# -- numbers that are none, or have no magnitude --------------------------------------------------

PROGRAMS = {
    "arithmetic": lambda x: (x * x, x + 1, x / 3, -x, x - x, x / x),
    "functions": lambda x: (jnp.sqrt(x), jnp.exp(x), jnp.log(x), jnp.sin(x), jnp.tanh(x), x**3),
    "selection": lambda x: (
        jnp.where(x > 1, x, 2.0),
        jnp.maximum(x, 0),
        jnp.sort(x),
        jnp.argmax(x),
    ),
    "reductions": lambda x: (x.sum(), x.max(), x.mean(), x @ x, jnp.nansum(x), jax.nn.softmax(x)),
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c * 0.5 + x, x),
    "gradient": jax.grad(lambda x: jnp.sum(jnp.where(jnp.isfinite(x), x * x, 0.0))),
}
STRANGE = {
    "nan": [np.nan, 1.0, 2.0, 3.0],
    "inf": [np.inf, -np.inf, 2.0, 3.0],
    "all nan": [np.nan] * 4,
    "all inf": [np.inf] * 4,
    "zeros": [0.0] * 4,
    "minus zero": [-0.0, 0.0, -0.0, 1.0],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_numbers_without_a_magnitude(program):
    """Nothing here leaves the range by itself, so the bits are those of plain JAX."""
    f, plain = tj.jit(PROGRAMS[program]), jax.jit(PROGRAMS[program])
    for numbers in STRANGE.values():
        x = jnp.array(numbers, jnp.float32)
        assert_same_bits(f(x), plain(x))


@pytest.mark.parametrize("name", ["nan", "inf", "all nan"])
def test_numbers_without_a_magnitude_among_large_ones(name):
    """The finite entries are right, the others what plain JAX makes of them."""
    x = jnp.array(STRANGE[name], jnp.float32) * LARGE
    got = tj.jit(lambda x: x * x / LARGE)(x)
    np.testing.assert_allclose(got, np.asarray(x, float) ** 2 / LARGE, rtol=1e-6)


def test_zeros_that_become_numbers_are_planned_again():
    f = tj.jit(lambda x, y: x * x / (y + LARGE))
    assert (f(full(0.0), full(0.0)) == 0).all()
    np.testing.assert_allclose(f(full(LARGE), full(0.0)), full(LARGE), rtol=1e-6)
    assert (f(full(0.0), full(LARGE)) == 0).all()


def test_infinite_results_of_an_infinite_argument_are_not_planned_for_ever():
    f = tj.jit(square_over)
    for _ in range(8):
        assert np.isnan(f(full(np.inf))).all()
    assert len(f._compiled.plans) <= 2


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_integers_and_booleans_have_no_exponent(dtype):
    x = (
        jnp.array([0, 1, 1, 0], dtype)
        if dtype == "bool"
        else jnp.array([0, 1, 100, 255]).astype(dtype)
    )
    with jax.numpy_dtype_promotion("standard"):
        f = lambda x: (x * x, x + x, x / 3, jnp.sum(x), x > 0, x.astype(jnp.float32) ** 2)
        assert_same_bits(tj.jit(f)(x), jax.jit(f)(x))


# -- what no exponent can hold --------------------------------------------------------------------


def test_numbers_that_no_exponent_holds_together():
    """Reported, and plain floating point kept: it loses the small ones, and nothing else."""
    x = jnp.array([2e-5, 1.0, 6e4], jnp.float16)  # their squares are 2^62 apart, float16 holds 2^30
    f = lambda x: jnp.sqrt(x * x)
    plan = plan_of(f, x)
    assert any("no exponent" in note for note in plan.notes)
    plain = jax.jit(f)(x)
    lost = pytest.warns(tj.errors.ScaleWarning, match="no exponent of float16 holds every number")
    # Up to JAX 0.10 XLA takes the root of a square for `abs`: then there is nothing to warn of.
    with contextlib.nullcontext() if np.allclose(plain, x, rtol=2e-3, atol=0) else lost:
        got = tj.jit(f)(x)
    kept = np.isfinite(plain) & (plain != 0)
    np.testing.assert_allclose(np.asarray(got)[kept], np.asarray(x)[kept], rtol=2e-3)


def test_a_result_that_does_not_fit_is_as_in_plain_jax():
    f = lambda x: x * x
    for size in (LARGE, 1e-30):
        assert_same_bits(tj.jit(f)(full(size)), jax.jit(f)(full(size)))
    assert plan_of(f, full(LARGE)).identity


def test_a_callback_is_said_to_be_unknown_or_keeps_its_numbers():
    """A magnitude behind a callback is not known: exponent 0 there, and the plan is an estimate."""
    f = lambda x: jax.pure_callback(np.asarray, jax.typeof(x), x) * 2
    plan = plan_of(f, full(1.0))
    assert plan.is_estimate
    with pytest.warns(
        tj.errors.ScaleWarning, match="numbers of `pure_callback` at .* could not be looked"
    ):
        assert_same_bits(tj.jit(f)(full(1.0)), full(2.0))


# -- constants that tracing crushes ---------------------------------------------------------------


def test_a_constant_crushed_while_tracing_is_restored():
    """6.67e-11 is 0 in float16, and 6e24 is inf, before any graph is made."""
    m, r = jnp.float16(70.0), jnp.float16(6.3e4)
    want = 6.67e-11 * 6e24 * 70.0 / float(r) ** 2
    np.testing.assert_allclose(float(tj.jit(lambda x: 6.67e-11 * x * 1e10)(m)), 46.69, rtol=2e-3)
    got = tj.jit(lambda m, r: (6e24 * m) / (r * r) * 6.67e-11 * 1e-3)(m, r)
    np.testing.assert_allclose(float(got), want * 1e-3, rtol=4e-3)


OTHERS = [lambda x: jnp.sin(x) + 1, lambda x: x + 3.0, lambda x: x * 3.0 + x]


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("wide", OTHERS)
def test_a_constant_that_cannot_be_restored_is_reported(wide):
    """JAX keeps its casts of NumPy's arrays with them; in float64 this is another program."""
    one, other = np.array([1e-50, 1e-60]), np.array([1e-55, 1e-52])
    lost = lambda x: (jax.lax.concatenate([one, other], 0) * x)[0]
    f = lambda x: lost(x) if x.dtype == jnp.float32 else wide(x)
    x = jnp.float32(70.0)
    assert jax.jit(f)(x) == 0
    view = tj.scale_graph(f)(x)
    assert any("constant" in note for note in view.plan.notes)
    with pytest.warns(tj.errors.ScaleWarning, match="constant"):
        assert tj.jit(f)(x) == 0
    fine = plan_of(lambda x: x * 0.5, x)
    assert not fine.notes


# -- a planner that is wrong or broken ------------------------------------------------------------


def test_an_estimate_that_was_wrong_is_made_again(monkeypatch):
    """Bounds that say nothing is large let a program overflow: the results show it."""
    from tanjax.scale.graph._graph import Magnitude

    def harmless(graph, arguments, measured):
        return [Magnitude(-1.0, 1.0)] * len(graph.values)

    monkeypatch.setattr(_plan, "BUDGET", 0.0)
    monkeypatch.setattr(_plan, "bound", harmless)
    f = tj.jit(square_over)
    np.testing.assert_allclose(f(full(LARGE)), full(LARGE), rtol=1e-6)
    assert [p.is_estimate for p in f._compiled.plans] == [True, False]
    np.testing.assert_allclose(f(full(2 * LARGE)), full(2 * LARGE), rtol=1e-6)


def test_a_wrong_estimate_of_donated_arguments(monkeypatch):
    """They are kept for a second run before the first one deletes them."""
    monkeypatch.setattr(_plan, "BUDGET", 0.0)
    monkeypatch.setattr(_plan, "bound", lambda graph, arguments, measured: measured)
    f = tj.jit(square_over, donate_argnums=0)
    x = full(LARGE)
    np.testing.assert_allclose(f(x), full(LARGE), rtol=1e-6)
    assert x.is_deleted()


@pytest.mark.parametrize("what", ["evaluate", "losses", "build"])
def test_a_planner_that_fails_costs_a_warning_not_the_call(what, monkeypatch):
    def broken(*args, **kwargs):
        raise KeyError("a fault of the planner")

    monkeypatch.setattr(_cases if what == "build" else _plan, what, broken)
    f = tj.jit(lambda x: x * 2 + 1e30 * x * x * 0)
    if what == "losses":
        f = tj.jit(square_over)
    x = full(LARGE if what == "losses" else 1.5)
    with pytest.warns(ScaleWarning, match="could not be planned"):
        got = f(x)
    plain = jax.jit(square_over if what == "losses" else lambda x: x * 2 + 1e30 * x * x * 0)
    assert_same_bits(got, plain(x))
    with pytest.warns(ScaleWarning, match="could not be planned"):  # other numbers may be wrong
        assert_same_bits(f(x), got)


def test_a_fault_while_constants_are_looked_for_costs_a_warning_too(monkeypatch):
    def broken(*args):
        raise KeyError("a fault of the planner")

    monkeypatch.setattr(_literals, "_unknown", broken)
    with pytest.warns(ScaleWarning, match="could not be planned"):
        assert_same_bits(tj.jit(lambda x: x * 2)(full(1.5)), full(3.0))
    with pytest.raises(ZeroDivisionError):  # the user's own error is no fault of ours
        tj.jit(lambda x: x * (1 / 0))(full(1.5))


def test_a_rule_that_fails_leaves_its_value_unknown(monkeypatch):
    """An evaluation rule on numbers that it was not made for: bounds take over."""
    failing = dataclasses.replace(LAWS["sin"], evaluate=lambda node, xs: 1 / 0)
    monkeypatch.setitem(LAWS, "sin", failing)
    f = lambda x: jnp.sin(x) + square_over(x) * 0
    x = full(1.5)
    plan = plan_of(f, x)
    assert plan.is_estimate
    assert_same_bits(tj.jit(f)(x), jax.jit(f)(x))


def test_a_program_of_a_plan_that_fails_is_replaced_by_that_of_jax(monkeypatch):
    """As where a second program does not fit into memory."""

    def broken(node, operands, exponents):
        raise MemoryError("while a plan is compiled")

    monkeypatch.setitem(LAWS, "mul", dataclasses.replace(LAWS["mul"], replay=broken))
    f, x = tj.jit(square_over), full(LARGE)
    for _ in range(2):
        with pytest.warns(ScaleWarning, match="could not be planned"):
            assert_same_bits(f(x), jax.jit(square_over)(x))


def test_bounds_that_fail_are_a_planner_that_fails(monkeypatch):
    def broken(node, *operands):
        raise ValueError("no bounds")

    monkeypatch.setattr(_plan, "BUDGET", 0.0)
    monkeypatch.setitem(LAWS, "mul", dataclasses.replace(LAWS["mul"], bound=broken))
    f, x = tj.jit(lambda x: x * 2), full(1.5)
    with pytest.warns(ScaleWarning, match="could not be planned"):
        assert_same_bits(f(x), x * 2)


def test_a_unit_stands_in_for_numbers_that_are_not_there():
    """They are taken to be near 1 in it; of an abstract array without unit nothing is known."""
    abstract = jax.ShapeDtypeStruct((), jnp.float16)
    sun, earth = (tj.Quantity(abstract, "kg", scale=k) for k in (96, 78))
    view = tj.scale_graph(lambda a, b: a * a * b / b)(sun, earth)
    assert view.plan.is_estimate
    assert not view.plan.identity
    assert set(view.plan.magnitudes[:2]) == {(-10.0, 10.0, False)}
    assert tj.scale_graph(lambda a: a * a)(abstract).plan.identity
