"""The fast Fourier transform, butterfly by butterfly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import DenseArray, Function

if TYPE_CHECKING:
    from tanjax.testing import Case


def bit_reversed(n: int) -> np.ndarray:
    """Return the order in which decimation in time begins."""
    order = np.zeros(1, int)
    while len(order) < n:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


@tj.inplace(mutates="x")
def transform(x: Shaped[jax.Ref, " n"]) -> None:
    r"""Overwrite `x`, complex of shape `(n,)`, by its discrete Fourier transform.

    $x_k \leftarrow \sum_j x_j e^{-2 \pi i j k / n}$, by Cooley and Tukey with radix two.

    **Raises:** `ShapeError` if n is no power of two; `TypeError` for real `x`, whose memory does
    not hold the transform. **Cost:** O(n log n), and O(n) scratch: the butterflies of a stage are
    computed together. **Derivative:** `transform_rule`.

    >>> x = tj.new_ref(jnp.array([1.0 + 0j, 1.0]))
    >>> transform(x)
    >>> x[...].tolist()
    [(2+0j), 0j]
    """
    (n,) = x.shape
    if n & (n - 1) or not n:
        raise tj.ShapeError(f"transform: `x` has {n} entries, which is no power of two.")
    if not jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise TypeError(f"transform: `x` is {x.dtype}.\nHint: its memory must be complex.")
    x[...] = x[...][bit_reversed(n)]
    half = 1
    while half < n:
        turn = jnp.asarray(np.exp(-1j * np.pi * np.arange(half) / half), x.dtype)
        blocks = x[...].reshape(-1, 2, half)
        upper, lower = blocks[:, 0], turn * blocks[:, 1]
        x[...] = jnp.stack([upper + lower, upper - lower], 1).reshape(n)
        half *= 2


@transform.inplace_rule
def transform_rule(x: Shaped[DenseArray, " n"]) -> tuple[tj.refs.Transition, Function]:
    """Transform the cotangent in place, as the matrix of the transform is symmetric."""

    def transform_pullback(x_bar: Shaped[jax.Ref, " n"], out_bar: None) -> None:
        transform(x_bar)

    return transform.primal(x), transform_pullback


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Four numbers."""
    from tanjax.testing import Case, Samples

    yield Case(transform.transition, Samples(34).complex(4))
