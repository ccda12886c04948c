"""Losses with a target class, and backward operations that torch does not define by others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import kernels
from tanjax_torch._typing import Argument, Number
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, in_bounds, is_traced, number, pullback, require, same_dtype, wide

_NONE, _MEAN, _SUM = 0, 1, 2


def _last(x: Array) -> Array:
    """Move the classes to the last axis."""
    return x if x.ndim == 1 else jnp.moveaxis(x, 1, -1)


def _checked(self: Array, target: Array, weight: Array | None, ignore_index: int) -> None:
    """**Raises:** `IndexError` for a class out of range."""
    classes = self.shape[0 if self.ndim == 1 else 1]
    require(self.ndim > 0, "input tensor should be 1D or more")
    shape = self.shape[:1] if self.ndim == 2 else (*self.shape[:1], *self.shape[2:])
    require(
        self.ndim == 1 or target.shape == shape,
        f"size mismatch (got input: {list(self.shape)}, target: {list(target.shape)})",
    )
    require(
        weight is None or weight.shape == (classes,),
        f"weight tensor should be defined either for all {classes} classes or no classes",
    )
    if not isinstance(target, jax.core.Tracer):
        known = np.asarray(target)
        in_bounds(known[known != ignore_index], classes, text="Target {} is out of bounds.")


def _weights(target: Array, weight: Array | None, ignore_index: int, like: Array) -> Array:
    kept = target != ignore_index
    if weight is None:
        return kept.astype(like.dtype)
    return jnp.where(kept, weight[jnp.where(kept, target, 0)], 0).astype(like.dtype)


def _nll(
    self: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int
) -> tuple[Array, Array]:
    classes = _last(self)
    target = target.reshape(classes.shape[:-1])
    each = _weights(target, weight, ignore_index, self)
    place = jnp.where(target == ignore_index, 0, target)[..., None]
    picked = jnp.take_along_axis(classes, place, -1, mode="fill")[..., 0]
    losses = jnp.where(each == 0, 0, -picked * each)
    total = jnp.sum(each)
    if reduction == _NONE:
        return losses, total if self.ndim == 1 else jnp.zeros((), self.dtype)
    if reduction == _SUM:
        return jnp.sum(losses), total
    return jnp.sum(losses) / total, total


_nll_compiled = jax.jit(_nll, static_argnames=("reduction", "ignore_index"))


@implements(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default, eager=True)
def nll_loss_forward(
    self: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int
) -> tuple[Array, Array]:
    _checked(self, target, weight, ignore_index)
    out: tuple[Array, Array] = _nll_compiled(self, target, weight, reduction, ignore_index)
    return out


@implements(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(
    grad_output: Array,
    self: Array,
    target: Array,
    weight: Array | None,
    reduction: int,
    ignore_index: int,
    total_weight: Array,
) -> Array:
    classes = _last(self)
    target = target.reshape(classes.shape[:-1])
    each = _weights(target, weight, ignore_index, grad_output)
    grad = grad_output / total_weight if reduction == _MEAN else grad_output
    here = jnp.arange(classes.shape[-1], dtype=target.dtype) == target[..., None]
    out = jnp.where(here & (each != 0)[..., None], (-grad * each)[..., None], 0)
    return out if self.ndim == 1 else jnp.moveaxis(out, -1, 1)


@kernels.custom_jvp
def _cross_entropy(x: Array, target: Array) -> Array:
    with_log = target * jnp.maximum(jnp.log(x), -100)
    return -with_log - (1 - target) * jnp.maximum(jnp.log1p(-x), -100)


@_cross_entropy.defjvp
def _cross_entropy_slope(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    """The derivative in torch's form: large and finite at probabilities 0 and 1."""
    x, target = primals
    slope = (x - target) / jnp.maximum(x * (1 - x), 1e-12)
    by_target = jnp.maximum(jnp.log1p(-x), -100) - jnp.maximum(jnp.log(x), -100)
    return _cross_entropy(x, target), slope * tangents[0] + by_target * tangents[1]


def _probabilities(self: Array, *_: Argument, **__: Argument) -> None:
    """**Raises:** `RuntimeError` for known numbers outside of `[0, 1]`."""
    if not is_traced(self):
        known = np.asarray(self)
        inside = bool(((known >= 0) & (known <= 1)).all())
        require(inside, "all elements of input should be between 0 and 1")


@implements(aten.binary_cross_entropy, check=_probabilities)
@wide
def binary_cross_entropy(
    self: Array, target: Array, weight: Array | None = None, reduction: int = _MEAN
) -> Array:
    losses = _cross_entropy(self, target)
    return _reduced(losses if weight is None else losses * weight, reduction)


# Torch's own definition cancels: it subtracts a number near one from one.
@implements(aten.soft_margin_loss_backward.default)
def soft_margin_loss_backward(
    grad_output: Array, self: Array, target: Array, reduction: int
) -> Array:
    same_dtype("soft_margin_loss", self, target)
    slope = -target * jax.nn.sigmoid(-target * self)
    return grad_output * (slope / max(self.size, 1) if reduction == _MEAN else slope)


def _width(x: Array) -> int:
    return x.shape[-1] if x.ndim else 1


def _reduced(losses: Array, reduction: int) -> Array:
    if reduction == _NONE:
        return losses
    return jnp.mean(losses) if reduction == _MEAN else jnp.sum(losses)


@implements(aten.multi_margin_loss_backward.default, static=("p",))
def multi_margin_loss_backward(
    grad_output: Array,
    self: Array,
    target: Array,
    p: Number,
    margin: Number,
    weight: Array | None = None,
    reduction: int = _MEAN,
) -> Array:
    def loss(x: Array) -> Array:
        rows = x.reshape(-1, _width(x))
        place = target.reshape(-1, 1)
        z = number(margin, x.dtype) - jnp.take_along_axis(rows, place, 1) + rows
        each = jnp.where(z > 0, z if p == 1 else z * z, 0)
        if weight is not None:
            each = each * weight[place]
        here = jnp.arange(_width(x), dtype=place.dtype) == place
        losses = jnp.sum(jnp.where(here, 0, each), 1) / _width(x)
        return _reduced(losses if x.ndim > 1 else losses[0], reduction)

    return pullback(loss, (self,), grad_output)[0]


def _marked(target: Array) -> tuple[Array, Array]:
    """Return masks of the targets before the first -1, and of the classes that they name."""
    valid = jnp.cumprod(target >= 0, 1, dtype=jnp.int32) > 0
    classes = jnp.arange(target.shape[1], dtype=target.dtype)
    named = (target[:, :, None] == classes) & valid[:, :, None]
    return valid, jnp.any(named, 1)


def _multilabel(self: Array, target: Array, reduction: int) -> Array:
    rows, wanted = self.reshape(-1, _width(self)), target.reshape(-1, _width(self))
    valid, marked = _marked(wanted)
    picked = jnp.take_along_axis(rows, jnp.where(valid, wanted, 0), 1)
    z = 1 - picked[:, :, None] + rows[:, None, :]
    kept = valid[:, :, None] & ~marked[:, None, :] & (z > 0)
    losses = jnp.sum(jnp.where(kept, z, 0), (1, 2)) / _width(self)
    return _reduced(losses if self.ndim > 1 else losses[0], reduction)


# Torch's own definition counts a class for each target after the first -1.
@implements(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss_forward(
    self: Array, target: Array, reduction: int
) -> tuple[Array, Array]:
    require(
        self.ndim <= 2 and self.shape == target.shape and _width(self) > 0,
        f"inconsistent target size: {list(target.shape)} for input of size: {list(self.shape)}",
    )
    _, marked = _marked(target.reshape(-1, _width(self)))
    loss = _multilabel(self, target, reduction)
    return loss, marked.astype(self.dtype).reshape(target.shape)


@implements(aten.multilabel_margin_loss_backward.default)
def multilabel_margin_loss_backward(
    grad_output: Array, self: Array, target: Array, reduction: int, is_target: Array
) -> Array:
    return pullback(lambda x: _multilabel(x, target, reduction), (self,), grad_output)[0]
