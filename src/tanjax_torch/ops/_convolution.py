"""Convolutions of one to three dimensions, forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from tanjax_torch.table._registry import implements

from ._tools import Array, aten, pullback, repeated, require, same_dtype


def _convolved(
    input: Array,
    weight: Array,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    n = input.ndim - 2
    steps, pads, holes, extra = (
        repeated(x, n) for x in (stride, padding, dilation, output_padding)
    )
    reach = [d * (k - 1) for d, k in zip(holes, weight.shape[2:], strict=True)]
    options: dict[str, Any] = {"feature_group_count": groups, "rhs_dilation": holes}
    if not transposed:
        return lax.conv_general_dilated(input, weight, steps, [(p, p) for p in pads], **options)
    # The transpose of a convolution: one over the dilated input, with the kernel flipped.
    i, o = weight.shape[:2]
    kernel = weight.reshape(groups, i // groups, o, *weight.shape[2:])
    kernel = jnp.swapaxes(kernel, 1, 2).reshape(groups * o, i // groups, *weight.shape[2:])
    kernel = jnp.flip(kernel, tuple(range(2, 2 + n)))
    borders = [(r - p, r - p + e) for r, p, e in zip(reach, pads, extra, strict=True)]
    return lax.conv_general_dilated(input, kernel, (1,) * n, borders, lhs_dilation=steps, **options)


def _check(
    input: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> None:
    same_dtype("convolution", input, weight)
    require(
        input.ndim == weight.ndim and 3 <= input.ndim <= 5,
        f"convolution: expected weight and input of one number of dimensions, got weight "
        f"{list(weight.shape)} and input {list(input.shape)}",
    )
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    require(groups > 0, "non-positive groups is not supported")
    require(min(padding, default=0) >= 0, "negative padding is not supported")
    require(min(stride, default=1) > 0, "non-positive stride is not supported")
    require(min(dilation, default=1) > 0, "dilation should be greater than zero")
    require(
        input.shape[1] == channels and weight.shape[0] % groups == 0,
        f"Given groups={groups}, weight of size {list(weight.shape)}, expected input "
        f"{list(input.shape)} to have {channels} channels, but got {input.shape[1]} channels "
        "instead",
    )


@implements(aten.convolution, aten._convolution.default, aten.convolution_overrideable)
def convolution(
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *unused: bool,
) -> Array:
    _check(input, weight, stride, padding, dilation, transposed, groups)
    out = _convolved(
        input,
        weight,
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=transposed,
        output_padding=output_padding,
        groups=groups,
    )
    require(
        min(out.shape[2:]) > 0,
        f"Calculated output size per channel: {list(out.shape[2:])}. Output size is too small",
    )
    if bias is None:
        return out
    same_dtype("convolution", input, bias)
    require(bias.size == out.shape[1], "convolution: expected one bias for each output channel")
    return out + bias.reshape(1, -1, *(1,) * (out.ndim - 2))


@implements(aten.convolution_backward, aten.convolution_backward_overrideable)
def convolution_backward(
    grad_output: Array,
    input: Array,
    weight: Array,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Array | None, Array | None, Array | None]:
    function = functools.partial(
        _convolved,
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=transposed,
        output_padding=output_padding,
        groups=groups,
    )
    to_input = to_weight = to_bias = None
    if output_mask[0]:
        (to_input,) = pullback(lambda x: function(x, weight), (input,), grad_output)
    if output_mask[1]:
        (to_weight,) = pullback(lambda w: function(input, w), (weight,), grad_output)
    if output_mask[2]:
        to_bias = jnp.sum(grad_output, (0, *range(2, grad_output.ndim)))
    return to_input, to_weight, to_bias
