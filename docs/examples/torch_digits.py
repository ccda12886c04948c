"""Handwritten digits learnt by an `nn.Module` with a Kronecker layer: torch.optim, optax, compiled.

    python docs/examples/torch_digits.py

The first layer reads an image of 8×8 as rows and columns: its weight is a Kronecker product of two
small matrices, 256 numbers in place of 16,384. The script trains it with `torch.optim.Adam`,
operation by operation. From the same start and in the same order, it trains the exported JAX
function with optax under `jax.jit`. The losses must agree to the rounding of float32.

Then it trains the same network with a dense first layer, in plain torch and by
`torch.compile(backend=tjt.backend)`. These losses must agree, too (structured arrays go through
export). The accuracies are those on held-out images. The script exits with an error if losses
disagree or a network learns less than expected.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import nn

import tanjax as tj
from tanjax.bridges import torch as tjt

EPOCHS, BATCH, RATE, TRAINED = 12, 64, 0.01, 1437
SIDE, HIDDEN = 8, 16  # an image becomes HIDDEN × HIDDEN features

Data = tuple[np.ndarray, np.ndarray]
Outcome = tuple[list[float], float, float]  # losses, accuracy, milliseconds of a step


def digits() -> tuple[Data, Data]:
    """Return 1,797 images, rows of 64 numbers from 0 to 1, and classes: to train, and to test."""
    images, classes = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    x, y = (images[order] / 16).astype(np.float32), classes[order].astype(np.int32)
    return (x[:TRAINED], y[:TRAINED]), (x[TRAINED:], y[TRAINED:])


def batches(data: Data) -> Iterator[Data]:
    """Yield the batches of every epoch, the same for every contender."""
    x, y = data
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(len(x))
        for n in range(0, len(x) - BATCH + 1, BATCH):
            yield x[order[n : n + BATCH]], y[order[n : n + BATCH]]


def structured() -> nn.Module:
    """Return a network that mixes rows and columns by a factor each, then classifies."""
    rng = np.random.default_rng(1)
    factor = lambda: jnp.asarray(rng.normal(0, SIDE**-0.5, (HIDDEN, SIDE)), jnp.float32)
    torch.manual_seed(0)
    first = tjt.nn.StructuredLinear(tj.Kronecker(factor(), factor()))
    return nn.Sequential(first, nn.ReLU(), tjt.convert(nn.Linear(HIDDEN**2, 10)))


def dense() -> nn.Module:
    """Return a network of the same sizes in plain torch."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(SIDE**2, HIDDEN**2), nn.ReLU(), nn.Linear(HIDDEN**2, 10))


def by_torch(
    model: nn.Module, data: Data, test: Data, run: Any, tensor: Callable[[Any], Any]
) -> Outcome:
    """Train by `torch.optim.Adam`; `run` is the model or its compiled form."""
    optimiser = torch.optim.Adam(model.parameters(), RATE)
    losses, seconds = [], []
    for x, y in batches(data):
        start = time.perf_counter()
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(run(tensor(x)), tensor(y).long())
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    with torch.no_grad():
        guesses = model(tensor(test[0])).argmax(-1).numpy()
    return losses, accuracy(guesses, test), 1e3 * float(np.median(seconds))


def by_optax(model: nn.Module, data: Data, test: Data) -> Outcome:
    """Train the module as a function of its parameters, by structured gradients and `optax`."""
    params, f = tjt.as_jax(model)
    optimiser = optax.adam(RATE)
    state = optimiser.init(params)

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(f(params, x), y).mean()

    @jax.jit
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        updates, state = optimiser.update(grads, state)
        return optax.apply_updates(params, updates), state, loss

    losses, seconds = [], []
    for x, y in batches(data):
        start = time.perf_counter()
        params, state, loss = step(params, state, x, y)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    guesses = np.asarray(f(params, jnp.asarray(test[0])).argmax(-1))
    return losses, accuracy(guesses, test), 1e3 * float(np.median(seconds))


def accuracy(guesses: np.ndarray, test: Data) -> float:
    """Return the share of right guesses."""
    return float((guesses == test[1]).mean())


def stored(model: nn.Module) -> int:
    """Return the number of numbers in the parameters."""
    payloads = [p.payload if isinstance(p, tjt.Tensor) else p for p in model.parameters()]
    return sum(int(np.prod(x.shape)) for x in jax.tree.leaves(payloads))


def main() -> int:
    """Train each, print, compare; return 1 if a check of the module's docstring fails."""
    data, test = digits()
    plain, compiled = dense(), dense()
    run = torch.compile(compiled, backend=tjt.backend)
    ours = lambda a: tjt.from_jax(jnp.asarray(a))
    model, other = structured(), structured()
    found = {
        ("Kronecker", "torch.optim", "eager"): by_torch(model, data, test, model, ours),
        ("Kronecker", "optax", "exported, jax.jit"): by_optax(other, data, test),
        ("dense", "torch.optim", "plain torch"): by_torch(
            plain, data, test, plain, torch.from_numpy
        ),
        ("dense", "torch.optim", "torch.compile, tjt.backend"): by_torch(
            compiled, data, test, run, torch.from_numpy
        ),
    }
    sizes = {"Kronecker": stored(model), "dense": stored(plain)}
    table = Table(box=box.SIMPLE, title="Handwritten digits, 8×8: 1,437 to train, 360 to test")
    for name in ("first layer", "numbers", "optimiser", "how", "last loss", "accuracy", "step, ms"):
        table.add_column(name, justify="left" if name in ("first layer", "optimiser") else "right")
    for (kind, optimiser, how), (losses, right, ms) in found.items():
        last = f"{np.mean(losses[-20:]):.5f}"
        table.add_row(kind, f"{sizes[kind]:,}", optimiser, how, last, f"{right:.1%}", f"{ms:.2f}")
    Console(width=110).print(table)
    curves = [np.array(losses) for losses, *_ in found.values()]
    apart = [float(np.max(np.abs(a - b))) for a, b in (curves[:2], curves[2:])]
    print(f"losses apart, at most: Kronecker {apart[0]:.1e}, dense {apart[1]:.1e}")
    learnt = all(right > 0.95 for _, right, _ in found.values())
    return int(not learnt or max(apart) > 1e-2)


if __name__ == "__main__":
    sys.exit(main())
