"""Modules of torch on our tensors: values, gradients and buffers are plain torch's."""

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tanjax.bridges import torch as tjt  # noqa: E402

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def numbers(*size, low=None):
    """The same numbers in every run; integers below `low`."""
    generator = np.random.default_rng(sum(size) + 7 * len(size))
    if low is not None:
        return torch.from_numpy(generator.integers(0, low, size))
    return torch.from_numpy(generator.normal(size=size))


def leaves(out):
    if isinstance(out, torch.Tensor):
        return [out]
    return [x for part in out or () for x in leaves(part)] if not isinstance(out, int) else []


def array(t):
    return None if t is None else np.asarray(t.detach().numpy())


def run(module, inputs, grad):
    """Outputs, gradients of inputs and parameters, and buffers after the call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's own about masks and hooks
        outputs = leaves(module(*inputs))
    found = {f"output {n}": array(y) for n, y in enumerate(outputs)}
    if grad:
        loss = sum(
            (y * torch.linspace(0.1, 1.0, y.numel(), dtype=y.dtype).reshape(y.shape).to(y)).sum()
            if not isinstance(y, tjt.Tensor)
            else (y * tjt.from_torch(torch.linspace(0.1, 1.0, y.numel(), dtype=y.dtype)).reshape(y.shape)).sum()
            for y in outputs
            if y.requires_grad
        )
        loss.backward()
        found |= {f"gradient of input {n}": array(x.grad) for n, x in enumerate(inputs) if isinstance(x, torch.Tensor)}
        found |= {f"gradient of {n}": array(p.grad) for n, p in module.named_parameters()}
    return found | {f"buffer {n}": array(b) for n, b in module.named_buffers()}


def compare(make, inputs, dtype=torch.float64, grad=True, train=True):
    """A module in plain torch and converted, on the same numbers."""
    torch.manual_seed(0)
    plain = make().to(dtype).train(train)
    ours = tjt.convert(copy.deepcopy(plain))
    given = [
        x.to(dtype).requires_grad_(grad)
        if isinstance(x, torch.Tensor) and x.is_floating_point()
        else x
        for x in inputs
    ]
    mine = [tjt.from_torch(x) if isinstance(x, torch.Tensor) else x for x in given]
    with torch.set_grad_enabled(grad):
        expected, got = run(plain, given, grad), run(ours, mine, grad)
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        if value is None:
            assert got[name] is None, name
            continue
        assert got[name] is not None, f"{name}: cut"
        assert got[name].dtype == value.dtype, name
        np.testing.assert_allclose(
            got[name], value, TOLERANCE[dtype], TOLERANCE[dtype], err_msg=name
        )


X3, X4, X5 = numbers(2, 4, 6), numbers(2, 4, 6, 6), numbers(1, 2, 4, 4, 4)
ROWS, SEQUENCE = numbers(5, 4), numbers(3, 2, 4)
WORDS = numbers(2, 3, low=5)
norm, conv = nn.utils.parametrizations, {"stride": 2, "padding": 1}

LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), ROWS),
    "bilinear": (lambda: nn.Bilinear(4, 4, 3), ROWS, ROWS.flip(0)),
    "conv1d": (lambda: nn.Conv1d(4, 2, 3, **conv), X3),
    "conv2d groups": (lambda: nn.Conv2d(4, 6, 3, groups=2, dilation=2, padding=2), X4),
    "conv2d same": (lambda: nn.Conv2d(4, 2, (3, 2), padding="same", padding_mode="circular"), X4),
    "conv3d": (lambda: nn.Conv3d(2, 2, 2, bias=False), X5),
    "transposed": (lambda: nn.ConvTranspose2d(4, 2, 3, output_padding=1, **conv), X4),
    "transposed groups": (lambda: nn.ConvTranspose1d(4, 2, 3, groups=2, dilation=2), X3),
    "layer norm": (lambda: nn.LayerNorm((4, 6)), X3),
    "rms norm": (lambda: nn.RMSNorm(6), X3),
    "group norm": (lambda: nn.GroupNorm(2, 4), X4),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), X4),
    "batch norm": (lambda: nn.BatchNorm2d(4), X4),
    "batch norm average": (lambda: nn.BatchNorm1d(4, momentum=None), ROWS),
    "embedding": (lambda: nn.Embedding(5, 3, padding_idx=1), WORDS),
    "embedding max norm": (lambda: nn.Embedding(5, 3, max_norm=0.5), WORDS),
    "bag sum": (lambda: nn.EmbeddingBag(5, 3, mode="sum"), WORDS),
    "bag mean": (lambda: nn.EmbeddingBag(5, 3), WORDS),
    "bag max": (lambda: nn.EmbeddingBag(5, 3, mode="max"), WORDS),
    "rnn": (lambda: nn.RNN(4, 3, nonlinearity="relu"), SEQUENCE),
    "lstm": (lambda: nn.LSTM(4, 3, 2, bidirectional=True), SEQUENCE),
    "lstm projected": (lambda: nn.LSTM(4, 3, proj_size=2, batch_first=True), SEQUENCE),
    "gru": (lambda: nn.GRU(4, 3), SEQUENCE),
    "lstm cell": (lambda: nn.LSTMCell(4, 3), ROWS),
    "gru cell": (lambda: nn.GRUCell(4, 3), ROWS),
    "max pool": (lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), X4),
    "max pool 1d": (lambda: nn.MaxPool1d(2), X3),
    "average pool": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), X4),
    "adaptive pool": (lambda: nn.AdaptiveAvgPool2d((3, 2)), X4),
    "adaptive max pool": (lambda: nn.AdaptiveMaxPool1d(2), X3),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), X4),
    "shuffle and pad": (lambda: nn.Sequential(nn.PixelShuffle(2), nn.ReflectionPad2d(1)), X4),
    "weight norm": (lambda: norm.weight_norm(nn.Linear(4, 3)), ROWS),
    "spectral norm": (lambda: norm.spectral_norm(nn.Linear(4, 3)), ROWS),
    "orthogonal": (lambda: norm.orthogonal(nn.Linear(4, 4)), ROWS),
    "prelu, softmax": (lambda: nn.Sequential(nn.PReLU(), nn.Softmax(-1)), ROWS),
    "gated": (lambda: nn.Sequential(nn.GLU(-1), nn.SiLU(), nn.GELU(), nn.Hardswish()), ROWS),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    make, *inputs = LAYERS[name]
    compare(make, inputs)
