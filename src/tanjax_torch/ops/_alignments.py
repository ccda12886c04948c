"""The loss of all alignments of a sequence with a shorter one: torch's `ctc_loss`.

Graves et al. 2006. Torch differentiates it as a function of the input of `log_softmax`. Its
gradient for `log_probs` has the probabilities added; the pullback of `log_softmax` subtracts them.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tanjax_torch._typing import Numbers
from tanjax_torch.table._registry import implements

from ._tools import Array, aten

Lengths = Sequence[int] | Array


def _padded(targets: Array, lengths: Numbers) -> Array:
    """Return targets as rows of one length, also if they are concatenated."""
    if targets.ndim == 2:
        return targets
    ends = np.cumsum(lengths)
    places = (ends - lengths)[:, None] + np.arange(max([*lengths, 0]))
    return targets[np.minimum(places, max(targets.size - 1, 0))]


def _losses(
    log_probs: Array, targets: Array, inputs: Array, lengths: Array, blank: int
) -> tuple[Array, Array]:
    """Losses of a batch, and the logarithms of the sums over all beginnings of alignments."""
    steps, batch, _ = log_probs.shape
    never = jnp.asarray(jnp.finfo(log_probs.dtype).min / 4, log_probs.dtype)  # ∞ has no gradient
    width = 2 * targets.shape[1] + 1
    states = jnp.full((batch, width), blank, targets.dtype).at[:, 1::2].set(targets)
    before = jnp.pad(states, ((0, 0), (2, 0)), constant_values=blank)[:, :width]
    skips = (states != blank) & (states != before)
    seen = jnp.take_along_axis(log_probs, jnp.broadcast_to(states, (steps, batch, width)), 2)
    reached = jnp.arange(width, dtype=jnp.int32) < jnp.minimum(2, 2 * lengths[:, None] + 1)

    def step(alpha: Array, now: Array) -> tuple[Array, Array]:
        one = jnp.pad(alpha, ((0, 0), (1, 0)), constant_values=never)[:, :width]
        two = jnp.pad(alpha, ((0, 0), (2, 0)), constant_values=never)[:, :width]
        total = jnp.logaddexp(jnp.logaddexp(alpha, one), jnp.where(skips, two, never))
        total = jnp.maximum(total + now, never)
        return total, total

    first = jnp.where(reached, seen[0], never)
    _, later = lax.scan(step, first, seen[1:])
    alpha = jnp.concatenate([first[None], later]).transpose(1, 0, 2)
    last = jnp.take_along_axis(alpha, jnp.maximum(inputs - 1, 0)[:, None, None], 1)[:, 0]
    ends = jnp.take_along_axis(last, 2 * lengths[:, None], 1)[:, 0]
    others = jnp.take_along_axis(last, jnp.maximum(2 * lengths - 1, 0)[:, None], 1)[:, 0]
    total = jnp.logaddexp(ends, jnp.where(lengths > 0, others, never))
    empty = jnp.where(lengths > 0, never, jnp.zeros_like(never))
    return -jnp.where(inputs > 0, total, empty), alpha


def _sizes(input_lengths: Lengths, target_lengths: Lengths) -> tuple[Array, Array]:
    inputs, lengths = np.asarray(input_lengths), np.asarray(target_lengths)
    return jnp.asarray(inputs, jnp.int32), jnp.asarray(lengths, jnp.int32)


@implements(aten._ctc_loss, eager=True)
def ctc_loss(
    log_probs: Array,
    targets: Array,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Array, Array]:
    _check(log_probs, targets, input_lengths, target_lengths, blank)
    rows = _padded(targets, np.asarray(target_lengths))
    sizes = _sizes(input_lengths, target_lengths)
    return _forward(log_probs, rows, *sizes, blank)


@jax.jit
def _forward(
    log_probs: Array, rows: Array, inputs: Array, lengths: Array, blank: int
) -> tuple[Array, Array]:
    loss, alpha = _losses(log_probs, rows, inputs, lengths, blank)
    bound = -jnp.finfo(log_probs.dtype).min / 8
    return jnp.where(loss > bound, jnp.inf, loss), jnp.where(alpha < -bound, -jnp.inf, alpha)


@implements(aten._ctc_loss_backward, eager=True)
def ctc_loss_backward(
    grad: Array,
    log_probs: Array,
    targets: Array,
    input_lengths: Lengths,
    target_lengths: Lengths,
    neg_log_likelihood: Array,
    log_alpha: Array,
    blank: int,
    zero_infinity: bool = False,
) -> Array:
    rows = _padded(targets, np.asarray(target_lengths))
    sizes = _sizes(input_lengths, target_lengths)
    found = _backward(grad, log_probs, rows, *sizes, blank)
    instead = jnp.where(_known(log_probs, sizes[0]), 0.0 if zero_infinity else jnp.nan, 0.0)
    return jnp.where(jnp.isinf(neg_log_likelihood)[:, None], instead.astype(found.dtype), found)


@jax.jit
def _backward(
    grad: Array, log_probs: Array, rows: Array, inputs: Array, lengths: Array, blank: int
) -> Array:
    _, pullback = jax.vjp(lambda x: _losses(x, rows, inputs, lengths, blank)[0], log_probs)
    added = jnp.exp(log_probs) * grad[:, None]
    return pullback(grad)[0] + jnp.where(_known(log_probs, inputs), added, jnp.zeros_like(added))


def _known(log_probs: Array, inputs: Array) -> Array:
    """True for steps inside of a sequence, False behind its end."""
    return jnp.arange(log_probs.shape[0], dtype=jnp.int32)[:, None, None] < inputs[:, None]


def _check(log_probs: Array, targets: Array, inputs: Lengths, lengths: Lengths, blank: int) -> None:
    steps, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    if len(inputs) != batch or len(lengths) != batch:
        raise RuntimeError("input_lengths and target_lengths must be of the size of the batch")
    if max([*np.asarray(inputs), 0]) > steps:
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}")
    if min([*np.asarray(lengths), 0]) < 0 or min([*np.asarray(inputs), 0]) < 0:
        raise RuntimeError("lengths must be non-negative")
    if targets.ndim == 2 and max([*np.asarray(lengths), 0]) > targets.shape[1]:
        raise RuntimeError(f"Expected tensor to have size at least {max(lengths)} at dimension 1")
