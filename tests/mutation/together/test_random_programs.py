"""Random programs that write to Refs agree with their functional forms; and a fault would show.

`python tests/support/inplace_programs.py --minutes 30` looks at many more.
"""

import jax.numpy as jnp
import pytest

import inplace_programs


@pytest.mark.parametrize("seed", [2, 5, 10, 23])
def test_against_the_functional_form(seed):
    inplace_programs.assert_functional(seed, size=2)


def test_a_planted_fault_shows(monkeypatch):
    """A write that is scaled in the functional form alone."""
    honest = inplace_programs.Pure.set

    def scaled(self, name, index, value):
        honest(self, name, index, jnp.asarray(1.001, value.dtype) * value)

    monkeypatch.setattr(inplace_programs.Pure, "set", scaled)
    with pytest.raises(AssertionError, match="set"):
        inplace_programs.assert_functional(9, size=2)
