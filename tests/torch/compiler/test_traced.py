"""Tensors of ours that torch records in a graph: none is a constant that should not be one."""

import pytest

torch = pytest.importorskip("torch")

import jax.numpy as jnp
from torch.autograd import forward_ad
from torch.func import jacfwd, jvp, linearize
from torch.fx.experimental.proxy_tensor import make_fx

import tanjax as tj
from tanjax.bridges import torch as tjt

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

X = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
T = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)


def tangent_of_dual(x):
    def f(t):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(torch.sin(forward_ad.make_dual(x, t))).tangent

    return f


PROGRAMS = {
    "product": lambda x: lambda t: t * x + x,
    "views": lambda x: lambda t: x[1:] * t[:2],
    "dual": tangent_of_dual,
    "jvp": lambda x: lambda t: jvp(torch.sin, (x,), (t,))[1],
    "jacfwd": lambda x: lambda t: jacfwd(torch.sin)(x + t),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recorded_program_of_ours_is_torchs(name):
    """`make_fx` at one tangent, called with another: what it holds is an attribute of the graph."""
    program = PROGRAMS[name]
    ours = make_fx(program(tjt.from_torch(X)))(tjt.from_torch(torch.zeros_like(T)))
    expected = program(X)(T)
    torch.testing.assert_close(tjt.to_torch(ours(tjt.from_torch(T))), expected)


@pytest.mark.parametrize("f", [torch.sin, lambda x: 3 * x, lambda x: x * x.sum()])
def test_linearize_is_torchs(f):
    value, pushforward = linearize(f, tjt.from_torch(X))
    expected, expected_pushforward = linearize(f, X)
    torch.testing.assert_close(tjt.to_torch(value), expected)
    for t in (T, 2 * T):
        got = tjt.to_torch(pushforward(tjt.from_torch(t)))
        torch.testing.assert_close(got, expected_pushforward(t))


@pytest.mark.parametrize("payload", [tj.Diagonal(jnp.ones(3)), tj.quantity(jnp.ones(3), "m")])
def test_structure_and_units_are_refused(payload):
    held = tjt.from_jax(payload)
    for program in (lambda t: held @ t, lambda t: tjt.wrap(jnp.sin)(t)):
        with pytest.raises(tj.NoRuleError, match="cannot record"):
            make_fx(program)(tjt.from_torch(T))
    with pytest.raises(tj.NoRuleError, match="cannot record"):
        linearize(lambda x: x @ tjt.from_torch(T), held)
