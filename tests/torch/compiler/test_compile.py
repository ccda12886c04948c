"""`torch.compile(backend=tjt.backend)`: steps, memory, sizes, random numbers, dtypes, refusals."""

import copy
import gc

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import numpy as np
from torch import _dynamo as dynamo, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import tanjax as tj
from tanjax.bridges import torch as tjt
from tanjax_torch.compiler import _compile
from tanjax_torch.graphs import _fx
from torch_comparison import compilations
from torch_modules import modules

MODULES = modules()
X = torch.linspace(-1, 1, 18).reshape(6, 3)
FEW = ["convolutions", "averaging", "named", "nested", "detaching"]

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("default"),  # torch's own, of its compiler
]


@pytest.fixture(autouse=True)
def _anew():
    dynamo.reset()
    torch.manual_seed(0)
    yield
    dynamo.reset()


def compiled(f, **options):
    return torch.compile(f, backend=tjt.backend, **options)


def plain(t):
    return tjt.to_torch(t.detach()) if isinstance(t, tjt.Tensor) else t.detach()


def assert_same(ours, theirs, tolerance=1e-5):
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(plain(ours), plain(theirs), rtol=tolerance, atol=tolerance)


def trained(step, module, args, kwargs):
    """Two steps of SGD; the results of the last."""
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        out = step(*args, **kwargs)
        sum((x * x).sum() for x in pytree.tree_leaves(out)).backward()
        optimizer.step()
    return pytree.tree_leaves(out)


@pytest.mark.parametrize("ours", [False, True], ids=["plain", "ours"])
@pytest.mark.parametrize("name", FEW)
def test_steps_are_torchs(name, ours):
    module, args, kwargs = copy.deepcopy(MODULES[name])
    theirs, given = copy.deepcopy(module), args
    if ours:
        tjt.convert(module)
        given = pytree.tree_map_only(torch.Tensor, tjt.from_torch, args)
    got = trained(compiled(module, fullgraph=True), module, given, kwargs)
    for a, b in zip(got, trained(theirs, theirs, args, kwargs), strict=True):
        assert_same(a, b, 1e-4)
        assert isinstance(a, tjt.Tensor) == ours
    for (_, a), (_, b) in zip(
        module.state_dict().items(), theirs.state_dict().items(), strict=True
    ):
        assert_same(a, b, 1e-4)


def sharing(x):
    h, k = x * 2, (x + 1).t().clone()
    return h, h.t(), h[0], h.view(-1), k, k.t(), x.t(), x, h


@pytest.mark.parametrize("ours", [False, True], ids=["plain", "ours"])
def test_results_share_and_lie_in_memory_as_torchs_do(ours):
    x = torch.randn(3, 4)
    mine = tjt.from_torch(x) if ours else x.clone()
    got, wanted = compiled(sharing)(mine), sharing(x)
    assert got[7] is mine
    for i in range(len(wanted)):
        got[i].add_(1)
        wanted[i].add_(1)
        for a, b in zip(got, wanted, strict=True):
            assert_same(a, b)
            assert a.stride() == b.stride()
    assert_same(mine, x)
    f = nn.Conv2d(2, 3, 3)
    x = torch.randn(2, 2, 5, 5).to(memory_format=torch.channels_last)
    got, wanted = compiled(f)(x), f(x)
    assert_same(got, wanted)
    assert got.stride() == wanted.stride()


def test_no_stale_copy_of_what_changes_in_place():
    w = torch.randn(3)
    f = compiled(lambda w: w * 2)
    assert_same(f(w), w * 2)
    w.add_(1)
    assert_same(f(w), w * 2)
    w.data = torch.randn(3)
    assert_same(f(w), w * 2)
    x = w.clone()
    compiled(lambda x: x.add_(1))(x)
    assert_same(x, w + 1)


@pytest.mark.parametrize("what", ["parameter", "result"])
def test_backward_refuses_a_saved_tensor_that_has_changed(what):
    w = nn.Parameter(torch.randn(3))
    out = compiled(lambda w: torch.exp(w) * 1 if what == "parameter" else torch.exp(w))(w)
    square = compiled(lambda w: w * w)(w) if what == "parameter" else out * 1
    with torch.no_grad():
        (w if what == "parameter" else out).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.sum().backward()


def test_random_numbers_are_new_in_each_call_and_seeded():
    x = torch.ones(200, requires_grad=True)
    f = compiled(nn.Dropout(0.5))
    torch.manual_seed(0)
    one, two = f(x), f(x)
    torch.manual_seed(0)
    again = f(x)
    assert not torch.equal(one, two)
    assert torch.equal(one, again)
    assert set(one.tolist()) == {0.0, 2.0}
    one.sum().backward()
    assert_same(x.grad, one)


def test_dropout_that_backward_computes_again():
    block = lambda x: F.dropout(torch.sin(x), 0.5) * x
    f = compiled(lambda x: checkpoint(block, x, use_reentrant=False))
    x, masks = torch.rand(64).add_(0.5).requires_grad_(), []
    for _ in range(2):
        y = f(x)
        before = torch.get_rng_state()
        y.sum().backward()
        assert torch.equal(before, torch.get_rng_state())  # as in torch: nothing is drawn anew
        masks.append(y != 0)
        assert_same(x.grad, masks[-1] * 2 * (torch.cos(x) * x + torch.sin(x)))
        x.grad = None
    assert 10 < masks[0].sum() < 54
    assert not torch.equal(*masks)


def written_cache():
    def attended(cache, x, place):
        cache.index_copy_(0, place, x)
        return torch.softmax(x @ cache.T, -1) @ cache

    cache = torch.zeros(4, 2)
    return attended, [(cache, torch.full((1, 2), 1.0 + i), torch.tensor([i])) for i in range(3)]


def step_of_adam():
    x = torch.nn.Parameter(torch.linspace(-1, 1, 3))
    optimizer = torch.optim.Adam([x], 0.1)

    def step(rate):
        x.grad = x.detach() * rate
        optimizer.step()
        return x.detach().clone()

    return step, [(torch.tensor(1.0),), (torch.tensor(2.0),)]


def whole_numbers():
    f = lambda x: (x // 3, x % 3, 7 // (x + 10), torch.fmod(x, 3), x.div(2, rounding_mode="trunc"))
    return f, [(torch.arange(-5, 6),)]


@pytest.mark.parametrize("program", [written_cache, step_of_adam, whole_numbers])
def test_compiled_programs_return_and_write_the_numbers_of_torch(program):
    (f, calls), (plain_f, plain_calls) = program(), program()
    f = compiled(f)
    for mine, theirs in zip(calls, plain_calls, strict=True):
        got = pytree.tree_leaves((f(*mine), mine))  # also what is written
        expected = pytree.tree_leaves((plain_f(*theirs), theirs))
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b)


def test_dtypes_are_exact_with_and_without_x64():
    f = lambda x, i: (x.argmax(), x.to(torch.int64), torch.arange(4), i + 1, x.double() * 1e-300)
    x, i = torch.randn(4).double(), torch.tensor([2**40, 3])
    wanted, run = f(x, i), compiled(f)
    for wide in (False, True):
        with jax.enable_x64(wide):
            for a, b in zip(run(x, i), wanted, strict=True):
                assert_same(a, b, 1e-14)
    layer, half = nn.Linear(3, 2).bfloat16(), torch.randn(4, 3).bfloat16()
    out = compiled(layer)(half)
    assert_same(out, layer(half), 2e-2)
    out.float().sum().backward()
    assert layer.weight.grad.dtype == torch.bfloat16


def test_new_sizes_compile_once_each():
    graphs = [0]

    def counting(graph, inputs):
        graphs[0] += 1
        return tjt.backend(graph, inputs)

    f = torch.compile(lambda x: (torch.sin(x) @ x.t() + x.shape[0]).sum(), backend=counting)
    with compilations() as found:
        for n in (3, 4, 5, 3, 4, 5):
            assert_same(f(X[:n]), (torch.sin(X[:n]) @ X[:n].t() + n).sum(), 1e-4)
        assert graphs[0] == 2  # torch's: one for the first size, one for all others
        assert len(found) == 4  # torch asks the newer graph first, which has not seen size 3


def test_dynamic_sizes_are_results_too():
    f = lambda x: (torch.sin(x).sum(0), x.reshape(-1, 3, x.shape[0]), x.shape[0] * 2, x[1:])
    run = compiled(f, dynamic=True)
    for n in (4, 5):
        x = torch.randn(n, 3, requires_grad=True)
        got, wanted = run(x), f(x)
        assert got[2] == 2 * n
        for k in (0, 1, 3):
            assert_same(got[k], wanted[k])
        got[0].sum().backward()
        assert_same(x.grad, torch.cos(x))


def test_graph_breaks():
    def f(x):
        h = x * 2
        dynamo.graph_break()
        return torch.sin(h + 1) if h.sum().item() > 0 else torch.cos(h)

    for x in (torch.ones(4), -torch.ones(4)):
        x.requires_grad_()
        out = compiled(f)(x)
        (got,) = torch.autograd.grad(out.sum(), x)
        (wanted,) = torch.autograd.grad(f(x).sum(), x)
        assert_same(out, f(x))
        assert_same(got, wanted)


def test_modes_of_torch_and_plain_numbers_beside_ours():
    f, x = compiled(nn.Linear(3, 3)), torch.randn(2, 3)
    with torch.no_grad():
        assert not f(x).requires_grad
    with torch.inference_mode():
        assert f(x).is_inference()
    assert f(x).requires_grad
    assert plain(compiled(lambda x: x * 3)(tjt.from_jax(jnp.ones(2)))).tolist() == [3.0, 3.0]


def test_inputs_that_jax_cannot_read_as_they_lie():
    x = torch.randn(4, 6)
    for given in (x[:, ::2], x.t(), x[:1].expand(4, 6), x.view(-1)[1:], x[:0], x[0, 0]):
        assert_same(compiled(torch.sin)(given), torch.sin(given))
        dynamo.reset()
    z = torch.randn(3, 4, dtype=torch.complex64)
    assert_same(compiled(lambda z: z * 2)(z.mH), z.mH * 2)


@pytest.mark.parametrize(
    "f",
    [
        # An inverse raises for a singular matrix in torch: its graph has a token for that.
        lambda x: torch.linalg.inv(x).sum(),
        # What `det` keeps for its derivative depends on how torch has its matrix in memory.
        lambda x: torch.linalg.det(x.t() * 1.5) + torch.linalg.det(x),
    ],
    ids=["inverse", "det"],
)
def test_gradients_of_factorizations_are_torchs(f):
    x = (torch.eye(3) + 0.1 * torch.randn(3, 3)).requires_grad_()
    out, wanted = compiled(f)(x), f(x)
    assert_same(out, wanted)
    assert_same(*torch.autograd.grad(out, x), *torch.autograd.grad(wanted, x))


def test_a_backward_of_ones_own():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return -2 * gradient

    x = torch.randn(3, requires_grad=True)
    compiled(lambda x: Doubled.apply(x).sum())(x).backward()
    assert_same(x.grad, -2 * torch.ones(3))


@pytest.mark.parametrize("ours", [False, True], ids=["plain", "ours"])
def test_nothing_is_kept_between_steps(ours):
    module = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    world = tjt.from_torch if ours else lambda t: t
    if ours:
        tjt.convert(module)
    f, optimizer = compiled(module), torch.optim.Adam(module.parameters())

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            f(world(torch.randn(4, 8))).sum().backward()
            optimizer.step()
        gc.collect()
        return len(jax.live_arrays()), sum(
            issubclass(type(o), torch.Tensor) for o in gc.get_objects()
        )

    steps(2)
    arrays, tensors = steps(1)
    more_arrays, more_tensors = steps(40)
    assert more_arrays < arrays + 20 if ours else more_arrays == arrays  # 13 a step, if kept
    assert more_tensors < tensors + 20  # torch's own come and go


def test_a_transpose_crosses_without_a_copy(monkeypatch):
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    usual, given = _compile._Program.__call__, []
    seen = lambda run, seed, arrays: (given.extend(arrays), usual(run, seed, arrays))[1]
    monkeypatch.setattr(_compile._Program, "__call__", seen)
    x = torch.ones(3, 5).t()
    compiled(module)(x).sum().backward()  # pass backward: of the transposed weights
    assert len(given) > 8
    assert all(a.flags.c_contiguous for a in given)
    assert sum(np.shares_memory(a, x.numpy()) for a in given) >= 2  # in both passes


def test_structured_arrays_and_options_are_refused():
    d = tjt.from_jax(tj.Diagonal(jnp.ones(3, jnp.float32)))
    for full in (False, True):
        with pytest.raises(Exception, match=r"tjt.as_jax\(exported\)"):
            compiled(lambda d: d @ d, fullgraph=full)(d)
    with pytest.raises(Exception, match="takes no options"):
        compiled(torch.sin, options={"fast": True})(torch.ones(2))


def test_a_wrong_entry_is_not_passed_on(monkeypatch):
    usual = _fx.call_of
    narrow = lambda x: jnp.sin(x).astype(jnp.float16)
    plant = lambda op: narrow if op is torch.ops.aten.sin.default else usual(op)
    monkeypatch.setattr(_fx, "call_of", plant)
    with pytest.raises(tj.NoRuleError, match=r"aten\.sin\.default gives float16\[2\]"):
        compiled(torch.sin)(torch.ones(2))
