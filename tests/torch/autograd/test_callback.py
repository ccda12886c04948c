"""Torch functions inside of JAX."""

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp

import tanjax as tj
from tanjax.bridges import torch as tjt
from torch_comparison import assert_agree, normal

pytestmark = pytest.mark.torch

X, COUNTS = normal(3), jnp.arange(3)
SCALAR = jax.ShapeDtypeStruct((), jnp.float64)
waves = tjt.callback(lambda x, n: (x.sin() * n).sum(), SCALAR)


def expected(x, n):
    return jnp.sum(jnp.sin(x) * n.astype(float))


def test_values_and_gradients():
    assert_agree(waves(X, COUNTS), expected(X, COUNTS))
    assert_agree(jax.jit(jax.grad(waves))(X, COUNTS), jax.grad(expected)(X, COUNTS))
    assert_agree(
        jax.grad(lambda x: waves(x, COUNTS) ** 2)(X),
        jax.grad(lambda x: expected(x, COUNTS) ** 2)(X),
    )


def test_batches_go_one_by_one():
    batch = normal(4, 3)
    each = jax.jit(jax.vmap(jax.value_and_grad(waves), (0, None)))(batch, COUNTS)
    assert_agree(each, jax.vmap(jax.value_and_grad(expected), (0, None))(batch, COUNTS))


def test_several_results_of_which_one_does_not_count():
    shapes = (jax.ShapeDtypeStruct((3,), jnp.float64), SCALAR)
    both = tjt.callback(lambda x, y: (x * y, x.detach().sum()), shapes)
    got = jax.grad(lambda x, y: sum(map(jnp.sum, both(x, y))), (0, 1))(X, 2 * X)
    assert_agree(got, (2 * X, X))


@pytest.mark.parametrize(
    ("error", "use"),
    [
        (tj.NoRuleError, lambda: jax.jvp(lambda x: waves(x, COUNTS), (X,), (X,))),
        (tj.NoRuleError, lambda: jax.hessian(lambda x: waves(x, COUNTS))(X)),
        (tj.NoRuleError, lambda: jax.grad(lambda x: jax.grad(waves)(x, COUNTS).sum())(X)),
        (tj.NoRuleError, lambda: waves(tj.Diagonal(X), COUNTS)),
        (tj.UnitError, lambda: waves(tj.quantity(X, "m"), COUNTS)),
        (TypeError, lambda: jax.jvp(jax.jit(lambda x: waves(x, COUNTS)), (X,), (X,))),
        (jax.errors.JaxRuntimeError, lambda: tjt.callback(lambda x: x, SCALAR)(X)),
        (jax.errors.JaxRuntimeError, lambda: tjt.callback(lambda x: 1.0, SCALAR)(X)),
    ],
    ids=["forward", "hessian", "grad of grad", "structured", "unit", "jit", "shape", "no tensor"],
)
def test_call_that_a_callback_cannot_serve_is_refused(error, use):
    with pytest.raises(error):
        jax.block_until_ready(use())


def test_gradients_of_complex_numbers_are_jaxs():
    """JAX's gradient is torch's conjugate; a result may be a lazy one."""
    theirs = lambda z: (z**2 * (1 + 2j)).conj()
    mine = lambda z: jnp.conj(z**2 * (1 + 2j))
    z = jax.lax.complex(X, 2 * X[::-1])
    called = tjt.callback(theirs, jax.ShapeDtypeStruct((3,), z.dtype))
    loss = lambda f: lambda z: jnp.sum(jnp.real(f(z) * (3 - 1j)))
    assert_agree(jax.grad(loss(called))(z), jax.grad(loss(mine))(z))
