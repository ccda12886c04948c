"""Modules of torch on our tensors: values, gradients and buffers are plain torch's."""

import copy
import functools
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import tanjax as tj
from tanjax.bridges import torch as tjt
from torch_comparison import alike, assert_same_as_torch

pytestmark = pytest.mark.torch


def numbers(*size):
    """The same numbers in every run."""
    return torch.from_numpy(np.random.default_rng(sum(size) + 7 * len(size)).normal(size=size))


def array(t):
    return None if t is None else np.asarray(t.detach().numpy())


def run(module, inputs, named, grad):
    """Outputs, gradients of inputs and parameters, and buffers after the call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's own, of its fast paths
        outputs = [y for y in pytree.tree_leaves(module(*inputs, **named)) if y is not None]
    found = {f"output {n}": array(y) for n, y in enumerate(outputs)}
    if grad:
        ends = [y for y in outputs if y.requires_grad]
        bars = [torch.linspace(0.1, 1.0, y.numel(), dtype=y.dtype).reshape(y.shape) for y in ends]
        torch.autograd.backward(ends, [alike(y, bar) for y, bar in zip(ends, bars, strict=True)])
        found |= {f"gradient of input {n}": array(x.grad) for n, x in enumerate(inputs)}
        found |= {f"gradient of {n}": array(p.grad) for n, p in module.named_parameters()}
    return found | {f"buffer {n}": array(b) for n, b in module.named_buffers()}


def assert_agree(make, *inputs, dtype=torch.float64, grad=True, train=True, **named):
    """A module in plain torch and converted, on the same numbers."""
    torch.manual_seed(0)
    plain = make().to(dtype).train(train)
    found = []
    for module, world in ((plain, torch.clone), (copy.deepcopy(plain), tjt.from_torch)):

        @functools.cache  # one tensor stays one tensor: fast paths ask
        def leaf(x, world=world):
            floats = x.is_floating_point()
            return world(x.to(dtype) if floats else x).requires_grad_(floats and grad)

        given = pytree.tree_map_only(torch.Tensor, leaf, (inputs, named))
        module = module if world is torch.clone else tjt.convert(module)
        with torch.set_grad_enabled(grad):
            found.append(run(module, *given, grad))
    expected, got = found
    assert expected.keys() == got.keys()
    tolerance = 2e-5 if dtype is torch.float32 else 1e-12
    for name, value in expected.items():
        assert (got[name] is None) == (value is None), f"{name}: cut"
        if value is not None:
            assert got[name].dtype == value.dtype, name
            np.testing.assert_allclose(got[name], value, tolerance, tolerance, err_msg=name)


X4, ROWS, SEQUENCE = numbers(2, 4, 6, 6), numbers(5, 4), numbers(3, 2, 4)
WORDS = torch.tensor([[1, 0, 4], [2, 2, 3]])
norm = nn.utils.parametrizations

LAYERS = {
    "conv2d same": (lambda: nn.Conv2d(4, 2, (3, 2), padding="same", padding_mode="circular"), X4),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), X4),
    "batch norm": (lambda: nn.BatchNorm2d(4), X4),
    "batch norm average": (lambda: nn.BatchNorm1d(4, momentum=None), ROWS),
    "embedding max norm": (lambda: nn.Embedding(5, 3, max_norm=0.5), WORDS),
    "bag max": (lambda: nn.EmbeddingBag(5, 3, mode="max"), WORDS),
    "rnn": (lambda: nn.RNN(4, 3, nonlinearity="relu"), SEQUENCE),
    "lstm": (lambda: nn.LSTM(4, 3, 2, bidirectional=True), SEQUENCE),
    "lstm projected": (lambda: nn.LSTM(4, 3, proj_size=2, batch_first=True), SEQUENCE),
    "gru": (lambda: nn.GRU(4, 3), SEQUENCE),
    "lstm cell": (lambda: nn.LSTMCell(4, 3), ROWS),
    "gru cell": (lambda: nn.GRUCell(4, 3), ROWS),
    "weight norm": (lambda: norm.weight_norm(nn.Linear(4, 3)), ROWS),
    "spectral norm": (lambda: norm.spectral_norm(nn.Linear(4, 3)), ROWS),
    "orthogonal": (lambda: norm.orthogonal(nn.Linear(4, 4)), ROWS),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_their_buffers_are_torchs(name):
    assert_agree(*LAYERS[name])


@pytest.mark.parametrize("name", ["conv2d same", "batch norm", "lstm"])
def test_layers_in_float32_are_torchs(name):
    assert_agree(*LAYERS[name], dtype=torch.float32)


@pytest.mark.parametrize("name", ["batch norm", "instance norm", "spectral norm"])
def test_layers_in_evaluation_leave_their_buffers_alone(name):
    assert_agree(*LAYERS[name], train=False)


MODEL, SMALL = numbers(2, 3, 8), {"batch_first": True, "dropout": 0.0}
LATER = torch.ones(3, 3, dtype=torch.bool).triu(1)
PADDED = torch.tensor([[False, False, False], [False, True, True]])
ENCODER = lambda **options: nn.TransformerEncoderLayer(8, 2, 6, **SMALL, **options)
ATTENTION = lambda: nn.MultiheadAttention(8, 2, **SMALL)
ATTENTIONS = {
    "attention": (ATTENTION, (MODEL,) * 3, {"attn_mask": LATER}),
    "attention of others": (ATTENTION, (MODEL, MODEL.flip(0), MODEL), {"need_weights": False}),
    "attention, padded": (ATTENTION, (MODEL,) * 3, {"key_padding_mask": PADDED}),
    "encoder": (ENCODER, (MODEL,), {"src_mask": LATER, "is_causal": True}),
    "encoder, padded": (ENCODER, (MODEL,), {"src_key_padding_mask": PADDED}),
    "encoder, norm first": (lambda: ENCODER(norm_first=True, activation="gelu"), (MODEL,), {}),
    "decoder": (lambda: nn.TransformerDecoderLayer(8, 2, 6, **SMALL), (MODEL, MODEL.flip(1)), {}),
}


@pytest.mark.parametrize("train", [True, False], ids=["trained", "evaluated"])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_is_torchs(name, train):
    """With gradients, and on torch's fast path for evaluation."""
    make, inputs, named = ATTENTIONS[name]
    assert_agree(make, *inputs, train=train, grad=train, **named)


def test_an_encoder_that_makes_nested_tensors_is_refused():
    """Padded rows become nested tensors on torch's fast path, which ours are not: refused."""
    stack = lambda **options: nn.TransformerEncoder(ENCODER(), 2, **options)
    named = {"train": False, "grad": False, "src_key_padding_mask": PADDED}
    assert_agree(lambda: stack(enable_nested_tensor=False), MODEL, **named)
    with pytest.raises(tj.NoRuleError, match="_nested_tensor_from_mask"):
        assert_agree(stack, MODEL, **named)


@pytest.mark.parametrize("layer", [nn.Dropout(0.25), nn.Dropout2d(0.25)], ids=str)
def test_dropout_follows_the_seed(layer):
    """The same seed gives the same mask, another call another one; the mean stays."""
    x = tjt.from_torch(torch.ones(20, 40, 5, 5)).requires_grad_()
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    assert torch.equal(first, layer(x))
    assert not torch.equal(first, second)
    assert abs(first.mean().item() - 1.0) < 0.1
    first.sum().backward()
    if isinstance(layer, nn.Dropout):
        assert set(array(first).ravel().tolist()) == {0.0, np.float32(1 / 0.75)}
        np.testing.assert_array_equal(array(x.grad), array(first))
    layer.eval()
    assert torch.equal(layer(x), x)


FILLS = {
    "xavier_uniform_": lambda w: np.abs(w).max() <= np.sqrt(6 / 90) and 0.12 < w.std() < 0.18,
    "xavier_normal_": lambda w: 0.12 < w.std() < 0.18,
    "kaiming_normal_": lambda w: 0.2 < w.std() < 0.24,
    "kaiming_uniform_": lambda w: 0.2 < w.std() < 0.24,
    "uniform_": lambda w: 0 <= w.min() < 0.01 and 0.99 < w.max() <= 1,
    "normal_": lambda w: 0.95 < w.std() < 1.05 and abs(w.mean()) < 0.1,
    "trunc_normal_": lambda w: np.abs(w).max() <= 2 and 0.8 < w.std() < 0.95,
    "orthogonal_": lambda w: np.allclose(w.T @ w, np.eye(40), atol=1e-5),
    "eye_": lambda w: np.array_equal(w, np.eye(50, 40)),
    "ones_": lambda w: np.all(w == 1),
}


@pytest.mark.parametrize("name", FILLS)
def test_initialisation_follows_the_seed(name):
    """The functions of `torch.nn.init`: the same seed, the same numbers."""
    fill, layer = getattr(nn.init, name), tjt.convert(nn.Linear(40, 50))
    torch.manual_seed(0)
    assert fill(layer.weight) is layer.weight
    first = array(layer.weight).copy()
    assert FILLS[name](first)
    torch.manual_seed(0)
    np.testing.assert_array_equal(first, array(fill(layer.weight)))
    assert layer.weight.requires_grad


@pytest.mark.parametrize("foreach", [True, False])
def test_clipped_gradients_are_torchs(foreach):
    """By their norm and by value, and counted by parameter."""
    found = []
    for convert in (lambda m: m, tjt.convert):
        torch.manual_seed(0)
        model = convert(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).double())
        x = ROWS if not found else tjt.from_torch(ROWS)
        model(x).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.7, foreach=foreach)
        nn.utils.clip_grad_value_(model.parameters(), 0.1, foreach=foreach)
        flat = nn.utils.parameters_to_vector(p.grad for p in model.parameters())
        found.append((array(norm), array(flat)))
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, 1e-12)


def test_half_precision_sums_in_single():
    x = torch.linspace(1, 2, 4096).to(torch.bfloat16).reshape(1, 1, 64, 64)
    pools = lambda x: (F.avg_pool2d(x, 64), F.adaptive_avg_pool2d(x, 1))
    assert_same_as_torch(pools, x, rtol=0.01)
    assert_same_as_torch(lambda x: F.layer_norm(x, (64, 64)), x, rtol=0.02)
