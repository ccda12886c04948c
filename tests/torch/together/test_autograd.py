"""Torch's autograd on our tensors against plain torch: orders, transformations, modes, hooks."""

import pytest

torch = pytest.importorskip("torch")

import torch.autograd.forward_ad as fwad
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tanjax.bridges import torch as tjt
from torch_comparison import alike

# Torch compiles its formulas for forward mode with a tool that it has deprecated.
# Its formula for `prod` makes ones of its own, which are lifted.
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::tanjax_torch.LiftWarning"),
]

DATA = torch.linspace(-1.3, 1.7, 12, dtype=torch.float64).reshape(3, 4).sin() + 0.1
KERNEL = torch.tensor([[[0.3, -0.7]]], dtype=torch.float64)


def constant(like, values):
    """A constant of the same kind as an input."""
    while torch._C._functorch.is_functorch_wrapped_tensor(like):
        like = torch._C._functorch.get_unwrapped(like)
    return alike(like, values)


def spd(x):
    return x @ x.mT + constant(x, torch.eye(3, dtype=torch.float64))


def written(x):
    y = x.clone()
    y[1:].mul_(x[:2])
    y[:, 0] = x[:, 1] ** 2
    return y.exp_()


FUNCTIONS = {
    "quotient": lambda x: (x * 2 - 1) / (x * x + 2),
    "power": lambda x: (x.abs() + 0.5) ** 1.7,
    "gelu": F.gelu,
    "softmax": lambda x: x.softmax(-1),
    "var": lambda x: x.var(1),
    "prod": lambda x: x.prod(1),
    "where": lambda x: torch.where(x > 0.2, x * x, x.exp()),
    "einsum": lambda x: torch.einsum("ij,ik->jk", x, x * x),
    "solve": lambda x: torch.linalg.solve(spd(x), x),
    "cholesky": lambda x: torch.linalg.cholesky(spd(x)),
    "slogdet": lambda x: torch.linalg.slogdet(spd(x))[1],
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "conv1d": lambda x: F.conv1d(x[:, None], constant(x, KERNEL), padding=1) ** 2,
    "index": lambda x: x[[0, 2, 0]].flip(0) * x,
    "written": written,
}
every = pytest.mark.parametrize("name", FUNCTIONS)


def ours(requires_grad=False):
    return tjt.from_torch(DATA).requires_grad_(requires_grad)


def assert_same(a, b):
    torch.testing.assert_close(tjt.to_torch(a.detach()), b.detach(), rtol=1e-9, atol=1e-11)


def on_plain(f):
    """A function of ours between plain tensors: the only ones that `gradcheck` perturbs."""
    return lambda x: tjt.to_torch(f(tjt.from_torch(x)))


@every
def test_gradients_of_second_order_agree_with_differences(name):
    f, x = on_plain(FUNCTIONS[name]), DATA.clone().requires_grad_()
    assert torch.autograd.gradcheck(f, (x,), fast_mode=True)
    assert torch.autograd.gradgradcheck(f, (x,), fast_mode=True)


def scalar(f):
    return lambda x: (f(x) * 1.5).sin().sum()


def tangent_of(f):
    def tangent(x):
        with fwad.dual_level():
            return fwad.unpack_dual(f(fwad.make_dual(x, x))).tangent

    return tangent


TRANSFORMS = {
    "grad": lambda f: torch.func.grad(scalar(f)),
    "vmap": lambda f: lambda x: torch.func.vmap(f)(torch.stack([x, 2 * x])),
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (x.cos(),))[1],
    "jacrev": torch.func.jacrev,
    "hessian": lambda f: torch.func.hessian(scalar(f)),
    "tangent": tangent_of,
}


@every
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transformations_of_torch_func_are_torchs(name, transform):
    f = transform(FUNCTIONS[name])
    found = f(ours())
    assert isinstance(found, tjt.Tensor)
    assert_same(found, f(DATA))


def model(w, x):
    return torch.log_softmax((x @ w).tanh() @ w.mT, -1)


def both():
    """Weights and data on plain torch, and on ours."""
    worlds = torch.clone, tjt.from_torch
    return [(world(DATA.mT).requires_grad_(), world(DATA)) for world in worlds]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_give_the_same_gradient(reentrant):
    grads = []
    for w, x in both():
        x = x.clone().requires_grad_()
        checkpoint(model, w, x, use_reentrant=reentrant).square().sum().backward()
        grads += [w.grad, x.grad]
    assert_same(grads[2], grads[0])
    assert_same(grads[3], grads[1])


def test_hooks_on_leaves_and_on_results():
    def seen_by_hooks(w, x):
        seen = []
        w.register_hook(lambda g: 2 * g)
        w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.detach().clone()))
        y = x @ w
        y.register_hook(lambda g: seen.append(g.detach().clone()))
        y.retain_grad()
        (y * y).sum().backward()
        return [*seen, w.grad, y.grad]

    plain, ours = both()
    for expected, found in zip(seen_by_hooks(*plain), seen_by_hooks(*ours), strict=True):
        assert_same(found, expected)


def test_gradients_accumulate_and_graphs_are_kept_on_request():
    found = []
    for w, x in both():
        unused = w.clone().detach().requires_grad_()
        loss = model(w, x).square().sum()
        loss.backward(retain_graph=True)
        (g,) = torch.autograd.grad(loss, w, create_graph=True)
        second, nothing = torch.autograd.grad(
            g.square().sum(), (w, unused), allow_unused=True, retain_graph=True
        )
        assert nothing is None
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
        found.append((w.grad.clone(), second))
        w.grad.zero_()
        assert not w.grad.any()
    for mine, theirs in zip(*reversed(found), strict=True):
        assert_same(mine, theirs)


def test_modes_without_gradients_record_nothing():
    w, x = both()[1]
    with torch.no_grad():
        y = w * 2
        w.mul_(1.0)  # a leaf may be written here
    assert not y.requires_grad
    assert (w * 2).requires_grad
    with pytest.raises(RuntimeError, match="leaf"):
        w.mul_(2)
    with torch.enable_grad(), torch.set_grad_enabled(False):
        assert not (w * 2).requires_grad
    with torch.inference_mode():
        y = x @ w
        z = y.mul_(2)[0]
        assert y.is_inference()
        assert not y.requires_grad
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        w[:3] * y
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        z.add_(1)


def test_a_tensor_changed_after_it_was_saved_is_refused():
    for x in (DATA, ours()):
        x = x.clone().requires_grad_()
        y = x.exp()
        z = y * y
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_anomalies_are_named():
    x = ours(requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        y = (x * 0).sqrt() * 0
        with (
            pytest.warns(UserWarning, match="Error detected in SqrtBackward0"),
            pytest.raises(RuntimeError, match="returned nan values"),
        ):
            y.sum().backward()


def test_functional_interface():
    for name in ("jacobian", "hessian"):
        f = FUNCTIONS["gelu"] if name == "jacobian" else scalar(FUNCTIONS["softmax"])
        transform = getattr(torch.autograd.functional, name)
        assert_same(transform(f, ours()), transform(f, DATA))
