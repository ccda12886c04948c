"""Views, indices and order give torch's numbers, and refuse what torch refuses."""

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp

from tanjax.bridges import torch as tjt
from torch_calls import assert_agree, ours

NAN = float("nan")
X = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4).sin()
TIES = torch.tensor([[2.0, NAN, 1.0, 2.0, 1.0], [3.0, 3.0, 3.0, 0.0, 0.0]], dtype=torch.float64)
ROWS = torch.tensor([2, 0, 2])
SPREAD = torch.tensor([[[0, 2, 1, 0], [1, 1, 2, 0]]])


def written(x):
    y = x.clone()
    y[:, 1:] = 2 * x[:, :2]
    y[0, ROWS if not isinstance(x, tjt.Tensor) else ours(ROWS)] = 3.0
    y[y > 0.9] = 0.0
    y.select(2, 1).add_(1.0)
    return y


def at(x, index):
    """An index of the same kind as a tensor."""
    return ours(index) if isinstance(x, tjt.Tensor) else index


SHAPES = {
    "views": lambda x: x.view(6, 4).t()[1:, ::2].unsqueeze(1).expand(3, 2, 3).movedim(0, 2),
    "split": lambda x: [*x.split(2, 2), *x.unbind(1), *torch.tensor_split(x, 3, 1)],
    "diagonal": lambda x: (x.diagonal(1, 1, 2), torch.diag_embed(x[0, 0])),
    "unfold": lambda x: x.unfold(2, 3, 1),
    "as_strided": lambda x: x.as_strided((3, 2), (2, 5), 1),
    "bits": lambda x: (x, x.detach().view(torch.int64).view(torch.int32)),
    "complex": lambda x: torch.view_as_real(
        torch.view_as_complex(x.reshape(2, 6, 2)).conj().resolve_conj()
    ),
    "joined": lambda x: (
        torch.cat([x, x[:, :1], at(x, torch.zeros(0, dtype=x.dtype))], 1),
        torch.stack([x, x.float()], 1),
    ),
    "turned": lambda x: x.flip(0, 2).roll((1, -2), (1, 2)).rot90(1, (1, 2)),
    "repeated": lambda x: (x.repeat(2, 1, 1, 2), x.repeat_interleave(2, 1)),
    "triangles": lambda x: (x.tril(1), x.triu(-1)),
    "constant_pad": lambda x: torch.nn.functional.pad(x, (1, -1, 2, 0), value=1.5),
    "reflect": lambda x: torch.nn.functional.pad(x, (1, 2), mode="reflect"),
    "replicate": lambda x: torch.nn.functional.pad(x, (3, 1), mode="replicate"),
    "written": written,
}
INDEXING = {
    "advanced": lambda x: (x[:, at(x, ROWS), 1:], x[at(x, ROWS) % 2, :, at(x, ROWS)]),
    "mask": lambda x: (
        x[x > 0],
        x.masked_fill(x > 0, 2.0),
        x[:, at(x, torch.tensor([1, 0, 1]) > 0)],
    ),
    "select": lambda x: (x.index_select(1, at(x, ROWS)), x.take(at(x, ROWS - 2))),
    "gather": lambda x: x.gather(1, at(x, SPREAD)),
    "scatter": lambda x: (
        x.scatter(1, at(x, SPREAD[:, :1]), x[:1, :1] * 2),
        x.scatter_add(1, at(x, SPREAD), x[:1, :2] * 3),
        x.scatter_reduce(1, at(x, SPREAD), x[:1, :2] * 3, "amax"),
        x.scatter_reduce(1, at(x, SPREAD), x[:1, :2] * 3, "mean", include_self=False),
    ),
    "index_put": lambda x: (
        x.index_put((at(x, ROWS % 2), at(x, ROWS)), x[0, 0, 0], accumulate=True),
        x.index_add(1, at(x, ROWS), x[:, :3], alpha=2),
        x.index_fill(1, at(x, ROWS), 7.0),
    ),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, 2 * x),
}
ORDER = {
    "sort": lambda x: (x.sort(1, descending=True), x.sort(stable=True), x.argsort(0)),
    # Which of equal ones is taken, torch leaves open: values only.
    "topk": lambda x: [y.detach() for y in (x.topk(2)[0], x.kthvalue(2, 1)[0], x.mode(1)[0])],
    "extremes": lambda x: (x.topk(2, 0, largest=False), x[1, 2:].mode()),
    "median": lambda x: (x.median(), x.median(1), x.nanmedian(1), x.nanmedian()),
    "running": lambda x: (x.cummax(1), x.cummin(0)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    assert_agree(SHAPES[name], X)


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name):
    assert_agree(INDEXING[name], X)


@pytest.mark.parametrize("name", ORDER)
def test_order_with_ties_and_nan(name):
    assert_agree(ORDER[name], TIES)


def test_found():
    assert_agree(
        lambda n, x: (
            x * 2,
            n.nonzero(),
            n.unique(return_inverse=True, return_counts=True),
            torch.unique_consecutive(n, return_counts=True),
            n.bincount(minlength=5),
            torch.searchsorted(x, x[1:] - 0.1, right=True),
            torch.bucketize(x, x),
            torch.histc(x, 3),
        ),
        torch.tensor([2, 0, 2, 2, 1]),
        torch.tensor([0.0, 0.5, 0.5, 2.0], dtype=torch.float64),
    )


OUTSIDE = {
    "index": (IndexError, lambda x: x[at(x, torch.tensor([3])), :]),
    "index_put": (IndexError, lambda x: x.index_put((at(x, torch.tensor([-4])),), x[0, 0])),
    "index_select": (
        (IndexError, RuntimeError),
        lambda x: x.index_select(1, at(x, torch.tensor([4]))),
    ),
    "gather": (RuntimeError, lambda x: x.gather(0, at(x, torch.tensor([[3, 0]])))),
    "scatter": (RuntimeError, lambda x: x.scatter(0, at(x, torch.tensor([[-1]])), 1.0)),
    "embedding": (
        IndexError,
        lambda x: torch.nn.functional.embedding(at(x, torch.tensor([5])), x),
    ),
    "take": (IndexError, lambda x: x.take(at(x, torch.tensor([12])))),
    "nll": (IndexError, lambda x: torch.nn.functional.nll_loss(x, at(x, torch.tensor([0, 4, 1])))),
    "select": (IndexError, lambda x: x.select(0, 3)),
    "dim": (IndexError, lambda x: x.unbind(2)),
    "view": (RuntimeError, lambda x: x.view(5, -1)),
    "cat": (RuntimeError, lambda x: torch.cat([x, x[:2]], 1)),
    "mm": (RuntimeError, lambda x: x @ x),
    "dtypes": (RuntimeError, lambda x: x @ x.float().mT),
    "mask": (IndexError, lambda x: x[at(x, torch.ones(2, 2, dtype=torch.bool))]),
    "values": (RuntimeError, lambda x: x.index_put((at(x, ROWS),), x[:2])),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_refuses_what_torch_refuses(name):
    error, call = OUTSIDE[name]
    x = X[0]
    with pytest.raises(error):
        call(x)
    with pytest.raises(error):
        call(ours(x))


def test_an_unknown_index_out_of_range_reads_nan():
    """Under a trace nobody knows the index; what is read there is no number of the array."""

    @jax.jit
    def read(x, index):
        return tjt.to_jax(tjt.from_jax(x)[tjt.from_jax(index)])

    out = read(jnp.arange(3.0), jnp.array([1, 3, -1]))
    assert jnp.array_equal(out, jnp.array([1.0, jnp.nan, 2.0]), equal_nan=True)


def test_a_shape_that_depends_on_values_is_refused_under_a_trace():
    with pytest.raises(Exception, match="shape"):
        jax.jit(lambda x: tjt.to_jax(tjt.from_jax(x).nonzero()))(jnp.arange(3.0))
