"""Passes within JAX's transformations, on functions that close over traced values, and effects."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

pytestmark = pytest.mark.core

PASSES = [
    tj.programs.passes.share_factorizations,
    tj.programs.passes.reassociate,
    tj.programs.passes.promote,
]


def occasion(s, x):
    """Something for each pass."""
    a = tj.Symmetric(s, definite=True)
    one = tj.solve(a, x) * tj.logdet(a)
    return jnp.sum((s @ s) @ one) + tj.logdet(jnp.diag(jnp.exp(x)))


@pytest.mark.parametrize("apply", PASSES, ids=lambda p: p.__name__)
def test_pass_within_transformations_agrees_with_the_function(apply, given):
    """Mapped, differentiated, in a loop, with a matrix of an outer trace: as the function."""
    s, x = given["s"], given["x"]

    def everything(rewritten):
        def run(s, x):
            closed = rewritten(lambda x: occasion(s, x))
            steps = jax.lax.scan(lambda c, _: (c + jax.grad(closed)(x), None), x, None, length=2)
            forward = jax.jvp(closed, (x,), (jnp.sin(x),))[1]
            return closed(x), jax.vmap(closed)(jnp.stack([x, -x])), steps[0], forward

        return *jax.jit(run)(s, x), jax.jit(jax.hessian(rewritten(occasion), (0, 1)))(s, x)

    want, got = (jax.tree.leaves(everything(f)) for f in (lambda f: f, apply))
    for one, other in zip(want, got, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(tj.jit(occasion, passes=[apply])(s, x), want[0], rtol=1e-12)
    new = apply.rewrite(tj.capture(occasion)(s, x))
    assert apply.rewrite(new) is new


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
