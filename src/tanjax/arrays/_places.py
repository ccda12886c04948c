"""Entries at known places: NumPy's numbers, inside of the array.

The caller has checked the places, so these functions neither compare nor wrap them at run time.
This takes 2 ms instead of 6 for a million places on the oldest JAX.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Shaped

from tanjax._typing import DenseArray, Places, Shape

UNROLLED = 8
INSIDE: Any = {"mode": "promise_in_bounds", "wrap_negative_indices": False}


def gather(values: Shaped[DenseArray, "... n"], at: Places) -> Shaped[Array, "... p"]:
    """Return `values[..., at]`."""
    return jnp.asarray(values).at[..., at].get(**INSIDE)


def gather_rows(b: Shaped[DenseArray, " n *k"], at: Places) -> Shaped[Array, " p *k"]:
    """Return `b[at]`."""
    return jnp.asarray(b).at[at].get(**INSIDE)


def gather_entries(
    a: Shaped[DenseArray, "... m n"], rows: Places, columns: Places
) -> Shaped[Array, "... p"]:
    """Return `a[..., rows, columns]`."""
    return jnp.asarray(a).at[..., rows, columns].get(**INSIDE)


def band_places(shape: Shape, *offsets: int) -> tuple[Places, Places]:
    """Return rows and columns of the entries `[i, i + offset]`, one diagonal after the other."""
    *_, m, n = shape
    rows = [np.arange(max(0, -k), max(min(m, n - k), max(0, -k))) for k in offsets]
    return np.concatenate(rows), np.concatenate(
        [row + k for row, k in zip(rows, offsets, strict=True)]
    )


def gather_where(
    found: Bool[np.ndarray, " p"], values: Shaped[DenseArray, "... n"], at: Places
) -> Shaped[Array, "... p"]:
    """Return `values[..., at]` where `found`, and zero elsewhere; `at` may be invalid there."""
    if not found.any():
        return jnp.zeros((*values.shape[:-1], len(at)), values.dtype)
    entries = gather(values, np.where(found, at, 0).astype(np.int32))
    return entries if found.all() else jnp.where(found, entries, jnp.zeros((), values.dtype))


def add_at(terms: Shaped[Array, " q *k"], to: Places, count: int) -> Shaped[Array, " count *k"]:
    """Return `count` sums of the terms; `to` is the index of the sum of each term.

    It does not tell XLA that `to` is sorted: XLA would take a fifth longer (8 columns, CPU).
    """
    return jnp.zeros((count, *terms.shape[1:]), terms.dtype).at[to].add(terms, **INSIDE)


def products_at(
    left: Shaped[Array, "... m k"], right: Shaped[Array, "... n k"], rows: Places, columns: Places
) -> Shaped[Array, "... p"]:
    """Return the entries of `left @ right.T` at places, column by column of both.

    For a million places and 8 columns this takes 10 ms; gathers of rows take 65 (XLA, CPU) and
    scratch memory for all rows. More than 8 columns run in a loop.
    """
    if left.shape[-1] == 0:
        return jnp.zeros((*left.shape[:-2], len(rows)), jnp.result_type(left, right))
    thin = tuple(jnp.moveaxis(x, -1, 0) for x in (left, right))
    if left.shape[-1] > 1:  # without the barrier XLA transposes again for every column
        thin = lax.optimization_barrier(thin)
    product = lambda pair: gather(pair[0], rows) * gather(pair[1], columns)
    total = product((thin[0][0], thin[1][0]))
    if left.shape[-1] <= UNROLLED:
        for pair in zip(thin[0][1:], thin[1][1:], strict=True):
            total = total + product(pair)
        return total
    add = lambda total, pair: (total + product(pair), None)
    return lax.scan(add, total, (thin[0][1:], thin[1][1:]), unroll=UNROLLED)[0]
