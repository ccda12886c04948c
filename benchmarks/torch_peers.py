"""Models for `bench_torch.py` in torch and JAX, and in torchax if it can be imported."""

from __future__ import annotations

import copy
import importlib.metadata
import importlib.util
import itertools
import pathlib
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch import nn

SMALL = (16, (16, 64, 16))  # rows, widths
LARGE = (256, (784, 512, 512, 10))


def mlp(widths: tuple[int, ...]) -> nn.Module:
    """Return linear layers with tanh between them, with the same numbers in every call."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for n, m in itertools.pairwise(widths):
        layers += [nn.Linear(n, m), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def rows(size: tuple[int, tuple[int, ...]]) -> torch.Tensor:
    """Return the input of a model of that size."""
    return torch.randn(size[0], size[1][0], generator=torch.Generator().manual_seed(1))


def loss_of(y: Any) -> Any:
    """Return the mean of squares, in torch and in JAX."""
    return (y * y).mean()


def jax_mlp(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Run the same model in plain JAX."""
    layers = sorted({int(name.split(".")[0]) for name in params})
    for n in layers:
        x = x @ params[f"{n}.weight"].T + params[f"{n}.bias"]
        x = x if n == layers[-1] else jnp.tanh(x)
    return x


def torchax() -> tuple[Any, str]:
    """Return the library, or `None`, and a remark.

    The release of torchax names overloads that torch 2.13 no longer has, and reads them at
    import. So each name first gets another overload of the same packet. None of them is timed.
    """
    spec = importlib.util.find_spec("torchax")
    if spec is None or spec.origin is None:
        return None, "torchax is not installed."
    version = importlib.metadata.version("torchax")
    texts = (path.read_text() for path in pathlib.Path(spec.origin).parent.rglob("*.py"))
    lacking = 0
    for name, overload in {
        n for t in texts for n in re.findall(r"ops\.aten\.(\w+)\.([a-zA-Z]\w*)", t)
    }:
        packet = getattr(torch.ops.aten, name)
        if overload not in packet.overloads():
            setattr(packet, overload, getattr(packet, packet.overloads()[0]))
            lacking += 1
    try:
        import torchax  # type: ignore[import-not-found]
        import torchax.interop  # type: ignore[import-not-found]

        torchax.default_env()
    except Exception as error:
        return None, f"torchax {version} does not import: {error!r}."
    added = f"{lacking} names that torch lacks; the benchmark adds them."
    return torchax, f"Torchax {version} needs {added}"


def backward(
    model: nn.Module, x: torch.Tensor, compiler: Callable[..., Any] | None = None
) -> Callable[[], Any]:
    """Run forward and backward, and drop gradients first, as in a step of training."""
    parameters = list(model.parameters())
    loss_at: Callable[[Any], Any] = lambda x: loss_of(model(x))
    if compiler is not None:
        loss_at = compiler(loss_at)

    def step() -> Any:
        for p in parameters:
            p.grad = None
        loss = loss_at(x)
        loss.backward()
        return loss

    return step


def torchax_step(torchax: Any, model: nn.Module, x: torch.Tensor) -> Callable[[], Any]:
    """Compile value and gradients as torchax advises: its `backward` does not reach a layer."""
    with torchax.default_env():
        theirs, given = copy.deepcopy(model).to("jax"), x.to("jax")
        weights = dict(theirs.named_parameters())
        call = torch.func.functional_call
        loss = lambda weights, x: loss_of(call(theirs, weights, (x,)))
        step = torchax.interop.jax_jit(torchax.interop.jax_value_and_grad(loss))
        step(weights, given)
    return lambda: jax.block_until_ready(_arrays(step(weights, given)))


def _arrays(out: Any) -> list[Any]:
    return [t.jax() for t in torch.utils._pytree.tree_leaves(out)]
