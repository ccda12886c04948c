"""A layer of an LSTM, which torch runs as one operation on the CPU."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax

from tanjax_torch.table._registry import implements

from ._tools import Array, aten


def _lstm(
    x: Array, w_x: Array, w_h: Array, b_x: Array, b_h: Array, h: Array, c: Array, reverse: bool
) -> tuple[Array, Array, Array]:
    """Outputs of all steps, then both states after the last one; the gates are i, f, g, o."""

    def step(state: tuple[Array, Array], gates: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = state
        i, f, g, o = jnp.split(gates + h @ w_h.T, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    state = h.reshape(h.shape[-2:]), c.reshape(c.shape[-2:])  # torch may add a layer axis
    (h_y, c_y), y = lax.scan(step, state, x @ w_x.T + b_x + b_h, reverse=reverse)
    return y, h_y.reshape(h.shape), c_y.reshape(c.shape)


@implements(aten.mkldnn_rnn_layer)
def mkldnn_rnn_layer(
    input: Array,
    weight0: Array,
    weight1: Array,
    weight2: Array,
    weight3: Array,
    hx_: Array,
    cx_: Array,
    reverse: bool,
    *flags: object,
) -> tuple[Array, Array, Array, Array]:
    given = (input, weight0, weight1, weight2, weight3, hx_, cx_)
    return *_lstm(*given, reverse), jnp.zeros(0, jnp.uint8)  # no workspace


@implements(aten.mkldnn_rnn_layer_backward)
def mkldnn_rnn_layer_backward(
    input: Array,
    weight1: Array,
    weight2: Array,
    weight3: Array,
    weight4: Array,
    hx_: Array,
    cx_tmp: Array,
    output: Array,
    hy_: Array,
    cy_: Array,
    grad_output: Array | None,
    grad_hy: Array | None,
    grad_cy: Array | None,
    reverse: bool,
    *flags: object,
) -> tuple[Array, ...]:
    given = (input, weight1, weight2, weight3, weight4, hx_, cx_tmp)
    values, pullback = jax.vjp(functools.partial(_lstm, reverse=reverse), *given)
    grads = (grad_output, grad_hy, grad_cy)
    full = [
        jnp.zeros_like(v) if g is None else g.reshape(v.shape)
        for v, g in zip(values, grads, strict=True)
    ]
    return pullback(tuple(full))
