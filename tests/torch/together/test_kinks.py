"""Gradients by JAX at zeros and ties, where many functions have a kink: they are torch's.

Torch differentiates an operation by a formula of its own, `jax.grad` the entry behind it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils import _pytree as pytree

import torch_opinfo as opinfo
from tanjax.bridges import torch as tjt
from tanjax.units import m

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
PARTS = 10
PLACES = {"zeros": torch.zeros_like, "few values": lambda t: t.round().clamp(-2, 2)}
# Torch picks another one of equal entries, or of equal singular vectors.
FREE = {*opinfo.TIES, "cummax", "cummin", "max", "min", "norm", "linalg.norm", "linalg.svd", "svd"}
FREE |= {"msort", "index_reduce", "scatter_reduce", "nn.functional.embedding_bag"}
SMOOTH_IN_LINALG = {"linalg.det", "linalg.vector_norm"}  # factorisations have no derivative there
# Of bounds that are equal, torch gives a derivative to none; numbers that are written over have one
# there. At its margin the loss has the derivative of `clamp`, and another one in torch's formula.
FREE |= {"clamp", "as_strided_scatter", "nn.functional.multi_margin_loss"}
FREE |= {f"nn.functional.max_unpool{n}d" for n in (1, 2, 3)} | {"digamma"}  # finite at a pole
REFUSED = {"nextafter", "ormqr", "rrelu", "bernoulli", "svd_lowrank", "pca_lowrank", "batch_norm"}
REFUSED |= {"_batch_norm_with_update", "instance_norm", "gather", "index_reduce", "scatter_reduce"}
"""Parts of the names of operations that refuse: random numbers, statistics that are constants."""


def floating(tree):
    """The tensors among results that NumPy has."""
    found = [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]
    return [t for t in found if t.dtype in (torch.float32, torch.float64)]


def call_at(op, sample, place):
    """The operation as a function of its smooth inputs, and these inputs."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    moving = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.requires_grad]

    def call(*inputs):
        full = [x.detach() if isinstance(x, torch.Tensor) else x for x in leaves]
        for i, x in zip(moving, inputs, strict=True):
            full[i] = x
        first, args, kwargs = pytree.tree_unflatten(full, spec)
        return floating(op.gradcheck_wrapper(op.op, first, *args, **kwargs))

    return call, [place(leaves[i].detach()) for i in moving]


def gradients_of_torch(call, inputs):
    """Weights of the results, and gradients of the weighed sum."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    generator = torch.Generator().manual_seed(0)
    outs = call(*inputs)
    weights = [torch.randn(o.shape, dtype=o.dtype, generator=generator) for o in outs]
    smooth = [(o, w) for o, w in zip(outs, weights, strict=True) if o.requires_grad]
    ends, bars = zip(*smooth, strict=True)
    found = torch.autograd.grad(ends, inputs, bars, allow_unused=True)
    weights = [w * o.requires_grad for o, w in zip(outs, weights, strict=True)]
    zeros = zip(inputs, found, strict=True)
    return weights, [torch.zeros_like(x) if g is None else g for x, g in zeros]


def gradients_of_jax(call, inputs, weights):
    _, f = tjt.as_jax(call)
    pullback = jax.vjp(lambda *x: f({}, *x), *[jnp.asarray(x.numpy()) for x in inputs])[1]
    return pullback([jnp.asarray(w.numpy()) for w in weights])


def is_wrong(mine, theirs):
    """Whether a gradient differs where torch's is finite."""
    theirs = theirs.numpy(force=True)
    finite = np.isfinite(theirs)
    return not np.allclose(np.asarray(mine)[finite], theirs[finite], 1e-7, 1e-9)


def answers(op, sample):
    """For each place: its name and whether gradients by JAX are wrong there."""
    for name, place in PLACES.items():
        call, inputs = call_at(op, sample, place)
        try:
            weights, theirs = gradients_of_torch(call, inputs)
        except Exception:  # torch has no value, or no gradient
            continue
        try:
            mine = gradients_of_jax(call, inputs, weights)
        except (RuntimeError, NotImplementedError):
            if not any(part in op.name for part in REFUSED):
                raise
            continue
        yield name, any(map(is_wrong, mine, theirs))


@pytest.mark.parametrize("part", range(PARTS))
def test_gradients_by_jax_are_torchs_at_zeros_and_ties(part):
    found = []
    known = [op for op in opinfo.database() if torch.float64 in op.dtypes and op.supports_autograd]
    for op in known[part::PARTS]:
        factorised = op.name.startswith("linalg.") and op.name not in SMOOTH_IN_LINALG
        if factorised or op.name in FREE or any(name in op.name for name in opinfo.UNSERVED):
            continue
        plainly = lambda first, args, kwargs, op=op: op.op(first, *args, **kwargs)
        for sample in opinfo.spread(4)(opinfo.samples_of(op, torch.float64, True, 0)):
            if opinfo.comparable(op, plainly, sample):
                found += [(op.name, op.variant_test_name, *a) for a in answers(op, sample)]
    assert [case for case in found if case[-1]] == []
    assert len(found) > 150


def test_gradients_of_quantities_are_finite_at_kinks():
    """They are JAX's of the same entries: in eager code, too."""
    x = tjt.from_jax(jnp.array([0.0, 0.0, 2.0, -3.0]) * m, requires_grad=True)
    for loss, expected in (
        (lambda x: x.abs().sum(), [0.0, 0.0, 1.0, -1.0]),
        (lambda x: torch.cdist(x[:, None], x[:, None]).sum(), [0.0, 0.0, 6.0, -6.0]),
        (lambda x: torch.stack([x[:2], x[1:3]]).norm(dim=1).sum(), [0.0, 0.0, 1.0, 0.0]),
        (lambda x: x[:2].std(), [0.0] * 4),
    ):
        x.grad = None
        loss(x).backward()
        np.testing.assert_allclose(x.grad.payload, expected, atol=1e-12)


def test_second_derivatives_are_finite_at_zeros():
    """Of sizes, norms and distances, where the first derivative is 0."""
    for f in (
        lambda x: (x.abs() ** 2).sum(),
        lambda x: x.norm(3) ** 3,
        lambda x: torch.cdist(x[:, None], x[:, None]).square().sum(),
    ):
        second = jax.hessian(tjt.as_jax(f)[1], 1)({}, jnp.array([0.0, 0.0, 1.0]))
        assert np.isfinite(second).all()


@pytest.mark.parametrize("name", ["median", "nanmedian", "amax"])
@pytest.mark.parametrize(
    "numbers", [[1.0, 1.0, 1.0, 4.0], [2.0, 3.0, 3.0], [-1.0], [float("-inf"), 2.0, 2.0]]
)
def test_equal_entries_share_the_gradient_of_a_value(name, numbers):
    """With an index beside the value, torch gives all of it to the entry at the index."""
    call = lambda x: [getattr(x, name)()]
    inputs = [torch.tensor(numbers)]
    weights, theirs = gradients_of_torch(call, inputs)
    mine = gradients_of_jax(call, inputs, weights)
    np.testing.assert_allclose(np.asarray(mine[0]), theirs[0].numpy())
    assert float(tjt.as_jax(call)[1]({}, jnp.array(numbers))[0]) == float(call(inputs[0])[0])
