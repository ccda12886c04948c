"""Structured tensors against JAX: the same function in torch and in JAX, and differences."""

import jax
import jax.numpy as jnp
import numpy as np

import tanjax as tj
from tanjax.bridges import torch as tjt

RANDOM = np.random.default_rng(5)


def normal(*size):
    return jnp.asarray(RANDOM.normal(size=size))


def definite(n):
    a = normal(n, n)
    return a @ a.T + n * jnp.eye(n)


def floats(tree):
    """The leaves that have a derivative."""
    return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]


def assert_agree(got, expected, rtol=1e-9):
    """Whether two trees have the same numbers, and arrays of the same types."""
    if isinstance(expected, tj.AbstractArray):
        assert type(got) is type(expected)
    assert len(floats(got)) == len(floats(expected))
    for x, y in zip(floats(got), floats(expected), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=rtol, atol=rtol)


def moved(array, direction, by):
    """An array at other stored coordinates."""
    leaves, tree = jax.tree.flatten(array)
    rest = iter(direction)
    step = lambda x: x + by * next(rest) if jnp.issubdtype(x.dtype, jnp.inexact) else x
    return jax.tree.unflatten(tree, [step(x) for x in leaves])


def assert_gradients_agree(torch_function, jax_function, *arrays, rtol=1e-9, densify="error"):
    """Values and gradients in torch are those of JAX and of differences in stored coordinates."""
    with tj.densify(densify):
        tensors = [tjt.from_jax(a, requires_grad=True) for a in arrays]
        loss = torch_function(*tensors)
        loss.backward()
        value, expected = jax.value_and_grad(jax_function, tuple(range(len(arrays))))(*arrays)
    assert_agree(loss.detach().payload, value, rtol)
    for tensor, gradient in zip(tensors, expected, strict=True):
        assert_agree(tensor.grad.payload, gradient, rtol)
        differences_agree(torch_function, arrays, [t.grad.payload for t in tensors])


def differences_agree(torch_function, arrays, gradients, step=1e-6):
    """Gradients predict how the value of a torch function changes along stored coordinates."""
    directions = [_direction(_plain(a)) for a in arrays]

    def value(by):
        new = [_moved(a, d, by) for a, d in zip(arrays, directions, strict=True)]
        return float(_plain(torch_function(*map(tjt.from_jax, new)).payload))

    slope = (value(step) - value(-step)) / (2 * step)
    pairs = [(floats(_plain(g)), d) for g, d in zip(gradients, directions, strict=True)]
    predicted = sum(float(jnp.sum(x * y)) for gs, ds in pairs for x, y in zip(gs, ds, strict=True))
    np.testing.assert_allclose(slope, predicted, rtol=1e-5, atol=1e-5)


def _direction(a):
    """Coordinates that keep what the type stores twice, or not at all."""
    return floats(tj.pullback_of_destructure(a)(normal(*a.shape)))


def _plain(x):
    return x.stored if isinstance(x, tj.Unitful) else x


def _moved(a, direction, by):
    if isinstance(a, tj.Unitful):
        return tj.Unitful(moved(a.stored, direction, by), a.unit)
    return moved(a, direction, by)


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
