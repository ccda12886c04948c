"""Operations at their edges: empty axes, NaN, ties, indices out of range, singular matrices."""

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp
from torch.nn import functional as F

import tanjax as tj
from tanjax.bridges import torch as tjt
from torch_comparison import alike, assert_same_as_torch

pytestmark = pytest.mark.torch

NAN = float("nan")
X = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4).sin()
TIES = torch.tensor([[2.0, NAN, 1.0, 2.0, 1.0], [3.0, 3.0, 3.0, 0.0, 0.0]], dtype=torch.float64)
ROWS, SPREAD = torch.tensor([2, 0, 2]), torch.tensor([[[0, 2, 1, 0], [1, 1, 2, 0]]])
CALLS = {
    "bits": lambda x: (x, x.detach().view(torch.int64).view(torch.int32)),
    "as_strided": lambda x: x.as_strided((3, 2), (2, 5), 1),
    "windows": lambda x: (  # the last window would lie in the padding alone
        F.max_pool2d(x.movedim(0, 2), 3, 3, 1, ceil_mode=True),
        F.avg_pool2d(x.movedim(0, 2), 3, 3, 1, ceil_mode=True),
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    ),
    "advanced": lambda x: (x[:, alike(x, ROWS), 1:], x[alike(x, ROWS) % 2, :, alike(x, ROWS)]),
    "mask": lambda x: (x[x > 0], x[:, alike(x, ROWS) > 0]),
    "negative": lambda x: x.take(alike(x, ROWS - 2)),
    "repeated": lambda x: (
        x.index_put((alike(x, ROWS % 2), alike(x, ROWS)), x[0, 0, 0], accumulate=True),
        x.index_add(1, alike(x, ROWS), x[:, :3], alpha=2),
        x.scatter_add(1, alike(x, SPREAD), x[:1, :2] * 3),
        x.scatter_reduce(1, alike(x, SPREAD), x[:1, :2] * 3, "amax"),
        x.scatter_reduce(1, alike(x, SPREAD), x[:1, :2] * 3, "mean", include_self=False),
    ),
}
ORDER = {
    "sort": lambda x: (x.sort(1, descending=True), x.sort(stable=True), x.argsort(0)),
    # Which of equal ones is taken, torch leaves open: values only.
    "topk": lambda x: [y.detach() for y in (x.topk(2)[0], x.kthvalue(2, 1)[0], x.mode(1)[0])],
    "extremes": lambda x: (x.topk(2, 0, largest=False), x[1, 2:].mode()),
    "median": lambda x: (x.median(), x.median(1), x.nanmedian(1), x.nanmedian()),
    "running": lambda x: (x.cummax(1), x.cummin(0)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_shapes_and_indices_are_torchs(call):
    assert_same_as_torch(call, X)


@pytest.mark.parametrize("call", ORDER.values(), ids=ORDER)
def test_order_with_ties_and_nan_is_torchs(call):
    assert_same_as_torch(call, TIES)


OUTSIDE = {
    "index": lambda x: x[alike(x, torch.tensor([3])), :],
    "index_put": lambda x: x.index_put((alike(x, torch.tensor([-4])),), x[0, 0]),
    "index_select": lambda x: x.index_select(1, alike(x, torch.tensor([4]))),
    "gather": lambda x: x.gather(0, alike(x, torch.tensor([[3, 0]]))),
    "scatter": lambda x: x.scatter(0, alike(x, torch.tensor([[-1]])), 1.0),
    "embedding": lambda x: F.embedding(alike(x, torch.tensor([5])), x),
    "take": lambda x: x.take(alike(x, torch.tensor([12]))),
    "nll": lambda x: F.nll_loss(x, alike(x, torch.tensor([0, 4, 1]))),
    "select": lambda x: x.select(0, 3),
    "dim": lambda x: x.unbind(2),
    "view": lambda x: x.view(5, -1),
    "cat": lambda x: torch.cat([x, x[:2]], 1),
    "mm": lambda x: x @ x,
    "dtypes": lambda x: x @ x.float().mT,
    "mask": lambda x: x[alike(x, torch.ones(2, 2, dtype=torch.bool))],
    "values": lambda x: x.index_put((alike(x, ROWS),), x[:2]),
}


@pytest.mark.parametrize("call", OUTSIDE.values(), ids=OUTSIDE)
def test_indices_and_sizes_that_do_not_fit_raise_as_in_torch(call):
    errors = (IndexError, RuntimeError)
    with pytest.raises(errors) as theirs:
        call(X[0])
    with pytest.raises(errors) as ours:
        call(tjt.from_torch(X[0]))
    assert isinstance(ours.value, theirs.type) or call is OUTSIDE["index_select"]


def test_an_index_out_of_range_under_a_trace_reads_nan():
    @jax.jit
    def read(x, index):
        return tjt.to_jax(tjt.from_jax(x)[tjt.from_jax(index)])

    out = read(jnp.arange(3.0), jnp.array([1, 3, -1]))
    assert jnp.array_equal(out, jnp.array([1.0, jnp.nan, 2.0]), equal_nan=True)


SOURCES = {
    "float32": torch.tensor([[0.5, NAN, 2.0, NAN], [3.0, 0.0, -1.5, 3.0]]),
    "int64": torch.tensor([[1, -2, 3, 3], [0, 7, -8, 7]]),
    "bool": torch.tensor([[True, False, True, True], [False, False, False, False]]),
    "complex64": torch.tensor([[1 + 1j, 2 - 0.5j, -1j, 3 + 0j], [0.5 + 2j, 1j, -1 + 0j, 2 + 2j]]),
    "uint8": torch.tensor([[1, 2, 200, 200], [0, 7, 100, 255]], dtype=torch.uint8),
}
REDUCTIONS = {
    "sum": lambda x: (x.sum(), x.sum(0), x.sum(-1, dtype=x.dtype), x.nansum(1)),
    "mean": lambda x: (x.mean(1), x.prod(1, keepdim=True)),
    "amax": lambda x: (x.amax(), x.amin(1), x.amax((0, 1), keepdim=True), x.max(), x.min()),
    "max": lambda x: (*x.max(1), *x.min(0, keepdim=True)),
    "argmax": lambda x: (x.argmax(), x.argmin(1), x.argmax(1, keepdim=True)),
    "aminmax": lambda x: (*x.aminmax(), *x.aminmax(dim=1, keepdim=True)),
    "any": lambda x: (x.any(), x.all((0, 1)), x.count_nonzero(1)),
    "var": lambda x: (x.var(1, correction=0), x.std(0), x.var(0, correction=2.5)),
    "norm": lambda x: [torch.linalg.vector_norm(x, p, 1) for p in (2, 1, 0, 0.5, float("inf"))],
    "logsumexp": lambda x: (x.logsumexp(1), x.logcumsumexp(0)),
    "cumsum": lambda x: (x.cumsum(1), x.cumprod(0), x.cumsum(1, dtype=x.dtype)),
    "foreach": lambda x: (
        *torch._foreach_add([x, x[0]], [x, x[1]], alpha=2),
        *torch._foreach_addcmul([x, x], [x, x], [x, x], [1, 2]),
        *torch._foreach_maximum([x, x[0]], 1),
        *torch._foreach_norm([x, x[0]]),
        *torch._foreach_pow([x], 2),
    ),
}
NOTHING = {
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


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_each_dtype_gives_torchs_result_or_error(name, kind):
    assert_same_as_torch(REDUCTIONS[name], SOURCES[kind], gradient=False, rtol=1e-5)


@pytest.mark.parametrize("name", NOTHING)
def test_empty_axes_give_torchs_result_or_error(name):
    assert_same_as_torch(NOTHING[name], torch.zeros(0, 3), gradient=False)


def test_a_tensor_without_axes_has_an_axis_0():
    def reduced(x):
        found = [
            x.sum(0),
            x.mean(-1),
            x.prod(0),
            x.amin((0,), keepdim=True),
            *x.max(0),
            x.argmax(0),
        ]
        found += [x.var(0, correction=0), x.logsumexp(0), x.cumsum(0), x.cumprod(-1), x.softmax(0)]
        return [*found, torch.linalg.vector_norm(x, 1, 0), x.any(0), x.logcumsumexp(0)]

    assert_same_as_torch(reduced, torch.tensor(1.5, dtype=torch.float64))


def test_out_decides_the_dtype_of_factories():
    for dtype in (torch.float32, torch.int64):
        for make in (torch.ones, torch.zeros, torch.arange):
            out = tjt.from_torch(torch.full((3,), 7, dtype=dtype))
            make(3, out=out)
            torch.testing.assert_close(tjt.to_torch(out), make(3, dtype=dtype))
            torch.logspace(0, 3, 3, out=out)
            torch.testing.assert_close(tjt.to_torch(out), torch.logspace(0, 3, 3, dtype=dtype))
    out = tjt.from_torch(torch.zeros(3))
    torch.linspace(0, 1, 3, out=out)
    assert tjt.to_torch(out).tolist() == [0.0, 0.5, 1.0]


A = torch.arange(1, 17, dtype=torch.float64).square().reshape(4, 4).cos()


def test_factors_that_a_derivative_keeps_fit_each_layout():
    """Torch saves the factors of the transpose for a matrix that lies in order in memory."""
    assert_same_as_torch(
        lambda a: [
            (torch.linalg.det(m), torch.linalg.slogdet(m), torch.linalg.solve(m, a[:, :2]))
            for m in (a, a.mT, a[:4, :4].clone().mT)
        ],
        A,
    )
    assert_same_as_torch(lambda a: torch.linalg.det(a[1:, 1:]), A)


def test_a_matrix_that_does_not_factorize_raises_torchs_error():
    singular = tjt.from_torch(torch.ones(3, 3))
    indefinite = tjt.from_torch(torch.diag(torch.tensor([1.0, 2, -1])))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(singular)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.solve(singular, singular)
    with pytest.raises(torch.linalg.LinAlgError, match="leading minor of order 3"):
        torch.linalg.cholesky(indefinite)
    assert tjt.to_torch(torch.linalg.cholesky_ex(indefinite).info).item() == 3
    structured = tjt.make(tj.Diagonal, tjt.from_torch(torch.tensor([1.0, 2, -1])))
    assert tjt.to_torch(torch.linalg.cholesky_ex(structured).info).item() == 1


def test_addmm_with_beta_zero_ignores_nan():
    nan = torch.full((2, 2), float("nan"), dtype=torch.float64)
    ones = torch.ones_like
    assert_same_as_torch(lambda a: torch.addmm(a * 1, ones(a), ones(a), beta=0), nan)
