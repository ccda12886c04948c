"""Compare functions of torch's tensors and of ours; structured tensors with JAX."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import torch

import tanjax as tj
from tanjax.bridges import torch as tjt

RANDOM = np.random.default_rng(5)


def alike(x, t):
    """Return a plain tensor in the class of `x`."""
    return tjt.from_torch(t) if isinstance(x, tjt.Tensor) else t


def _answer(function, inputs, gradient):
    """Return results, and gradients of a weighted sum of all numbers; or an error."""
    floats = [x.requires_grad_() for x in inputs if gradient and x.is_floating_point()]
    try:
        results = torch.utils._pytree.tree_leaves(function(*inputs))
    except (RuntimeError, IndexError) as error:
        return error
    total = 0
    for x in results:
        if x.requires_grad:
            real = torch.view_as_real(x) if x.is_complex() else x
            weights = torch.linspace(0.5, 1.5, real.numel(), dtype=real.dtype).reshape(real.shape)
            total = total + (real * alike(x, weights)).sum()
    if not isinstance(total, torch.Tensor):
        return results
    return [*results, *torch.autograd.grad(total, floats, allow_unused=True)]


def assert_same_as_torch(function, *inputs, rtol=1e-9, gradient=True):
    """Assert equal sizes, dtypes, numbers and gradients of plain tensors and ours, or errors."""
    expected = _answer(function, [x.clone() for x in inputs], gradient)
    actual = _answer(function, [tjt.from_torch(x) for x in inputs], gradient)
    if isinstance(expected, Exception):
        assert isinstance(actual, Exception), actual
        return
    assert not isinstance(actual, Exception), actual
    for theirs, mine in zip(expected, actual, strict=True):
        if theirs is None:
            assert mine is None
            continue
        assert isinstance(mine, tjt.Tensor)
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        back, theirs = tjt.to_torch(mine.detach()), theirs.detach().resolve_conj()
        torch.testing.assert_close(back, theirs, rtol=rtol, atol=rtol, equal_nan=True)


@contextlib.contextmanager
def compilations():
    """Return a list that grows by each program that JAX compiles."""
    found = []

    def listen(name, *_, **__):
        found.extend([name] if name == "/jax/core/compile/backend_compile_duration" else [])

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def normal(*size):
    return jnp.asarray(RANDOM.normal(size=size))


def definite(n):
    a = normal(n, n)
    return a @ a.T + n * jnp.eye(n)


def floats(tree):
    """Return the leaves that have a derivative."""
    return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]


def assert_agree(got, expected, rtol=1e-9):
    """Assert that two trees have the same numbers, and arrays of the same types."""
    if isinstance(expected, tj.AbstractArray):
        assert type(got) is type(expected)
    for x, y in zip(floats(got), floats(expected), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=rtol, atol=rtol)


def assert_gradients_agree(torch_function, jax_function, *arrays, densify="error"):
    """Assert that values and gradients in torch are those of JAX."""
    with tj.densify(densify):
        tensors = [tjt.from_jax(a, requires_grad=True) for a in arrays]
        loss = torch_function(*tensors)
        loss.backward()
        value, expected = jax.value_and_grad(jax_function, tuple(range(len(arrays))))(*arrays)
    assert_agree(loss.detach().payload, value)
    for tensor, gradient in zip(tensors, expected, strict=True):
        assert_agree(tensor.grad.payload, gradient)


N = 4
TYPES = {
    "Diagonal": tj.Diagonal(jnp.abs(normal(N)) + 1),
    "Symmetric": tj.Symmetric(definite(N), definite=True),
    "Kronecker": tj.Kronecker(definite(2), definite(2)),
    "LowRankUpdate": tj.LowRankUpdate(tj.Diagonal(jnp.abs(normal(N)) + 1), normal(N, 2)),
    "Triangular": tj.Triangular(definite(N)),
    "BlockDiagonal": tj.BlockDiagonal(definite(2), definite(2)),
    "Toeplitz": tj.Toeplitz(normal(2 * N - 1) + 8 * jnp.eye(2 * N - 1)[N - 1], (N, N)),
}
VECTOR, MATRIX = normal(N), normal(N, 3)
