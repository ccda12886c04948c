"""Norms of dense arrays, with a subgradient at kinks.

The gradients of JAX's norms are `nan` at zero, where the square root has no slope. Here every norm
of the zero array has a subgradient.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._errors import ShapeError
from tanjax._typing import Axis, Natural, Order
from tanjax.kernels import spectral_norm

MATRIX_ORDERS = (None, "fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf"))


def norm(a: Natural, ord: Order, axis: Axis, keepdims: bool) -> Natural:
    """Return the norm of vectors or matrices along axes; see `tj.norm`."""
    a = jnp.asarray(a)
    if axis is None:
        if ord is None or a.ndim in (1, 2):
            axes: tuple[int, ...] = tuple(range(a.ndim))
        else:
            raise ShapeError(
                f"norm: of order {ord!r}, an array of shape {a.shape} has no one norm.\n"
                "Hint: say `axis=-1` for vectors, `axis=(-2, -1)` for matrices."
            )
    else:
        axes = _axes(a, axis)
    if ord is None:
        return _root_of_squares(a, axes, keepdims)
    if len(axes) == 1:
        return _vector_norm(a, ord, axes, keepdims)
    check_order(ord)
    if len(axes) != 2:
        raise ShapeError(f"norm: `axis` has one or two axes for order {ord!r}, got {axes}.")
    return _matrix_norm(a, ord, axes, keepdims)


def _axes(a: Natural, axis: int | tuple[int, ...]) -> tuple[int, ...]:
    axes = axis if isinstance(axis, tuple) else (axis,)
    fit = all(isinstance(i, int | np.integer) and -a.ndim <= i < a.ndim for i in axes)
    if not fit or len({i % a.ndim for i in axes}) < len(axes):
        raise ShapeError(f"norm: axis {axis} does not fit shape {a.shape}.")
    return axes


def check_order(ord: Order) -> None:
    """Raise `ShapeError` unless matrices have a norm of this order."""
    if ord not in MATRIX_ORDERS:
        raise ShapeError(
            f"norm: matrices have no norm of order {ord!r}.\n"
            "Hint: None, 'fro', 'nuc', 1, -1, 2, -2, inf or -inf."
        )


def root(square: Natural) -> Natural:
    """Return the square root, with derivative 0 at 0."""
    zero = square == 0  # AD of the square root would give nan here
    found = jnp.sqrt(jnp.where(zero, jnp.ones_like(square), square))
    return jnp.where(zero, jnp.zeros_like(found), found)


def _root_of_squares(a: Natural, axes: tuple[int, ...], keepdims: bool) -> Natural:
    return root(jnp.sum(jnp.real(a * jnp.conj(a)), axis=axes, keepdims=keepdims))


def _vector_norm(a: Natural, ord: Order, axes: tuple[int, ...], keepdims: bool) -> Natural:
    how: dict[str, PyTree] = {"axis": axes, "keepdims": keepdims}
    if isinstance(ord, str):
        raise ShapeError(f"norm: vectors have no norm of order {ord!r}.")
    if ord == 2:
        return _root_of_squares(a, axes, keepdims)
    size = jnp.abs(a)
    if ord == float("inf"):
        return jnp.max(size, initial=0, **how)
    if ord == -float("inf"):
        return jnp.min(size, **how)
    if ord == 0:
        return jnp.sum(a != 0, dtype=size.dtype, **how)
    if ord == 1:
        return jnp.sum(size, **how)
    total = jnp.sum(size**ord, **how)
    zero = total == 0
    found = jnp.where(zero, jnp.ones_like(total), total) ** (1 / ord)
    return jnp.where(zero, jnp.zeros_like(found), found)


def _matrix_norm(a: Natural, ord: Order, axes: tuple[int, ...], keepdims: bool) -> Natural:
    if ord == "fro":
        return _root_of_squares(a, axes, keepdims)
    moved = jnp.moveaxis(a, axes, (-2, -1))
    if ord in ("nuc", 2, -2):
        found = spectral_norm(moved, ord)
    else:
        sums = jnp.sum(jnp.abs(moved), axis=-2 if abs(ord) == 1 else -1)
        found = jnp.max(sums, axis=-1, initial=0) if ord > 0 else jnp.min(sums, axis=-1)
    if not keepdims:
        return found
    return jnp.expand_dims(found, tuple(i % a.ndim for i in axes))
