"""Which exponents hold the numbers of a value."""

import jax
import jax.numpy as jnp
import pytest

from tanjax.scale.graph._build import build
from tanjax.scale.graph._graph import Magnitude
from tanjax.scale.laws import _range


@pytest.mark.parametrize(
    ("magnitude", "says_something"),
    [
        (Magnitude(-3.0, 140.0), True),
        (Magnitude(-2e6, 140.0), False),  # bounds
        (Magnitude(-2e6, 140.0, exact=True), True),  # `exp(-1e6)` was seen, beside others
        (Magnitude(-3.0, 2e6, exact=True), False),
    ],
)
def test_bounds_that_are_too_far_away_say_nothing(magnitude, says_something):
    graph = build(jax.make_jaxpr(jnp.exp)(jnp.float32(1.0)))
    (use,) = graph.outputs
    magnitudes = [magnitude] * len(graph.values)
    low, high = _range.exponents(use.value, magnitudes)
    if says_something:
        assert low <= 140 - 127 <= high
    else:
        assert (low, high) == (0, 0)
