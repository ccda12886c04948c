"""How exponents are chosen: how often others are tried where none hold all numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.scale import _choice
from tanjax.scale._judged import Judged
from tanjax.scale._plan import plan

pytestmark = pytest.mark.core


@pytest.mark.parametrize(("limit", "runs"), [(0, 1), (100, 4), (110, 5), (40_000, 45)])
def test_the_search_for_exponents_that_no_numbers_fit_ends_after_a_count_of_equations(
    monkeypatch, limit, runs
):
    """Each run takes as long as its equations are many; no clock ends the search."""

    def cubes_over_squares(x):
        for _ in range(5):
            x = (x * x * x) * (1 / (x * x))
        return x

    judged = []
    judge = _choice.Judged.of
    monkeypatch.setattr(_choice.Judged, "of", lambda *a: judged.append(a[3:]) or judge(*a))
    monkeypatch.setattr(_choice, "RUNS", limit)
    x = jnp.asarray(np.array([1e30, 1e-30]), jnp.float32)
    closed = jax.make_jaxpr(cubes_over_squares)(x)
    assert len(closed.eqns) == 25
    found = plan(closed, [x], [False])
    assert found.identity
    assert "no exponents hold these numbers together" in found.alarms[0]
    assert sum(map(bool, judged)) == runs


def test_exponents_that_lose_what_plain_jax_has_are_worse_than_any_that_lose_other_entries():
    judged = lambda worse, lost: Judged(lost, worse, [], [])
    best, some, many, worse = (judged(*n) for n in ((0, 0), (0, 2), (0, 9), (1, 1)))
    assert best.badness < some.badness < many.badness < worse.badness
    assert best.is_right
    assert not some.is_right


def test_branches_that_are_not_taken_ask_for_no_exponent():
    """Their zeros stand in for what another branch keeps for its gradient, here 1e40."""
    branches = [lambda x: x, lambda x: x * x * x / 1e50, lambda x: -x, jnp.sin]
    slope = jax.grad(lambda x: jax.lax.switch((x > 0).astype(int), branches, x))
    np.testing.assert_allclose(tj.jit(slope)(jnp.float32(1e20)), 3e-10, rtol=1e-6)
