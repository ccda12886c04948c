"""Many equal steps: what converts the first and the last place is the same for all between."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.scale import _plan
from tanjax.scale.assign import _ends, _problem
from tanjax.scale.assign._assign import assign

GRAVITY, SUN, EARTH = 6.6743e-11, 1.98892e30, 5.9722e24


def orbit(count):
    """A planet's way in SI units: its plan, and the integer program of that.

    Every step needs the place at an exponent of 10 or more. The place has three coordinates and
    the square of its distance one number, so that it is cheapest to convert the latter in a single
    step, but not in many.
    """

    def program(x):
        v = jnp.array([0.0, 2.98e4, 0.0], x.dtype)
        for _ in range(count):
            force = GRAVITY * (SUN * (EARTH * -x)) / jnp.sum(x * x) ** 1.5
            v = v + 3600.0 * (force / EARTH)
            x = x + 3600.0 * v
        return x

    x = jnp.array([1.5e11, 1e9, 0.0], jnp.float32)
    plan = _plan.plan(jax.make_jaxpr(program)(x), [x], [False])
    return plan, _problem.problem_of(plan.graph, plan.magnitudes, [False], _problem.DEMANDS[0])


@pytest.mark.parametrize("count", [60, 200])
def test_only_what_enters_and_leaves_is_converted(count):
    """Three numbers each, to one exponent. That nothing is cheaper is proven."""
    plan, problem = orbit(count)
    assert (plan.method, plan.conversions, plan.gap) == ("presolve", 2, 0.0)
    found = assign(problem)
    assert (found.objective, found.bound, found.violations) == (6.0, 6.0, 0)
    assert len(set(found.uses[problem.use_value == 0].tolist()) - {0}) == 1


def test_masses_are_converted_once_for_all_readings():
    """Two readings add up to one number out of range: cell by cell they get an exponent each."""

    def step(x, v, m):
        apart = x[None] - x[:, None]
        square = jnp.sum(apart**2, -1) + jnp.mean(x * x) * 1e-2
        force = GRAVITY * (m[:, None, None] * m[None, :, None]) * apart / square[..., None] ** 1.5
        v = v + 3600.0 * jnp.sum(force, 1) / m[:, None]
        return x + 3600.0 * v, v, m

    rng = np.random.default_rng(0)
    x, v = (jnp.asarray(rng.normal(size=(256, 3)) * size, jnp.float32) for size in (1.5e11, 3e4))
    given = [x, v, jnp.asarray(8e27 * rng.uniform(0.5, 2, 256), jnp.float32)]
    plan = _plan.plan(jax.make_jaxpr(step)(*given), given, [False] * 3)
    assert (plan.conversions, plan.gap) == (2, 0.0)


def test_constants_give_way_as_far_as_they_can():
    """Every fourth equation leaves the range, and no operand but a constant has to be converted."""

    def program(x):
        for _ in range(25):
            x = x * 1e25 + 1e24
            x = x * 1e20 + 1e30
            x = x * 1e-25 + 1.0
            x = x * 5e-21 + 0.5
        return x

    x = jnp.float32(1.5)
    with _problem.recorded() as solved:
        _plan.plan(jax.make_jaxpr(program)(x), [x], [False])
    found = assign(solved[0].problem)
    assert (found.objective, found.violations, found.method) == (0.0, 0, "presolve")


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16])
def test_exponent_that_holds_all_numbers_of_a_value_is_offered_where_some_count(dtype):
    """A single number has no others that would need room for their digits."""
    f = lambda x, y: jnp.sum(1 / (x * y)) + y * 6.6e-11
    args = jnp.array([0.01, 30.0], dtype), jnp.asarray(1e-4, dtype)
    plan = tj.scale_graph(f)(*args).plan
    graph, m = plan.graph, plan.magnitudes
    ends = _ends.ends_that_count(graph)
    all_of_it, some = _problem.Demand(True, 40), _problem.Demand(True, 40, "counting")
    for value in graph.values:
        if value.is_floating:
            low, high = _problem.interval(value, m, all_of_it)
            wide_low, wide_high = _problem.interval(value, m, some, ends.get(value.index, 1))
            assert wide_low <= low <= high <= wide_high
