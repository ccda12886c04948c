"""One step of an optimiser over all parameters, which torch asks for by `fused=True`.

The formulas are those of `torch.optim`. The learning rate and the decay are traced, so that a
schedule does not compile again. `found_inf`, from a gradient scaler, leaves every value unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tanjax_torch._typing import Number
from tanjax_torch.table._registry import implements

from ._tools import aten

Arrays = Sequence[jax.Array]
Maybe = jax.Array | None
# A parameter, its gradient, the moments, the largest second one, the number of steps.
Row = tuple[jax.Array, jax.Array, jax.Array, jax.Array, Maybe, jax.Array]


def _scaled(grad: jax.Array, grad_scale: Maybe) -> jax.Array:
    return grad if grad_scale is None else grad / grad_scale.astype(grad.dtype)


def _kept(old: Arrays, new: Arrays, found_inf: Maybe) -> list[jax.Array]:
    """`new` in the dtypes of `old`, or `old` where an infinite gradient was found."""
    cast = [n.astype(o.dtype) for o, n in zip(old, new, strict=True)]
    if found_inf is None:
        return cast
    return [jnp.where(found_inf.reshape(()) != 0, o, n) for o, n in zip(old, cast, strict=True)]


def _summed(beta: float, step: jax.Array) -> jax.Array:
    """`1 - beta**step`; the plain difference errs by 1e-4 in float32 for `beta = 0.999`."""
    return -jnp.expm1(step * math.log(beta)) if beta > 0 else jnp.ones_like(step)


def _adam(decoupled: bool) -> Callable[..., tuple[Arrays, ...]]:
    """Adam, or AdamW, whose decay of the weights does not enter the moments."""

    def one(row: Row, o: dict[str, Any]) -> tuple[jax.Array, jax.Array, jax.Array, Maybe]:
        p, g, m, v, most, step = row
        decay, rate, step = o["weight_decay"], o["lr"], step.astype(p.dtype)
        g = -g if o["maximize"] else g
        p, g = (p * (1 - rate * decay), g) if decoupled else (p, g + p * decay)
        m = m + (1 - o["beta1"]) * (g - m)
        v = o["beta2"] * v + (1 - o["beta2"]) * g * g
        most = None if most is None else jnp.maximum(most, v)
        size = jnp.sqrt(v if most is None else most) / jnp.sqrt(_summed(o["beta2"], step))
        p = p - rate / _summed(o["beta1"], step) * m / (size + o["eps"])
        return p, m, v, most

    def entry(
        self: Arrays,
        grads: Arrays,
        exp_avgs: Arrays,
        exp_avg_sqs: Arrays,
        max_exp_avg_sqs: Arrays,
        state_steps: Arrays,
        *,
        grad_scale: Maybe = None,
        found_inf: Maybe = None,
        amsgrad: bool,
        **options: Number,
    ) -> tuple[Arrays, ...]:
        most = max_exp_avg_sqs if amsgrad else [None] * len(self)
        seen = [_scaled(g, grad_scale) for g in grads]
        rows = zip(self, seen, exp_avgs, exp_avg_sqs, most, state_steps, strict=True)
        new = [one(row, options) for row in rows]
        old = (self, exp_avgs, exp_avg_sqs, max_exp_avg_sqs if amsgrad else [])
        values = [list(column) for column in zip(*new, strict=True)] if new else [[], [], [], []]
        if not amsgrad:
            values[3] = []
        p, m, v, largest = [_kept(o, n, found_inf) for o, n in zip(old, values, strict=True)]
        return p, _kept(grads, seen, found_inf), m, v, largest if amsgrad else max_exp_avg_sqs

    return entry


_BETAS = ("beta1", "beta2")
implements(aten._fused_adam, static=_BETAS)(_adam(False))
implements(aten._fused_adamw, static=_BETAS)(_adam(True))


@implements(aten._fused_sgd)
def fused_sgd(
    self: Arrays,
    grads: Arrays,
    momentum_buffer_list: Arrays,
    *,
    weight_decay: Number,
    momentum: Number,
    lr: Number,
    dampening: Number,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Maybe = None,
    found_inf: Maybe = None,
) -> tuple[Arrays, ...]:
    seen = [_scaled(g, grad_scale) for g in grads]
    signed = [(-g if maximize else g) + p * weight_decay for p, g in zip(self, seen, strict=True)]
    buffers: list[jax.Array] = []
    if momentum_buffer_list:
        for g, old in zip(signed, momentum_buffer_list, strict=True):
            buffers.append(g if is_first_step else momentum * old + (1 - dampening) * g)
        pairs = zip(signed, buffers, strict=True)
        signed = [g + momentum * b if nesterov else b for g, b in pairs]
    new = [p - lr * g for p, g in zip(self, signed, strict=True)]
    return (
        _kept(self, new, found_inf),
        _kept(grads, seen, found_inf),
        _kept(momentum_buffer_list, buffers, found_inf),
    )


@implements(aten._fused_adagrad)
def fused_adagrad(
    self: Arrays,
    grads: Arrays,
    state_sums: Arrays,
    state_steps: Arrays,
    *,
    lr: Number,
    lr_decay: Number,
    weight_decay: Number,
    eps: Number,
    maximize: bool,
    grad_scale: Maybe = None,
    found_inf: Maybe = None,
) -> tuple[Arrays, ...]:
    seen = [_scaled(g, grad_scale) for g in grads]
    new, sums = [], []
    for p, g, total, step in zip(self, seen, state_sums, state_steps, strict=True):
        g = (-g if maximize else g) + p * weight_decay
        sums.append(total + g * g)
        past = step.astype(p.dtype) - 1
        new.append(p - lr / (1 + past * lr_decay) * g / (jnp.sqrt(sums[-1]) + eps))
    return (
        _kept(self, new, found_inf),
        _kept(grads, seen, found_inf),
        _kept(state_sums, sums, found_inf),
        list(state_steps),
    )
