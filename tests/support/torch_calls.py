"""A function of tensors, called with torch's and with ours, and what both give compared."""

import torch

from tanjax.bridges import torch as tjt


def ours(t):
    return tjt.from_torch(t) if isinstance(t, torch.Tensor) else t


def _results(out):
    flat = torch.utils._pytree.tree_leaves(out)
    return [x for x in flat if isinstance(x, torch.Tensor)]


def _called(function, inputs):
    """Results, and gradients of a sum in which every number has another weight."""
    floats = [x for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point()]
    for x in floats:
        x.requires_grad_()
    results = _results(function(*inputs))
    total = 0
    for x in results:
        if x.requires_grad:
            real = torch.view_as_real(x) if x.is_complex() else x
            weights = torch.linspace(0.5, 1.5, real.numel(), dtype=real.dtype).reshape(real.shape)
            total = total + (real * (ours(weights) if isinstance(x, tjt.Tensor) else weights)).sum()
    if not isinstance(total, torch.Tensor):
        return results, []
    grads = torch.autograd.grad(total, floats, allow_unused=True)
    return results, list(grads)


def assert_agree(function, *inputs, rtol=1e-9):
    """Same sizes, dtypes, numbers and gradients from plain tensors and from ours."""
    expected, expected_grads = _called(function, [_clone(x) for x in inputs])
    actual, actual_grads = _called(function, [ours(x) for x in inputs])
    assert len(actual) == len(expected)
    for theirs, mine in zip(expected + expected_grads, actual + actual_grads, strict=True):
        if theirs is None:
            assert mine is None
            continue
        assert isinstance(mine, tjt.Tensor)
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        back = tjt.to_torch(mine.detach())
        torch.testing.assert_close(back, theirs.detach(), rtol=rtol, atol=rtol, equal_nan=True)


def _clone(x):
    return x.clone() if isinstance(x, torch.Tensor) else x
