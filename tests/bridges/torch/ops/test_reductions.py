"""Reductions, scans, what makes tensors, lists of tensors: each call against plain torch."""

import pytest

torch = pytest.importorskip("torch")

from tanjax.bridges import torch as tjt

nan = float("nan")
SOURCES = {
    "float64": torch.tensor([[0.5, -1.0, 2.0, 2.0], [3.0, 0.0, -1.5, 3.0]], dtype=torch.float64),
    "float32": torch.tensor([[0.5, nan, 2.0, nan], [3.0, 0.0, -1.5, 3.0]]),
    "int64": torch.tensor([[1, -2, 3, 3], [0, 7, -8, 7]]),
    "uint8": torch.tensor([[1, 2, 200, 200], [0, 7, 100, 255]], dtype=torch.uint8),
    "bool": torch.tensor([[True, False, True, True], [False, False, False, False]]),
    "complex64": torch.tensor([[1 + 1j, 2 - 0.5j, -1j, 3 + 0j], [0.5 + 2j, 1j, -1 + 0j, 2 + 2j]]),
}
CALLS = {
    "sum": lambda x: (x.sum(), x.sum(0), x.sum((0, 1), keepdim=True), x.sum(-1, dtype=x.dtype)),
    "mean": lambda x: (x.mean(), x.mean(1), x.mean((0, 1), keepdim=True)),
    "prod": lambda x: (x.prod(), x.prod(1, keepdim=True)),
    "amax": lambda x: (x.amax(), x.amin(1), x.amax((0, 1), keepdim=True), x.max(), x.min()),
    "max": lambda x: (*x.max(1), *x.min(0, keepdim=True)),
    "argmax": lambda x: (x.argmax(), x.argmin(1), x.argmax(1, keepdim=True)),
    "aminmax": lambda x: (*x.aminmax(), *x.aminmax(dim=1, keepdim=True)),
    "any": lambda x: (x.any(), x.all(), x.any(1), x.all((0, 1)), x.any(0, keepdim=True)),
    "count": lambda x: (x.count_nonzero(), x.count_nonzero(1), x.nansum(), x.nansum(1)),
    "var": lambda x: (x.var(), x.var(1, correction=0), x.std(0), x.var(0, correction=2.5)),
    "var_mean": lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, (0, 1), keepdim=True)),
    "logsumexp": lambda x: (x.logsumexp(1), x.logsumexp((0, 1), keepdim=True)),
    "norm": lambda x: tuple(
        torch.linalg.vector_norm(x, p, 1) for p in (2, 1, 0, 3, 0.5, float("inf"))
    ),
    "norms": lambda x: (
        x.norm(),
        x.norm(1, 1),
        torch.dist(x, x * 2, 3),
        torch.renorm(x, 2, 0, 1.0),
    ),
    "cumsum": lambda x: (x.cumsum(1), x.cumprod(0), x.cumsum(1, dtype=x.dtype)),
    "logcumsumexp": lambda x: (x.logcumsumexp(1), x.logcumsumexp(0)),
    "like": lambda x: (
        torch.zeros_like(x),
        torch.ones_like(x, dtype=torch.int32),
        x.new_ones(2, 3),
    ),
    "full": lambda x: (torch.full_like(x, 3), x.new_full((2,), 1), x.new_zeros(3, 0)),
    "to": lambda x: (x.to(torch.float32), x.to(torch.int16), x.bool(), x.to(torch.complex128)),
    "fill": lambda x: (x.clone().fill_(1), x.clone().zero_(), torch.empty_like(x).copy_(x[0])),
    "foreach": lambda x: (
        *torch._foreach_add([x, x[0]], [x, x[1]], alpha=2),
        *torch._foreach_mul([x, x[0]], [2, 3]),
        *torch._foreach_addcmul([x, x], [x, x], [x, x], [1, 2]),
        *torch._foreach_maximum([x, x[0]], 1),
        *torch._foreach_neg([x]),
        *torch._foreach_norm([x, x[0]]),
        *torch._foreach_pow([x], 2),
    ),
}


def answer(call, x, gradient):
    """Results and the gradient, plain, or the error."""
    x = x.clone().requires_grad_(gradient)
    try:
        out = [o for o in (call(x) if isinstance(call(x), tuple) else (call(x),))]
    except RuntimeError as error:
        return error
    except IndexError as error:
        return error
    smooth = [o for o in out if o.requires_grad]
    if smooth:
        torch.autograd.backward(smooth, [torch.ones_like(o) for o in smooth])
        out.append(x.grad)
    return [tjt.to_torch(o.detach()) if isinstance(o, tjt.Tensor) else o.detach() for o in out]


def assert_agree(call, source, gradient=False):
    expected = answer(call, source, gradient)
    actual = answer(call, tjt.from_torch(source), gradient)
    if isinstance(expected, Exception):
        assert isinstance(actual, (RuntimeError, IndexError)), actual
        return
    assert not isinstance(actual, Exception), actual
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e.resolve_conj(), equal_nan=True)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("name", CALLS)
def test_call(name, kind):
    assert_agree(
        CALLS[name], SOURCES[kind], gradient=kind == "float64" and name not in ("to", "fill")
    )


NOTHING = torch.zeros(0, 3)
EMPTY = {
    "sum": lambda x: (x.sum(), x.sum(0), x.prod(), x.mean(), x.sum(1)),
    "amax": lambda x: x.amax(0),
    "max": lambda x: x.max(),
    "max_dim": lambda x: x.max(0),
    "max_other_dim": lambda x: x.max(1),
    "argmax": lambda x: x.argmax(),
    "argmax_dim": lambda x: x.argmax(0),
    "logsumexp": lambda x: x.logsumexp(0),
    "norm": lambda x: torch.linalg.vector_norm(x, float("inf")),
    "twice": lambda x: x.sum((0, 0)),
    "out_of_range": lambda x: x.sum(2),
    "scans": lambda x: (x.cumsum(0), x.logcumsumexp(0), x.cumprod(1)),
    "var": lambda x: (x.sum(0).var(0, correction=0), x.any(), x.all()),
}


@pytest.mark.parametrize("name", EMPTY)
def test_of_nothing(name):
    """Empty axes give what torch gives, or raise as it does."""
    assert_agree(EMPTY[name], NOTHING)


@pytest.mark.parametrize("name", ["sum", "amax", "max", "argmax", "var", "cumsum", "norm", "any"])
def test_of_one_number(name):
    """A tensor without axes has an axis 0 for reductions."""
    calls = {
        "sum": lambda x: (x.sum(0), x.mean(-1), x.prod(0)),
        "amax": lambda x: (x.amax(0), x.amin((0,), keepdim=True)),
        "max": lambda x: (*x.max(0), *x.min(-1)),
        "argmax": lambda x: (x.argmax(0), x.argmin()),
        "var": lambda x: (x.var(0, correction=0), x.logsumexp(0)),
        "cumsum": lambda x: (x.cumsum(0), x.cumprod(-1), x.logcumsumexp(0), x.softmax(0)),
        "norm": lambda x: (x.norm(), torch.linalg.vector_norm(x, 1, 0)),
        "any": lambda x: (x.any(0), x.all(0), x.count_nonzero()),
    }
    assert_agree(calls[name], torch.tensor(1.5, dtype=torch.float64), gradient=True)


FACTORIES = {
    "arange": lambda: (torch.arange(5), torch.arange(1, 2, 0.3), torch.arange(5, 0, -2)),
    "linspace": lambda: (torch.linspace(0, 1, 5), torch.linspace(3, -3, 4, dtype=torch.int32)),
    "logspace": lambda: (torch.logspace(0, 2, 3), torch.logspace(0, 3, 4, base=2.0)),
    "eye": lambda: (torch.eye(3), torch.eye(2, 4, dtype=torch.int64)),
    "full": lambda: (torch.full((2,), 3), torch.full((2,), 0.5), torch.full((2,), True)),
    "arange_of_integers": lambda: (
        torch.arange(0.5, 5.9, 1.7, dtype=torch.int64),
        torch.arange(5.0, -3.2, -1, dtype=torch.int32),
    ),
    "zeros": lambda: (torch.zeros(2, 3), torch.ones(2, dtype=torch.bool), torch.tensor(3.5)),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factory(name):
    """What torch makes from nothing, made by the entries themselves."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from tanjax.bridges.torch._calls import call_of

    class Ours(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            expected = op(*args, **(kwargs or {}))
            if not any(isinstance(a, torch.Tensor) for a in args):
                actual = tjt.to_torch(tjt.from_jax(call_of(op)(*args, **(kwargs or {}))))
                torch.testing.assert_close(actual, expected)
            return expected

    with Ours():
        FACTORIES[name]()


def test_factories_write_into_ours():
    """`out=` decides the dtype."""
    for dtype in (torch.float32, torch.int64):
        for make in (torch.ones, torch.zeros, torch.arange):
            out = tjt.from_torch(torch.full((3,), 7, dtype=dtype))
            make(3, out=out)
            torch.testing.assert_close(tjt.to_torch(out), make(3, dtype=dtype))
    out = tjt.from_torch(torch.zeros(3))
    torch.linspace(0, 1, 3, out=out)
    assert tjt.to_torch(out).tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("optimiser", "options"),
    [
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
        ("Adam", {"lr": 0.05, "amsgrad": True, "maximize": True}),
        ("AdamW", {"lr": 0.05}),
    ],
)
def test_fused_and_foreach_steps(optimiser, options):
    """One compiled step for all parameters takes torch's steps."""
    ends = []
    for way in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        for make in (lambda t: t, tjt.from_torch):
            a = make(torch.tensor([0.5, -1.0, 2.0])).requires_grad_()
            b = make(torch.tensor([[1.5], [0.25]])).requires_grad_()
            step = getattr(torch.optim, optimiser)([a, b], **options, **way)
            for _ in range(4):
                step.zero_grad()
                ((a * a).sum() * b.sin().sum()).backward()
                step.step()
            ends.append(
                [
                    tjt.to_torch(t.detach()) if isinstance(t, tjt.Tensor) else t.detach()
                    for t in (a, b)
                ]
            )
    for end in ends[1:]:
        for actual, expected in zip(end, ends[0], strict=True):
            torch.testing.assert_close(actual, expected)
