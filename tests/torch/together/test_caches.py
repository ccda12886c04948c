"""Nothing is kept that nobody asked to keep: conversions, graphs, steps of training."""

import gc
import weakref

import jax
import jax.numpy as jnp
import pytest

torch = pytest.importorskip("torch")
from torch import nn, optim

import tanjax as tj
from tanjax.bridges import torch as tjt

pytestmark = pytest.mark.torch


def convert(weights):
    t = tjt.from_torch(torch.ones(4, 4))
    tjt.to_torch(t)
    tjt.to_jax(tjt.from_jax(weights))
    tjt.from_jax(tj.Diagonal(weights[0])).payload  # noqa: B018


def differentiate(weights):
    t = tjt.from_jax(weights, requires_grad=True)
    ((t @ t).tanh()[0] * t[1]).sum().backward()


def write(weights):
    t = tjt.from_jax(weights)
    t[1:].add_(1.0).select(1, 0).zero_()


def train():
    """Steps with a count and a rate that change in each."""
    net = tjt.convert(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    x, optimiser = tjt.from_torch(torch.ones(3, 4)), optim.AdamW(net.parameters(), 0.1)
    scheduler = optim.lr_scheduler.ExponentialLR(optimiser, 0.9)

    def step(weights):
        optimiser.zero_grad()
        net(x).square().mean().backward()
        optimiser.step()
        scheduler.step()

    return step


def alive():
    gc.collect()
    return len(jax.live_arrays()), len(gc.get_objects())


@pytest.mark.parametrize(
    ("make", "times"),
    [(lambda: convert, 1000), (lambda: differentiate, 1000), (lambda: write, 1000), (train, 50)],
    ids=["convert", "differentiate", "write", "train"],
)
def test_repeated_work_keeps_no_arrays_and_hardly_more_objects(make, times):
    weights, work = jnp.ones((4, 4)), make()
    for _ in range(5):
        work(weights)
    arrays, objects = alive()
    for _ in range(times):
        work(weights)
    after = alive()
    assert after[0] <= arrays
    assert after[1] <= objects + 200


def test_a_structured_leaf_goes_with_its_name():
    """At once: its hook does not hold it, and no cycle waits for the collector."""
    t = tjt.from_jax(tj.Diagonal(jnp.ones(4)), requires_grad=True)
    torch.trace(t).backward()
    gone = weakref.ref(t)
    gc.disable()
    try:
        del t
        assert gone() is None
    finally:
        gc.enable()


def test_arrays_kept_for_backward_are_freed_with_it():
    """Also where a result of the forward pass is kept."""
    count = lambda: sum(x.shape == (23,) for x in jax.live_arrays())
    before = count()
    t = tjt.from_jax(tj.Diagonal(jnp.ones(23)), requires_grad=True)
    loss = torch.logdet(t)
    loss.backward()
    gc.collect()
    assert count() == before + 2  # the parameter and its gradient
    assert loss.requires_grad
