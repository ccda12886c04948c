"""Modules as strangers write them, with arguments: what a bridge to torch must take as they are."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A transformer block with causal attention."""

    def __init__(self, width: int = 4, heads: int = 2) -> None:
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        qkv = self.qkv(self.norm(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.gelu(self.out(a.transpose(1, 2).reshape(b, t, d)))


class Convolutions(nn.Module):
    """Convolutions with batch norm, which writes its statistics, and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.last = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return F.log_softmax(self.last(x.mean((2, 3))), -1)


class Recurrent(nn.Module):
    """An LSTM, whose last output and state are used."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.last = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, (h, _) = self.cells(x)
        return self.last(y[:, -1]) + h.sum()


class Tied(nn.Module):
    """An embedding whose weight is that of the last layer too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.last.weight = self.embed.weight

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.embed(i)))


class Averaging(nn.Module):
    """A buffer that is written without gradient, and one that is not kept in files."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("shift", torch.ones(3), persistent=False)
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return (x - self.mean) * self.weight + self.shift


class Deciding(nn.Module):
    """Control flow on Python values and on sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])

    def forward(self, x: torch.Tensor, n: int = 1, flip: bool = False) -> torch.Tensor:
        for layer in self.layers[:n]:
            x = torch.relu(layer(x))
        x = x.flip(0) if flip else x
        return x if x.shape[0] > 2 else 2 * x


class Named(nn.Module):
    """A dict in, another one with a tuple out."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, d: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {"y": self.layer(d["a"]) + d["b"], "rest": (d["b"].sum(), d["a"].amax())}


class Two(nn.Module):
    """Two results of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.layer(x)
        return h.sum(), torch.stack([h, h**2])


class Nested(nn.Module):
    """Modules in modules, one of them called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.two = Two()
        self.more = nn.ModuleDict({"soft": nn.Sequential(nn.Linear(2, 2), nn.Softplus())})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total, parts = self.two(x)
        return self.more["soft"](self.more["soft"](parts)).mean() + total


class Detaching(nn.Module):
    """What torch does not differentiate, and writes into views."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.target = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            target = self.target(x)
        y = self.layer(x)
        y[:, 0] = y[:, 0] * 2
        z = y.clone()
        z += 1
        z.mul_(y)
        return ((y - target) ** 2).sum() + (z * y.detach()).sum()


def modules() -> dict[str, tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]:
    """Modules by name, with positional and named arguments."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = torch.randn(4, 3)
        return {
            "block": (Block(), (torch.randn(2, 3, 4),), {}),
            "convolutions": (Convolutions(), (torch.randn(2, 2, 4, 4),), {}),
            "recurrent": (Recurrent(), (torch.randn(2, 4, 3),), {}),
            "tied": (Tied(), (torch.tensor([[1, 2], [0, 6]]),), {}),
            "averaging": (Averaging(), (x,), {}),
            "deciding": (Deciding(), (x,), {"n": 2, "flip": True}),
            "named": (Named(), ({"b": torch.randn(4, 2), "a": x},), {}),
            "two": (Two(), (x,), {}),
            "nested": (Nested(), (x,), {}),
            "detaching": (Detaching(), (x,), {}),
        }
