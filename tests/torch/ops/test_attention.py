"""Attention: heads that share keys and values, and rows of which all is masked."""

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import numpy as np
from torch import nn
from torch.nn import functional as F

from tanjax.bridges import torch as tjt
from torch_comparison import alike, assert_same_as_torch

pytestmark = pytest.mark.torch

MASK = torch.linspace(-1, 1, 25, dtype=torch.float64).reshape(5, 5)
CALLS = {
    "causal": {"is_causal": True},
    "mask": {"attn_mask": MASK},
    "bools, two rows of them all false": {"attn_mask": MASK > 0, "scale": 0.3},
}


def attention(heads):
    draw = torch.Generator().manual_seed(0)
    sizes = [(2, h, 5, 8) for h in (4, heads, heads)]
    return [torch.randn(*size, dtype=torch.float64, generator=draw) for size in sizes]


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("name", CALLS)
def test_heads_that_share_keys_are_torchs(name, heads):
    def call(q, k, v):
        given = {
            n: alike(q, x) if isinstance(x, torch.Tensor) else x for n, x in CALLS[name].items()
        }
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **given)

    assert_same_as_torch(call, *attention(heads))


class Attend(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


@pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")  # torch's, of its own trees
@pytest.mark.parametrize("way", ["module", "export", "decomposed", "compile"])
def test_heads_share_keys_in_every_program(way):
    given = attention(2)
    program, leaves = Attend(), [x.clone().requires_grad_() for x in given]
    expected = program(*leaves)
    gradients = torch.autograd.grad(expected.square().sum(), leaves)
    if way == "compile":
        compiled = torch.compile(program, backend=tjt.backend)
        found = [compiled(*leaves)]
        found += torch.autograd.grad(found[0].square().sum(), leaves)
    else:
        if way != "module":
            program = torch.export.export(program, tuple(given))
        if way == "decomposed":
            program = program.run_decompositions()
        _, f = tjt.as_jax(program)
        arrays = [jnp.asarray(x.numpy()) for x in given]
        loss = lambda *arrays: jnp.sum(f({}, *arrays) ** 2)
        found = [f({}, *arrays), *jax.jit(jax.grad(loss, (0, 1, 2)))(*arrays)]
    for mine, theirs in zip(found, [expected, *gradients], strict=True):
        mine = mine.detach() if isinstance(mine, torch.Tensor) else mine
        np.testing.assert_allclose(np.asarray(mine), theirs.detach(), 1e-9, 1e-9)
