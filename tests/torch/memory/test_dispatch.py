"""Products with a matrix that torch repeats to make it a batch."""

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import numpy as np
from torch import nn
from torch.nn import functional as F

from tanjax.bridges import torch as tjt
from torch_comparison import assert_same_as_torch

pytestmark = pytest.mark.torch

# A batch of 8 times 32 rows of 24 numbers, and a matrix of 24 times 40; the other way round.
PRODUCTS = {
    "linear, transposed": lambda x, w: F.linear(x.transpose(0, 1), w.t(), w[0]),
    "matmul, transposed": lambda x, w: x.transpose(0, 1) @ w,
    "matrix first": lambda x, w: w.t() @ x.mT,
    "four axes": lambda x, w: x.reshape(2, 4, 32, 24).permute(2, 0, 1, 3) @ w,
    "four axes, matrix first": lambda x, w: w.t() @ x.reshape(2, 4, 32, 24).permute(1, 0, 3, 2),
    "expanded": lambda x, w: torch.bmm(x, w.expand(8, 24, 40)),
    "broadcast batches": lambda x, w: x.reshape(2, 4, 32, 24) @ w.expand(2, 1, 24, 40),
}


def inputs(dtype=torch.float64):
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(*size, dtype=dtype, generator=draw) for size in ((8, 32, 24), (24, 40))]


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_one_matrix_are_torchs(name):
    """Values, gradients, sizes and, behind a view of the result, strides."""
    product = PRODUCTS[name]
    assert_same_as_torch(lambda x, w: (product(x, w), product(x, w).sin().flatten()), *inputs())


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_program_has_no_copy_of_the_matrix_for_each_batch(name):
    """Scratch memory of the gradient is that of the operands, not of a matrix for each of 32."""
    _, f = tjt.as_jax(lambda x, w: PRODUCTS[name](x, w).square().sum())
    arrays = [jnp.asarray(x.numpy()) for x in inputs()]
    program = jax.jit(jax.grad(f, (1, 2))).lower({}, *arrays).compile()
    text = program.as_text()
    assert " gather(" not in text
    assert " scatter(" not in text
    result = 8 * 32 * 40
    assert program.memory_analysis().temp_size_in_bytes <= 8 * 5 * result


def test_products_that_do_not_fit_raise_among_repeated_ones():
    x, w = map(tjt.from_torch, inputs())
    for call in (
        lambda: torch.bmm(x, w.expand(7, 24, 40)),
        lambda: torch.bmm(x, w.t().expand(8, 40, 24)),
        lambda: torch.bmm(x.float(), w.expand(8, 24, 40)),
    ):
        with pytest.raises(RuntimeError, match=r"bmm|linear"):
            call()


def test_attention_with_the_batch_first_costs_what_it_costs_without():
    class Attention(nn.Module):
        def __init__(self, first):
            super().__init__()
            self.inner = nn.MultiheadAttention(64, 4, batch_first=first)

        def forward(self, x):
            return self.inner(x, x, x, need_weights=False)[0].square().sum()

    scratch, gradients = [], []
    x = np.random.default_rng(0).normal(size=(4, 32, 64)).astype(np.float32)
    for first in (True, False):
        torch.manual_seed(0)
        params, f = tjt.as_jax(Attention(first))
        given = jnp.asarray(x if first else x.swapaxes(0, 1))
        program = jax.jit(jax.grad(f)).lower(params, given).compile()
        scratch.append(program.memory_analysis().temp_size_in_bytes)
        gradients.append(program(params, given))
    assert scratch[0] <= 1.5 * scratch[1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-3, 1e-3), *gradients)
