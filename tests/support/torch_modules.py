"""Modules as users write them, with arguments, for tests of a bridge to torch."""

import torch
import torch.nn.functional as F
from torch import nn


class Module(nn.Module):
    """A module of some parts."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


class Block(Module):
    """A transformer block with causal attention."""

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.gelu(self.out(a.transpose(1, 2).reshape(b, t, d)))


class Convolutions(Module):
    """Convolutions with batch norm, which writes its statistics, and pooling."""

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return F.log_softmax(self.last(x.mean((2, 3))), -1)


class Recurrent(Module):
    """An LSTM, whose last output and state are used."""

    def forward(self, x):
        y, (h, _) = self.cells(x)
        return self.last(y[:, -1]) + h.sum()


class Tied(Module):
    """An embedding whose weight is that of the last layer too."""

    def __init__(self):
        super().__init__(embed=nn.Embedding(7, 4), last=nn.Linear(4, 7, bias=False))
        self.last.weight = self.embed.weight

    def forward(self, i):
        return self.last(torch.tanh(self.embed(i)))


class Averaging(Module):
    """A buffer that is written without gradient, and one that is not kept in files."""

    def __init__(self):
        super().__init__(weight=nn.Parameter(torch.ones(3)))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("shift", torch.ones(3), persistent=False)

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return (x - self.mean) * self.weight + self.shift


class Deciding(Module):
    """Control flow on Python values and on sizes."""

    def forward(self, x, n=1, flip=False):
        for layer in self.layers[:n]:
            x = torch.relu(layer(x))
        x = x.flip(0) if flip else x
        return x if x.shape[0] > 2 else 2 * x


class Named(Module):
    """A dict in, another one with a tuple out."""

    def forward(self, d):
        return {"y": self.layer(d["a"]) + d["b"], "rest": (d["b"].sum(), d["a"].amax())}


class Nested(Module):
    """Modules in modules, one of them called twice, and two results."""

    def forward(self, x):
        h = self.layer(x)
        return h.sum(), self.more["soft"](self.more["soft"](torch.stack([h, h**2]))).mean()


class Detaching(Module):
    """A module with operations that torch does not differentiate, and with writes into views."""

    def forward(self, x):
        with torch.no_grad():
            target = self.target(x)
        y = self.layer(x)
        y[:, 0] = y[:, 0] * 2
        z = y.clone()
        z += 1
        z.mul_(y)
        return ((y - target) ** 2).sum() + (z * y.detach()).sum()


def modules():
    """Modules by name, with positional and named arguments."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x, of = torch.randn(4, 3), nn.Linear
        convolutions = {"first": nn.Conv2d(2, 3, 3, padding=1), "norm": nn.BatchNorm2d(3)}
        soft = nn.ModuleDict({"soft": nn.Sequential(of(2, 2), nn.Softplus())})
        return {
            "block": (
                Block(norm=nn.LayerNorm(4), qkv=of(4, 12), out=of(4, 4)),
                (torch.randn(2, 3, 4),),
                {},
            ),
            "convolutions": (
                Convolutions(**convolutions, last=of(3, 2)),
                (torch.randn(2, 2, 4, 4),),
                {},
            ),
            "recurrent": (
                Recurrent(cells=nn.LSTM(3, 4, batch_first=True), last=of(4, 2)),
                (torch.randn(2, 4, 3),),
                {},
            ),
            "tied": (Tied(), (torch.tensor([[1, 2], [0, 6]]),), {}),
            "averaging": (Averaging(), (x,), {}),
            "deciding": (
                Deciding(layers=nn.ModuleList([of(3, 3) for _ in range(3)])),
                (x,),
                {"n": 2, "flip": True},
            ),
            "named": (Named(layer=of(3, 2)), ({"b": torch.randn(4, 2), "a": x},), {}),
            "nested": (Nested(layer=of(3, 2), more=soft), (x,), {}),
            "detaching": (Detaching(layer=of(3, 3), target=of(3, 3)), (x,), {}),
        }
