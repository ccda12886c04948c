"""Small matrices, and what every pass is held to."""

import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from passes_support import assert_agrees, names


@pytest.fixture(scope="session")
def given():
    """Matrices of four rows: regular, definite; thin ones; vectors."""
    draw = np.random.default_rng(3)
    a, b = (jnp.asarray(draw.normal(size=(4, 4)) + 4 * np.eye(4)) for _ in range(2))
    u = jnp.asarray(draw.normal(size=(4, 1)))
    x, y = (jnp.asarray(draw.normal(size=4)) for _ in range(2))
    return {"a": a, "b": b, "s": a @ a.T, "u": u, "x": x, "y": y, "d": jnp.exp(x)}


@pytest.fixture
def assert_rewrites(given):
    """Rewrite a function by a pass; check that it agrees, or that it is the very program.

    `wanted`: what the new program calls, in order; `solve*` stands for `solve[Factorization]`.
    """

    def check(apply, f, arguments, wanted):
        args = [given[name] for name in arguments]
        program = tj.capture(f)(*args)
        text = str(program)
        new = apply.rewrite(program)
        assert str(program) == text
        if wanted is None:
            assert new is program
            return new
        assert names(new) == wanted.replace("*", "[Factorization]").split()
        assert_agrees(f, new, *args)
        return new

    return check
