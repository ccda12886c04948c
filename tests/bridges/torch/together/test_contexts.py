"""Every operation of torch's database inside of modes of torch's and of ours."""

import pytest

torch = pytest.importorskip("torch")

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
