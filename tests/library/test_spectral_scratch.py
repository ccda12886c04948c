"""Gradients of spectra take no more scratch memory than JAX's own, whatever they check.

Sizes of buffers say it on any machine: `temp_size_in_bytes` of the compiled gradient, in matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj

N = 256


def matrices(loss: Callable[..., Any], a: Any) -> float:
    """The scratch of the gradient, in matrices of the size of the argument."""
    compiled = jax.jit(jax.grad(loss)).lower(a).compile()
    (leaf,) = jax.tree.leaves(a)
    return compiled.memory_analysis().temp_size_in_bytes / leaf.nbytes


def of_eigh(eigh: Callable[..., Any]) -> Callable[..., Any]:
    def loss(a: Any) -> Any:
        w, v = eigh(a)
        return jnp.sum(jnp.sin((v * jnp.exp(-w)) @ v.T))

    return loss


def of_svd(svd: Callable[..., Any]) -> Callable[..., Any]:
    def loss(a: Any) -> Any:
        u, s, vh = svd(a, full_matrices=False)
        return jnp.sum(jnp.sin((u * jnp.log1p(s)) @ vh))

    return loss


@pytest.mark.parametrize(
    ("of", "ours", "plain"),
    [(of_eigh, tj.eigh, jnp.linalg.eigh), (of_svd, tj.svd, jnp.linalg.svd)],
    ids=["eigh", "svd"],
)
def test_gradients_of_spectra_take_the_scratch_of_jax(of: Any, ours: Any, plain: Any) -> None:
    a = jnp.zeros((N, N), jnp.float32)
    assert matrices(of(ours), a) < matrices(of(plain), a) + 0.5
