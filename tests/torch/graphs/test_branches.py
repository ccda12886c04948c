"""Control flow of torch: as a function of JAX, exported, and compiled by the backend."""

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import numpy as np
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

import tanjax as tj
from tanjax.bridges import torch as tjt

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
X = torch.linspace(-0.8, 1, 12, dtype=torch.float64).reshape(4, 3)


class Flow(nn.Module):
    """One function of torch that takes functions, with a parameter in these."""

    def __init__(self, forward):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 3, dtype=torch.float64))
        self._forward = forward

    def forward(self, x):
        return self._forward(self.weight, x)


def branch(w, x):
    inner = lambda x: torch.cond(x[0, 0] > 0, lambda x: x.exp(), lambda x: x * w, (x,))
    return torch.cond(x.sum() > 0, lambda x: (x * w).sin(), inner, (x,))


def recurrence(w, x):
    carried, rows = scan(lambda c, x: (0.5 * c + x * w, c.sin()), torch.zeros_like(x[0]), x)
    return rows + carried


def looped(w, x):
    start = torch.zeros((), dtype=torch.int64), x * w
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), start)[1]


FLOWS = {
    "cond": branch,
    "scan": recurrence,
    "map": lambda w, x: torch_map(lambda row: (row * w).sin(), x),
    "while_loop": looped,
}


@pytest.mark.parametrize("name", FLOWS)
def test_control_flow_is_torchs_in_every_way_of_running(name):
    """Values, and gradients where torch has them; of both sides of a condition."""
    module, differentiable = Flow(FLOWS[name]), name != "while_loop"
    torch._dynamo.reset()
    expected = []
    for x in (X, -X):
        with torch.set_grad_enabled(differentiable):
            out = module(x)
        expected.append((x, out, gradient(out, module) if differentiable else None))
    compiled = torch.compile(module, backend=tjt.backend, fullgraph=True)
    params, f = tjt.as_jax(module)
    _, g = tjt.as_jax(torch.export.export(module, (X,)))
    as_torch = lambda a: torch.from_numpy(np.array(a))
    for x, out, theirs in expected:
        given = jnp.asarray(x.numpy())
        for run in (f, jax.jit(g)):
            torch.testing.assert_close(as_torch(run(params, given)), out)
        with torch.set_grad_enabled(differentiable):
            got = compiled(x)
        torch.testing.assert_close(got, out)
        if differentiable:
            torch.testing.assert_close(gradient(got, module), theirs)
            by_jax = jax.grad(lambda p, given=given: jnp.sum(g(p, given) ** 2))(params)
            torch.testing.assert_close(as_torch(by_jax["weight"]), theirs)


def gradient(out, module):
    return torch.autograd.grad(out.square().sum(), module.weight)[0]


def test_random_numbers_are_drawn_in_branches_and_refused_in_loops():
    drop = lambda x: F.dropout(x, 0.5)
    _, f = tjt.as_jax(lambda x: torch.cond(x.sum() > 0, drop, lambda x: x.clone(), (x,)))
    dropped = f({}, jnp.ones(100), key=jax.random.key(0))
    assert set(dropped.tolist()) == {0.0, 2.0}
    _, g = tjt.as_jax(lambda x: torch_map(drop, x))
    with pytest.raises(tj.NoRuleError, match="same at each step"):
        g({}, jnp.ones((3, 2)), key=jax.random.key(0))


def test_other_functions_of_functions_are_refused_by_name():
    shifted = lambda s, b, h, i, j: s + (i - j)
    _, f = tjt.as_jax(lambda x: flex_attention(x, x, x, score_mod=shifted))
    with pytest.raises(tj.NoRuleError, match="flex_attention has no entry"):
        f({}, jnp.ones((1, 1, 4, 16)))
