"""A training loop in place: it adds gradients of micro-batches to one buffer.

    python docs/examples/training_in_place.py

A network with a `Diagonal` and a `Symmetric` layer learns a function. Parameters, momenta and the
gradient are `jax.Ref`s. Each step scans over eight micro-batches. Its backward pass adds their
gradients to the buffer, and the step updates parameters and momenta in place. A functional loop,
which carries a sum of gradients and makes new parameters and momenta, must give the same losses and
parameters.

XLA reports the memory of the compiled steps. The step in place makes no new arrays, and needs one
more copy of the parameters as scratch. This is less than a functional step whose caller keeps the
old arrays, and 3 % more than one whose caller donates them by hand. The script exits with an error
if the two loops disagree, or if the step in place needs more than that.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp

import tanjax as tj

WIDTH, MICRO_BATCHES, EXAMPLES, STEPS = 256, 8, 32, 60
RATE, MOMENTUM = 0.05, 0.9


def parameters() -> dict[str, Any]:
    """Return two structured layers between two dense ones."""
    keys = jax.random.split(jax.random.key(0), 3)
    normal = lambda key, *shape: jax.random.normal(key, shape) / shape[0] ** 0.5
    return {
        "in": normal(keys[0], 2, WIDTH),
        "scale": tj.Diagonal(jnp.ones(WIDTH)),
        "mix": tj.Symmetric(normal(keys[1], WIDTH, WIDTH), "mean"),
        "out": normal(keys[2], WIDTH, 1),
    }


def loss(p: dict[str, Any], batch: Any) -> Any:
    """Return the mean squared error on one micro-batch."""
    x, y = batch
    hidden = p["scale"] @ jnp.tanh(x @ p["in"]).T
    guess = jnp.tanh(p["mix"] @ hidden).T @ p["out"]
    return jnp.mean((guess - y) ** 2)


def batches(key: Any) -> Any:
    """Return micro-batches of a wave in two dimensions."""
    x = jax.random.uniform(key, (MICRO_BATCHES, EXAMPLES, 2), minval=-1.0, maxval=1.0)
    return x, jnp.sin(3 * x[..., :1]) * x[..., 1:]


@jax.jit
def step_in_place(p: Any, momenta: Any, gradient: Any, data: Any) -> Any:
    """Take one step on Refs: return the loss, and write everything else."""
    now = jax.tree.map(lambda ref: ref[...], p, is_leaf=is_whole)
    for ref in jax.tree.leaves(gradient):
        ref[...] = jnp.zeros_like(ref[...])
    add = tj.value_and_grad(loss, into=gradient)
    losses = jax.lax.scan(lambda _, batch: (None, add(now, batch)), None, data)[1]
    triples = zip(*map(jax.tree.leaves, (p, momenta, gradient)), strict=True)
    for ref, momentum, g in triples:
        momentum[...] = MOMENTUM * momentum[...] + g[...] / MICRO_BATCHES
        ref[...] -= RATE * momentum[...]
    return jnp.mean(losses)


def is_whole(x: Any) -> bool:
    """True if a node of a tree of Refs reads as one array."""
    return isinstance(x, tj.refs.StructuredRef | jax.Ref)


@jax.jit
def step(p: Any, momenta: Any, data: Any) -> Any:
    """Take the same step without Refs: the scan carries the sum of the gradients."""

    def body(total: Any, batch: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(p, batch)
        return jax.tree.map(jnp.add, total, gradient), value

    total, losses = jax.lax.scan(body, jax.tree.map(jnp.zeros_like, p), data)
    momenta = jax.tree.map(lambda m, g: MOMENTUM * m + g / MICRO_BATCHES, momenta, total)
    return jax.tree.map(lambda x, m: x - RATE * m, p, momenta), momenta, jnp.mean(losses)


def memory(compiled: Any, size: int) -> dict[str, float]:
    """Return the memory of a compiled step, in sizes of the parameters."""
    found = compiled.memory_analysis()
    aliased = found.alias_size_in_bytes
    new = found.output_size_in_bytes - aliased
    return {
        "held": found.argument_size_in_bytes / size,
        "scratch": found.temp_size_in_bytes / size,
        "new": new / size,
    }


def main() -> int:
    """Train twice, compare; 1 if something differs."""
    plain = parameters()
    momenta = jax.tree.map(jnp.zeros_like, plain)
    refs, moving, gradient = tj.new_ref(plain), tj.new_ref(momenta), tj.refs.zero_refs(plain)
    size = sum(x.nbytes for x in jax.tree.leaves(plain))
    data = batches(jax.random.key(1))
    own = memory(step_in_place.lower(refs, moving, gradient, data).compile(), size)
    other = memory(step.lower(plain, momenta, data).compile(), size)
    donating = jax.jit(step.__wrapped__, donate_argnums=(0, 1))
    donated = memory(donating.lower(plain, momenta, data).compile(), size)
    print(f"parameters: {size / 1024:.0f} KiB; memory of a step in sizes of the parameters")
    for name, found in (("in place", own), ("without Refs", other), ("and donated", donated)):
        print(f"  {name:12}  " + ", ".join(f"{k} {v:.2f}" for k, v in found.items()))

    worst = 0.0
    for i in range(STEPS):
        data = batches(jax.random.key(i))
        value = step_in_place(refs, moving, gradient, data)
        plain, momenta, expected = step(plain, momenta, data)
        worst = max(worst, abs(float(value - expected)) / float(expected))
        if i % 20 == 0 or i == STEPS - 1:
            print(f"step {i:2}: loss {float(value):.4f}, without Refs {float(expected):.4f}")

    trained = tj.refs.freeze(refs)
    pairs = zip(jax.tree.leaves(trained), jax.tree.leaves(plain), strict=True)
    apart = max(float(jnp.max(jnp.abs(a - b))) for a, b in pairs)
    kinds = {name: type(x).__name__ for name, x in trained.items()}
    mix = trained["mix"].to_dense()
    print(f"largest difference of losses {worst:.1e}, of parameters {apart:.1e}")
    print(f"types kept: {kinds['scale']}, {kinds['mix']}")
    is_right = worst < 1e-3 and apart < 1e-3 and bool(jnp.all(mix == mix.T))
    needs, without, by_hand = (sum(found.values()) for found in (own, other, donated))
    is_small = own["new"] < 0.01 and needs < without and needs < 1.05 * by_hand
    return int(not (is_right and is_small))


if __name__ == "__main__":
    sys.exit(main())
