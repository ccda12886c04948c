"""Every operation of torch's database inside of modes of torch's and of ours."""

import pytest

torch = pytest.importorskip("torch")

from torch.func import jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import torch_opinfo as opinfo
from tanjax.bridges import torch as tjt

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
PARTS = 4
CONTEXTS = {"inference mode": torch.inference_mode, "factories": tjt.factories}


def inside(context, op):
    def call(first, args, kwargs):
        with context():
            return op.op(first, *args, **kwargs)

    return call


@pytest.mark.parametrize("part", range(PARTS))
def test_every_operation_is_torchs_inside(part):
    """Of tensors that were made outside; in every context by one compilation."""
    found = []
    for op in opinfo.database()[part::PARTS]:
        if torch.float32 not in op.dtypes or any(n in op.name for n in opinfo.UNSERVED):
            continue
        for sample in opinfo.samples_of(op, torch.float32, False, 0)[:1]:
            for name, context in CONTEXTS.items():
                call = inside(context, op)
                comparable = opinfo.comparable(op, call, sample)
                given = {"values": comparable, "ties": op.name in opinfo.TIES}
                given["process"] = sample.output_process_fn_grad
                answer = opinfo.answer_of(opinfo.check, call, sample, **given)
                found.append((op.name, name, *answer))
    assert [case for case in found if case[2] not in (None, opinfo.RIGHT)] == []
    assert sum(case[2] == opinfo.RIGHT for case in found) > 100 * len(CONTEXTS)


def first_float(tree):
    """The first floating result."""
    found = [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]
    return next(t for t in found if t.is_floating_point())


def tangent_of_graph(f, x, t):
    """By a graph that was made at another tangent."""
    graph = make_fx(lambda t: jvp(f, (x,), (t,))[1])(torch.zeros_like(t))
    return graph(t)


def gradient_by_checkpoint(f, x, t):
    x = x.detach().requires_grad_()
    out = checkpoint(f, x, use_reentrant=False)
    return torch.autograd.grad(out, x, torch.ones_like(out))[0]


def mapped(f, x, t):
    """Of a batch of tensors beside one that is not mapped."""
    return vmap(lambda x, t: f(x + 0 * t), (None, 0))(x, torch.stack([t, 2 * t]))


def transposed(f, x, t):
    """Where the entries lie otherwise in memory."""
    return f(x.movedim(0, -1).contiguous().movedim(-1, 0) if x.ndim else x)


STEP = 20
WAYS = [(tangent_of_graph, 0), (gradient_by_checkpoint, 5), (mapped, 10), (transposed, 15)]
RANDOM = (
    "dropout",
    "rrelu",
    "multinomial",
    "normal",
    "bernoulli",
    "rand",
    "exponential",
    "uniform",
)
RANDOM += ("geometric", "log_normal", "cauchy", "empty", "lowrank")
RANDOM += ("index_add",)  # of which plain torch dies under `make_fx`


@pytest.mark.parametrize(("way", "start"), WAYS, ids=lambda x: getattr(x, "__name__", ""))
def test_operations_in_a_transformation_are_torchs(way, start):
    """A sample of the database: another part of it for each transformation."""
    known = [op for op in opinfo.database() if op.supports_autograd and op.supports_forward_ad]
    known = [op for op in known if torch.float64 in op.dtypes]
    wrong, right = [], 0
    for op in known[start::STEP]:
        if any(n in op.name for n in (*opinfo.UNSERVED, *RANDOM)) or op.name in opinfo.TIES:
            continue
        sample = next(iter(opinfo.samples_of(op, torch.float64, True, 0)))
        if not isinstance(sample.input, torch.Tensor) or not sample.input.numel():
            continue
        torch.manual_seed(1)
        tangent, found = torch.randn_like(sample.input), []
        for convert in (lambda t: t, tjt.from_torch):
            change = lambda t, convert=convert: convert(t.detach())
            rest = pytree.tree_map_only(torch.Tensor, change, (sample.args, sample.kwargs))
            f = lambda x, rest=rest, op=op: first_float(op.op(x, *rest[0], **rest[1]))
            try:
                found.append(way(f, change(sample.input), convert(tangent)))
            except Exception as error:
                found.append(error)
        theirs, ours = found
        if isinstance(theirs, torch.Tensor):
            ours = tjt.to_torch(ours.detach()) if isinstance(ours, torch.Tensor) else ours
            same = isinstance(ours, torch.Tensor) and torch.allclose(
                ours, theirs.detach(), 1e-7, 1e-9, equal_nan=True
            )
            right += same
            wrong += [] if same else [(op.name, repr(ours)[:200])]
    assert wrong == []
    assert right > 10


def seen_in_inference_mode(make):
    """What is known of views, and of writes, in inference mode and after it."""
    x = make(torch.zeros(2, 3)).requires_grad_()
    y = x * x
    with torch.inference_mode():
        views = [x[0], x.detach(), x.t(), x.expand(2, 2, 3), x.view(6), *x.unbind(1), y[0]]
        views.append(make(torch.zeros(3))[1:])
        x.detach()[1].add_(2)
        views[-2].add_(1)
    facts = [(v.requires_grad, v.is_inference(), v.tolist()) for v in (*views, y)]
    with pytest.raises(RuntimeError) as raised:
        (y * y).sum().backward()
    return facts, x._version, y._version, str(raised.value)[:60]


def test_views_in_inference_mode_are_those_of_torch():
    """Of tensors that were made outside: one memory, and a version that counts."""
    expected = seen_in_inference_mode(lambda x: x)
    assert seen_in_inference_mode(tjt.from_torch) == expected
    assert expected[0][2][2] == [[0.0, 2.0], [0.0, 2.0], [0.0, 2.0]]
