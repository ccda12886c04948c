"""Optimisers that write to their parameters and moments: Adam, gradient descent, Lion.

A functional optimiser makes new parameters and new moments at every step, and relies on the
compiler to reuse the old memory. Here they are memory: a step reads, computes and writes in one
program whose buffers are the caller's. Parameters are any tree of `tj.new_ref`: dense, structured,
with units. A step moves the stored numbers, as optax does on the same tree. Every array is written
in its type: a symmetric matrix stays symmetric, metres stay metres.

    params = tj.new_ref({"a": tj.Symmetric(a), "x": x * tj.units.m})
    state = adam_state(params)
    gradients = jax.grad(loss)(tj.refs.freeze(params))       # structural: what JAX gives
    adam(params, state, gradients, 1e-3)

Sharp edges. Gradients are structural, those of `jax.grad` or of buffers, labelled like the
parameters. The rate is in stored numbers: 0.1 moves a parameter in km by up to 100 m. Parameters
are real. Integers are not moved. A matrix with the promise `definite` keeps it, even if it is no
longer true: a matrix that is not definite then gives nan.

**References:** Kingma and Ba 2015; Polyak 1964; Chen et al. 2023. Steps are those of optax.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, PyTree

import tanjax as tj
from tanjax.typing import Function


class AdamState(NamedTuple):
    """The number of steps, and running means of gradients and of their squares, in Refs."""

    count: PyTree
    mean: PyTree
    square: PyTree


def adam_state(params: PyTree) -> AdamState:
    """Return the first state of `adam` for parameters in Refs: twice their memory."""
    mean, square = (tj.refs.fdata(tj.tangents.zero_tangent(params)) for _ in range(2))
    count = jnp.zeros((), jnp.int32)
    for ref in jax.tree.leaves(mean)[:1]:  # on all devices that share the parameters
        count += jnp.sum(ref[...]).astype(count.dtype)
    return AdamState(tj.new_ref(count), mean, square)


@tj.inplace(mutates=("params", "state"))
def adam(
    params: PyTree,
    state: AdamState,
    gradients: PyTree,
    rate: Float[Array, ""] | float = 1e-3,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> None:
    """One step of Adam. **Arguments:** Refs, `adam_state(params)`, a structural gradient."""
    state.count[...] = state.count[...] + 1
    t = state.count[...].astype(jnp.result_type(float))  # a bfloat16 does not hold 0.999

    def step(x: Array, g: Array, mean: Array, square: Array) -> tuple[Array, ...]:
        mean = (1 - b1) * g + b1 * mean
        square = (1 - b2) * g**2 + b2 * square
        size = jnp.sqrt(square / _as(1 - b2**t, x)) + eps
        direction = mean / _as(1 - b1**t, x) / size
        return x - _as(rate, x) * direction, mean, square

    _write(step, gradients, params, state.mean, state.square)


@tj.inplace(mutates=("params", "velocity"))
def momentum(
    params: PyTree,
    velocity: PyTree,
    gradients: PyTree,
    rate: Float[Array, ""] | float = 1e-2,
    *,
    decay: float = 0.9,
) -> None:
    """One step of gradient descent with momentum.

    **Arguments:** Refs; `velocity`, at first `tj.refs.fdata(tj.tangents.zero_tangent(params))`; a
    structural gradient.
    """

    def step(x: Array, g: Array, velocity: Array) -> tuple[Array, ...]:
        velocity = g + decay * velocity
        return x - _as(rate, x) * velocity, velocity

    _write(step, gradients, params, velocity)


@tj.inplace(mutates=("params", "mean"))
def lion(
    params: PyTree,
    mean: PyTree,
    gradients: PyTree,
    rate: Float[Array, ""] | float = 1e-4,
    *,
    b1: float = 0.9,
    b2: float = 0.99,
    weight_decay: float = 1e-3,
) -> None:
    """One step of Lion.

    **Arguments:** Refs; `mean`, at first `tj.refs.fdata(tj.tangents.zero_tangent(params))`; a
    structural gradient.
    """

    def step(x: Array, g: Array, mean: Array) -> tuple[Array, ...]:
        direction = jnp.sign((1 - b1) * g + b1 * mean) + weight_decay * x
        return x - _as(rate, x) * direction, (1 - b2) * g + b2 * mean

    _write(step, gradients, params, mean)


def _as(rate: Float[Array, ""] | float, x: Array) -> Array:
    return jnp.asarray(rate).astype(x.dtype)


def _write(step: Function, gradients: PyTree, *trees: PyTree) -> None:
    """Apply `step(x, gradient, *moments)`, a function of numbers, to every array in memory.

    An array is written whole, in its type, after all its parts are computed.
    """
    is_memory = lambda x: isinstance(x, tj.refs.StructuredRef)
    places, structure = jax.tree.flatten(trees[0], is_leaf=is_memory)
    others = (structure.flatten_up_to(tree) for tree in (*trees[1:], gradients))
    for place, *moments, gradient in zip(places, *others, strict=True):
        x = place[...]
        if not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(x)):
            continue
        _write_one(step, [place, *moments], x, _visible(gradient))


def _visible(x: PyTree) -> PyTree:
    """Return a structural gradient without hidden parts, which would break storage invariants."""
    if not isinstance(x, tj.AbstractArray):
        return x
    inside = lambda y: y is not x and isinstance(y, tj.AbstractArray)
    return jax.tree.map(_visible, x, is_leaf=inside).canonical()


def _write_one(step: Function, places: list[Any], x: PyTree, gradient: PyTree) -> None:
    before = [place[...] for place in places[1:]]
    structure = jax.tree.structure(x)
    columns = (jax.tree.leaves(tree) for tree in (x, gradient, *before))
    after = [step(*numbers) for numbers in zip(*columns, strict=True)]
    for place, leaves in zip(places, zip(*after, strict=True), strict=True):
        place[...] = jax.tree.unflatten(structure, leaves)
