"""The tensor as a torch user knows it: what it prints, answers, and does in modules and threads."""

import functools
import threading

import pytest

pytest.importorskip("torch")

import jax.numpy as jnp
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import tanjax as tj
from tanjax.bridges import torch as tjt

pytestmark = pytest.mark.torch

X = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def ours(values=X, dtype=jnp.float32, requires_grad=False):
    return tjt.from_jax(jnp.array(values, dtype), requires_grad)


SAME = {
    "len": len,
    "list": lambda t: [row.tolist() for row in t],
    "contains": lambda t: (3.0 in t, 9.0 in t),
    "float": lambda t: (float(t[1, 2]), int(t[1, 2]), bool(t[0, 0]), complex(t[0, 1])),
    "index": lambda t: [10, 20, 30][t.long()[0, 2]],
    "format": lambda t: f"{t.sum():.2f} {t[0, 1]:g}",
    "item": lambda t: t[1, 1].item(),
    "no item": lambda t: t.item(),
    "no bool": lambda t: bool(t),
    "numbers": lambda t: (t.dim(), t.numel(), t.nelement(), t.element_size(), t.nbytes, t.itemsize),
    "sizes": lambda t: (list(t.shape), list(t.mT.size()), t.size(1), t.ndim, t.stride()),
    "layout": lambda t: (t.is_contiguous(), t.t().is_contiguous(), t.storage_offset(), t.layout),
    "device": lambda t: (t.device, t.get_device(), t.is_cuda, t.is_cpu, t.is_pinned(), t.is_sparse),
    "kinds": lambda t: (t.dtype, t.type(), t.is_floating_point(), t.is_complex(), t.is_signed()),
    "half": lambda t: (t.half().dtype, t.to(torch.int32).tolist(), t.type(torch.int8).dtype),
    "like": lambda t: t.to(torch.ones(1, dtype=torch.float64)).dtype,
    "the same": lambda t: (t.to("cpu") is t, t.cpu() is t, t.float() is t, t.contiguous() is t),
    "copies": lambda t: (
        t.clone() is t,
        t.t().contiguous().stride(),
        t.to(t.dtype, copy=True) is t,
    ),
    "compared": lambda t: (torch.equal(t, t.clone()), torch.allclose(t, t + 1), t is t),
    "is": lambda t: (torch.is_tensor(t), isinstance(t, torch.Tensor), t.is_leaf, t.grad_fn),
    "hash": lambda t: {t: 1}[t],
    "zip": lambda t: [a.item() for a, b in zip(t[0], t[1], strict=True)],
    "unpack": lambda t: [r.sum().item() for r in (lambda a, b: (b, a))(*t)],
    "reversed": lambda t: [r.tolist() for r in reversed(t)],
    "max": lambda t: max(t[0]).item(),
    "sum": lambda t: sum(t).tolist(),
    "operators": lambda t: [
        *(x.tolist() for x in (1 - t, 2**t, t // 2, 7 % (t + 1), -t, abs(-t), 1 / (t + 1))),
        *(x.tolist() for x in (~(t > 2), (t > 1) & (t < 4), t @ t.T, t >= 2)),
    ],
    "names": lambda t: (t.T.shape, t.new_zeros(2).tolist(), t.new_tensor([1.0]).tolist()),
    "version": lambda t: (t._version, t.add_(1)._version, t[0]._version, t.detach()._version),
    "flags": lambda t: (t.requires_grad_().requires_grad, t.grad, t.detach().requires_grad),
    "retain": lambda t: t.requires_grad_().mul(2).retains_grad,
}


@pytest.mark.parametrize("name", SAME)
def test_answers_as_torch(name):
    """Methods and protocols of Python give what a plain tensor gives, or raise where it does."""

    def answer(t):
        try:
            return SAME[name](t)
        except (RuntimeError, ValueError) as error:
            return type(error)

    assert answer(ours()) == answer(torch.tensor(X))


def test_tensor_prints_as_torch_does_with_type_and_unit():
    """Numbers as torch prints them, then what the type, the unit and autograd say."""
    assert repr(ours()) == "T" + repr(torch.tensor(X))[1:]
    leaf = ours([1.0], requires_grad=True)
    assert repr(leaf) == "Tensor([1.], requires_grad=True)"
    assert repr(leaf * 2) == "Tensor([2.], grad_fn=<MulBackward0>)"
    assert repr(ours([1], jnp.int32)) == "Tensor([1], dtype=torch.int32)"
    assert repr(nn.Parameter(ours([1.0]))).startswith("Parameter containing:\nTensor([1.]")
    assert "Diagonal(" in repr(tjt.from_jax(tj.Diagonal(jnp.ones(2))))
    assert '"m"' in repr(tjt.from_jax(tj.Quantity(jnp.ones(2), "m")))
    assert "2000" in repr(ours(np.zeros(2000))) or "..." in repr(ours(np.zeros(2000)))
    assert str([ours([1.0])]) == "[Tensor([1.])]"
    torch.testing.assert_close(ours(), ours())
    with pytest.raises(AssertionError, match="Mismatched elements: 6 / 6"):
        torch.testing.assert_close(ours(), ours() + 1)


def test_data_shares_memory_and_not_the_graph():
    """`.data` shares memory and not the graph; assigned, it takes over another memory."""
    x = ours(requires_grad=True)
    x.data.mul_(2)
    assert x.tolist() == (2 * np.array(X)).tolist()
    assert x.data._version == 0
    assert not x.data.requires_grad
    view = x.detach()[0]
    new = ours([7.0, 8.0])
    x.data = new
    assert x.shape == (2,)
    assert x.requires_grad
    new.add_(1)
    assert x.tolist() == [8.0, 9.0]
    assert view.tolist() == [0.0, 2.0, 4.0]
    p = nn.Parameter(ours([1.0, 2.0]))
    p.data = torch.tensor([3.0, 4.0])
    p.data = p.data.to(torch.float64)
    assert type(p.data) is tjt.Tensor
    assert p.dtype == torch.float64
    (p * p).sum().backward()
    assert p.grad.tolist() == [6.0, 8.0]


def test_gradients_are_assigned():
    """`.grad` is set, lifted, accumulated into, and deleted."""
    x = ours([1.0, 2.0], requires_grad=True)
    x.grad = torch.ones(2)
    assert type(x.grad) is tjt.Tensor
    (3 * x).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0]
    del x.grad
    assert x.grad is None
    x.grad = ours([5.0, 5.0])
    x.grad = None
    x.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_parameters_and_modules():
    """Parameters of ours are parameters: registered, converted, swapped, reset."""
    layer = tjt.convert(nn.Linear(3, 2))
    assert len(list(layer.parameters())) == 2
    for change, dtype in ((layer.half, torch.float16), (layer.double, torch.float64)):
        change()
        assert {p.dtype for p in layer.parameters()} == {dtype}
        assert {type(p) for p in layer.parameters()} == {tjt.Tensor}
        assert layer.weight.payload.dtype == str(dtype).removeprefix("torch.")
        assert isinstance(layer.weight, nn.Parameter)
    layer.float().requires_grad_(False)
    assert not layer.weight.requires_grad
    layer.requires_grad_()
    layer.reset_parameters()
    layer(ours()).sum().backward()
    np.testing.assert_allclose(layer.weight.grad, [np.sum(X, 0)] * 2)
    layer.zero_grad()
    assert layer.weight.grad is None
    layer.weight = nn.Parameter(ours(np.ones((2, 3))))
    layer.bias = None
    np.testing.assert_allclose(layer(ours()).detach(), [[3, 3], [12, 12]])
    a, b = ours([1.0]), ours([[2.0, 3.0]])
    torch.utils.swap_tensors(a, b)
    assert (a.tolist(), b.tolist()) == ([[2.0, 3.0]], [1.0])
    a.add_(1)
    assert a.tolist() == [[3.0, 4.0]]


def run_threads(*targets):
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_two_threads_train_with_the_numbers_of_one():
    """Two threads train at once, each with the numbers of a lone one."""

    def train(seed):
        weight = ours(np.random.default_rng(seed).normal(size=(4, 3)), requires_grad=True)
        data, losses = ours(), []
        for _ in range(20):
            hidden = F.linear(data, weight)
            hidden[:, 0] *= 2
            loss = (hidden.tanh() ** 2).mean()
            loss.backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
            weight.grad = None
            losses.append(loss.item())
        return losses

    alone = [train(seed) for seed in range(2)]
    found = {}
    run_threads(*(lambda n=n: found.update({n: train(n)}) for n in range(2)))
    assert [found[n] for n in range(2)] == alone


def test_threads_write_parts_of_one_memory():
    """Writes into different rows of one tensor from several threads are all there."""
    x = ours(np.zeros((8, 4)))
    x[0] += 1
    x.zero_()

    def write(n):
        for _ in range(25):
            x[n] += 1

    run_threads(*(functools.partial(write, n) for n in range(8)))
    assert x.tolist() == [[25.0] * 4] * 8


def test_backward_in_another_thread():
    """A graph made in one thread runs backward in another one, and twice at once."""
    x = ours(requires_grad=True)
    losses = [(x * n).sin().sum() for n in (1, 2)]
    run_threads(*(loss.backward for loss in losses))
    np.testing.assert_allclose(x.grad, np.cos(X) + 2 * np.cos(2 * np.array(X)), 1e-5)


def test_compiled_operations_are_kept_for_a_default_dtype_and_for_kinds_of_numbers():
    """`2 == 2.0`, and a power of integers by one of them is of another dtype."""
    n, usual = tjt.from_jax(jnp.arange(3)), torch.get_default_dtype()
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            assert torch.sin(n).dtype == dtype
    finally:
        torch.set_default_dtype(usual)
    for exponent in (2, 2.0, 2):
        power = n**exponent
        assert power.is_floating_point() == isinstance(exponent, float)
        assert power.tolist() == [0, 1, 4]
