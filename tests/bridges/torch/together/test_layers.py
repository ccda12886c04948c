"""What layers are made of: numbers and gradients of torch, whatever the padding and the mode."""

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F

from tanjax.bridges import torch as tjt
from torch_calls import assert_agree, ours

IMAGE = torch.arange(2 * 4 * 5 * 6, dtype=torch.float64).reshape(2, 4, 5, 6).mul(0.7).sin()
KERNEL = torch.arange(4 * 2 * 3 * 2, dtype=torch.float64).reshape(4, 2, 3, 2).cos()
FOUR = torch.tensor([0.3, -1.0, 2.0, 0.5], dtype=torch.float64)
TARGET = torch.tensor([3, 0, 1, 2, 2])


def at(x, index):
    return ours(index) if isinstance(x, tjt.Tensor) else index


def batch_norm(x, w):
    mean, var = at(x, torch.zeros(4, dtype=x.dtype)), at(x, torch.ones(4, dtype=x.dtype))
    out = F.batch_norm(x, mean, var, w, w, training=True, momentum=0.3)
    return out, mean, var, F.batch_norm(x, mean.clone(), var.clone(), w, None)


LAYERS = {
    "conv": lambda x, w: (
        F.conv2d(x, w, w[:, 0, 0, 0], stride=(2, 1), padding=1, dilation=(1, 2), groups=2),
        F.conv1d(x[:, :, 0], w[:, :, 0].repeat(1, 2, 1)),
    ),
    "transposed": lambda x, w: F.conv_transpose2d(
        x, w, stride=2, padding=1, output_padding=1, groups=2, dilation=(1, 2)
    ),
}
POOLS = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
    "avg": lambda x: (
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        F.avg_pool2d(x, (3, 2), count_include_pad=False, padding=1),
    ),
    "adaptive": lambda x: (F.adaptive_avg_pool2d(x, (2, 4)), F.adaptive_max_pool2d(x, (2, 4))),
    "unpool": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "nearest": lambda x: (F.interpolate(x, scale_factor=1.7), F.interpolate(x, (3, 9))),
    "linear": lambda x: (
        F.interpolate(x, (7, 4), mode="bilinear"),
        F.interpolate(x, (7, 4), mode="bicubic", align_corners=True),
    ),
    "grid": lambda x: F.grid_sample(x, x[:, :2, :, :4].permute(0, 2, 3, 1), align_corners=False),
}
NORMS = {
    "layer": lambda x, w: F.layer_norm(x[..., :4], (4,), w, w),
    "group": lambda x, w: F.group_norm(x, 2, w, None),
    "batch": batch_norm,
    "instance": lambda x, w: F.instance_norm(x, weight=w),
}
LOSSES = {
    "cross_entropy": lambda x: (
        F.cross_entropy(x[0, 0], at(x, TARGET), ignore_index=2),
        F.cross_entropy(x, at(x, TARGET[:2, None, None].expand(2, 5, 6).clone()), reduction="sum"),
    ),
    "margins": lambda x: (
        F.multi_margin_loss(x[0, 0], at(x, TARGET), p=2),
        F.multilabel_margin_loss(x[0, 0], at(x, torch.tensor([[1, 4, -1, 0, 2, 3]]).expand(5, 6))),
    ),
    "embedding": lambda x: (
        F.embedding(at(x, TARGET), x[0, 0], padding_idx=2),
        F.embedding_bag(at(x, TARGET), x[0, 0], at(x, torch.tensor([0, 3])), mode="mean"),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_convolutions(name):
    assert_agree(LAYERS[name], IMAGE, KERNEL)


@pytest.mark.parametrize("name", POOLS)
def test_pools_and_samples(name):
    assert_agree(POOLS[name], IMAGE)


@pytest.mark.parametrize("name", NORMS)
def test_norms(name):
    assert_agree(NORMS[name], IMAGE, FOUR)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_embeddings(name):
    assert_agree(LOSSES[name], IMAGE)


@pytest.mark.parametrize("mask", [None, "causal", "bool", "float"])
def test_attention(mask):
    q, k, v = IMAGE[..., :3], IMAGE[..., 1:4], IMAGE[..., 3:]
    keep = torch.ones(5, 5).tril(1) > 0

    def attend(q, k, v):
        if mask == "bool":
            chosen = at(q, keep)
        else:
            chosen = at(q, keep.double().log()) if mask == "float" else None
        return F.scaled_dot_product_attention(q, k, v, chosen, is_causal=mask == "causal")

    assert_agree(attend, q, k, v)


def test_half_precision_sums_in_single():
    x = torch.linspace(1, 2, 4096).to(torch.bfloat16).reshape(1, 1, 64, 64)
    assert_agree(lambda x: (F.avg_pool2d(x, 64), F.adaptive_avg_pool2d(x, 1)), x, rtol=0.01)
    assert_agree(lambda x: F.layer_norm(x, (64, 64)), x, rtol=0.02)
