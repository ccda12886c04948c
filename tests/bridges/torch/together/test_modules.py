"""Modules of torch on our tensors: values, gradients and buffers are plain torch's."""

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn

import tanjax as tj
from tanjax.bridges import torch as tjt

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


def weights(y):
    """A cotangent, in the class of what it meets."""
    made = torch.linspace(0.1, 1.0, y.numel(), dtype=y.dtype).reshape(y.shape)
    return tjt.from_torch(made) if isinstance(y, tjt.Tensor) else made


def run(module, inputs, named, grad):
    """Outputs, gradients of inputs and parameters, and buffers after the call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's own, of its fast paths
        outputs = leaves(module(*inputs, **named))
    found = {f"output {n}": array(y) for n, y in enumerate(outputs)}
    if grad:
        sum((y * weights(y)).sum() for y in outputs if y.requires_grad).backward()
        found |= {f"gradient of input {n}": array(x.grad) for n, x in enumerate(leaves(inputs))}
        found |= {f"gradient of {n}": array(p.grad) for n, p in module.named_parameters()}
    return found | {f"buffer {n}": array(b) for n, b in module.named_buffers()}


def assert_agree(make, *inputs, dtype=torch.float64, grad=True, train=True, **named):
    """A module in plain torch and converted, on the same numbers."""
    torch.manual_seed(0)
    plain = make().to(dtype).train(train)
    ours = tjt.convert(copy.deepcopy(plain))
    once = {}  # one tensor stays one tensor: fast paths ask

    def leaf(x, mine):
        if not isinstance(x, torch.Tensor):
            return x
        if (id(x), mine) not in once:
            floats = x.is_floating_point()
            new = x.to(dtype, copy=True) if floats else x
            new = tjt.from_torch(new) if mine else new
            once[id(x), mine] = new.requires_grad_(floats and grad)
        return once[id(x), mine]

    def given(mine):
        return [leaf(x, mine) for x in inputs], {n: leaf(x, mine) for n, x in named.items()}

    with torch.set_grad_enabled(grad):
        expected, got = run(plain, *given(False), grad), run(ours, *given(True), grad)
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        assert (got[name] is None) == (value is None), f"{name}: cut"
        if value is None:
            continue
        assert got[name].dtype == value.dtype, name
        tolerance = TOLERANCE[dtype]
        np.testing.assert_allclose(got[name], value, tolerance, tolerance, err_msg=name)


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
    assert_agree(*LAYERS[name])


@pytest.mark.parametrize("name", ["linear", "conv2d groups", "layer norm", "batch norm", "lstm"])
def test_layer_in_float32(name):
    assert_agree(*LAYERS[name], dtype=torch.float32)


@pytest.mark.parametrize("name", ["batch norm", "instance norm", "spectral norm"])
def test_layer_evaluated(name):
    """By what its buffers hold, which it leaves alone."""
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
def test_attention(name, train):
    """With gradients, and on torch's fast path for evaluation."""
    make, inputs, named = ATTENTIONS[name]
    assert_agree(make, *inputs, train=train, grad=train, **named)


def test_stack_of_encoders():
    """Padded rows become nested tensors on torch's fast path, which ours are not: refused."""
    stack = lambda **options: nn.TransformerEncoder(ENCODER(), 2, **options)
    named = {"train": False, "grad": False, "src_key_padding_mask": PADDED}
    assert_agree(lambda: stack(enable_nested_tensor=False), MODEL, **named)
    with pytest.raises(tj.NoRuleError, match="_nested_tensor_from_mask"):
        assert_agree(stack, MODEL, **named)


LOGITS, CLASSES = numbers(5, 4), torch.tensor([0, 3, 1, 1, 2])
ONES, SIGNS = (LOGITS > 0).double(), torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0])
THIRDS = (LOGITS, LOGITS.flip(0), LOGITS.flip(1))
LENGTHS = torch.tensor([5, 4]), torch.tensor([2, 1])
SPOKEN, WORDS_SPOKEN = numbers(5, 2, 4), torch.tensor([[1, 2], [3, 0]])
CLASS_WEIGHTS = torch.tensor([0.1, 0.2, 0.3, 0.4])
LOSSES = {
    "classes": (
        lambda: nn.CrossEntropyLoss(CLASS_WEIGHTS, ignore_index=1, label_smoothing=0.1),
        (LOGITS, CLASSES),
    ),
    "probabilities": (nn.CrossEntropyLoss, (LOGITS, LOGITS.softmax(-1).flip(0))),
    "images": (lambda: nn.CrossEntropyLoss(CLASS_WEIGHTS), (X4, numbers(2, 6, 6, low=4))),
    "nll": (lambda: nn.NLLLoss(reduction="sum"), (LOGITS, CLASSES)),
    "binary": (nn.BCELoss, (LOGITS.sigmoid(), ONES)),
    "binary logits": (
        lambda: nn.BCEWithLogitsLoss(pos_weight=CLASS_WEIGHTS, reduction="none"),
        (LOGITS, ONES),
    ),
    "squares": (nn.MSELoss, (LOGITS, ONES)),
    "absolute": (nn.L1Loss, (LOGITS, ONES)),
    "huber": (lambda: nn.HuberLoss(delta=0.5), (LOGITS, ONES)),
    "smooth": (lambda: nn.SmoothL1Loss(beta=0.5), (LOGITS, ONES)),
    "divergence": (
        lambda: nn.KLDivLoss(reduction="batchmean", log_target=True),
        (LOGITS.log_softmax(-1), LOGITS.flip(0).log_softmax(-1)),
    ),
    "triplets": (nn.TripletMarginLoss, THIRDS),
    "cosine": (nn.CosineEmbeddingLoss, (*THIRDS[:2], SIGNS)),
    "margins": (nn.MultiMarginLoss, (LOGITS, CLASSES)),
    "gaussian": (nn.GaussianNLLLoss, (*THIRDS[:2], LOGITS.exp())),
    "poisson": (nn.PoissonNLLLoss, (LOGITS, ONES)),
    "alignments": (nn.CTCLoss, (SPOKEN.log_softmax(-1), WORDS_SPOKEN, *LENGTHS)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss(name):
    make, inputs = LOSSES[name]
    assert_agree(make, *inputs)


@pytest.mark.parametrize("layer", [nn.Dropout(0.25), nn.Dropout2d(0.25)], ids=str)
def test_dropout(layer):
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
def test_filled_in_place(name):
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
def test_gradients_clipped(foreach):
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
