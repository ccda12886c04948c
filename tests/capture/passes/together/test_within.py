"""Passes within JAX's transformations, on functions that close over traced values, and effects."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

PASSES = [tj.passes.share_factorizations, tj.passes.reassociate, tj.passes.promote]


def occasion(s, x):
    """Something for each pass."""
    a = tj.Symmetric(s, definite=True)
    one = tj.solve(a, x) * tj.logdet(a)
    return jnp.sum((s @ s) @ one) + tj.logdet(jnp.diag(jnp.exp(x)))


@pytest.mark.parametrize("apply", PASSES, ids=lambda p: p.__name__)
def test_within(apply, given):
    """Mapped, differentiated, in a loop, with a matrix of an outer trace: as the function."""
    s, x = given["s"], given["x"]

    def everything(rewritten):
        def run(s, x):
            closed = rewritten(lambda x: occasion(s, x))
            steps = jax.lax.scan(lambda c, _: (c + jax.grad(closed)(x), None), x, None, length=2)
            return closed(x), jax.vmap(closed)(jnp.stack([x, -x])), steps[0]

        return jax.jit(run)(s, x)

    for want, got in zip(everything(lambda f: f), everything(apply), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9)


def test_effects_stay_in_order(given, capsys):
    """What a program prints it prints, once and in order."""

    def f(s, x):
        jax.debug.print("first {}", 1, ordered=True)
        out = occasion(s, x)
        jax.debug.print("second {}", 2, ordered=True)
        return out

    s, x = given["s"], given["x"]
    for apply in PASSES:
        new = apply.rewrite(tj.capture(f)(s, x))
        np.testing.assert_allclose(jax.jit(new)(s, x), occasion(s, x), rtol=1e-9)
        jax.effects_barrier()
        assert capsys.readouterr().out.split() == ["first", "1", "second", "2"]
